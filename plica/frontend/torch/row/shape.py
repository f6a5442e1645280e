"""Rows of operators that arrange elements: views, parts, joins and borders.

A view in torch shares memory; here it is a tensor like any other, since nothing is ever changed.
Its shape is the one that torch has worked out already.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

import numpy as np

from plica.frontend.measured import amount, matched, places, reshaped
from plica.frontend.torch.node import TorchNode
from plica.frontend.torch.row.word import Row, casted, constant
from plica.frontend.torch.symbol import Size
from plica.frontend.word import dtype, like, rank, select, shape
from plica.ir.graph.expression import Expr, const
from plica.ir.loop.scalar import Scalar, ScalarVar, index
from plica.ir.op.cut import place_of_bound
from plica.ir.op.namespace import op
from plica.ir.type import dim, greater, i64, is_size, known, normal_dim, product, same_dim

SizeT = TypeVar("SizeT", bound=Size)

_END: Final = (1 << 31) - 1  # what torch writes where a slice goes to the end is beyond this


INFERRED_SIZE: Final = -1


def _reshaped(node: TorchNode) -> Expr:
    """The elements in their order, in the shape of the result.

    Torch may give the formula of a size, which is undefined where an axis is 0.
    """
    sizes = node.shape()
    for name in ("size", "shape", "dim"):
        if node.has(name) and name != "dim":
            given = zip(node.sizes(name), sizes, strict=True)
            sizes = tuple(said if size == INFERRED_SIZE else size for size, said in given)
    return reshaped(node.x(), [dim(each) for each in sizes])


def _same(node: TorchNode) -> Expr:
    return node.x()


def _expand(node: TorchNode) -> Expr:
    node.argument("size")
    return op.broadcast_to(node.x(), node.shape())


def _permute(node: TorchNode) -> Expr:
    x, axes = node.x(), node.integers("dims")
    return op.transpose(x, tuple(axis % rank(x) for axis in axes)) if axes else x


# --- parts ---------------------------------------------------------------------------------------


def _from_front(at: Size, size: Scalar) -> Size:
    """A bound of a slice: a symbolic one that is negative at run time counts from the end."""
    return place_of_bound(at, size) if isinstance(at, Scalar) and known(at) is None else at


def _has_either_sign(bound: Size | None) -> bool:
    """Whether the sizes of a call decide if a bound counts from the end."""
    return isinstance(bound, Scalar) and known(bound) is None and not is_size(bound)


def _last(stop: Size | None, size: Scalar) -> Size | None:
    """The end of a slice, or None for the end of its axis."""
    if stop is None or (isinstance(stop, int) and stop >= _END):
        return None
    return _from_front(stop, size)


def part(x: Expr, axis: int, start: Size | None, stop: Size | None, step: int = 1) -> Expr:
    """Python's slice of an axis."""
    first = _from_front(0 if start is None else start, shape(x)[axis])
    last = _last(stop, shape(x)[axis])
    if last is None and step == 1 and first == 0:
        return x
    return op.slice(x, (first,), (last,), (step,), (axis,))


def _slice(node: TorchNode) -> Expr:
    x = node.x()
    axis = node.axis("dim", rank(x))
    start, stop = (node.argument(name) for name in ("start", "end"))
    if isinstance(step := node.size("step"), Scalar):
        return _slice_by_symbolic_step(node, x, axis, (start, stop, step))
    expr = part(x, axis, start, stop, step)
    length = node.size_given(axis)
    if length is None:
        return expr
    may_be_short = not isinstance(shape(x)[axis], ScalarVar) and not is_size(dim(length))
    if node.has_own_length(may_be_short or any(map(_has_either_sign, (start, stop)))):
        return expr
    # Torch may know that the slice is in bounds: its length is asserted.
    return matched(expr, (*shape(expr)[:axis], dim(length), *shape(expr)[axis + 1 :]))


def _slice_by_symbolic_step(
    node: TorchNode, x: Expr, axis: int, bounds: tuple[Size | None, Size | None, Scalar]
) -> Expr:
    """A slice whose step is asserted to be positive; how long it is, is measured."""
    start, stop, step = bounds
    inside = part(x, axis, start, stop)
    checked = op.match_shape(inside, shape(inside), least=(normal_dim(step - 1),))
    stride = amount(step)
    rounded_up = amount(shape(inside)[axis]) + stride - const(1, i64)
    length = node.measured(rounded_up // op.maximum(stride, const(1, i64)), "steps")
    return op.take(checked, places(length) * stride, axis=axis)


def _select(node: TorchNode) -> Expr:
    x = node.x()
    axis = node.axis("dim", rank(x))
    at, size = node.size("index"), shape(x)[axis]
    if isinstance(at, int) and known(size) is not None:
        return select(x, at % (known(size) or 1), axis)
    # Whether the index exists is known at run time; negative computed ones count from the end.
    return op.take(x, constant(node, at, i64), axis=axis)


def _split(node: TorchNode) -> list[Expr | None]:
    x = node.x()
    axis = node.axis("dim", rank(x))
    node.has("split_sizes"), node.has("split_size"), node.has("chunks"), node.has("sections")
    exprs: list[Expr | None] = []
    start: Size = 0
    for at in range(len(node.result)):
        size = node.shape(at)[axis]
        cut = op.slice(x, (start,), (start + size,), None, (axis,))
        exprs.append(matched(cut, (*shape(x)[:axis], dim(size), *shape(x)[axis + 1 :])))
        start = start + size
    return exprs


def _unbind(node: TorchNode) -> list[Expr | None]:
    x = node.x()
    axis = node.axis("dim", rank(x))
    return [select(x, at, axis) for at in range(len(node.result))]


def _slice_scatter(node: TorchNode) -> Expr:
    x, source = node.x(), casted(node.x("src"), dtype(node.x()))
    axis, step = node.axis("dim", rank(x)), node.integer("step")
    ends = (node.argument("start"), node.argument("end"))
    return _written(x, source, axis, ends, step)


def _written(
    x: Expr, source: Expr, axis: int, ends: tuple[Size | None, Size | None], step: int = 1
) -> Expr:
    """x with a Python slice of an axis replaced by a source; sizes and ends may be symbolic."""
    start, stop = ends
    size = known(shape(x)[axis])
    if size is not None and isinstance(start, int | None) and isinstance(stop, int | None):
        return _replaced(x, source, axis, range(size)[slice(start, stop, step)])
    if known(shape(source)[axis]) == 0:
        return x
    first = _from_front(0 if start is None else start, shape(x)[axis])
    if step == 1:
        before = [] if isinstance(first, int) and first == 0 else [part(x, axis, 0, first)]
        last = _last(stop, shape(x)[axis])
        after = [] if last is None else [part(x, axis, last, None)]
        # That the source is as long as the slice is torch's to say: it is asserted.
        return matched(op.concat((*before, source, *after), axis=axis), shape(x))
    length = amount(shape(x)[axis])
    begin = amount(first)
    begin = op.maximum(op.where(begin < like(0, begin), begin + length, begin), like(0, begin))
    place = op.iota(shape=(shape(x)[axis],), dtype=i64)
    behind = place - begin
    number = behind // like(step, behind)
    inside = op.logical_and(
        op.equal(number * like(step, behind), behind),
        op.logical_and(behind >= like(0, behind), number < amount(shape(source)[axis])),
    )
    order = op.where(inside, number + length, place)
    return op.take(op.concat((x, source), axis=axis), order, axis=axis)


def _diagonal_scatter(node: TorchNode) -> Expr:
    """x with a diagonal replaced by a source, whose last axis is along it."""
    x, source = node.x(), casted(node.x("src"), dtype(node.x()))
    count = rank(x)
    one, other = node.axis("dim1", count), node.axis("dim2", count)
    offset = node.integer("offset")
    rows, columns = node.known_sizes(x, (one, other))
    order = (*[axis for axis in range(count) if axis not in (one, other)], one, other)
    # Along the axis whose places are the source's own, from its first on.
    along, rest = (rows, -1) if offset >= 0 else (columns, -2)
    length = max(0, min(rows, columns - offset) if offset >= 0 else min(rows + offset, columns))
    widths = [(0, 0)] * (count - 2) + [(0, along - length)]
    spread = op.expand_dims(op.pad(source, pad_width=tuple(widths)), axis=(rest,))
    places = np.arange(columns)[None, :] - np.arange(rows)[:, None] == offset
    changed = op.where(const(places), spread, op.transpose(x, order))
    return op.transpose(changed, tuple(np.argsort(order).tolist()))


def _replaced(x: Expr, source: Expr, axis: int, places: range) -> Expr:
    """x with some indices along an axis replaced by a source."""
    if not places:
        return x
    size = known(shape(x)[axis])
    assert size is not None
    if places.step == 1:
        before = part(x, axis, 0, places.start)
        after = part(x, axis, places.stop, size)
        pieces = ([before] if places.start else []) + [source]
        pieces += [after] if places.stop < size else []
        return op.concat(tuple(pieces), axis=axis) if len(pieces) > 1 else source
    # Interleaved: the part before the first index, then each element and its neighbours.
    order = np.arange(size)
    order[list(places)] = size + np.arange(len(places))
    return op.take(op.concat((x, source), axis=axis), const(order.astype(np.int64)), axis=axis)


def _unfold(node: TorchNode) -> Expr:
    """Windows along an axis, as an additional last axis."""
    x = node.x()
    axis = node.axis("dimension", rank(x))
    if not rank(x):
        node.unsupported("Windows over a tensor of rank 0 are not supported.")
    width, step = node.integer("size"), node.integer("step")
    count = node.shape()[axis]
    if isinstance(count, int):
        table = np.arange(count)[:, None] * step + np.arange(width)[None, :]
        places: Expr = const(table.astype(np.int64))
    else:
        starts = op.iota(shape=(count, 1), dtype=i64) * const(step, i64)
        places = starts + op.iota(shape=(1, width), dtype=i64, axis=1)
    expr = op.take(x, places, axis=axis)
    order = (*range(axis + 1), *range(axis + 2, rank(x) + 1), axis + 1)
    return op.transpose(expr, order)


def _as_strided(node: TorchNode) -> Expr:
    """Places in memory, where these are the elements of x in their order."""
    x, said = node.x(), node.meta("self")
    start = node.integer("storage_offset") if node.has("storage_offset") else 0
    plain = said.is_contiguous() and said.storage_offset() == 0
    if plain and start == 0 and _is_dense(node, x):
        return op.reshape(x, node.sizes("size"))
    sizes, strides = node.integers("size"), node.integers("stride")
    count = math.prod(node.known_sizes(x))
    places = np.full(sizes, start, np.int64)
    for axis, stride in enumerate(strides):
        steps = np.arange(sizes[axis], dtype=np.int64) * stride
        places = places + steps.reshape([-1 if at == axis else 1 for at in range(len(sizes))])
    if not plain or (places.size and (places.min() < 0 or places.max() >= count)):
        node.unsupported(f"{node.kind} reaches outside of its tensor.", f"{count} elements")
    return op.take(op.reshape(x, (count,)), const(places), axis=0)


def _is_dense(node: TorchNode, x: Expr) -> bool:
    """Whether sizes and strides, symbolic or not, are those of all elements of x in their order."""
    run = dim(1)
    for size, stride in zip(node.sizes("size")[::-1], node.sizes("stride")[::-1], strict=True):
        if known(dim(size)) != 1 and not same_dim(dim(stride), run):
            return False
        run = product((run, dim(size)))
    return same_dim(run, product(shape(x)))


def _diagonal(node: TorchNode) -> Expr:
    x = node.x()
    return op.diagonal(
        x,
        offset=node.integer("offset"),
        axis1=node.axis("dim1", rank(x)),
        axis2=node.axis("dim2", rank(x)),
    )


def _triangle(record: Callable[..., Expr]) -> Row:
    def row(node: TorchNode) -> Expr:
        x, diagonal_ = node.x(), node.size("diagonal")
        if isinstance(diagonal_, int):
            return record(x, max(-_END, min(_END, diagonal_)))
        rows, columns = (places(size) for size in shape(x)[-2:])
        distance = op.expand_dims(columns, axis=(0,)) - op.expand_dims(rows, axis=(1,))
        offset = amount(diagonal_)
        kept = (offset, distance) if record is op.tril else (distance, offset)
        return op.where(op.greater_equal(*kept), x, like(0, x))

    return row


# --- joins and repetition ------------------------------------------------------------------------


def _cat(node: TorchNode) -> Expr:
    given = node.xs("tensors")
    # An empty vector is compatible with anything, for compatibility.
    if not (filled := [x for x in given if not (rank(x) == 1 and known(shape(x)[0]) == 0)]):
        return casted(given[0], node.dtype())
    axis = node.axis("dim", rank(filled[0]))
    items = tuple(casted(x, node.dtype()) for x in filled)
    return items[0] if len(items) == 1 else op.concat(items, axis=axis)


def _stack(node: TorchNode) -> Expr:
    items = tuple(casted(x, node.dtype()) for x in node.xs("tensors"))
    return op.stack(items, axis=node.axis("dim", rank(items[0]) + 1))


def _repeat(node: TorchNode) -> Expr:
    x, times = node.x(), node.sizes("repeats")
    wide = op.reshape(x, (*(1,) * (len(times) - rank(x)), *shape(x)))
    if not times:
        return x
    if all(isinstance(time, int) for time in times):
        return op.tile(wide, times)
    # An axis before each, with the number of repetitions.
    pairs = [each for pair in zip(times, shape(wide), strict=True) for each in pair]
    single = [each for size in shape(wide) for each in (1, size)]
    return op.reshape(op.broadcast_to(op.reshape(wide, single), pairs), node.shape())


def _flip(node: TorchNode) -> Expr:
    x = node.x()
    axes = node.integers("dims")
    return op.flip(x, axis=tuple(axis % rank(x) for axis in axes)) if axes and rank(x) else x


def _roll(node: TorchNode) -> Expr:
    x, shifts, axes = node.x(), node.sizes("shifts"), node.integers("dims")
    if not axes:
        (shift,) = shifts
        return op.reshape(_rolled(op.reshape(x, (-1,)), shift, 0), shape(x))
    for shift, axis in zip(shifts, axes, strict=True):
        x = _rolled(x, shift, axis % rank(x))
    return x


def _rolled(x: Expr, shift: Size, axis: int) -> Expr:
    """x moved along an axis; a symbolic shift reads places modulo the size."""
    if isinstance(shift, int):
        return op.roll(x, shift=(shift,), axis=(axis,))
    size = shape(x)[axis]
    period = op.maximum(amount(size), const(1, i64))  # an empty axis reads no place
    moved = places(size) - amount(shift)
    return op.take(x, moved - moved // period * period, axis=axis)


# --- borders -------------------------------------------------------------------------------------


def _pairs(widths: Sequence[SizeT], count: int, none: SizeT) -> list[tuple[SizeT, SizeT]]:
    """Widths for a number of axes: torch starts with the last."""
    pairs = [(widths[at], widths[at + 1]) for at in range(0, len(widths), 2)]
    return [(none, none)] * (count - len(pairs)) + pairs[::-1]


def _constant_pad(node: TorchNode) -> Expr:
    x, of, value = node.x(), dtype(node.x()), node.number("value")
    fill = float(value) if of.is_float else bool(value) if of.name == "bool" else int(value)
    widths: list[tuple[int, int]] = []
    for axis, (low, high) in enumerate(_pairs(node.sizes("pad"), rank(x), 0)):
        if isinstance(low, int) and isinstance(high, int):
            widths.append((max(0, low), max(0, high)))
            if low < 0 or high < 0:
                x = op.slice(x, (max(0, -low),), (high if high < 0 else None,), None, (axis,))
            continue
        # Symbolic widths: a negative one crops; that the axis is long enough is asserted.
        widths.append((0, 0))
        before, extent, after = shape(x)[:axis], shape(x)[axis], shape(x)[axis + 1 :]
        zero = index(0)
        crops = [greater(normal_dim(zero - dim(width)), zero) for width in (low, high)]
        if not all(known(crop) == 0 for crop in crops):
            stop = greater(normal_dim(extent - crops[1]), zero)
            x = op.slice(x, (crops[0],), (stop,), None, (axis,))
        borders = [
            op.broadcast_to(const(fill, of), (*before, greater(dim(width), zero), *after))
            for width in (low, high)
        ]
        wide = op.concat((borders[0], x, borders[1]), axis=axis)
        x = matched(wide, (*before, normal_dim(extent + low + high), *after))
    return op.pad(x, tuple(widths), constant_values=fill) if any(map(any, widths)) else x


# fmt: off
TABLE: Final[dict[str, Row]] = {
    # views
    "view.default":             _reshaped,
    "reshape.default":          _reshaped,
    "view_copy.default":        _reshaped,
    "squeeze.dims":             _reshaped,
    "unsqueeze.default":        _reshaped,
    "alias.default":            _same,
    "clone.default":            _same,
    "contiguous.default":       _same,
    "detach_.default":          _same,
    "lift_fresh_copy.default":  _same,
    "expand.default":           _expand,
    "permute.default":          _permute,
    # parts
    "slice.Tensor":             _slice,
    "select.int":               _select,
    "split_with_sizes.default": _split,
    "unbind.int":               _unbind,
    "slice_scatter.default":    _slice_scatter,
    "diagonal_scatter.default": _diagonal_scatter,
    "unfold.default":           _unfold,
    "as_strided.default":       _as_strided,
    "diagonal.default":         _diagonal,
    "tril.default":             _triangle(op.tril),
    "triu.default":             _triangle(op.triu),
    # joins and repetition
    "cat.default":              _cat,
    "stack.default":            _stack,
    "repeat.default":           _repeat,
    "flip.default":             _flip,
    "roll.default":             _roll,
    # borders
    "constant_pad_nd.default":   _constant_pad,
}
# fmt: on
