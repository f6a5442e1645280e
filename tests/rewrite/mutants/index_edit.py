"""Mistakes in rules of index terms: another operator, a number one off, a guard that is lost.

>>> from plica.analysis.index.rules import DIVISIONS
>>> [what for _, what, _ in index_edits(next(r for r in DIVISIONS if r.name == "div-one"))]
['right side +1', 'right side -1']
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from plica.analysis.index.rules import RuleGuard, given
from plica.core import Term, post_order
from plica.ir.loop import Le, Lit, Lt, Scalar, dtype_of, index
from plica.ir.loop.scalar import Add, Eq, FloorDiv, FloorMod, Max, Min, Mul, Ne, Sub
from plica.ir.type import bool_
from plica.rewrite.instantiate import right_side
from plica.rewrite.mutate.mutant import replaced, spoilt
from plica.rewrite.rule import Rule

TWINS: Final[dict[type[Scalar], type[Scalar]]] = {
    Add: Sub, Sub: Add, Mul: Add, FloorDiv: FloorMod, FloorMod: FloorDiv, Min: Max, Max: Min,
    Eq: Ne, Ne: Eq,
}  # fmt: skip
STRICT: Final[dict[type[Scalar], type[Scalar]]] = {Lt: Le, Le: Lt}


def index_edits(base: Rule) -> Iterator[tuple[str, str, Rule]]:
    """Kind, name and rule of the mistakes that fit."""
    right = base.right
    if not isinstance(right, Scalar):
        return
    for node in post_order(right):
        for kind, table in (("operator", TWINS), ("boundary", STRICT)):
            other = table.get(type(node))  # type: ignore[arg-type]  # other terms are in no table
            if other is not None:
                made = _replaced(right, node, other(*node._children))
                word = f"{type(node).__name__} becomes {other.__name__}"
                yield kind, word, _right(base, made)
        if isinstance(node, Lit) and node.dtype is not bool_ and node is not right:
            made = _replaced(right, node, index(int(node.value) + 1))
            yield "boundary", f"{node.value} becomes {int(node.value) + 1}", _right(base, made)
    if dtype_of(right) is not bool_:
        yield "boundary", "right side +1", _right(base, Add(right, index(1)))
        yield "boundary", "right side -1", _right(base, Sub(right, index(1)))
    if isinstance(base.when, RuleGuard):
        yield "guard", "no guard", spoilt(base, when=None)
        condition = base.when.condition
        for node in post_order(condition):
            other = STRICT.get(type(node))  # type: ignore[arg-type]  # a comparison
            if other is Le:
                loose = _replaced(condition, node, Le(*node._children))  # type: ignore[arg-type]  # a comparison
                yield "boundary", "guard not strict", spoilt(base, when=given(loose))


def _right(base: Rule, right: Term) -> Rule:
    return spoilt(base, right=right, build=right_side(base.left, right))


def _replaced(term: Term, old: Term, new: Term) -> Scalar:
    made = replaced(term, old, new)
    assert isinstance(made, Scalar)
    return made
