"""Repetition: a function that calls itself while a condition holds, the language's loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

from plica.core.binding import free_vars
from plica.core.name import Name
from plica.frontend.measured import Region, amount, matched, measuring
from plica.frontend.onnx.node import OnnxNode
from plica.frontend.onnx.row.word import dtype, rank, shape
from plica.frontend.onnx.value import AnyRankValue, TensorValue
from plica.frontend.recurrence import with_row
from plica.ir.graph.expression import Call, Expr, Function, If, Let, Project, Tuple, Var, const
from plica.ir.loop.scalar import Scalar, ScalarVar, index
from plica.ir.op.namespace import op
from plica.ir.op.relation import Shape
from plica.ir.type.dim import known, normal_dim, same_dim
from plica.ir.type.dtype import DType, i64
from plica.ir.type.infer import same_type, type_of
from plica.ir.type.term import FuncType, TensorType, TupleType, Type, tensor

ChangingSize: TypeAlias = tuple[int, int]
"""One of the values that a loop carries, and an axis of it whose size a turn may change."""

MOST_TURNS: Final = 4096
"""The maximum iterations that are unrolled, and batch size of the oldest scans."""


def of_known_ranks(node: OnnxNode, found: list[TensorValue]) -> list[TensorValue]:
    """A body's results in a loop of unknown length, which must keep their ranks."""
    for each in found:
        if isinstance(each, AnyRankValue):
            message = "A turn gives a tensor whose number of axes is only known when it runs."
            node.unsupported(message, "one number of axes", each.word)
    return found


def repeated(  # noqa: PLR0917  # a loop is made of this
    node: OnnxNode,
    start: Sequence[Expr],
    test: Callable[..., Expr],
    turn: Callable[..., Sequence[Expr]],
    region: Region | None = None,
    changing: Sequence[ChangingSize] = (),
) -> list[Expr]:
    """The carried values once `test` fails; `turn` returns the next ones.

    The sizes of a `region` are measured in each turn; `turn` may add to them.  A size that is
    `changing` is carried as a number, too, of which each turn, and who reads the end, makes a dim.
    """
    types = tuple([type_of(expr) for expr in start])
    inside, after = (
        {each: node.reading.new_dim("changing") for each in changing} for _ in range(2)
    )
    params = [Var(Name(node.reading.fresh("loop")), of) for of in _with_sizes(types, inside)]
    numbers = [Var(Name(node.reading.fresh("loop")), TensorType((), i64)) for _ in changing]
    taken = tuple([type_of(var) for var in (*params, *numbers)])
    result = TupleType((*_with_sizes(types, after), *taken[len(params) :]))
    dims = tuple(inside.values())
    itself = Var(Name(node.reading.fresh("loop")), FuncType(dims, (), taken, result))
    exprs = tuple(turn(*params))
    again = measuring(region or {}, Call(itself, (*exprs, *_sizes_of(exprs, changing))))
    again = measuring(dict(zip(numbers, dims, strict=True)), again)
    last = [matched(e, _shape_of(of)) for e, of in zip(params, result.items, strict=False)]
    end = measuring(dict(zip(numbers, after.values(), strict=True)), Tuple((*last, *numbers)))
    body = If(test(*params), again, end)
    first = Call(itself, (*start, *_sizes_of(start, changing)))
    loop = Function(dims, (), (*params, *numbers), result, body, (("inline", False),))
    whole = Let(itself, loop, first)
    for at, dim in enumerate(after.values(), len(params)):
        node.reading.bind_dim(dim, Project(whole, at))
    return [Project(whole, at) for at in range(len(start))]


def _with_sizes(types: Sequence[Type], dims: Mapping[ChangingSize, ScalarVar]) -> list[Type]:
    """Types in which some sizes are separate dims."""
    return [
        tensor([dims.get((at, axis), size) for axis, size in enumerate(of.shape)], of.dtype)
        if isinstance(of, TensorType)
        else of
        for at, of in enumerate(types)
    ]


def _shape_of(of: Type) -> Shape:
    assert isinstance(of, TensorType)
    return of.shape


def _sizes_of(values: Sequence[Expr], changing: Sequence[ChangingSize]) -> list[Expr]:
    return [amount(shape(values[at])[axis]) for at, axis in changing]


def changing_sizes(
    node: OnnxNode, state: Sequence[Expr], turn: Callable[..., Sequence[Expr]]
) -> list[ChangingSize]:
    """The carried sizes that are not shown to be invariant.

    A changing size may change others, so this is iterated to a fixed point.
    """
    types = [type_of(expr) for expr in state]
    found: dict[ChangingSize, ScalarVar] = {}
    while True:
        held = [Var(Name(node.reading.fresh("loop")), of) for of in _with_sizes(types, found)]
        pairs = zip(held, turn(*held), strict=True)
        more = [
            (at, axis)
            for at, (before, after) in enumerate(pairs)
            for axis in _moved(node, before, after)
            if (at, axis) not in found
        ]
        if not more:
            return sorted(found)
        found |= {each: node.reading.new_dim("changing") for each in more}


def _moved(node: OnnxNode, before: Expr, after: Expr) -> list[int]:
    """The axes whose size may be another after a turn."""
    if dtype(before) is not dtype(after) or rank(before) != rank(after):
        message = "A loop of unknown length carries a tensor whose rank or dtype changes."
        node.unsupported(message, str(type_of(before)), str(type_of(after)))
    sizes = zip(shape(before), shape(after), strict=True)
    return [axis for axis, (a, b) in enumerate(sizes) if not same_dim(a, b)]


def carry(node: OnnxNode, before: Expr, after: Expr) -> Expr:
    """A loop-carried value, with its sizes asserted unchanged."""
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
    changing: Sequence[ChangingSize] = (),
) -> list[Expr]:
    """A loop that writes what each turn gives into a row: state, then the rows."""
    items = turn_of(*start)[1]  # what the first turn would give says what all do
    first = dict(region)
    region.clear()
    wide = len(start)
    empty, forms = [], list[Shape]()
    for number, item in enumerate(items):
        sizes: list[Scalar] = []
        for at, size in enumerate(shape(item)):
            if {*first.values()}.isdisjoint(free_vars(size)):
                sizes.append(size)
                continue
            told = If(test(*start), measuring(first, amount(size)), const(0, i64))
            sizes.append(node.measured(told, f"item_{number}_{at}"))
        forms.append(tuple(sizes))
        empty.append(_filled((rows, *sizes), dtype(item)))

    def turn(*held: Expr) -> list[Expr]:
        after, rows_ = turn_of(*held[:wide])
        kept = [
            with_row(all_, held[0], row, rows, forms[at])
            for at, (row, all_) in enumerate(zip(rows_, held[wide:], strict=True))
        ]
        return [*after, *kept]

    return repeated(node, [*start, *empty], test, turn, region, changing)


def no_rows(item: TensorValue, axis: int, region: Region) -> Expr:
    """What stacking no items gives: the item that is not made says the other sizes.

    The sizes of a `region` are measured per iteration; without one they are 0, as if the number of
    iterations is only known at run time.
    """
    unknown = {*region.values()}
    sizes = [e if unknown.isdisjoint(free_vars(e)) else index(0) for e in item.type.shape]
    return _filled((*sizes[:axis], index(0), *sizes[axis:]), item.type.dtype)


def _filled(sizes: Shape, of: DType) -> Expr:
    """Nothing yet, in the room for all."""
    zero = False if of.name == "bool" else 0.0 if of.is_float else 0
    return op.full(shape=sizes, value=zero, dtype=of)
