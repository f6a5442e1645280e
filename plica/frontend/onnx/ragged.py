"""Ragged sequences: how many tensors there are, and their sizes, is known at run time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from plica.core.diagnostic import Malformed
from plica.frontend.measured import ONE, ZERO, amount, matched, places, reshaped
from plica.frontend.onnx import value as values
from plica.frontend.onnx.node import OnnxNode
from plica.frontend.onnx.run_time import clamped, wrapped_index
from plica.frontend.word import along, dtype, rank, select, shape, to
from plica.ir.graph.expression import Const, Expr, Tuple, const
from plica.ir.loop.scalar import Scalar, index
from plica.ir.op.namespace import op
from plica.ir.type import DType, i64, product
from plica.runtime.error import Diagnostic, Place, UnsupportedError
from plica.runtime.ragged import MAX_RANK, WIDTH


def joined(items: Sequence[Expr], of: DType) -> values.RaggedValue:
    """Some tensors as a ragged sequence."""
    elements = [const(np.zeros(0, of.numpy), of), *map(op.ravel, items)]
    ranks = {rank(expr) for expr in items}
    flat = elements[1] if len(elements) == 2 else op.concat(elements, axis=0)
    return ragged(flat, rows(items), of, ranks.pop() if len(ranks) == 1 else None)


def ragged(elements: Expr, table: Expr, of: DType, axes: int | None) -> values.RaggedValue:
    """The sequence that two tensors stand for."""
    return values.RaggedValue(Tuple((elements, table)), of, axes)


def rows(items: Sequence[Expr]) -> Expr:
    """The table of shapes of some tensors."""
    if not items:
        return const(np.zeros((0, WIDTH), np.int64))
    return op.stack([row(shape(expr)) for expr in items], axis=0)


def row(sizes: Sequence[Scalar]) -> Expr:
    """The row of a table that says a shape."""
    numbers = [const(len(sizes), i64), *map(amount, sizes)]
    return op.stack([*numbers, *[ONE] * (WIDTH - len(numbers))], axis=0)


def check_rank(place: str, axes: int) -> None:
    """Refuses ranks beyond the table."""
    if axes > MAX_RANK:
        message = "Tensors of a sequence of unknown length have few axes."
        where_ = Place(node=place)
        raise UnsupportedError.of("unsupported", message, where_, f"at most {MAX_RANK}", str(axes))


def as_ragged(place: str, value: values.TensorValue) -> values.RaggedValue:
    """A sequence in two parts."""
    if isinstance(value, values.GrowingValue):
        message = "A loop of unknown length appends to the sequences that it carries; no more."
        wrong = Diagnostic("unsupported", message, Place(node=place), "SequenceInsert at the end")
        raise UnsupportedError(wrong)
    if isinstance(value, values.SequenceValue):
        for expr in value.items:
            check_rank(place, rank(expr))
        return joined(value.items, value.of)
    if isinstance(value, values.RaggedValue) and not isinstance(value, values.OptionValue):
        return value
    message = "Here a sequence must stand."
    raise Malformed.of("bad-model", message, Place(node=place), "a sequence", value.word)


def held(node: OnnxNode, value: values.OptionValue) -> values.RaggedValue:
    """The content of an option; presence is checked at run time."""
    there, elements, table = value.parts
    if isinstance(there, Const) and bool(there.numpy()):
        return ragged(elements, table, value.of, value.rank)
    count = amount(shape(table)[0])
    size = node.measured(op.where(there, count, const(-1, i64)), "there")
    return ragged(elements, matched(table, (size, index(WIDTH))), value.of, value.rank)


def as_option(place: str, value: values.TensorValue, holds_list: bool) -> values.OptionValue:
    """A present or optional value as an option."""
    if isinstance(value, values.OptionValue):
        return value
    if holds_list:
        inside = as_ragged(place, value)
    else:
        check_rank(place, len(value.type.shape))
        inside = joined([value.expr], value.type.dtype)
    parts = (const(True), *inside.parts)
    return values.OptionValue(Tuple(parts), inside.of, inside.rank, holds_list)


def as_any_rank(place: str, value: values.TensorValue) -> values.AnyRankValue:
    """A tensor as one whose rank is not known."""
    if isinstance(value, values.AnyRankValue):
        return value
    check_rank(place, len(value.type.shape))
    inside = joined([value.expr], value.type.dtype)
    return values.AnyRankValue(inside.expr, inside.of, inside.rank)


def absent(of: DType, axes: int | None, holds_list: bool) -> values.OptionValue:
    """An empty option."""
    parts = (const(False), *joined([], of).parts)
    return values.OptionValue(Tuple(parts), of, axes, holds_list)


# --- operations -----------------------------------------------------------------------------------


def volumes(table: Expr) -> Expr:
    """How many elements each tensor has."""
    return op.prod(op.slice(table, (1,), (WIDTH,), None, (1,)), axis=(1,))


def length(of: values.RaggedValue) -> Expr:
    """The number of tensors."""
    return amount(shape(of.parts[1])[0])


def start_of(table: Expr, at: Expr) -> Expr:
    """The number of elements before a tensor."""
    (count, _) = shape(table)
    return op.sum(op.where(places(count) < at, volumes(table), ZERO), axis=(0,))


def place(at: Expr, count: Expr, most: Expr) -> Expr:
    """An index into a sequence, counted from the end if negative; -1 if out of range."""
    late = wrapped_index(to(at, i64), count)
    inside = op.logical_and(late >= ZERO, late <= most)
    return op.where(inside, late, const(-1, i64))


def item(node: OnnxNode, of: values.RaggedValue, at: Expr) -> Expr:
    """The tensor at a place."""
    elements, table = of.parts
    if of.rank is None:
        message = "The number of axes of a tensor of this sequence is not known."
        node.unsupported(message, "tensors of one rank", of.word)
    count = length(of)
    # Out-of-range elements are read past the end, which is refused.
    late = wrapped_index(to(at, i64), count)
    line = op.take(table, op.where(late < ZERO, count, late), axis=0)
    sizes = [node.measured(select(line, 1 + axis), f"at_{axis}") for axis in range(of.rank)]
    whole = product(sizes)
    expr = op.take(elements, places(whole) + start_of(table, late))
    return op.reshape(expr, tuple(sizes))


def inserted(
    node: OnnxNode, of: values.RaggedValue, new: Expr, at: Expr | None
) -> values.RaggedValue:
    """The sequence with one tensor more, at a place or at the end."""
    check_rank(node.place, rank(new))
    elements, table = of.parts
    axes = of.rank if of.rank == rank(new) else None
    both, lines = (
        op.concat((elements, op.ravel(new)), axis=0),
        op.concat((table, rows([new])), axis=0),
    )
    if at is None:
        return ragged(both, lines, of.of, axes)
    count = length(of)
    expr = place(at, count, count)
    # An out-of-range index is past the end of the table, which is refused.
    late = op.take(places(shape(lines)[0]), op.where(expr < ZERO, count + ONE, expr))
    spot = moved(shape(both)[0], start_of(table, late), amount(product(shape(new))))
    line = moved(shape(lines)[0], late, ONE)
    return ragged(op.take(both, spot), op.take(lines, line, axis=0), of.of, axes)


def moved(size: Scalar, at: Expr, count: Expr) -> Expr:
    """Indices of which the last `count` are moved to one before them."""
    here, old = places(size), amount(size) - count
    behind = op.where(here < at + count, old + (here - at), here - count)
    return op.where(here < at, here, behind)


def erased(node: OnnxNode, of: values.RaggedValue, at: Expr | None) -> values.RaggedValue:
    """The sequence without one tensor."""
    elements, table = of.parts
    count = length(of)
    given = const(-1, i64) if at is None else at
    expr = place(given, count, count - ONE)
    late = op.where(expr < ZERO, count, expr)  # past the end, which is refused
    gone = node.measured(op.take(volumes(table), late), "gone")
    start = start_of(table, late)
    here = places(shape(elements)[0] - gone)
    rest = op.take(elements, op.where(here < start, here, here + amount(gone)))
    there = places(shape(table)[0] - 1)
    lines = op.take(table, op.where(there < late, there, there + ONE), axis=0)
    return ragged(rest, lines, of.of, of.rank)


def concatenated(node: OnnxNode, of: values.RaggedValue, axis: int, new_axis: bool) -> Expr:
    """The tensors of a sequence as one, side by side along an axis."""
    elements, table = of.parts
    assert of.rank is not None
    first = op.take(table, ZERO, axis=0)
    sizes = [node.measured(select(first, 1 + at), f"size_{at}") for at in range(of.rank)]
    (count, _) = shape(table)
    if new_axis:
        whole = reshaped(elements, (count, *sizes))
        return op.moveaxis(whole, source=0, destination=axis)
    lengths = op.reshape(op.slice(table, (1 + axis,), (2 + axis,), None, (1,)), (count,))
    width = node.measured(op.sum(lengths, axis=(0,)), f"size_{axis}")
    outer, inner = product(sizes[:axis]), product(sizes[axis + 1 :])
    ends, volume = op.cumsum(lengths, axis=0), volumes(table)
    # For each place along the axis: whose tensor it is of, and where that begins.
    here = places(width)
    passed = to(along(ends, 0, 2) <= along(here, 1, 2), i64)
    owner = op.minimum(op.sum(passed, axis=(0,)), amount(count) - ONE)
    begin = op.take(op.cumsum(volume, axis=0) - volume, owner)
    own, offset = op.take(lengths, owner), here - op.take(ends - lengths, owner)
    step = amount(inner)
    spot = (
        along(begin + offset * step, 1, 3)
        + along(places(outer), 0, 3) * (along(own, 1, 3) * step)
        + along(places(inner), 2, 3)
    )
    return op.reshape(op.take(elements, spot), (*sizes[:axis], width, *sizes[axis + 1 :]))


def split(node: OnnxNode, x: Expr, axis: int, step: Expr, keep: bool) -> values.RaggedValue:
    """A tensor cut along an axis into tensors of one length; the last may be shorter."""
    check_rank(node.place, rank(x))
    sizes = shape(x)
    long, outer, inner = sizes[axis], product(sizes[:axis]), product(sizes[axis + 1 :])
    whole = amount(long)
    count = node.measured((whole + (step - ONE)) // step, "count")
    number = places(count)
    lengths = op.minimum(whole - number * step, step)
    numbers = [amount(size) for size in sizes]
    columns = [*numbers[:axis], *([lengths] if keep else []), *numbers[axis + 1 :]]
    one = number * ZERO  # 0 for each of them
    filled = [const(len(columns), i64), *columns, *[ONE] * (WIDTH - 1 - len(columns))]
    table = op.stack([one + expr for expr in filled], axis=1)
    here, wide = places(product(sizes)), amount(inner)
    full_ = _least_one(amount(outer) * step * wide)
    owner = here // full_
    inside = here - owner * full_
    own = _least_one(op.take(lengths, owner) * wide)
    block = inside // own
    spot = block * (whole * wide) + (owner * (step * wide) + inside % own)
    return ragged(op.take(op.ravel(x), spot), table, dtype(x), rank(x) - (not keep))


def _least_one(of: Expr) -> Expr:
    return op.where(of < ONE, ONE, of)


# --- loops ----------------------------------------------------------------------------------------


def growing(slot: int, of: DType, added: Sequence[Expr] = ()) -> values.GrowingValue:
    """A loop iteration's view of a carried sequence."""
    return values.GrowingValue(Tuple((const(slot, i64), *added)), of)


def empty_rows(count: Scalar, total: Scalar, of: DType) -> tuple[Expr, Expr]:
    """Buffers of zeros for the elements and the shapes of tensors that a loop appends."""
    elements = op.full(shape=(total,), value=_zero(of), dtype=of)
    return elements, op.full(shape=(count, index(WIDTH)), value=0, dtype=i64)


def _zero(of: DType) -> bool | int | float:
    return False if of.name == "bool" else 0.0 if of.is_float else 0


def put_behind(buffer: Expr, at: Expr, new: Expr) -> Expr:
    """A buffer with the rows `new` from place `at` on."""
    (size, *rest), (count, *_) = shape(buffer), shape(new)
    here, last = places(size), at + amount(count)
    # One row more, so that an empty table can be read.
    behind = op.concat(
        (new, op.full(shape=(index(1), *rest), value=_zero(dtype(new)), dtype=dtype(new))), axis=0
    )
    from_ = clamped(here - at, ZERO, amount(count))
    taken = op.take(behind, from_, axis=0)
    inside = op.logical_and(at <= here, here < last)
    return op.where(along(inside, 0, rank(buffer)), taken, buffer)
