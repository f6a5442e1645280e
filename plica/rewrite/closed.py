"""Closed terms: expressions that depend on no variable, and so are constants that await folding.

A rule that moves constants into weights creates products of constants; the next rule must see these
as constants before they are computed.

>>> from plica.ir.graph.expression import const
>>> weight = const([1.0, 2.0], "f32") * const(3.0, "f32")
>>> is_closed(weight), value_of(weight)
(True, array([3., 6.], dtype=float32))
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from plica.core import EvaluationError, Memo, Term, free_vars
from plica.core.deferred import look_at, unobserved
from plica.ir.graph.expression import Apply, Const, Expr, Literal
from plica.ir.graph.provenance import answered, leaves_of
from plica.rewrite.pattern import hole
from plica.runtime.late import lazy_imports

with lazy_imports(__name__):
    from plica.ir.interpret.graph_machine import computed


def is_closed(value: object) -> bool:
    """Whether a value is an expression that depends on nothing outside of it."""
    return isinstance(value, Const) or (
        isinstance(value, Apply) and not free_vars(value)  # a call might not come to an end
    )


def closed(name: str, **demands: Any) -> Any:
    """A hole that matches closed terms only. Any: a hole can stand for any term."""
    return hole(name, when=is_closed, **demands)


def is_varying(value: object) -> bool:
    """Whether a value is an expression that is not closed."""
    return isinstance(value, Expr) and not is_closed(value)


def varying(name: str, **demands: Any) -> Any:
    """A hole that no closed term fills, or rules that join constants could turn in circles.

    Any: a hole can stand for any term.
    """
    return hole(name, when=is_varying, **demands)


def value_of(term: Expr) -> np.ndarray[Any, Any] | None:
    """The array of a closed term, or None if its evaluation fails or might not end."""
    if isinstance(term, Const):
        return term.numpy()
    if not is_closed(term):
        return None
    look_at(leaves_of(term))
    with unobserved():
        return _computed(term)


def unseen(term: Expr) -> np.ndarray[Any, Any] | None:
    """The array of a closed term whose shape is inspected first."""
    with unobserved():
        array = value_of(term)
    if array is None:
        look_at(leaves_of(term))
    return array


def are_bytes(term: Expr) -> bool:
    """Whether a closed term contains only signed bytes."""
    array = unseen(term)
    return array is not None and (not array.size or answered("are-bytes", (term,), value_of))


def are_finite(*factors: Expr) -> bool:
    """Whether closed terms are finite, and the products of their elements would be, too."""
    return answered("are-finite", factors, value_of)


def value_anew(term: Expr) -> np.ndarray[Any, Any] | None:
    """The same for large arrays: the result is not cached."""
    if isinstance(term, Const):
        return term.numpy()
    look_at(leaves_of(term))  # parts that were asked about before are not read again
    if (asked := _asked_before(term)) is None:
        return None
    try:
        value = computed(term, asked)
    except EvaluationError:
        return None
    return value if isinstance(value, np.ndarray) else None


def _computed(term: Expr) -> np.ndarray[Any, Any] | None:
    return _VALUES.found(term, lambda: value_anew(term))


def _asked_before(term: Expr) -> dict[Expr, np.ndarray[Any, Any]] | None:
    """The parts of a term with known values, so that a growing product is not recomputed from its
    first factor; None if some parts are no operators."""
    known: dict[Expr, np.ndarray[Any, Any]] = {}
    stack: list[Term] = [term]
    seen: set[Term] = {term}
    while stack:
        node = stack.pop()
        if isinstance(node, Apply) and (value := _VALUES.get(node)) is not None:
            known[node] = value
            continue
        if isinstance(node, Expr) and not isinstance(node, Apply | Const | Literal):
            return None
        fresh = [child for child in node._children if child not in seen]
        seen.update(fresh)
        stack += fresh
    return known


_VALUES: Final[Memo[Expr, np.ndarray[Any, Any] | None]] = Memo(512)
