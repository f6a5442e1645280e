"""Layers, sums and means over integers: right sides of rules."""

from __future__ import annotations

from typing import Any

import numpy as np

from plica.ir.graph import Expr, Operator, const
from plica.ir.op.convolution import conv
from plica.ir.op.elementwise import add, cast
from plica.ir.op.quantise import dequantise
from plica.ir.op.reduction import sum_
from plica.ir.op.window import sides
from plica.ir.type import f32, i32, known, static_shape
from plica.rewrite.closed import is_closed, value_of
from plica.rewrite.match import PatternMatch
from plica.rewrite.quantise import word
from plica.rewrite.quantise.word import Array


def layer(record: Operator, outputs: int, after: int | None) -> Any:
    """A right side: the layer over integers.

    `outputs` is the weight's output axis, `after` the number of axes that follow it in the result;
    None means the number of windows.
    """

    def right(m: PatternMatch) -> Expr | None:
        scale, zero = word.number(m.s), word.number(m.z)
        factor, point = word.number(m.t), word.number(m.y)
        if scale is None or zero is None or factor is None or point is None:
            return None
        kind = word.tensor(m.w)
        rank = len(kind.shape)
        behind = rank - 2 if after is None else after
        apart = word.along(factor, outputs % rank, rank, behind)
        if scale.size != 1 or zero.size != 1 or apart is None or not fits(m, zero, point, outputs):
            return None
        data = word.centred(m.x, zero.reshape(()))
        other = word.centred(m.w, point if point.size > 1 else point.reshape(()))
        settings = {attribute.name: m[attribute.name] for attribute in record.attributes}
        product = scale.reshape(()).astype(np.float64) * apart
        return word.restored(record(data, other, **settings), product.astype(np.float32))

    return right


def fits(m: PatternMatch, zero: Array, point: Array, outputs: int) -> bool:
    """Whether no sum of a layer overflows 32 bits, including what is added to it."""
    far = word.reach(m.x, zero)
    values = value_of(m.w) if is_closed(m.w) else None
    if values is not None:
        apart = np.abs(values.astype(np.int64) - point.astype(np.int64))
        axis = outputs % apart.ndim
        heaviest = apart.sum(axis=tuple(n for n in range(apart.ndim) if n != axis))
        return bool(heaviest.size and int(heaviest.max()) * far < word.SUM_LIMIT)
    if (shape := static_shape(word.tensor(m.w))) is None:
        return False
    terms = int(np.prod(shape)) // max(shape[outputs], 1)
    return terms * far * word.reach(m.w, point) < word.SUM_LIMIT


def biased(m: PatternMatch) -> Expr | None:
    """Sums with a bias in their own scale."""
    scale, zero, bias = word.number(m.s), word.number(m.z), word.number(m.c)
    if scale is None or zero is None or bias is None or np.any(zero):
        return None
    steps = np.rint(bias.astype(np.float64) / scale.astype(np.float64))
    if steps.size == 0 or np.max(np.abs(steps)) >= word.SUM_LIMIT:
        return None
    moved = add(m.sums, const(steps.astype(np.int32)))
    if word.tensor(moved).shape != word.tensor(m.sums).shape:
        return None
    return dequantise(moved, m.s, m.z)


def rescaled_sums(m: PatternMatch) -> Expr | None:
    """Sums times a constant are the same sums in another scale."""
    scale, factor = word.number(m.s), word.number(m.c)
    if scale is None or factor is None or not np.all(factor > 0):
        return None
    after = (scale.astype(np.float64) * factor).astype(np.float32)
    if not np.all(np.isfinite(after) & (after > word.TINY)):
        return None
    expr = dequantise(m.sums, const(after, f32), m.z)
    return expr if word.tensor(expr).shape == word.tensor(m.sums).shape else None


def rescaled_bytes(m: PatternMatch) -> Expr | None:
    """Bytes times one constant are the same bytes in another scale."""
    scale, factor = word.one(m.s), word.number(m.c)
    if scale is None or factor is None or factor.size != 1 or not np.all(factor > 0):
        return None
    after = np.float32(scale * float(factor.reshape(())[()]))
    expr = dequantise(m.x, const(after, f32), m.z)
    if not np.isfinite(after) or after <= word.TINY or factor.ndim > len(word.tensor(m.x).shape):
        return None
    return expr


def averaged(
    m: PatternMatch, axes: tuple[int, ...] | None, keepdims: bool, mean: bool = True
) -> Expr | None:
    """A mean as a sum in a finer scale, or a sum."""
    scale, zero = word.one(m.s), word.one(m.z)
    shape = static_shape(word.tensor(m.x))
    if scale is None or zero is None or shape is None:
        return None
    over = range(len(shape)) if axes is None else [axis % len(shape) for axis in axes]
    count = int(np.prod([shape[each] for each in over]))
    if not 0 < count * 256 < word.SUM_LIMIT:
        return None
    total = sum_(word.centred(m.x, np.array(int(zero))), axis=axes, keepdims=keepdims)
    return word.restored(total, np.array(scale / count if mean else scale))


def windowed(m: PatternMatch) -> Expr | None:
    """A mean of windows, all as large, as a convolution with ones."""
    scale, zero = word.one(m.s), word.one(m.z)
    shape = word.tensor(m.x).shape
    channels = known(shape[1])
    rank = len(shape) - 2
    if scale is None or zero is None or not channels or m.ceil or not 1 <= rank <= 3:
        return None
    pads = sides("nn.avg_pool", m.padding, rank)
    if any(side for pair in pads for side in pair) and not m.counts:
        return None
    kernel = (m.kernel,) * rank if isinstance(m.kernel, int) else m.kernel
    count = int(np.prod(kernel))
    ones = const(np.ones((channels, 1, *kernel), np.int8))
    data = word.centred(m.x, np.array(int(zero)))
    strides = m.kernel if m.strides is None else m.strides
    total = conv(data, cast(ones, i32), strides=strides, padding=m.padding, groups=channels)
    return word.restored(total, np.array(scale / count))
