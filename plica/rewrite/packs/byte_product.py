"""Byte products: dequantised matrices are multiplied as integers, and low-bit weights stay packed.

    before:  matmul(cast(cast(q, i32) - z, f32) * s, cast(cast(w, i32) - y, f32) * t)
    after:   cast(matmul(cast(q, i32) - z, w - y), f32) * (s * t)   so nn.dense and nn.conv

Models say so that were quantised between floats, of constants w.  Sums of products of bytes are
exact in i32, and a processor with an instruction for them adds four at once.

Bytes of the other sign, and zero points of any kind, are moved (`plica.rewrite.packs.byte_middle`).

If a few rows of floats are multiplied by dequantised integers, reading the weight dominates
(`few_bits_for`).

    before:  matmul(x, cast(w - z, f32) * t)        w constant, t and z one for a group of a column
    after:   nn.packed_dense(x, words of w, t, z)   so for floats of 16 bits

Measure: each rule removes a product of floats, or a restored weight.

>>> [rule.name for rule in BYTE_PRODUCTS][:2]
['byte-product', 'byte-product-at-zero']
"""

from __future__ import annotations

from functools import lru_cache, partial
from math import prod
from typing import Any, Final

import numpy as np

from plica.core.deferred import look_at, unobserved
from plica.ir.contract import approx, reassociates
from plica.ir.graph.expression import Apply, Const, Expr, const
from plica.ir.graph.provenance import derived_const, leaves_of
from plica.ir.loop.scalar import index
from plica.ir.op.convolution import conv
from plica.ir.op.elementwise import cast, multiply, subtract
from plica.ir.op.linear import dense, matmul
from plica.ir.op.shape import transpose
from plica.ir.type import DType, TensorType, f32, i8, i32, known, type_of, u8
from plica.rewrite.closed import closed, is_closed, value_anew, value_of
from plica.rewrite.make import tabled as rule
from plica.rewrite.match import PatternMatch
from plica.rewrite.pack import Pack, pack
from plica.rewrite.packs.byte_middle import (
    MOVED_BYTES,
    Array,
    fits_bytes,
    groups,
    q,
    spans_bytes,
    window,
    with_and_without,
)
from plica.rewrite.packs.word import op
from plica.rewrite.pattern import hole, holes

MAX_TERMS: Final = 1 << 15  # this many products of two bytes are less than 2**31 together
SCALE_RANGE: Final = (1e-15, 1e15)
"""Scales between these, whose products are neither infinite nor without bits."""

MIN_TERMS: Final = 16  # shorter sums leave an instruction with four products half empty

w: Any = hole("w", constant=True, dtypes=(i8, u8), rank=2)
v: Any = hole("w", constant=True, dtypes=(i8, u8), rank=(3, 4, 5))
s, t = closed("s", dtypes=f32), closed("t", dtypes=f32)
z, y = closed("z", dtypes=i32), closed("y", dtypes=i32)


def one_number(of: Expr) -> Any:
    """The value of a closed scalar term, or None if it has several."""
    array = value_of(of)
    return None if array is None or array.size != 1 else array.reshape(()).item()


def _is_tame(scales: Array) -> bool:
    low, high = SCALE_RANGE
    return bool(scales.size and ((low < np.abs(scales)) & (np.abs(scales) < high)).all())


def _scales(m: PatternMatch, *, last: bool) -> Array | None:
    """The scale of each column of the result, or of all; outputs are the weight's last axis, or
    its first."""
    left, right = value_of(m.s), value_of(m.t)
    if left is None or right is None or left.size != 1 or not (_is_tame(left) and _is_tame(right)):
        return None
    shape = m.w.shape
    if right.size == 1:
        return np.asarray(right.reshape(()) * left.reshape(()), np.float32)
    if last:
        found, places = right.shape[-1:], shape[1:]
    else:
        found, places = right.shape[-len(shape) :][:1], (shape[0], *(1,) * (len(shape) - 2))
    if found != places[:1] or right.size != places[0]:
        return None  # a scale for each row would stay inside of the sum
    return np.asarray(right.reshape(places) * left.reshape(()), np.float32)


def _weight(m: PatternMatch, shallowest: int, *, last: bool) -> Const | None:
    """The weight's numbers minus their zero point; None if those of a sum then exceed a byte, or if
    sums are too short or too long."""
    with unobserved():
        array: Array = m.w.numpy().astype(np.int32)
    expr, zero = cast(m.w, i32), np.zeros((), np.int32)
    if "y" in m.filling:
        told = value_of(m.y)
        if told is None or np.broadcast_shapes(told.shape, array.shape) != array.shape:
            return None
        array, expr, zero = array - told, subtract(expr, m.y), told
    depth = len(array) if last else prod(array.shape[1:])
    if not shallowest <= depth:
        return None
    if not _is_told_by_dtype(m.w.dtype, zero, depth):
        look_at(leaves_of(m.w))
    if array.ndim > 2 and array.shape[1] == 1 and (shallowest > 1 or not fits_bytes(array)):
        return None  # an instruction takes neighbours that are channels, or bytes as they are
    terms = (0,) if last else tuple(range(1, array.ndim))
    if not spans_bytes(array, terms):
        return None
    most = int(np.abs(array.astype(np.int64)).max())
    if depth * most > MAX_TERMS * -int(i8.bounds[0]):
        return None
    if array.ndim == 2 and not last:
        return derived_const(transpose(expr, (1, 0)), const(array.T, i32))
    return derived_const(expr, const(array, i32))


def _is_told_by_dtype(of: DType, zero: Array, depth: int) -> bool:
    """Whether numbers are signed bytes, and sums of this many of them short enough, in any case."""
    return of is i8 and not zero.any() and depth <= MAX_TERMS


def in_integers(m: PatternMatch) -> Expr | None:
    """The product of integers, in its scale."""
    return summed_in_integers(m, last=True)


def outputs_first(m: PatternMatch) -> Expr | None:
    """The same where the weight has its outputs first, as dense layers and windows have."""
    return summed_in_integers(m, last=False)


def over_windows(m: PatternMatch) -> Expr | None:
    """The same of a convolution; in groups where images are of open sizes, which are products."""
    groups, of = int(m.groups), type_of(m.q)
    assert isinstance(of, TensorType)
    if groups > 1 and all(known(size) is not None for size in of.shape[2:]):
        return None
    return summed_in_integers(m, last=False)


def summed_in_integers(m: PatternMatch, shallowest: int = MIN_TERMS, *, last: bool) -> Expr | None:
    """A product of dequantised bytes as an integer product with a scale, or None if types, lengths
    or scales do not allow it."""
    scales, weight = _scales(m, last=last), _weight(m, shallowest, last=last)
    if scales is None or weight is None:
        return None
    data = cast(m.q, i32)
    if "z" in m.filling:
        zero = one_number(m.z)
        if zero is None or abs(zero) > max(map(abs, u8.bounds)):
            return None
        data = subtract(data, const(int(zero), i32))
    if len(weight.shape) == 2:
        sums = matmul(data, weight)
    else:
        names = ("strides", "padding", "dilation", "groups")
        window = {name: m[name] for name in names if name in m.filling}
        sums = conv(data, weight, **window)
    return multiply(cast(sums, f32), const(scales, f32))


moved, at_zero = cast(cast(q, i32) - z, f32) * s, cast(q, f32) * s
by, by_zero = cast(cast(w, i32) - y, f32) * t, cast(w, f32) * t
over, over_zero = cast(cast(v, i32) - y, f32) * t, cast(v, f32) * t
MATRICES: Final = with_and_without((moved, at_zero), (by, by_zero))
IMAGES: Final = with_and_without((moved, at_zero), (over, over_zero))

# fmt: off
BYTE_PRODUCTS: Final[Pack] = pack(
    "bytes",
    *(rule(f"byte-product{end}", matmul(left, right), in_integers, float=reassociates)
      for end, left, right in MATRICES),
    *(rule(f"byte-dense{end}", dense(left, right), outputs_first, float=reassociates)
      for end, left, right in MATRICES),
    *MOVED_BYTES,
    *(rule(f"byte-window{end}", conv(left, right, *window, groups), over_windows,
           float=reassociates) for end, left, right in IMAGES),
    version="1",
    doc="Matrices of restored bytes are multiplied as integers.",
)
# fmt: on


# --- weights of few bits --------------------------------------------------------------------------

FEW_ROWS: Final = 8  # the number of rows up to which unpacking dominates the products
WORD_BITS: Final = 32
GROUP_SIZES: Final = (16, 32, 64, 128, 256, 512)
"""Sizes of groups that are looked for where scales do not tell theirs."""

ARRANGING_OPERATORS: Final = ("transpose", "reshape", "slice", "cast")
(x,) = holes("x")

MAX_EXACT_F16: Final = 256  # whole numbers up to that are floats of 16 bits, of either kind


@lru_cache(maxsize=16)
def few_bits_for(cache: int, most_rows: int = FEW_ROWS, dtypes: tuple[DType, ...] = (f32,)) -> Pack:
    """The rules if the floats of a weight exceed a cache and there are few rows."""

    def in_words(m: PatternMatch, *, turned: bool) -> Expr | None:
        shape, own, dtype = sizes_of_tensor(m.x), sizes_of_tensor(m.whole), tensor_dtype(m.x)
        if shape is None or own is None or dtype not in dtypes:
            return None
        if not 0 < prod(shape[:-1]) <= most_rows or prod(own) * dtype.bytes <= cache:
            return None
        return _in_words(m.x, m.whole, shape[-1], dtype, turned=turned)

    by_columns, by_rows = (partial(in_words, turned=turned) for turned in (True, False))
    whole: Any = hole("whole", dtypes=dtypes, rank=2, when=_is_restored)
    return pack(
        "few-bits",
        rule("few-bit-columns", matmul(x, whole), by_columns, float=approx(1e-6)),
        rule("few-bit-rows", dense(x, whole), by_rows, float=approx(1e-6)),
        version="1",
        doc="Weights of few bits stay so where few rows are multiplied by them.",
    )


def _is_restored(of: object) -> bool:
    """Whether a closed term is a product of constants, as restored integers are, moved or not."""
    while isinstance(of, Apply) and of.op in ARRANGING_OPERATORS:
        of = of.args[0]
    return isinstance(of, Apply) and of.op == "multiply" and is_closed(of)


def sizes_of_tensor(of: Expr) -> tuple[int, ...] | None:
    """The static shape of a term, or None."""
    found = type_of(of)
    if not isinstance(found, TensorType):
        return None
    sizes = [known(size) for size in found.shape]
    return None if None in sizes else tuple([size or 0 for size in sizes])


def tensor_dtype(of: Expr) -> DType | None:
    found = type_of(of)
    return found.dtype if isinstance(found, TensorType) else None


def _in_words(data: Expr, weight: Expr, depth: int, dtype: DType, *, turned: bool) -> Expr | None:
    """The product by the numbers themselves, or None if they have too many bits.

    Rows of the weight are rows of the result, or columns if it is `turned`.
    """
    if (found := _by_rows(weight, dtype, turned=turned)) is None:
        return None
    numbers, scales, zeros = found
    low = min(int(numbers.min()), 0)
    bits = next((each for each in (2, 4, 8) if int(numbers.max()) - low < 1 << each), None)
    group = numbers.shape[1] // scales.shape[1]
    if bits is None or group * bits % WORD_BITS or not np.isfinite(scales).all():
        return None
    zeros = zeros.astype(np.float32) - np.float32(low)
    widest = max(int(numbers.max()) - low - float(zeros.min()), float(zeros.max()), -low)
    if ((zeros == np.floor(zeros)) & (zeros >= 0) & (zeros < 256)).all():
        zeros = zeros.astype(np.uint8)
    if dtype is not f32:
        narrow = scales.astype(dtype.numpy)
        if zeros.dtype != np.uint8 or widest > MAX_EXACT_F16 or (narrow != scales).any():
            return None  # where they are restored they are rounded on the way
        scales = narrow
    several = 8 // bits
    parts = (numbers - low).astype(np.uint8).reshape(len(numbers), -1, several)
    held = parts[:, :, 0].copy()
    for each in range(1, several):
        held |= parts[:, :, each] << (bits * each)
    words = held.view("<i4").astype(np.int32)
    if missing := numbers.shape[1] - depth:
        widths = (*(((0, 0),) * (len(sizes_of_tensor(data) or ()) - 1)), (0, missing))
        data = op("pad")(data, pad_width=widths)
    packed_dense = op("nn.packed_dense")  # its file is loaded where it is used
    expr: Expr = packed_dense(data, const(words), const(scales), const(zeros), bits=bits)
    return expr


def _by_rows(weight: Expr, dtype: DType, *, turned: bool) -> tuple[Array, Array, Array] | None:
    """The numbers of a weight, and scales and zero points of its groups: a row for each output.

    They are restored in f32 or in a dtype, and rounded to no other.
    """
    path: list[Apply] = []
    while isinstance(weight, Apply) and weight.op in ARRANGING_OPERATORS:
        path.append(weight)
        weight = weight.args[0]
    if any(tensor_dtype(expr) not in (f32, dtype) for expr in (weight, *path)):
        return None
    if (parts := _restored(weight)) is None:
        return None
    shape = np.broadcast_shapes(*[part.shape for part in parts])
    numbers, scales, zeros = (np.broadcast_to(part, shape) for part in parts)
    flipped, groups = False, numbers.ndim == 3
    for step in reversed(path):
        sizes = sizes_of_tensor(step)
        if step.op != "transpose" and sizes == shape:
            continue
        if step.op == "transpose" and len(shape) == 2 and sizes == shape[::-1]:
            flipped, shape = not flipped, shape[::-1]
        elif sizes is not None and not flipped and groups and _keeps_rows(step, sizes, shape):
            shape = sizes
        else:
            return None
    if groups:
        if turned != flipped or len(shape) != 2 or scales.strides[2] or zeros.strides[2]:
            return None
        return numbers.reshape(len(numbers), -1), scales[:, :, 0], zeros[:, :, 0]
    if numbers.ndim != 2:
        return None
    if turned != flipped:
        numbers, scales, zeros = numbers.T, scales.T, zeros.T
    sizes_of = [_group(scales), _group(zeros)]
    if None in sizes_of:
        return None
    group = min(each for each in sizes_of if each is not None)
    return numbers, scales[:, ::group], zeros[:, ::group]


def _keeps_rows(step: Apply, sizes: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """Whether a step joins the groups of each row, or leaves out its last columns, which are
    multiplied by nothing."""
    if step.op == "reshape":
        return sizes == (shape[0], prod(shape[1:]))
    if step.op != "slice" or len(sizes) != 2 or sizes[0] != shape[0]:
        return False
    attrs = dict(step.attrs)
    return attrs["starts"] == (index(0),) and attrs["axes"] == (1,) and attrs["steps"] is None


def _group(of: Array) -> int | None:
    """The number of equal neighbours per row, or None if neighbours differ."""
    depth = int(of.shape[1])
    if not of.strides[1]:
        return depth
    for size in sorted(GROUP_SIZES, reverse=True):
        if depth % size == 0:
            parts = of.reshape(len(of), -1, size)
            if (parts == parts[:, :, :1]).all():
                return size
    return None


def _restored(of: Expr) -> tuple[Array, Array, Array] | None:
    """The integers, scales and zero points of a term that restores constants."""
    if not isinstance(of, Apply) or of.op != "multiply":
        return None
    found = [_numbers(*exprs) for exprs in (of.args, of.args[::-1])]
    return next((each for each in found if each is not None), None)


def _numbers(moved: Expr, scale: Expr) -> tuple[Array, Array, Array] | None:
    """The integers that a side of a product restores, the other side, and zero points.

    Differences of small integers are the same in all floats: to round them changes nothing.
    """
    zero: Expr = const(0.0, f32)
    moved, rounds = _unrounded(moved)
    sign = 1.0
    if isinstance(moved, Apply) and moved.op in ("subtract", "add"):  # cast(q, f32) - z
        sign = 1.0 if moved.op == "subtract" else -1.0
        (moved, zero), again = moved.args, rounds
        moved, rounds = _unrounded(moved)
        rounds = rounds or again
    if not isinstance(moved, Apply) or moved.op != "cast":
        return None
    (numbers,) = moved.args
    if isinstance(numbers, Apply) and numbers.op == "subtract":  # cast(cast(q, i32) - z, f32)
        if zero is not const(0.0, f32):
            return None
        numbers, zero = numbers.args
    of_numbers = tensor_dtype(numbers)
    if of_numbers is None or not of_numbers.is_integer:
        return None
    arrays = [value_anew(expr) for expr in (numbers, scale, zero)]
    values = [array for array in arrays if array is not None]
    if len(values) != 3:
        return None
    whole = values[0] if values[0].dtype.kind in "iu" else values[0].astype(np.int32)
    scales, zeros = values[1].astype(np.float32), np.float32(sign) * values[2].astype(np.float32)
    if rounds and max(float(np.abs(each).max()) for each in (whole, zeros)) > MAX_EXACT_F16 // 2:
        return None
    return whole, scales, zeros


def _unrounded(of: Expr) -> tuple[Expr, bool]:
    """What floats were before they were rounded, or widened, and whether they were."""
    first = of
    while isinstance(of, Apply) and of.op == "cast":
        kinds = [tensor_dtype(expr) for expr in (of, of.args[0])]
        if not all(kind is not None and kind.is_float for kind in kinds):
            break
        of = of.args[0]
    return of, of is not first or tensor_dtype(of) is not f32
