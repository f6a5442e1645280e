"""Realise: what is computed of restored numbers is computed of the integers themselves.

    before:  quantise(nn.relu(nn.conv(dequantise(x, s, 0), dequantise(w, t, 0)) + b), u, 0)
    after:   cast(clip(fixed_multiply(nn.conv(cast(x, i32), cast(w, i32)) + b', m, n), 0, 127), i8)

Rules move `dequantise` outwards until it meets a `quantise`; there the two become one change of
scale in whole numbers (`plica.rewrite.quantise.fixed`), a shift where scales are powers of two
(`plica.rewrite.quantise.form`).  A layer keeps its sums in 32 bits, so only what is quantised is
rounded, once, as the `quantise` says.  What no rule speaks of stays between a `dequantise` and a
`quantise`, in floats.

Note [Steps]: a change of scale in whole numbers is exact, that in floats is not, so a number next
to the middle of two steps may go to the other.  The contract of such rules is one step of a byte.

Measure: `dequantise` goes outwards, over operators that none brings back, or disappears.

>>> [rule.name for rule in REALISE][:3]
['integer-conv', 'integer-dense', 'integer-matmul']
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from plica.ir.dim import known
from plica.ir.dtype import DType, f32, i8, i32, u8
from plica.ir.graph import Apply, Const, Expr, const
from plica.ir.infer import type_of
from plica.ir.op import find
from plica.ir.op.activation import relu
from plica.ir.op.convolution import conv
from plica.ir.op.elementwise import add, cast, clip, multiply, subtract
from plica.ir.op.index import take
from plica.ir.op.join import concat
from plica.ir.op.linear import dense, matmul
from plica.ir.op.pool import avg_pool, global_avg_pool
from plica.ir.op.quantise import dequantise, fixed_multiply, quantise
from plica.ir.op.reduction import mean, sum_
from plica.ir.op.window import sides
from plica.ir.operator import Operator
from plica.ir.type import TensorType, static_shape
from plica.rewrite.closed import closed, is_closed, value_of
from plica.rewrite.contract import approx, reassociates
from plica.rewrite.make import tabled as rule
from plica.rewrite.match import Match
from plica.rewrite.pack import Pack, pack
from plica.rewrite.pattern import either, hole, holes
from plica.rewrite.quantise.fixed import Array, common_shift, fixed_point, shift_of
from plica.rewrite.quantise.form import integer_layer
from plica.rewrite.rule import Rule

TINY: Final = float(np.finfo(np.float32).tiny)
ROOM: Final = 1 << 30
"""Sums stay below that, so that a bias and a half still fit beside them."""
STEP: Final = approx(1 / 64)
"""One step of a byte, of a range of which half is used; see Note [Steps]."""

BYTES: Final = (i8, u8)
x, v, w = hole("x", dtypes=BYTES), hole("v", dtypes=BYTES), hole("w", dtypes=BYTES)
sums = hole("sums", dtypes=i32)
f: Any = hole("f", dtypes=f32)
s, t, u, c = (closed(name, dtypes=f32) for name in "stuc")
z, y, o = (closed(name, dtypes=(i8, u8, i32)) for name in "zyo")
(rounding, low, high, least, most) = holes("rounding low high least most")

bytes_: Any = dequantise(x, s, z)
other: Any = dequantise(v, t, y)
weight: Any = dequantise(w, t, y)
whole: Any = dequantise(sums, s, z)


def into(value: Any) -> Any:
    """What is quantised, whatever its scale, zero point and bounds."""
    return quantise(value, u, o, rounding, low, high)


# --- numbers of constants ------------------------------------------------------------------------


def number(of: Expr) -> Array | None:
    """The array of a closed term, with finite numbers."""
    found = value_of(of)
    return None if found is None or not np.all(np.isfinite(found)) else found


def one(of: Expr) -> float | None:
    """The number that a closed term has everywhere."""
    found = number(of)
    return None if found is None or found.size != 1 else float(found.reshape(())[()])


def tensor(of: Expr) -> TensorType:
    """The type of a tensor."""
    found = type_of(of)
    assert isinstance(found, TensorType)
    return found


def along(values: Array, axis: int, rank: int, after: int) -> Array | None:
    """Numbers along one axis of a weight, as they stand `after` so many axes from the end of the
    result; None where they differ along another."""
    shape = (1,) * (rank - values.ndim) + values.shape
    if values.size == 1:
        return values.reshape(())
    if values.ndim > rank or shape[axis] != values.size:
        return None
    return values.reshape((values.size, *([1] * after)))


def centred(of: Expr, zero: Array) -> Expr:
    """Integers less their zero point, in i32."""
    wide = cast(of, i32)
    return wide if not np.any(zero) else subtract(wide, const(zero, i32))


def reach(of: Expr, zero: Array) -> int:
    """How far integers are from their zero point, at most."""
    bottom, top = (int(each) for each in tensor(of).dtype.bounds)
    return max(int(np.max(np.abs(top - zero.astype(np.int64)))), int(np.max(zero - bottom)))


def restored(of: Expr, scale: Array) -> Expr:
    """Sums of 32 bits as the numbers they stand for."""
    return dequantise(of, const(scale, f32), const(0, i32))


# --- layers: sums of products --------------------------------------------------------------------


def layer(record: Operator, outputs: int, after: int | None) -> Any:
    """A right side: the layer over integers.

    `outputs` is the axis of the weight that its results lie along, `after` how many axes follow
    these in the result, None for as many as there are windows.
    """

    def right(m: Match) -> Expr | None:
        scale, zero = number(m.s), number(m.z)
        factor, point = number(m.t), number(m.y)
        if scale is None or zero is None or factor is None or point is None:
            return None
        kind = tensor(m.w)
        rank = len(kind.shape)
        behind = rank - 2 if after is None else after
        apart = along(factor, outputs % rank, rank, behind)
        if scale.size != 1 or zero.size != 1 or apart is None or not fits(m, zero, point, outputs):
            return None
        data = centred(m.x, zero.reshape(()))
        other = centred(m.w, point if point.size > 1 else point.reshape(()))
        settings = {each.name: m[each.name] for each in record.attributes}
        product = scale.reshape(()).astype(np.float64) * apart
        return restored(record(data, other, **settings), product.astype(np.float32))

    return right


def fits(m: Match, zero: Array, point: Array, outputs: int) -> bool:
    """Whether no sum of a layer leaves 32 bits, with room for what is added to it."""
    far = reach(m.x, zero)
    values = value_of(m.w) if is_closed(m.w) else None
    if values is not None:
        apart = np.abs(values.astype(np.int64) - point.astype(np.int64))
        axis = outputs % apart.ndim
        heaviest = apart.sum(axis=tuple(n for n in range(apart.ndim) if n != axis))
        return bool(heaviest.size and int(heaviest.max()) * far < ROOM)
    shape = static_shape(tensor(m.w))
    if shape is None:
        return False
    terms = int(np.prod(shape)) // max(shape[outputs], 1)
    return terms * far * reach(m.w, point) < ROOM


def biased(m: Match) -> Expr | None:
    """Sums with a bias in their own scale."""
    scale, zero, bias = number(m.s), number(m.z), number(m.c)
    if scale is None or zero is None or bias is None or np.any(zero):
        return None
    steps = np.rint(bias.astype(np.float64) / scale.astype(np.float64))
    if steps.size == 0 or np.max(np.abs(steps)) >= ROOM:
        return None
    moved = add(m.sums, const(steps.astype(np.int32)))
    if tensor(moved).shape != tensor(m.sums).shape:
        return None
    return dequantise(moved, m.s, m.z)


def rescaled_sums(m: Match) -> Expr | None:
    """Sums times a constant are the same sums in another scale."""
    scale, factor = number(m.s), number(m.c)
    if scale is None or factor is None or not np.all(factor > 0):
        return None
    after = (scale.astype(np.float64) * factor).astype(np.float32)
    if not np.all(np.isfinite(after) & (after > TINY)):
        return None
    made = dequantise(m.sums, const(after, f32), m.z)
    return made if tensor(made).shape == tensor(m.sums).shape else None


# --- means ---------------------------------------------------------------------------------------


def averaged(
    m: Match, axes: tuple[int, ...] | None, keepdims: bool, mean: bool = True
) -> Expr | None:
    """A mean as a sum in a finer scale, or a sum."""
    scale, zero = one(m.s), one(m.z)
    shape = static_shape(tensor(m.x))
    if scale is None or zero is None or shape is None:
        return None
    over = range(len(shape)) if axes is None else [each % len(shape) for each in axes]
    count = int(np.prod([shape[each] for each in over]))
    if not 0 < count * 256 < ROOM:
        return None
    total = sum_(centred(m.x, np.array(int(zero))), axis=axes, keepdims=keepdims)
    return restored(total, np.array(scale / count if mean else scale))


def windowed(m: Match) -> Expr | None:
    """A mean of windows, all as large, as a convolution with ones."""
    scale, zero = one(m.s), one(m.z)
    shape = tensor(m.x).shape
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
    data = centred(m.x, np.array(int(zero)))
    strides = m.kernel if m.strides is None else m.strides
    total = conv(data, cast(ones, i32), strides=strides, padding=m.padding, groups=channels)
    return restored(total, np.array(scale / count))


# --- what leaves integers as they are ------------------------------------------------------------

# fmt: off
CARRIERS: Final = (
    "reshape", "transpose", "squeeze", "expand_dims", "swapaxes", "moveaxis", "ravel", "flip",
    "slice", "copy", "nn.flatten", "nn.max_pool", "nn.global_max_pool", "nn.space_to_depth",
    "nn.depth_to_space",
)
TABLED: Final = (
    "exp", "sqrt", "tanh", "erf", "nn.sigmoid", "nn.silu", "nn.gelu", "nn.hard_swish", "nn.mish",
    "nn.hard_sigmoid", "nn.leaky_relu", "nn.elu", "nn.celu", "nn.selu", "nn.softplus",
)
# fmt: on


def carried(name: str) -> Rule:
    """The rule that lets integers through an operator that only chooses or arranges them."""
    record = find(name)
    assert record is not None

    def right(m: Match) -> Expr | None:
        scale, zero = one(m.s), one(m.z)
        if scale is None or zero is None or scale <= 0:
            return None
        settings = {each.name: m[each.name] for each in record.attributes}
        return dequantise(record(m.x, **settings), m.s, m.z)

    settings = [hole(each.name) for each in record.attributes]
    return rule(f"integer-{spoken(name)}", record(bytes_, *settings), right)


def tabled(name: str) -> Rule:
    """The rule that makes a table of a function of one byte: 256 results, each as it was."""
    record = find(name)
    assert record is not None

    def right(m: Match) -> Expr | None:
        parts = [value_of(each) for each in (m.s, m.z, m.u, m.o)]
        if any(each is None or each.size != 1 for each in parts):
            return None
        bottom, top = (int(each) for each in tensor(m.x).dtype.bounds)
        every = const(np.arange(bottom, top + 1), tensor(m.x).dtype)
        settings = {each.name: m[each.name] for each in record.attributes}
        plain = [reshaped(each) for each in (m.s, m.z, m.u, m.o)]
        inside = record(dequantise(every, plain[0], plain[1]), **settings)
        results = value_of(quantise(inside, plain[2], plain[3], m.rounding, m.low, m.high))
        if results is None:
            return None
        place = cast(m.x, i32)
        place = place if not bottom else subtract(place, const(bottom, i32))
        return take(const(results, tensor(m.o).dtype), place, axis=0)

    settings = [hole(each.name) for each in record.attributes]
    return rule(f"table-{spoken(name)}", into(record(bytes_, *settings)), right)


def reshaped(of: Expr) -> Expr:
    """A constant of one number as a scalar."""
    found = value_of(of)
    assert found is not None
    return const(found.reshape(()), tensor(of).dtype)


def spoken(name: str) -> str:
    """The name of an operator as a part of the name of a rule."""
    return name.removeprefix("nn.").replace("_", "-")


# --- where integers come out ---------------------------------------------------------------------


def bounds(m: Match) -> tuple[int, int]:
    """The least and the greatest integer that a `quantise` gives."""
    bottom, top = (int(each) for each in tensor(m.o).dtype.bounds)
    return (bottom if m.low is None else m.low), (top if m.high is None else m.high)


def behind_relu(m: Match) -> Expr | None:
    """Numbers below zero are integers below the zero point."""
    zero, scale = one(m.o), number(m.u)
    if zero is None or scale is None or np.any(scale <= 0):
        return None
    bottom, top = bounds(m)
    return quantise(m.f, m.u, m.o, m.rounding, min(max(bottom, int(zero)), top), m.high)


def behind_clip(m: Match) -> Expr | None:
    """Bounds of numbers are bounds of integers."""
    scale, zero = one(m.u), one(m.o)
    if scale is None or zero is None or scale <= 0:
        return None
    bottom, top = bounds(m)
    given = [m.least, m.most]
    if any(each is not None and not np.isfinite(each) for each in given):
        return None
    if None not in given and m.least > m.most:
        return None
    ends: list[int] = []
    for each, end in zip(given, (bottom, top), strict=True):
        if each is None:
            ends.append(end)
            continue
        step = quantise(const(each, f32), reshaped(m.u), reshaped(m.o), m.rounding, m.low, m.high)
        found = value_of(step)
        if found is None:
            return None
        ends.append(int(found[()]))
    return quantise(m.f, m.u, m.o, m.rounding, ends[0], ends[1])


def rescaled(m: Match) -> Expr | None:
    """One change of scale in the place of two: sums, or bytes, become bytes."""
    data = m.filling.get("sums", m.filling.get("x"))
    parts = [number(each) for each in (m.s, m.z, m.u, m.o)]
    scale, zero, after, point = parts
    if scale is None or zero is None or after is None or point is None:
        return None
    if after.size != 1 or point.size != 1 or zero.size != 1:
        return None
    factor = scale.astype(np.float64) / after.reshape(()).astype(np.float64)
    dtype, (bottom, top) = tensor(m.o).dtype, bounds(m)
    ends = int(point.reshape(())[()])
    same = data is not m.filling.get("sums") and tensor(data).dtype is dtype
    if same and np.all(factor == 1) and int(zero.reshape(())[()]) == ends:
        return narrowed(data, dtype, bottom, top)
    inside = data if tensor(data).dtype is i32 else centred(data, zero.reshape(()))
    if tensor(data).dtype is i32 and np.any(zero):
        return None
    return requantised(inside, factor, ends, dtype, (bottom, top), m.rounding)


def narrowed(data: Expr, dtype: DType, bottom: int, top: int) -> Expr:
    """Integers within bounds; themselves where these are those of their dtype."""
    lowest, highest = dtype.bounds
    return data if (bottom, top) == (lowest, highest) else clip(data, min=bottom, max=top)


def requantised(  # noqa: PLR0917  # all that a change of scale is
    of: Expr, factor: Array, zero: int, dtype: DType, ends: tuple[int, int], rounding: str
) -> Expr | None:
    """`of * factor + zero` of i32 within bounds: a shift where that is all, else a product."""
    bottom, top = ends
    shift = shift_of(factor)
    if shift is not None and (rounding == "up" or not np.any(shift)):
        moved = (np.left_shift(1, shift) >> 1) + np.left_shift(np.int64(zero), shift)
        if np.all(np.abs(moved) < ROOM):
            return shifted(of, moved.astype(np.int64), shift, dtype, ends)
    fixed = fixed_point(factor)
    if fixed is None:
        return None
    multiplier, by = (const(each, i32) for each in fixed)
    product = fixed_multiply(of, multiplier, by, rounding=rounding)
    # Bounds come before the zero point: the sum of a greatest number and it would wrap around.
    held = clip(product, min=bottom - zero, max=top - zero)
    return cast(add(held, const(zero, i32)) if zero else held, dtype)


def shifted(
    of: Expr, moved: Array, shift: Array, dtype: DType, ends: tuple[int, int]
) -> Expr | None:
    """The form of `plica.rewrite.quantise.form`: the half and the zero point go into the bias."""
    inner, bias = of, moved
    if isinstance(of, Apply) and of.op == "add" and isinstance(of.args[1], Const):
        inner, bias = of.args[0], of.args[1].numpy().astype(np.int64) + moved
        if np.any(np.abs(bias) >= 2 * ROOM):
            inner, bias = of, moved
    made = integer_layer(inner, bias if np.any(bias) else None, shift, *ends)
    assert isinstance(made, Apply)
    return made if dtype is i8 else cast(made.args[0], dtype)


def summed(m: Match) -> Expr | None:
    """A sum of bytes of two scales: products with whole numbers, and one shift for both."""
    parts = [one(each) for each in (m.s, m.z, m.t, m.y, m.u, m.o)]
    if any(each is None for each in parts):
        return None
    left, zero, right, point, after, end = (each or 0.0 for each in parts)
    if min(left, right, after) <= 0:
        return None
    found = common_shift(left / after, right / after)
    if found is None:
        return None
    (a, b), shift = found
    terms = [
        scaled(centred(m.x, np.array(int(zero))), a),
        scaled(centred(m.v, np.array(int(point))), b),
    ]
    far = a * reach(m.x, np.array(int(zero))) + b * reach(m.v, np.array(int(point)))
    if far >= ROOM:
        return None
    factor = np.array(2.0**-shift)
    dtype = tensor(m.o).dtype
    return requantised(add(*terms), factor, int(end), dtype, bounds(m), m.rounding)


def scaled(of: Expr, by: int) -> Expr:
    """A product with a whole number; itself where that is one."""
    return of if by == 1 else multiply(of, const(by, i32))


def joined(m: Match) -> Expr | None:
    """Parts that are joined are quantised apart."""
    if one(m.u) is None or one(m.o) is None:
        return None
    whole_ = m.f
    if not isinstance(whole_, Apply) or whole_.op != "concat":
        return None
    if not all(isinstance(each, Apply) and each.op == "dequantise" for each in whole_.args):
        return None
    scale, zero = reshaped(m.u), reshaped(m.o)
    parts = [quantise(each, scale, zero, m.rounding, m.low, m.high) for each in whole_.args]
    return concat(tuple(parts), **dict(whole_.attrs))


conv_attributes = [hole(each.name) for each in conv.attributes]
matmul_attributes = [hole(each.name) for each in matmul.attributes]
axis, keepdims, kernel, strides, padding, ceil, counts = holes(
    "axis keepdims kernel strides padding ceil counts"
)


def tables() -> Iterator[Rule]:
    """A rule for each operator of the two lists."""
    yield from (carried(name) for name in CARRIERS)
    yield from (tabled(name) for name in TABLED)


# fmt: off
REALISE: Final[Pack] = pack(
    "realise",
    rule("integer-conv",     conv(bytes_, weight, *conv_attributes),     layer(conv, 0, None),  float=reassociates),
    rule("integer-dense",    dense(bytes_, weight),                      layer(dense, 0, 0),    float=reassociates),
    rule("integer-matmul",   matmul(bytes_, weight, *matmul_attributes), layer(matmul, -1, 0),  float=reassociates),
    rule("integer-bias",     either(whole + c, c + whole),               biased,                float=STEP),
    rule("integer-mean",     mean(bytes_, axis, keepdims),               lambda m: averaged(m, m.axis, m.keepdims), float=reassociates),
    rule("integer-sum",      sum_(bytes_, axis, keepdims),               lambda m: averaged(m, m.axis, m.keepdims, mean=False), float=reassociates),
    rule("scale-sums",       either(whole * c, c * whole),               rescaled_sums,         float=reassociates),
    rule("integer-global",   global_avg_pool(bytes_),                    lambda m: averaged(m, tuple(range(2, len(tensor(m.x).shape))), True), float=reassociates),
    rule("integer-avg-pool", avg_pool(bytes_, kernel, strides, padding, ceil, counts), windowed, float=reassociates),
    rule("quantise-relu",    into(relu(f)),                              behind_relu),
    rule("quantise-clip",    into(clip(f, least, most)),                 behind_clip),
    rule("rescale-sums",     into(whole),                                rescaled,              float=STEP),
    rule("rescale-bytes",    into(bytes_),                               rescaled,              float=STEP),
    rule("integer-add",      into(bytes_ + other),                       summed,                float=STEP),
    rule("integer-concat",   into(f),                                    joined),
    tables(),
    version="1",
    doc="What is computed of restored numbers is computed of the integers themselves.",
)  # noqa: E501
# fmt: on
