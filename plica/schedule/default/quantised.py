"""Quantised contractions: int8 products accumulated in int32, with zero points.

    out[m, n] = f(sum over k of (x[m, k] + offset) * (w[k, n] - middle))       x and w of 8 bits

Integer sums are exact modulo 2**32, so offsets can be moved out of the sum, and the data can be
stored signed or unsigned, as an instruction requires:

    sum (x + offset) * v  =  sum stored * v  +  (offset + shift) * sum v      stored = x - shift

The weight v = w - middle is in -128 … 127, which the rules of `byte_middle` ensure.

>>> from plica.ir.loop.stage import stage
>>> from plica.ir.loop.tensor import buffer, reduce
>>> x, w = buffer("x", (4, 8), u8), buffer("w", (8, 6), i8)
>>> product = stage("y", (4, 6), lambda m, n: reduce(
...     "sum", (8,), lambda k: (sc.Cast(x[m, k], i32) + sc.Lit(-3, i32)) * sc.Cast(w[k, n], i32)))
>>> found = quantised(stages((x, w), (product,)), Facts((False, False)), u8)
>>> found.source.dtype, found.factor, str(found.lane.name), str(found.quad.name)
(DType('u8'), Lit(-3, DType('i32')), 'i_1', 'k')
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from attrs import evolve, frozen

from plica.core import free_vars
from plica.ir.loop import Each, Stages, loads, scalar as sc
from plica.ir.loop.stages import stages
from plica.ir.type import DType, i8, i32, u8
from plica.schedule.default.contraction import Contraction, contraction, flattened, lies_open
from plica.schedule.default.grouped import by_channel
from plica.schedule.form import Facts

NEAR = 255
"""Bytes less a zero point nearer than that, times bytes, are added in twos without a carry."""

FAR = 1 << 30  # the bound of zero points, so that expressions of them fit into i32


@frozen(eq=False)
class QuantisedContraction:
    """A contraction over i32 whose data and weight are stored as bytes.

    `whole` reads them as i32. `lane` is the axis along vector lanes, and `quad` the reduction axis
    of which a dot product takes four terms at once.
    """

    whole: Contraction
    source: sc.Buffer  # the stored data, under its name in `whole`
    weight: sc.Buffer  # the stored weight; of i32 if it is a constant whose values fit into bytes
    given: bool  # whether the weight is an argument of the call instead of a constant
    middle: int  # subtracted from the weight when it is packed, which gives a signed byte
    shift: int  # subtracted from the data when it is stored
    fill: sc.Scalar  # the stored value of padding
    factor: sc.Scalar  # the factor of the weight sums that are added to the result
    lane: sc.ScalarVar
    quad: sc.ScalarVar


Axes: TypeAlias = tuple[sc.ScalarVar, sc.ScalarVar]
"""The axis along lanes, and the reduction axis of which several terms are taken at once."""


def quantised(
    of: Stages,
    facts: Facts,
    wanted: DType,
    chosen: Callable[[Contraction], Axes | None] | None = None,
    *,
    opened: bool = False,
) -> QuantisedContraction | None:
    """The quantised contraction that some stages compute, None if they are none.

    `wanted` is the dtype that an instruction needs for the data.  Its axes are `chosen`; by default
    lanes go along outputs that share data.  Axes besides these two may be `opened`.
    """
    fold, *after = of.stages
    if not isinstance(fold, Each) or len(after) > 1:
        return None
    body = fold.value
    if not isinstance(body, sc.Reduce) or body.combiner != "sum" or sc.dtype_of(body) is not i32:
        return None
    if not isinstance(body.body, sc.Mul):
        return None
    fixed = frozenset((*fold.axes, *body.axes))
    left, right = body.body.left, body.body.right
    guard: sc.Scalar | None = None
    match left:
        case sc.Select(condition, then, sc.Lit(0)):
            guard, left = condition, then
        case _:
            pass
    moved = moved_bytes(left, fixed)
    found = signed_bytes(right, fixed, [of.inputs[number] for number in facts.fits_i8])
    if moved is None or found is None:
        return None
    (data, zero), (weight, middle) = moved, found
    if any(load.buffer in (data.buffer, weight.buffer) for stage in after for load in loads(stage)):
        return None
    wide = {buffer: evolve(buffer, dtype=i32) for buffer in (data.buffer, weight.buffer)}
    read: sc.Scalar = sc.Load(wide[data.buffer], data.indices)
    if guard is not None:
        read = sc.Select(guard, read, sc.Lit(0, i32))
    product = sc.Mul(read, sc.Load(wide[weight.buffer], weight.indices))
    inputs = tuple([wide.get(buffer, buffer) for buffer in of.inputs])
    plain = Each(fold.out, fold.axes, sc.Reduce("sum", body.axes, body.extents, product))
    if (whole := contraction(stages(inputs, (plain, *after), of.outputs), opened=opened)) is None:
        return None
    whole = flattened(by_channel(whole))
    axes = (chosen or _axes)(whole)
    shift = shift_of(zero, data.buffer.dtype, wanted)
    fill = _fill(zero, data.buffer.dtype, shift, wanted)
    if axes is None or (fill is None and guard is not None):
        return None
    if axes[0] in whole.open or not lies_open(whole):
        return None
    factor = (
        sc.Lit(shift - zero.value, i32) if isinstance(zero, sc.Lit) else sc.Lit(shift, i32) - zero
    )
    return QuantisedContraction(
        whole,
        evolve(whole.data.buffer, dtype=data.buffer.dtype),
        weight.buffer,
        not facts.constant[of.inputs.index(weight.buffer)],
        middle,
        shift,
        sc.Lit(0, wanted) if fill is None else fill,
        factor,
        *axes,
    )


def moved_bytes(of: sc.Scalar, fixed: frozenset[sc.ScalarVar]) -> tuple[sc.Load, sc.Scalar] | None:
    """The load of bytes in a term, and its zero point, which is the same for all elements."""
    zero: sc.Scalar = sc.Lit(0, i32)
    match of:
        case sc.Add(inside, sc.Lit(value)) | sc.Add(sc.Lit(value), inside) if abs(value) < FAR:
            of, zero = inside, sc.Lit(-int(value), i32)
        case sc.Sub(inside, other) if fixed.isdisjoint(free_vars(other)) and not _is_far(other):
            of, zero = inside, other
        case _:
            pass
    match of:
        case sc.Cast(sc.Load() as read, dtype) if dtype is i32 and read.buffer.dtype in (i8, u8):
            return read, zero
        case _:
            return None


def signed_bytes(
    of: sc.Scalar, fixed: frozenset[sc.ScalarVar], fits_i8: list[sc.Buffer]
) -> tuple[sc.Load, int] | None:
    """The load of bytes in a term and the offset that brings it into -128 … 127, if there
    is one."""
    bare = of.value if isinstance(of, sc.Cast) else of
    if isinstance(bare, sc.Load) and bare.buffer.dtype is i32 and bare.buffer in fits_i8:
        return bare, 0
    if (moved := moved_bytes(of, fixed)) is None:
        return None
    read, zero = moved
    middle = read.buffer.dtype.beyond(i8)
    return (read, middle) if zero is sc.Lit(middle, i32) else None


def _is_far(of: sc.Scalar) -> bool:
    return isinstance(of, sc.Lit) and abs(of.value) >= FAR


def shift_of(zero: sc.Scalar, has: DType, wanted: DType) -> int:
    """The offset that converts bytes from one signedness to the other; wider integers are shifted
    by their known zero point."""
    if has.bytes == wanted.bytes:
        return has.beyond(wanted)
    near = isinstance(zero, sc.Lit) and abs(zero.value) <= NEAR
    return int(zero.value) if near and isinstance(zero, sc.Lit) else 0


def _fill(zero: sc.Scalar, has: DType, shift: int, wanted: DType) -> sc.Scalar | None:
    """The stored zero point, None if it may not fit into a byte."""
    match zero:
        case sc.Lit(value):
            low, high = wanted.bounds
            return sc.Lit(int(value) - shift, wanted) if low <= value - shift <= high else None
        case sc.Cast(sc.Load() as read, _) if read.buffer.dtype is has:
            return stored(read, shift, wanted)
        case _:
            return None


def stored(of: sc.Scalar, shift: int, wanted: DType) -> sc.Scalar:
    """A byte converted to the dtype that an instruction needs."""
    own = of if sc.dtype_of(of) is wanted else sc.Cast(of, wanted)
    if not shift:
        return own
    if sc.dtype_of(of).bytes == wanted.bytes:  # both wrap around: no wider number is needed
        low, high = (int(bound) for bound in wanted.bounds)
        return own + sc.Lit((-shift - low) % (high - low + 1) + low, wanted)
    return sc.Cast(sc.Cast(of, i32) - sc.Lit(shift, i32), wanted)


def _axes(of: Contraction) -> Axes | None:
    """The axis along lanes and the reduction axis taken in fours, each a plain index."""
    assert of.weight is not None
    if len(of.n) != 1 or not all(var in of.weight.indices for var in of.batch):
        return None
    plain = [var for var in of.k if var in of.data.indices and var in of.weight.indices]
    apart = [place for place in of.data.indices if not isinstance(place, sc.ScalarVar)]
    plain = [var for var in plain if all(var not in free_vars(place) for place in apart)]
    if not plain:
        return None
    return of.n[0], max(plain, key=lambda each: of.sizes[each])
