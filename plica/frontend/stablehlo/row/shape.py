"""Rows of operations that arrange, cut and join tensors, or make them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from plica.frontend.stablehlo.literal import array
from plica.frontend.stablehlo.node import HloNode, sizes
from plica.frontend.stablehlo.row.elementwise import Row
from plica.frontend.stablehlo.syntax import MlirToken
from plica.frontend.word import like, rank, to
from plica.ir.graph.expression import Const, Expr, const
from plica.ir.op.namespace import op
from plica.ir.type.dtype import DType, bool_, i64


def _constant(node: HloNode) -> Expr:
    value = node.attribute("value")
    of = node.dtype()
    if isinstance(value, MlirToken):
        value = array(value.text, node.type(), node.op.line)
    if not isinstance(value, np.ndarray):
        node.unsupported("The value is no dense constant.", "dense<…>", str(value))
    if value.size > 1 and (value == value.flat[0]).all():  # of one bit pattern
        first = np.ascontiguousarray(value).reshape(-1)
        if len({each.tobytes() for each in (first, np.full_like(first, first[0]))}) == 1:
            return op.broadcast_to(const(value.flat[0].reshape(()), of), value.shape)
    return const(value.astype(of.numpy), of)


def _iota(node: HloNode) -> Expr:
    axis = node.axis("dim", "iota_dimension")
    of, shape = node.dtype(), node.shape()
    form = [size if at == axis else 1 for at, size in enumerate(shape)]
    places = np.arange(shape[axis] if shape else 1).reshape(form)
    if of.is_float or of.bits >= 32:
        whole = op.iota(shape=tuple(form), axis=axis, dtype=i64)
        return op.broadcast_to(to(whole, of), shape)
    return op.broadcast_to(const(places.astype(of.numpy), of), shape)


def _broadcast(node: HloNode) -> Expr:
    return spread(node.x, node.shape(), node.numbers("dims", "broadcast_dimensions"))


def spread(x: Expr, shape: Sequence[int], axes: Sequence[int]) -> Expr:
    """x along some axes of a shape, the same along the others."""
    if sizes(x) == tuple(shape) and list(axes) == list(range(len(shape))):
        return x
    if not axes:
        return op.broadcast_to(x, tuple(shape))
    order = sorted(range(len(axes)), key=lambda at: axes[at])
    if order != list(range(len(axes))):
        x = op.transpose(x, axes=tuple(order))
    of = dict(zip(sorted(axes), sizes(x), strict=True))
    form = tuple([of.get(axis, 1) for axis in range(len(shape))])
    placed = x if sizes(x) == form else op.reshape(x, form)
    return placed if form == tuple(shape) else op.broadcast_to(placed, tuple(shape))


def _dynamic_broadcast(node: HloNode) -> Expr:
    shape = [int(each) for each in node.constant(1)]
    return spread(node.x, shape, node.numbers("dims", "broadcast_dimensions"))


def _reshape(node: HloNode) -> Expr:
    return node.x if sizes(node.x) == node.shape() else op.reshape(node.x, node.shape())


def _transpose(node: HloNode) -> Expr:
    return op.transpose(node.x, axes=tuple(node.numbers("dims", "permutation")))


def _slice(node: HloNode) -> Expr:
    if (ranges := node.attribute("ranges")) is not None:
        starts, stops = [r[0] for r in ranges], [r[1] for r in ranges]
        steps = [r[2] if len(r) > 2 else 1 for r in ranges]
    else:
        starts, stops = node.numbers("start_indices"), node.numbers("limit_indices")
        steps = node.numbers("strides", default=[1] * len(starts))
    return cut(node.x, starts, stops, steps)


def cut(x: Expr, starts: Sequence[int], stops: Sequence[int], steps: Sequence[int] = ()) -> Expr:
    """The elements from starts up to stops."""
    steps = steps or [1] * len(starts)
    if all(s == 0 for s in starts) and tuple(stops) == sizes(x) and set(steps) <= {1}:
        return x
    return op.slice(x, tuple(starts), tuple(stops), tuple(steps))


def _real_dynamic_slice(node: HloNode) -> Expr:
    return cut(node.x, *[[int(e) for e in node.constant(at)] for at in (1, 2, 3)])


def _pad(node: HloNode) -> Expr:
    low = node.numbers("low", "edge_padding_low")
    high = node.numbers("high", "edge_padding_high")
    inner = node.numbers("interior", "interior_padding", default=[0] * len(low))
    return padded(node.x, node.operands[1], low, high, inner)


def _dynamic_pad(node: HloNode) -> Expr:
    return padded(*node.operands[:2], *[[int(e) for e in node.constant(at)] for at in (2, 3, 4)])


def padded(
    x: Expr, value: Expr, low: Sequence[int], high: Sequence[int], inner: Sequence[int]
) -> Expr:
    """x with a value around it and between its elements; negative widths cut."""
    if not any((*low, *high, *inner)):
        return x
    number = (
        value.numpy().item() if isinstance(value, Const) and not value.dtype.is_storage else None
    )
    shape = sizes(x)
    zero = 0 if number is None else number
    wide = x
    if any(inner):
        wide = op.nn.dilate(wide, strides=tuple([each + 1 for each in inner]), value=zero)
    around = tuple([(max(a, 0), max(b, 0)) for a, b in zip(low, high, strict=True)])
    if any(a or b for a, b in around):
        wide = op.pad(wide, pad_width=around, constant_values=zero)
    begin = [max(-each, 0) for each in low]
    whole = [size + min(each, 0) for size, each in zip(sizes(wide), high, strict=True)]
    wide = cut(wide, begin, whole)
    if number is None:
        wide = op.where(const(_is_element(shape, low, sizes(wide), inner), bool_), wide, value)
    return wide


def _is_element(
    shape: Sequence[int], low: Sequence[int], out: Sequence[int], inner: Sequence[int]
) -> np.ndarray[Any, Any]:
    """Which elements of a padded tensor were there before."""
    whole = np.ones((), bool)
    for size, before, count, gap in zip(shape, low, out, inner, strict=True):
        at = np.arange(count) - before
        mine = (at >= 0) & (at % (gap + 1) == 0) & (at // (gap + 1) < size)
        whole = whole[..., None] & mine
    return whole


def _concatenate(node: HloNode) -> Expr:
    parts = tuple(node.operands)
    axis = node.axis("dim", "dimension")
    return parts[0] if len(parts) == 1 else op.concat(parts, axis=axis)


def _reverse(node: HloNode) -> Expr:
    axes = tuple(node.numbers("dims", "dimensions"))
    return op.flip(node.x, axis=axes) if axes else node.x


def _size(node: HloNode) -> Expr:
    axis = node.axis("dim", "dimension")
    return const(sizes(node.x)[axis], DType("i32"))


def starts_of(node: HloNode, x: Expr, given: Sequence[Expr], sizes_: Sequence[int]) -> list[Any]:
    """The first places of a box in x, moved inside of it: numbers where they are known."""
    out: list[Any] = []
    for start, whole, size in zip(given, sizes(x), sizes_, strict=True):
        if isinstance(start, Const):
            out.append(min(max(int(start.numpy()), 0), whole - size))
        elif whole == size:
            out.append(0)
        else:
            at = to(start, i64)
            out.append(op.minimum(op.maximum(at, like(0, at)), like(whole - size, at)))
    return out


def _dynamic_slice(node: HloNode) -> Expr:
    x, given = node.x, node.operands[1:]
    wanted = node.numbers("sizes", "slice_sizes")
    for axis, (start, size) in enumerate(
        zip(starts_of(node, x, given, wanted), wanted, strict=True)
    ):
        if isinstance(start, int):
            low, high = [0] * rank(x), list(sizes(x))
            low[axis], high[axis] = start, start + size
            x = cut(x, low, high)
        else:
            x = op.take(x, start + op.iota(shape=(size,), dtype=i64), axis=axis, mode="clip")
    return x


def _dynamic_update_slice(node: HloNode) -> Expr:
    """The update where its places are: read there, and masked elsewhere."""
    x: Expr
    update: Expr
    x, update, *given = node.operands
    wanted, whole = sizes(update), sizes(x)
    starts = starts_of(node, x, given, wanted)
    if all(isinstance(each, int) for each in starts):
        ends = tuple([start + size for start, size in zip(starts, wanted, strict=True)])
        return op.strided_set(x, update, tuple(starts), ends)
    mask: Expr | None = None
    for axis, (start, size, count) in enumerate(zip(starts, wanted, whole, strict=True)):
        if size == count:
            continue
        from_ = const(start, i64) if isinstance(start, int) else start
        at = op.iota(shape=(count,), dtype=i64) - from_
        update = op.take(update, at, axis=axis, mode="clip") if size else x
        here = op.logical_and(at >= like(0, at), at < like(size, at))
        here = op.reshape(here, tuple([count if a == axis else 1 for a in range(rank(x))]))
        mask = here if mask is None else op.logical_and(mask, here)
    return update if mask is None else op.where(mask, update, x)


def _same(node: HloNode) -> Expr:
    return node.x


TABLE: Final[dict[str, Row]] = {
    "constant": _constant, "iota": _iota, "dynamic_iota": _iota, "broadcast_in_dim": _broadcast,
    "dynamic_broadcast_in_dim": _dynamic_broadcast, "reshape": _reshape,
    "dynamic_reshape": _reshape, "transpose": _transpose, "slice": _slice,
    "real_dynamic_slice": _real_dynamic_slice, "pad": _pad, "dynamic_pad": _dynamic_pad,
    "concatenate": _concatenate, "reverse": _reverse, "get_dimension_size": _size,
    "dynamic_slice": _dynamic_slice, "dynamic_update_slice": _dynamic_update_slice,
    "chlo.constant": _constant,
}  # fmt: skip
