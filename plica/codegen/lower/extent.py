"""Extents: sizes that are asked for as values come from the inputs, which are there anyway.

The size of a value is known from its type; where that is open, it is a term over dims, each of
which stands alone on some axis of some input.  So no value is computed for its size alone.

    before:  size(tanh(x), axis=0)          x: Tensor[("n", 4), f32]
    after:   size(x, axis=0)
"""

from __future__ import annotations

from typing import Final

import attrs

from plica.core import Term, map_bottom_up
from plica.ir.graph.expression import Apply, Expr, Function, Project, Var, const
from plica.ir.loop.scalar import Add, FloorDiv, FloorMod, Lit, Max, Min, Mul, Scalar, ScalarVar, Sub
from plica.ir.op.relation import axes_of
from plica.ir.type import TensorType, TupleType, i64, known, product, type_of

_WORDS: Final[dict[type, str]] = {
    Add: "add",
    Sub: "subtract",
    Mul: "multiply",
    FloorDiv: "floor_divide",
    FloorMod: "mod",
    Min: "minimum",
    Max: "maximum",
}


def extents_of_inputs(of: Function) -> Function:
    """The function with sizes asked of its parameters only."""
    if not (where := _places(of)):
        return of

    def change(node: Term) -> Term:
        if not isinstance(node, Apply) or node.op != "size" or isinstance(node.args[0], Var):
            return node
        shape = type_of(node.args[0])
        assert isinstance(shape, TensorType)
        axes = axes_of("size", dict(node.attrs)["axis"], len(shape.shape))
        whole = product([shape.shape[axis] for axis in axes])
        return node if known(whole) is not None else _value(whole, where) or node

    body = map_bottom_up(change, of.body)
    return of if body is of.body else attrs.evolve(of, body=body)


def _places(of: Function) -> dict[ScalarVar, Expr]:
    """For each dim a value that is it: the size of an axis of an input."""
    found: dict[ScalarVar, Expr] = {}
    stack: list[Expr] = list(reversed(of.params))
    while stack:
        each = stack.pop()
        if isinstance(kind := type_of(each), TupleType):
            stack += [Project(each, at) for at in reversed(range(len(kind.items)))]
        elif isinstance(kind, TensorType):
            for axis, size in enumerate(kind.shape):
                if isinstance(size, ScalarVar):
                    found.setdefault(size, Apply("size", (each,), (("axis", (axis,)),)))
    return found


def _value(of: Scalar, where: dict[ScalarVar, Expr]) -> Expr | None:
    """A dim as a value, None where some part of it is no size of an input; dims are small."""
    match of:
        case Lit(value, _):
            return const(int(value), i64)
        case ScalarVar():
            return where.get(of)
        case Add(left, right) | Sub(left, right) | Mul(left, right) | FloorDiv(left, right):
            pass
        case FloorMod(left, right) | Min(left, right) | Max(left, right):
            pass
        case _:
            return None
    one, two = _value(left, where), _value(right, where)
    return None if one is None or two is None else Apply(_WORDS[type(of)], (one, two))
