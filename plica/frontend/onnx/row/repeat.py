"""Repetition: a function that calls itself as long as something holds, the language's own loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from plica.core.binding import free_vars
from plica.core.name import Name
from plica.frontend.onnx.node import OnnxNode, Region, measuring
from plica.frontend.onnx.row.word import dtype, rank, shape
from plica.frontend.onnx.run_time import amount, matched
from plica.frontend.onnx.value import TensorValue
from plica.ir.graph.expression import Call, Expr, Function, If, Let, Project, Tuple, Var, const
from plica.ir.loop.scalar import Scalar
from plica.ir.op.comparison import equal
from plica.ir.op.create import full, iota
from plica.ir.op.index import where
from plica.ir.op.relation import Shape
from plica.ir.op.shape import expand_dims
from plica.ir.type.dim import known, normal_dim
from plica.ir.type.dtype import i64
from plica.ir.type.infer import same_type, type_of
from plica.ir.type.term import FuncType, TupleType, static_shape


def repeated(
    node: OnnxNode,
    start: Sequence[Expr],
    test: Callable[..., Expr],
    turn: Callable[..., Sequence[Expr]],
    region: Region | None = None,
) -> list[Expr]:
    """What is carried once `test` no longer holds; `turn` gives what is carried next.

    The sizes of a `region` are measured in each turn; `turn` may add to them.
    """
    types = tuple([type_of(each) for each in start])
    params = [Var(Name(node.fresh("loop")), of) for of in types]
    result = TupleType(types)
    itself = Var(Name(node.fresh("loop")), FuncType((), (), types, result))
    again = Call(itself, tuple(turn(*params)))
    body = If(test(*params), measuring(region or {}, again), Tuple(tuple(params)))
    whole = Let(itself, Function((), (), tuple(params), result, body), Call(itself, tuple(start)))
    return [Project(whole, at) for at in range(len(start))]


def carried(node: OnnxNode, before: Expr, after: Expr) -> Expr:
    """What a loop carries on: its sizes are those it had before."""
    if same_type(type_of(before), type_of(after)):
        return after
    fits = dtype(before) is dtype(after) and rank(before) == rank(after)
    pairs = zip(shape(before), shape(after), strict=True) if fits else ()
    if not fits or any(known(normal_dim(a - b)) not in (None, 0) for a, b in pairs):
        message = "A loop changes the type of what it carries."
        node.unsupported(message, str(type_of(before)), str(type_of(after)))
    return matched(after, shape(before))


def collecting(  # noqa: PLR0917  # a loop is made of this
    node: OnnxNode,
    start: list[Expr],
    test: Callable[..., Expr],
    turn_of: Callable[..., tuple[list[Expr], list[Expr]]],
    region: Region,
    rows: Scalar,
) -> list[Expr]:
    """A loop that writes what each turn gives into a row: state, then the rows."""
    items = turn_of(*start)[1]  # what the first turn would give says what all do
    first = dict(region)
    region.clear()
    wide = len(start)
    empty, forms = [], list[Shape]()
    for number, each in enumerate(items):
        of = dtype(each)
        zero = False if of.name == "bool" else 0.0 if of.is_float else 0
        sizes: list[Scalar] = []
        for at, size in enumerate(shape(each)):
            if {*first.values()}.isdisjoint(free_vars(size)):
                sizes.append(size)
                continue
            told = If(test(*start), measuring(first, amount(size)), const(0, i64))
            sizes.append(node.measured(told, f"item_{number}_{at}"))
        forms.append(tuple(sizes))
        empty.append(full(shape=(rows, *sizes), value=zero, dtype=of))

    def turn(*held: Expr) -> list[Expr]:
        after, rows_ = turn_of(*held[:wide])
        kept = [
            where(
                equal(iota(shape=(rows, *[1] * len(forms[at])), dtype=i64), held[0]),
                expand_dims(matched(row, forms[at]), (0,)),
                all_,
            )
            for at, (row, all_) in enumerate(zip(rows_, held[wide:], strict=True))
        ]
        return [*after, *kept]

    return repeated(node, [*start, *empty], test, turn, region)


def no_rows(node: OnnxNode, item: TensorValue, axis: int) -> Expr:
    """What stacking no items gives: the item that is not made says the other sizes."""
    if (sizes := static_shape(item.type)) is None:
        node.unsupported("A loop without turns gives tensors of unknown shape.")
    whole = (*sizes[:axis], 0, *sizes[axis:])
    return const(np.zeros(whole, item.type.dtype.numpy), item.type.dtype)
