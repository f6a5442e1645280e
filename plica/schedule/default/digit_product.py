"""Weights of few bits by dot products of bytes: data as whole numbers of three digits of 8 bits.

    out[m, n] = f(sum over g, h, p of x[m, g, h, p] * (number(w[n, g, h], p) - zero[n, g])
                                                    * scale[n, g])

Numbers of 2 and 4 bits become bytes by masking them out of their word, and an instruction adds four
byte products per lane, where floats would need a conversion per number. The other operand is split,
so that no f32 precision is lost:

    peak[m, g], unit[m, g] = the greatest |x| of the group, peak[m, g] / 2**22
    fixed[m, g, h, p] = round(x[m, g, h, p] / unit[m, g])
    digits[m, g, h, d, q, s] = the d-th of the bytes of fixed[m, g, h, p]
    sum[g, d, m, n]   = sum over h, q, s of digits[m, g, h, d, q, s] * number(packed[n, g, h], p)
    total[m, n]       = sum over g of scale[n, g] * (unit[m, g] * the three sums in their places
                                                     - zero[n, g] * beside[m, g])
    out[m, n]         = f(total[m, n])

A group is limited by 32-bit integer sums: longer ones go in several runs. The digit size depends on
the maximum of a group only, so that an outlier costs bits in its own group only. Non-finite data
gives a non-finite result.

>>> from plica.ir.loop.stages import stages_of
>>> from plica.ir.loop.tensor import buffer
>>> from plica.ir.op.bitserial import packed_dense
>>> from plica.ir.type.dtype import i8
>>> x, w = buffer("x", (2, 64), f32), buffer("w", (40, 8), i32)
>>> scale, zero = buffer("scale", (40, 2), f32), buffer("zero", (40, 2), f32)
>>> found = few_bits(stages_of(packed_dense.compute({"bits": 4}, x, w, scale, zero)))
>>> made = digit_form(found, stages_of(packed_dense.compute({"bits": 4}, x, w, scale, zero)),
...                   Machine(128, 32, dot=Dot("some.dot", 4, i8, words="some.words")))
>>> [str(each.out.name) for each in made.stages][:7]
['packed', 'factor', 'point', 'peak', 'unit', 'fixed', 'beside']
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from plica.analysis.enclosing import simple
from plica.core import Term, substitute
from plica.ir.loop import Each, Stages, scalar as sc
from plica.ir.loop.stages import stages, with_element
from plica.ir.op.record import as_dtype
from plica.ir.type import DType, f32, f64, i8, i32
from plica.schedule.default.few_bits import FewBits, few_bits
from plica.schedule.default.form import names_of
from plica.schedule.default.machine import BYTE, QUAD, Dot, Machine
from plica.schedule.default.summed import LONGEST

__all__ = ["DIGITS", "digit_form", "digit_tile", "few_bits"]

DIGITS: Final = 3
"""Bytes of the integer that represents a float: none of its 24 bits is lost relative to the maximum
of a group of 32."""


GREATEST: Final = 8_355_000
"""What three digits that have signs can stand for, less what rounding may add."""

SUMMED: Final = 128  # numbers of a run, at most: the digits of more would have fewer bits
LEAST: Final = 2.0**-126  # the minimum scale of an integer: the smallest float with full precision
UNDER_WAY: Final = 8  # sums that keep the units for products busy
MOST_VECTORS: Final = 4  # the maximum number of adjacent vectors: more share no further operands


def digit_tile(vectors: int, steps: int, registers: int) -> tuple[int, int]:
    """The vectors and steps of a tile: three digit sums and a total for each, a vector of words and
    one of unpacked numbers.

    >>> digit_tile(1000, 1, 32), digit_tile(1000, 4, 32), digit_tile(1000, 8, 32)
    ((4, 1), (3, 2), (3, 2))
    """
    found, least = (1, 1), float("inf")
    for m in range(1, min(MOST_VECTORS, vectors) + 1):
        for r in range(1, steps + 1):
            if (DIGITS + 1) * m * r + m + DIGITS + 2 > registers:
                break
            busy = max(DIGITS * m * r, UNDER_WAY) + 2 * m + r
            cost = -(-vectors // m) * -(-steps // r) * busy
            if cost < least:
                found, least = (m, r), cost
    return found


def digit_form(of: FewBits, source: Stages, machine: Machine) -> Stages | None:
    """The stages, or None if the machine has no dot product for such numbers."""
    dot = machine.dot
    if dot is None or not dot.words or of.bits not in (2, 4) or of.dtype is not f32:
        return None
    _, _, held, several = of.sizes
    most = SUMMED // several
    run = next(each for each in range(min(held, most), 0, -1) if held % each == 0)
    rows, m = of.sizes[0], of.whole.m
    steps = of.whole.sizes[m[-1]] if m else 1
    tile = digit_tile(-(-rows // dot.lanes), steps, machine.registers)
    return _formed(of, source, run, dot, tile)


def _formed(of: FewBits, source: Stages, run: int, dot: Dot, tile: tuple[int, int]) -> Stages:
    """The stages for runs of a given number of words, and tiles of a given number of vectors and
    steps."""
    whole, (rows, groups, held, several) = of.whole, of.sizes
    names = names_of(whole)
    lane, lanes, (vectors, high) = whole.n[0], dot.lanes, tile
    outer, beside_, inner = names.var("b"), names.var("u"), names.var("v")
    g, h, d, q, s, p = (names.var(each) for each in "ghdqsp")
    wide = vectors * lanes
    blocks, runs, parts = -(-rows // wide), groups * held // run, BYTE // of.bits
    column = whole.m[-1] if whole.m else None
    above = tuple([a for a in whole.axes if a is not lane and a is not column])
    above += () if column is None else (column,)
    sizes = dict(whole.sizes)
    if column is not None:
        sizes[column] = -(-sizes[column] // high) * high
    many = [sizes[a] for a in above]
    across = (outer, beside_, inner)
    widths = (blocks, vectors, lanes)

    def scratch(name: str, shape: Sequence[int], dtype: DType) -> sc.Buffer:
        return sc.Buffer(names.name(name), tuple(map(sc.index, shape)), dtype)

    # The constant stages: interleaved rows, padded with zeros.
    row = outer * wide + beside_ * lanes + inner

    def inside(value: sc.Scalar) -> sc.Scalar:
        if rows % wide == 0:
            return value
        return sc.Select(sc.Lt(row, sc.index(rows)), value, sc.Lit(0, sc.dtype_of(value)))

    own = of.weight.buffer
    packed = Each(
        scratch("packed", (blocks, runs, run, vectors, lanes), own.dtype),
        (outer, g, h, beside_, inner),
        inside(sc.Load(own, (row, g * run + h))),
    )
    scale, zero = (as_dtype(sc.Load(e.buffer, (row, g)), f32) for e in (of.scale, of.zero))
    factor, point = (
        Each(
            scratch(name, (blocks, groups, vectors, lanes), f32), (outer, g, beside_, inner), value
        )
        for name, value in (("factor", inside(scale)), ("point", inside(zero)))
    )

    # The data stages: integers for each run, and their bytes.
    of_group = held // run
    group = simple(g // of_group)
    there = (group, simple(g % of_group * run + h), p)
    both = zip(of.terms, there, strict=True)
    terms: dict[Term, Term] = {old: new for old, new in both if isinstance(old, sc.ScalarVar)}
    data: sc.Scalar = substitute(whole.data, terms)
    if column is not None and sizes[column] != whole.sizes[column]:
        data = sc.Select(sc.Lt(column, sc.index(whole.sizes[column])), data, sc.Lit(0.0, f32))
    extents = (sc.index(run), sc.index(several))
    most = min(GREATEST, (2**31 - 1) // ((2**of.bits - 1) * run * several) - 1)
    size, at_run = (*many, runs), (*above, g)
    peak = Each(
        scratch("peak", size, f32), at_run,
        sc.Reduce("max", (h, p), extents, sc.Intrinsic("abs", (data,))),
    )  # fmt: skip
    share = sc.Mul(sc.Load(peak.out, at_run), sc.Lit(1.0 / most, f32))
    unit = Each(scratch("unit", size, f32), at_run, sc.Max(share, sc.Lit(LEAST, f32)))
    fixed = Each(
        scratch("fixed", (*size, run, several), i32),
        (*at_run, h, p),
        sc.Cast(sc.Intrinsic("round", (sc.Div(data, sc.Load(unit.out, at_run)),)), i32),
    )
    total_of = sc.Reduce("sum", (h, p), extents, data)
    beside = Each(scratch("beside", size, f32), at_run, total_of)
    number = sc.Load(fixed.out, (*at_run, h, s * parts + q))
    digits = Each(
        scratch("digits", (*size, run, DIGITS, parts, QUAD), i8),
        (*at_run, h, d, q, s),
        digit_of(number, d),
    )

    # Sums of digits times numbers, and the scaled results.
    shifts = sc.Cast(s, i32) * sc.Lit(BYTE, i32) + sc.Cast(q, i32) * sc.Lit(of.bits, i32)
    word = sc.Load(packed.out, (outer, g, h, beside_, inner))
    taken = sc.BitAnd(sc.ShiftRight(word, shifts), sc.Lit(2**of.bits - 1, i32))
    factors = sc.Cast(sc.Load(digits.out, (*at_run, h, d, q, s)), i32)
    total_axes = (*above, *across)
    one = Each(
        scratch("sum", (runs, DIGITS, *many, *widths), i32),
        (g, d, *total_axes),
        sc.Reduce(
            "sum", (h, q, s), tuple([sc.index(n) for n in (run, parts, QUAD)]),
            sc.Mul(factors, taken),
        ),
    )  # fmt: skip
    placed: sc.Scalar | None = None
    for each in range(DIGITS):
        part: sc.Scalar = sc.Load(one.out, (g, sc.index(each), *total_axes))
        if shift := BYTE * (DIGITS - 1 - each):
            part = sc.ShiftLeft(part, sc.Lit(shift, i32))
        placed = part if placed is None else sc.Add(placed, part)
    assert placed is not None
    scaled, less = (sc.Load(stage.out, (outer, group, beside_, inner)) for stage in (factor, point))
    wide_dtype = f32 if runs + run * several <= LONGEST["box"] else f64
    whole_sum = sc.Mul(sc.Load(unit.out, at_run), sc.Cast(placed, f32))
    term = sc.Mul(scaled, sc.Sub(whole_sum, sc.Mul(less, sc.Load(beside.out, at_run))))
    total = Each(
        scratch("total", (*many, *widths), wide_dtype),
        total_axes,
        sc.Reduce("sum", (g,), (sc.index(runs),), as_dtype(term, wide_dtype)),
    )
    kept = Each(
        scratch("kept", (*many, *widths), f32), total_axes,
        as_dtype(sc.Load(total.out, total_axes), f32),
    )  # fmt: skip
    places = (lane // wide, lane // lanes % vectors, lane % lanes)
    read = sc.Load(kept.out, (*above, *places))
    value = with_element(whole.value, whole.reduced, read)
    out = scratch("out", [whole.sizes[a] for a in whole.axes], sc.dtype_of(value))
    before = [packed, factor, point, peak, unit, fixed, beside, digits]
    views = zip(source.inputs, whole.inputs, strict=True)
    inputs = [own if buffer is own else view for buffer, view in views]
    made = [*before, one, total, kept, Each(out, whole.axes, value)]
    return stages(inputs, made, (*[stage.out for stage in (*before, kept)], out))


def digit_of(of: sc.Scalar, which: sc.Scalar, digits: int = DIGITS) -> sc.Scalar:
    """A byte of an integer, 0 the highest: digits are signed and absorb carries."""
    half = 1 << (BYTE - 1)
    scalar: sc.Scalar | None = None
    owed = 0
    for place in range(digits):  # from the lowest
        moved = (
            of if not place else sc.ShiftRight(of + sc.Lit(owed, i32), sc.Lit(BYTE * place, i32))
        )
        owed += half << (BYTE * place)
        scalar = (
            moved
            if scalar is None
            else sc.Select(sc.Eq(which, sc.index(digits - 1 - place)), moved, scalar)
        )
    assert scalar is not None
    kept = sc.Lit(i32.bits - BYTE, i32)
    return sc.Cast(sc.ShiftRight(sc.ShiftLeft(scalar, kept), kept), i8)
