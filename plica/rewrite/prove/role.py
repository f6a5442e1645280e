"""Roles: every part of a right side is what its place takes, a tensor or a setting of some kind.

The prover reads settings as unknowns without a type: a hole in the wrong place would mean something
to it, although no such term can be built.

>>> from plica.ir.op import find
>>> from plica.rewrite.pattern import holes
>>> x, a = holes("x a")
>>> check_roles(find("flip")(x, a), find("flip")(x, x))
Traceback (most recent call last):
plica.rewrite.prove.open_tensor.Unprovable: axis of flip is x, which is another kind of thing
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final, TypeAlias, get_args, get_type_hints

from plica.core import Term, post_order
from plica.ir.graph.expression import Apply, Const, Expr
from plica.ir.graph.operator import find
from plica.ir.op.attribute import Reader, dims
from plica.rewrite.packs.shape import is_explicit
from plica.rewrite.pattern import Derived, Hole, TermFunction
from plica.rewrite.prove.open_tensor import Unprovable

Kind: TypeAlias = tuple[Any, ...]  # Any: what a reader of settings was made with
TENSOR: Final[Kind] = ("tensor",)
CONSTANT: Final[Kind] = ("constant",)


def check_roles(left: Term, right: Term) -> None:
    """Refuses sides with a part that is not of the kind that its place takes."""
    known: dict[str, set[Kind]] = {}
    for _, part, kind in _places(left):
        if isinstance(part, Hole):
            known.setdefault(part.name, set()).add(kind)
            if part.constraint.constant:
                known[part.name].add(CONSTANT)
            if part.constraint.when is is_explicit:
                known[part.name].add(_kind(dims))
    for place, part, kind in _places(right):
        if isinstance(part, Hole):
            fits = kind in known.get(part.name, ())
            name = part.name
        elif isinstance(part, Derived):
            fits = _is_tensor(_hints(part.function)[-1]) in (None, kind is TENSOR)
            name = part.function.name
        else:
            continue
        if not fits:
            raise Unprovable(f"{place} is {name}, which is another kind of thing")
    for node in post_order(right):
        if isinstance(node, Derived):
            _check_arguments(node, known)


def _check_arguments(node: Derived, known: dict[str, set[Kind]]) -> None:
    """A function takes tensors, constants among them, where its parameters say so."""
    *hints, _ = _hints(node.function)
    for at, arg in enumerate(node.args):
        hint = hints[min(at, len(hints) - 1)]  # the last one is that of `*rest`
        is_tensor: bool | None = isinstance(arg, Expr)
        if isinstance(arg, Hole):
            kinds = known.get(arg.name, set())
            is_tensor = TENSOR in kinds
            if hint is Const and CONSTANT not in kinds:
                raise Unprovable(f"{node.function.name} takes constants, {arg.name} may be none")
        elif isinstance(arg, Derived):
            is_tensor = _is_tensor(_hints(arg.function)[-1])
        if None not in (is_tensor, wanted := _is_tensor(hint)) and is_tensor != wanted:
            raise Unprovable(f"{node.function.name} takes other arguments")


def _places(side: Term) -> Iterator[tuple[str, Any, Kind]]:  # Any: a term, or a setting
    """Operands and settings in a side: where they are, what is there, and what kind is taken."""
    yield "the right side", side, TENSOR
    for node in post_order(side):
        if isinstance(node, Apply):
            record = find(node.op)
            assert record is not None
            readers = {attribute.name: attribute.read for attribute in record.attributes}
            yield from ((f"an operand of {node.op}", arg, TENSOR) for arg in node.args)
            for name, value in node.attrs:
                yield f"{name} of {node.op}", value, _kind(readers[name])
        elif not isinstance(node, Derived):
            yield from (("a part", kid, TENSOR) for kid in node._children)


def _kind(read: Reader) -> Kind:
    """Two readers of one kind are the same code, made with the same readers and words."""
    made_with = [cell.cell_contents for cell in read.__closure__ or ()]
    return (read.__qualname__, *(_kind(it) if callable(it) else it for it in made_with))


@lru_cache(maxsize=256)
def _hints(function: TermFunction) -> list[Any]:  # Any: annotations
    """What the parameters of a function and its result are declared to be."""
    hints = get_type_hints(function.compute)
    return [hints[name] for name in (*inspect.signature(function.compute).parameters, "return")]


def _is_tensor(hint: Any) -> bool | None:
    """Whether an annotation is that of a term, None where it may be."""
    options = get_args(hint) or (hint,)
    terms = [isinstance(it, type) and (issubclass(it, Expr) or it is Term) for it in options]
    return None if hint is Any or any(terms) != all(terms) else all(terms)
