"""Low-bit weights: the form of a product whose weight stays packed until it is in registers.

    out[m, n] = f(sum over g, h, p of x[m, g, h, p] * (number(w[n, g, h], p) - zero[n, g])
                                                    * scale[n, g])

A word of `w` holds several numbers p of one row n. Words of adjacent rows become adjacent, and the
common terms of a group are moved out of the sum:

    packed[n // 64, g, h, n % 64] = w[n, g, h]              once: they are constants; the same for
    factor[n // 64, g, n % 64], point[…] = scale[n, g] / c, zero[n, g]
    moved[m, g, h, p] = x[m, g, h, p] * c / 2**(4 * p)                              c a power of two
    beside[g, m]    = sum over h, p of c * x[m, g, h, p]
    sum[g, m, n]    = sum over h, p of moved[m, g, h, p] * (packed[…, g, h, …] & 15 * 2**(4 * p))
    total[m, n]     = sum over g of factor[…] * (sum[g, m, n] - point[…] * beside[g, m])
    out[m, n]       = f(total[m, n])

A number is masked out of its word in place; its power-of-two scale is compensated in x beforehand.
The last number of a word is shifted, because it would be negative. So four words are read for eight
4-bit products, instead of 32 floats. A group too long for one float sum goes in several runs with
separate sums.

Where x is infinite a zero point makes it nan, so this is for those who allow approximations.

>>> from plica.ir.loop.stages import stages_of
>>> from plica.ir.loop.tensor import buffer
>>> from plica.ir.op.bitserial import packed_dense
>>> x, w = buffer("x", (2, 64), f32), buffer("w", (40, 8), i32)
>>> scale, zero = buffer("scale", (40, 2), f32), buffer("zero", (40, 2), f32)
>>> whole = stages_of(packed_dense.compute({"bits": 4}, x, w, scale, zero))
>>> made = few_bits_form(few_bits(whole), whole, Machine(512, 32))
>>> [str(each.out.name) for each in made.stages]
['packed', 'factor', 'point', 'moved', 'beside', 'sum', 'total', 'out']
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from attrs import frozen

from plica.analysis.enclosing import simple
from plica.core import Term, substitute
from plica.ir.loop import Each, Stages, loads, scalar as sc
from plica.ir.loop.stages import stages, with_element
from plica.ir.op.record import as_dtype
from plica.ir.type import DType, f32, f64, i32, known, polynomial
from plica.schedule.default.contraction import Contraction, contraction, merged
from plica.schedule.default.estimate import fewest_lanes
from plica.schedule.default.form import names_of
from plica.schedule.default.machine import Machine
from plica.schedule.default.summed import LONGEST
from plica.schedule.default.tile import widening_tile

WORD: Final = 32  # bits of a word


@frozen(eq=False)
class FewBits:
    """A product by a weight of few bits: `whole` is that of the numbers its words stand for, at the
    terms of groups, words and their parts, as if all were of f32."""

    whole: Contraction
    dtype: DType  # the factors: data and dequantised numbers
    weight: sc.Load
    scale: sc.Load
    zero: sc.Load
    bits: int
    sizes: tuple[int, int, int, int]  # rows, groups, words of a group, numbers of a word
    terms: tuple[sc.Scalar, sc.Scalar, sc.Scalar]


def few_bits(of: Stages) -> FewBits | None:
    """The low-bit product of some stages, or None."""
    fold, *after = of.stages
    if not isinstance(fold, Each) or not isinstance(fold.value, sc.Reduce) or len(after) > 1:
        return None
    match fold.value.body:
        case sc.Mul(
            (sc.Load() as data) | sc.Cast(sc.Load() as data, _),
            (sc.Mul() as restored) | sc.Cast(sc.Cast(sc.Mul() as restored, _), _),
        ) if fold.value.combiner == "sum" and sc.dtype_of(fold.value) is f32:
            dtype = data.buffer.dtype
        case _:
            return None
    match restored:
        case sc.Mul(
            sc.Sub(sc.Cast(bits, _), (sc.Load() as zero) | sc.Cast(sc.Load() as zero, _)),
            (sc.Load() as scale) | sc.Cast(sc.Load() as scale, _),
        ) if scale.buffer.dtype is dtype and fold.value.body.right is _as_multiplied(
            restored, dtype
        ):
            pass
        case _:
            return None
    if (found := _bits(bits)) is None or zero.indices != scale.indices:
        return None
    weight, count, part = found
    several = WORD // count
    rows, held, groups = (known(n) for n in (*weight.buffer.shape, scale.buffer.shape[-1]))
    if not rows or not held or not groups or held % groups:
        return None
    sizes = (rows, groups, held // groups, several)
    if (word := _word(weight, scale, sizes)) is None:
        return None
    row, group = scale.indices
    wide = sc.Buffer(weight.buffer.name, tuple(map(sc.index, sizes)), f32)
    given = sc.Buffer(data.buffer.name, data.buffer.shape, f32)
    product = sc.Mul(sc.Load(given, data.indices), sc.Load(wide, (row, group, word, part)))
    reduced = sc.Reduce("sum", fold.value.axes, fold.value.extents, product)
    read = {load.buffer for stage in after for load in loads(stage)}
    if not read.isdisjoint((data.buffer, weight.buffer, scale.buffer, zero.buffer)):
        return None
    seen = {weight.buffer: wide, data.buffer: given}
    inputs = [seen.get(buffer, buffer) for buffer in of.inputs]
    plain = stages(inputs, (Each(fold.out, fold.axes, reduced), *after), of.outputs)
    if (whole := contraction(plain)) is None or whole.guarded or whole.weight is None:
        return None
    whole = merged(whole) or whole
    if whole.batch or len(whole.n) != 1:
        return None
    return FewBits(whole, dtype, weight, scale, zero, count, sizes, (group, word, part))


def _as_multiplied(of: sc.Scalar, dtype: DType) -> sc.Scalar:
    """A dequantised f32 number rounded to a dtype, as it is multiplied."""
    return as_dtype(as_dtype(of, dtype), f32)


def _bits(of: sc.Scalar) -> tuple[sc.Load, int, sc.ScalarVar] | None:
    """The words that numbers are read of, how many bits one has, and which of them it is."""
    match of:
        case sc.BitAnd(
            sc.ShiftRight(
                sc.Load() as weight, sc.Mul(sc.Cast(sc.ScalarVar() as part, _), sc.Lit(int(bits)))
            ),
            sc.Lit(int(mask)),
        ) if weight.buffer.dtype is i32 and WORD % bits == 0 and mask == 2**bits - 1:
            return weight, bits, part
        case _:
            return None


def _word(weight: sc.Load, scale: sc.Load, sizes: tuple[int, int, int, int]) -> sc.Scalar | None:
    """The index of a word in its group, or None if that is not the group of the scale."""
    (row, place), (same_row, group) = weight.indices, scale.indices
    if row is not same_row or not isinstance(row, sc.ScalarVar):
        return None
    rest: list[sc.Scalar] = []
    of_group = 0
    for atoms, factor in polynomial(place).values():
        if atoms == (group,):
            of_group = factor
        elif len(atoms) == 1 and factor == 1 and isinstance(atoms[0], sc.ScalarVar):
            rest.append(atoms[0])
        else:
            return None
    if len(rest) > 1 or (sizes[1] > 1 and of_group != sizes[2]):
        return None
    return rest[0] if rest else sc.index(0)


# --- the stages -----------------------------------------------------------------------------------


def few_bits_form(of: FewBits, source: Stages, machine: Machine) -> Stages | None:
    """The stages, or None unless numbers are multiplied in f32."""
    if of.dtype is not f32 or (run := _run(of)) is None:
        return None
    rows, m = of.sizes[0], of.whole.m
    lanes = fewest_lanes(rows, machine.lanes(f32))
    steps = of.whole.sizes[m[-1]] if m else 1
    tile = widening_tile(-(-rows // lanes), steps, machine.registers, machine.rates)
    return _formed(of, source, run, lanes * tile.vectors)


def _run(of: FewBits) -> int | None:
    """The words of a run: a group, or the longest part of it that is one sum."""
    _, _, held, several = of.sizes
    most = LONGEST["box"] // several
    return next((each for each in range(min(held, most), 0, -1) if held % each == 0), None)


def _formed(of: FewBits, source: Stages, run: int, lanes: int) -> Stages:
    """The stages for runs of a given number of words, where a given number of rows lie side by
    side."""
    whole, (rows, groups, held, several) = of.whole, of.sizes
    names = names_of(whole)
    lane = whole.n[0]
    outer, inner = names.var("b"), names.var("v")
    g, h, p = (names.var(each) for each in "ghp")
    blocks, runs = -(-rows // lanes), groups * held // run
    sizes = dict(whole.sizes) | {lane: blocks * lanes}
    column = whole.m[-1] if whole.m else None
    apart = [a for a in whole.axes if a is not lane and a is not column]
    above = (*apart, *([] if column is None else [column]))
    axes = (*above, lane)

    def scratch(name: str, shape: Sequence[int], dtype: DType) -> sc.Buffer:
        return sc.Buffer(names.name(name), tuple(map(sc.index, shape)), dtype)

    # The constant stages: interleaved rows, padded with zeros.
    row = outer * lanes + inner

    def inside(value: sc.Scalar) -> sc.Scalar:
        if rows % lanes == 0:
            return value
        return sc.Select(sc.Lt(row, sc.index(rows)), value, sc.Lit(0, sc.dtype_of(value)))

    own = of.weight.buffer
    packed = Each(
        scratch("packed", (blocks, runs, run, lanes), own.dtype),
        (outer, g, h, inner),
        inside(sc.Load(own, (row, g * run + h))),
    )
    middle = 2.0 ** (of.bits * ((several - 1) // 2))
    scale, zero = (sc.Load(load.buffer, (row, g)) for load in (of.scale, of.zero))
    factor, point = (
        Each(scratch(name, (blocks, groups, lanes), value.dtype), (outer, g, inner), inside(read))
        for name, value, read in (
            ("factor", of.scale.buffer, sc.Mul(scale, sc.Lit(1 / middle, f32))),
            ("point", of.zero.buffer, zero),
        )
    )

    # Sums of runs, which belong to groups, and the total of these.
    of_group = held // run
    group = simple(g // of_group)
    there = (group, simple(g % of_group * run + h), p)
    both = zip(of.terms, there, strict=True)
    terms: dict[Term, Term] = {old: new for old, new in both if isinstance(old, sc.ScalarVar)}
    data = substitute(whole.data, terms)
    many = [sizes[a] for a in above]
    last = sc.Lt(p, sc.index(several - 1))
    shifts = sc.Cast(p, i32) * sc.Lit(of.bits, i32)
    by = sc.Select(last, sc.ShiftLeft(sc.Lit(1, i32), shifts), sc.Lit(1, i32))
    moved = Each(
        scratch("moved", (*many, runs, run, several), f32),
        (*above, g, h, p),
        sc.Div(sc.Mul(data, sc.Lit(middle, f32)), sc.Cast(by, f32)),
    )
    terms_of_run = ((h, p), (sc.index(run), sc.index(several)))
    beside = Each(
        scratch("beside", (runs, *many), f32),
        (g, *above),
        sc.Reduce("sum", *terms_of_run, sc.Mul(data, sc.Lit(middle, f32))),
    )
    word, mask = sc.Load(packed.out, (lane // lanes, g, h, lane % lanes)), 2**of.bits - 1
    number = sc.Select(
        last,
        sc.BitAnd(word, sc.ShiftLeft(sc.Lit(mask, i32), shifts)),
        sc.BitAnd(sc.ShiftRight(word, sc.Lit(WORD - of.bits, i32)), sc.Lit(mask, i32)),
    )
    product = sc.Mul(sc.Load(moved.out, (*above, g, h, p)), sc.Cast(number, f32))
    one = Each(
        scratch("sum", (runs, *many, sizes[lane]), f32),
        (g, *axes),
        sc.Reduce("sum", *terms_of_run, product),
    )
    wide = f32 if runs + run * several <= LONGEST["box"] else f64
    scaled, taken = (
        sc.Load(stage.out, (lane // lanes, group, lane % lanes)) for stage in (factor, point)
    )
    common = sc.Mul(as_dtype(taken, f32), sc.Load(beside.out, (g, *above)))
    term = sc.Mul(scaled, sc.Sub(sc.Load(one.out, (g, *axes)), common))
    total = Each(
        scratch("total", (*many, sizes[lane]), wide),
        axes,
        sc.Reduce("sum", (g,), (sc.index(runs),), as_dtype(term, wide)),
    )
    value = with_element(whole.value, whole.reduced, as_dtype(sc.Load(total.out, axes), f32))
    out = scratch("out", [whole.sizes[a] for a in whole.axes], sc.dtype_of(value))
    before = [packed, factor, point, moved, beside]
    views = zip(source.inputs, whole.inputs, strict=True)
    inputs = [own if buffer is own else view for buffer, view in views]
    made = [*before, one, total, Each(out, whole.axes, value)]
    return stages(inputs, made, (*[stage.out for stage in before], out))
