"""Byte windows: convolutions of bytes as rows of a product, or in floats where terms are few.

Windows of bytes over images of any size are rows of a product of bytes, channels last:

    before:  nn.conv(cast(q, i32) - z, w)                         some size of q is open
    after:   transpose(matmul(cast(rows of q, i32) - z, columns of w))    so for each group

Windows over one channel, depthwise ones say, are computed in floats, which hold all sums exactly:

    before:  nn.conv(cast(q, i32) - z, w, groups=g)
    after:   cast(nn.conv(cast(cast(q, i32) - z, f32), cast(w, f32), groups=g), i32)

    before:  cast(cast(such a window, i32), f32)
    after:   such a window

With several taps and several results, the taps become channels of a byte product:

    before:  nn.conv(cast(q, i32) - z, w)                                   q of one channel
    after:   nn.conv(cast(concat of q moved by each tap, i32) - z, w with taps for channels)

If channels are contiguous, a byte instruction may read windows directly: those whose channels its
lanes divide are left to it (`byte_windows_for`).

Measure: each rule removes a convolution of integers, or a cast.

>>> [rule.name for rule in BYTE_WINDOWS][3:6]
['byte-window-rows', 'byte-window-rows-zero', 'byte-window-rows-known']
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from math import prod
from typing import Final

import numpy as np

from plica.core.deferred import look_at
from plica.ir.contract import reassociates
from plica.ir.graph.expression import Apply, Expr, const
from plica.ir.graph.provenance import leaves_of
from plica.ir.loop.scalar import Scalar, index
from plica.ir.op.convolution import conv
from plica.ir.op.elementwise import cast, subtract
from plica.ir.op.window import Window, windows
from plica.ir.type import DType, TensorType, bool_, f32, i8, i32, i64, known, product, type_of, u8
from plica.rewrite.closed import are_bytes, closed, unseen, value_of
from plica.rewrite.make import tabled as rule
from plica.rewrite.match import PatternMatch
from plica.rewrite.pack import Pack, pack
from plica.rewrite.packs.byte_middle import Array, by_bytes, groups, n, q, spans_bytes, window
from plica.rewrite.packs.byte_product import (
    IMAGES,
    MAX_TERMS,
    MIN_TERMS,
    one_number,
    sizes_of_tensor,
    summed_in_integers,
    tensor_dtype,
)
from plica.rewrite.packs.byte_row import BYTE_ROWS
from plica.rewrite.packs.word import op

k = closed("k", dtypes=i32, rank=(3, 4, 5))
f = closed("k", dtypes=f32, rank=(3, 4, 5))
a = closed("a", dtypes=i32, rank=0)
SIDES: Final = (("", cast(q, i32) - n), ("-zero", cast(q, i32)), ("-known", cast(q, i32) + a))
"""Data less a zero point that is given, none, or known, and what rules for it are called."""

MAX_TAPS: Final = 25  # terms of a window that dot products take, at most
MIN_FILLED_TERMS: Final = 4  # terms that fill a dot product, at least
MIN_TAPS_AND_OUTPUTS: Final = 8  # taps and results that fill instructions for bytes, at least
MAX_EXACT_F32: Final = 1 << 24  # whole numbers up to that are floats, and so are all sums of them


def over_rows(m: PatternMatch) -> Expr | None:
    """A convolution as a product of its windows, channels last; None if all sizes are known, which
    other forms handle, or if sums or results are too few."""
    weight, of = unseen(m.k), type_of(m.q)
    assert isinstance(of, TensorType)
    if weight is None:
        return None
    depth, zero, groups = prod(weight.shape[1:]), _zero(m), int(m.groups)
    each, outputs = weight.shape[1], len(weight) // groups
    sizes = of.shape if groups == 1 else of.shape[2:]  # images of one size are one kernel's each
    if all(known(size) is not None for size in sizes):
        return None
    look_at(leaves_of(m.k))
    if not spans_bytes(weight, tuple(range(1, weight.ndim))):
        return None
    if (
        not (MIN_TERMS if groups == 1 else MIN_FILLED_TERMS) <= depth <= MAX_TERMS
        or groups > each == 1
    ):
        return None
    if zero is not None and (sizes_of_tensor(zero) != () or not _is_one_of(zero, of.dtype)):
        return None
    rank = weight.ndim - 2
    attrs = {name: m[name] for name in ("strides", "padding", "dilation")}
    sliding = windows("nn.conv", attrs, rank)
    whole = [size + way.before + way.after for size, way in zip(of.shape[2:], sliding, strict=True)]
    counts: list[Scalar] = []
    places: Expr | None = None  # of what a window holds, in an image that is one row
    for at, (way, size) in enumerate(zip(sliding, weight.shape[2:], strict=True)):
        counts.append(way.count("nn.conv", of.shape[2 + at], index(size)))
        here = _steps(counts[-1], at, 2 * rank, way.stride)
        here = here + _steps(index(size), rank + at, 2 * rank, way.dilation)
        places = here if places is None else places * op("dim_value")(dim=whole[at]) + here
    batch, last = of.shape[0], (0, *range(2, rank + 2), 1)
    x = _bordered(m.q, zero, sliding)
    columns: Array = weight.transpose(*last[1:], 0).reshape(depth, len(weight))
    apart: tuple[Scalar, ...] = ()
    if groups > 1:  # a product for each
        apart = (index(groups),)
        x = op("reshape")(x, shape=(batch, *apart, index(each), *whole))
        x = op("transpose")(x, axes=(1, 0, *range(3, rank + 3), 2))
        columns = columns.reshape(depth, groups, outputs).transpose(1, 0, 2)
    else:
        x = op("transpose")(x, axes=last)
    flat = op("reshape")(x, shape=(*apart, batch, product(whole), index(each)))
    taken = op("take")(flat, places, axis=len(apart) + 1)
    rows: Expr = op("reshape")(taken, shape=(*apart, product((batch, *counts)), index(depth)))
    data = cast(rows, i32) if zero is None else subtract(cast(rows, i32), zero)
    sums = op("reshape")(by_bytes(data, columns), shape=(*apart, batch, *counts, index(outputs)))
    if groups == 1:
        expr: Expr = op("transpose")(sums, axes=(0, rank + 1, *range(1, rank + 1)))
    else:
        beside = op("transpose")(sums, axes=(1, 0, rank + 2, *range(2, rank + 2)))
        expr = op("reshape")(beside, shape=(batch, index(len(weight)), *counts))
    return expr


def in_floats(m: PatternMatch, lanes: int = 0) -> Expr | None:
    """Windows over one channel in floats, which hold their sums exactly, or over their taps; None
    if there are many terms, numbers may exceed a byte, or channels fill vectors.

    One channel fills no tile of Winograd's, which would round: `Costs.tiled` says so.
    """
    weight, zero = unseen(m.k), _zero(m)
    if weight is None or not weight.size or weight.shape[1] > 1:
        return None
    if lanes and _is_of_lanes(m, m.k, weight.shape, lanes):
        return None
    look_at(leaves_of(m.k))
    if (gathered := over_taps(m, weight, zero)) is not None:
        return gathered
    if not _is_exact(m.q, zero, weight):
        return None
    data = cast(m.q, i32) if zero is None else subtract(cast(m.q, i32), zero)
    return cast(_of_floats(m, data, weight), i32)


def over_taps(m: PatternMatch, weight: Array, zero: Expr | None) -> Expr | None:
    """A window over a single channel as a product over its taps, which become channels; None if
    taps or results are few, or numbers exceed a byte."""
    sizes, dtype, (low, high) = sizes_of_tensor(m.q), tensor_dtype(m.q), i8.bounds
    taps = weight.shape[2:]
    if sizes is None or m.groups != 1 or min(len(weight), prod(taps)) < MIN_TAPS_AND_OUTPUTS:
        return None
    if dtype is None or weight.min() < low or weight.max() > high:
        return None
    if zero is not None and (sizes_of_tensor(zero) != () or not _is_one_of(zero, dtype)):
        return None
    attrs = {name: m[name] for name in ("strides", "padding", "dilation")}
    sliding = windows("nn.conv", attrs, len(taps))
    taken: Expr = _bordered(m.q, zero, sliding)
    for at in reversed(range(len(taps))):  # those of one axis are taken for all of the next
        way, axis = sliding[at], at + 2
        span = sizes[axis] + way.before + way.after - way.dilation * (taps[at] - 1)
        if span < 1:
            return None
        parts = [
            op("slice")(
                taken, starts=(start,), stops=(start + span,), steps=(way.stride,), axes=(axis,)
            )
            for start in range(0, way.dilation * taps[at], way.dilation)
        ]
        taken = op("concat")(parts, axis=1)
    data = cast(taken, i32) if zero is None else subtract(cast(taken, i32), zero)
    columns = weight.reshape(len(weight), -1, *(1,) * len(taps)).astype(np.int32)
    return conv(data, const(columns, i32))


def still_floats(m: PatternMatch) -> Expr | None:
    """Such a window that was cast to integers on the way to floats."""
    weight, zero = value_of(m.k), _zero(m)
    if weight is None or (weight != np.rint(weight)).any() or not _is_exact(m.q, zero, weight):
        return None
    return _of_floats(m, cast(m.q, i32) if zero is None else subtract(cast(m.q, i32), zero), weight)


def _of_floats(m: PatternMatch, data: Expr, weight: Array) -> Expr:
    attrs = {name: m[name] for name in ("strides", "padding", "dilation", "groups")}
    return conv(cast(data, f32), const(weight.astype(np.float32), f32), **attrs)


def _is_exact(data: Expr, zero: Expr | None, weight: Array) -> bool:
    """Whether all sums of a window over one channel are floats."""
    if not weight.size or weight.shape[1] > 1 or not (zero is None or _is_byte(zero)):
        return False
    sums = np.abs(weight.astype(np.float64)).reshape(len(weight), -1).sum(axis=1)
    return bool(sums.max() * _furthest(data, zero) <= MAX_EXACT_F32)


def _zero(m: PatternMatch) -> Expr | None:
    """The zero point of the data, or None."""
    if "a" in m.filling:
        return const(-int(one_number(m.a)), i32)
    return m.z if "z" in m.filling else None


def _is_of_lanes(m: PatternMatch, weight: Expr, shape: tuple[int, ...], lanes: int) -> bool:
    """Whether dot products take a window, of which each channel is one of a given number of
    lanes."""
    sizes = sizes_of_tensor(m.q)
    alone = m.groups == shape[0] and shape[1] == 1 and shape[0] % lanes == 0
    if (
        len(shape) != 4
        or not prod(shape)
        or not alone
        or sizes is None
        or prod(shape[2:]) > MAX_TAPS
    ):
        return False
    attrs = {name: m[name] for name in ("strides", "padding", "dilation")}
    even = all(each.dilation == 1 for each in windows("nn.conv", attrs, len(shape) - 2))
    return even and are_bytes(weight)


def _is_one_of(zero: Expr, dtype: DType) -> bool:
    """Whether an i32 zero point is representable in a byte dtype, as padding requires."""
    if (number := one_number(zero)) is not None:
        return bool(dtype.bounds[0] <= number <= dtype.bounds[1])
    return isinstance(zero, Apply) and zero.op == "cast" and tensor_dtype(zero.args[0]) is dtype


def _furthest(data: Expr, zero: Expr | None) -> int:
    """How far from nothing bytes less a zero point, which is a byte, can be."""
    number = 0 if zero is None else one_number(zero)
    low, high = (int(number),) * 2 if number is not None else (int(i8.bounds[0]), int(u8.bounds[1]))
    least, most = (u8 if tensor_dtype(data) is u8 else i8).bounds
    return max(int(most) - low, high - int(least))


def _is_byte(of: Expr) -> bool:
    """Whether a term of i32 is a byte."""
    if (number := one_number(of)) is not None:
        return bool(abs(number) <= max(map(abs, u8.bounds)))
    inside = of.args[0] if isinstance(of, Apply) and of.op == "cast" else of
    return tensor_dtype(inside) in (i8, u8)


def _steps(count: Scalar, axis: int, rank: int, step: int) -> Expr:
    """Multiples of a step along an axis, of a given number of axes."""
    shape = [count if at == axis else index(1) for at in range(rank)]
    expr: Expr = op("iota")(shape=tuple(shape), axis=axis) * const(step, i64)
    return expr


def _bordered(data: Expr, zero: Expr | None, sliding: Sequence[Window]) -> Expr:
    """Data padded with the zero point."""
    if not any(each.before or each.after for each in sliding):
        return data
    of = type_of(data)
    assert isinstance(of, TensorType)
    widths = ((0, 0), (0, 0), *[(each.before, each.after) for each in sliding])
    padded: Expr = op("pad")(data, pad_width=widths)
    if zero is None:
        return padded
    there = op("full")(shape=(1, 1, *of.shape[2:]), value=True, dtype=bool_)
    inside = op("pad")(there, pad_width=widths, constant_values=False)
    expr: Expr = op("where")(inside, padded, cast(zero, of.dtype))
    return expr


def by_channel(m: PatternMatch, lanes: int) -> Expr | None:
    """A window over one channel of restored bytes as that of integers in its scale."""
    fits = _is_of_lanes(m, m.w, m.w.shape, lanes)
    return summed_in_integers(m, 1, last=False) if fits else None


@lru_cache(maxsize=4)
def byte_channels_for(lanes: int) -> Pack:
    """The rules where dot products take windows over as many channels as these lanes divide."""
    made = partial(by_channel, lanes=lanes)
    return pack(
        "byte-channels",
        *[
            rule(f"byte-channel{end}", conv(left, right, *window, groups), made, float=reassociates)
            for end, left, right in IMAGES
        ],
        version="1",
        doc="Windows of restored bytes over one channel are summed as integers.",
    )


@lru_cache(maxsize=4)
def byte_windows_for(lanes: int = 0) -> Pack:
    """The rules where dot products take windows of a given number of channels by themselves, or of
    none."""
    # fmt: off
    apart = partial(in_floats, lanes=lanes)
    return pack(
        "byte-windows",
        *BYTE_ROWS,
        *[rule(f"byte-window-rows{end}", conv(data, k, *window, groups), over_rows)
          for end, data in SIDES],
        *[rule(f"byte-window-apart{end}", conv(data, k, *window, groups), apart)
          for end, data in SIDES],
        *[rule(f"byte-window-float{end}",
               cast(cast(conv(cast(data, f32), f, *window, groups), i32), f32), still_floats)
          for end, data in SIDES[:2]],
        version="1",
        doc="Compute int8 windows of open image sizes as rows of a product.",
    )
    # fmt: on


BYTE_WINDOWS: Final = byte_windows_for()  # the rules for targets without dot products over windows
