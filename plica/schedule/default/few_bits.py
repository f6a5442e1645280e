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
from math import prod
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
from plica.schedule.default.limb import Axes, StageList, summed
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


class FewBitsForm(StageList):
    """The stages of a product in runs of so many words; blocks of rows lie side by side along some
    axes of given `widths`, with scales that are `scaled`; there are whole tiles of `steps`."""

    def __init__(
        self, of: FewBits, source: Stages, run: int, widths: Sequence[int], *,
        steps: int = 1, scaled: float = 1.0,
    ) -> None:  # fmt: skip
        super().__init__(names_of(of.whole))
        self.of, self.source, self.run = of, source, run
        names, whole, (rows, groups, held, several) = self.names, of.whole, of.sizes
        self.wide, self.runs = prod(widths), groups * held // run
        self.outer, self.g, self.h, self.p = (names.var(each) for each in "bghp")
        across = [(names.var("v"), width) for width in widths]
        self.block: Axes = ((self.outer, -(-rows // self.wide)), *across)
        self.of_run: Axes = ((self.h, run), (self.p, several))

        # The constant stages: interleaved rows, padded with zeros.
        unit, row = self.wide, self.outer * self.wide
        for axis, width in across:
            unit //= width
            row = row + (axis * unit if unit > 1 else axis)

        def inside(value: sc.Scalar) -> sc.Scalar:
            if rows % self.wide == 0:
                return value
            return sc.Select(sc.Lt(row, sc.index(rows)), value, sc.Lit(0, sc.dtype_of(value)))

        def interleaved(name: str, axes: Axes, value: sc.Scalar) -> sc.Load:
            return self.made(name, (self.block[0], *axes, *across), inside(value))

        word = sc.Load(of.weight.buffer, (row, self.g * run + self.h))
        self.packed = interleaved("packed", ((self.g, self.runs), (self.h, run)), word)
        scale, zero = (sc.Load(each.buffer, (row, self.g)) for each in (of.scale, of.zero))
        factor = scale if scaled == 1 else sc.Mul(scale, sc.Lit(scaled, f32))
        self.factor = interleaved("factor", ((self.g, groups),), factor)
        self.point = interleaved("point", ((self.g, groups),), zero)

        # The data, at the runs of groups.
        of_group = held // run
        self.group = simple(self.g // of_group)
        there = (self.group, simple(self.g % of_group * run + self.h), self.p)
        both = zip(of.terms, there, strict=True)
        terms: dict[Term, Term] = {old: new for old, new in both if isinstance(old, sc.ScalarVar)}
        self.data: sc.Scalar = substitute(whole.data, terms)
        *_, column = (None, *whole.m)
        outside = [a for a in whole.axes if a is not whole.n[0] and a is not column]
        self.above = [(axis, whole.sizes[axis]) for axis in outside]
        if column is not None:
            count = whole.sizes[column]
            self.above.append((column, -(-count // steps) * steps))
            if count % steps:
                is_there = sc.Lt(column, sc.index(count))
                self.data = sc.Select(is_there, self.data, sc.Lit(0.0, f32))

    def total(self, block: Axes, places: Sequence[sc.Scalar], one: sc.Scalar,
              beside: sc.Load) -> sc.Load:  # fmt: skip
        """The sum of all runs, of which `one` is in whole numbers, for blocks at some places."""
        at_group = (places[0], self.group, *places[1:])
        scaled, less = (sc.Load(each.buffer, at_group) for each in (self.factor, self.point))
        term = sc.Mul(scaled, sc.Sub(one, sc.Mul(as_dtype(less, f32), beside)))
        terms = self.runs + self.run * self.of.sizes[-1]
        dtype = f32 if terms <= LONGEST["box"] else f64
        value = summed([(self.g, self.runs)], as_dtype(term, dtype))
        return self.made("total", (*self.above, *block), value, near=True)

    def formed(self, result: sc.Scalar) -> Stages:
        """All stages, with the result read from a total."""
        whole, own = self.of.whole, self.of.weight.buffer
        value = with_element(whole.value, whole.reduced, as_dtype(result, f32))
        self.made("out", [(axis, whole.sizes[axis]) for axis in whole.axes], value)
        views = zip(self.source.inputs, whole.inputs, strict=True)
        inputs = [own if buffer is own else view for buffer, view in views]
        return stages(inputs, self.stages, self.memory)


def few_bits_form(of: FewBits, source: Stages, machine: Machine) -> Stages | None:
    """The stages, or None unless numbers are multiplied in f32."""
    if of.dtype is not f32:
        return None
    (rows, _, _, several), m = of.sizes, of.whole.m
    lanes = fewest_lanes(rows, machine.lanes(f32))
    steps = of.whole.sizes[m[-1]] if m else 1
    tile = widening_tile(-(-rows // lanes), steps, machine.registers, machine.rates)
    wide, middle = lanes * tile.vectors, 2.0 ** (of.bits * ((several - 1) // 2))
    form = FewBitsForm(of, source, run_of(of, LONGEST["box"]), (wide,), scaled=1 / middle)
    h, p, run = form.h, form.p, (form.g, form.runs)
    data = sc.Mul(form.data, sc.Lit(middle, f32))
    last = sc.Lt(p, sc.index(several - 1))
    shifts = sc.Cast(p, i32) * sc.Lit(of.bits, i32)
    by = sc.Select(last, sc.ShiftLeft(sc.Lit(1, i32), shifts), sc.Lit(1, i32))
    at_term = (*form.above, run, *form.of_run)
    moved = form.made("moved", at_term, sc.Div(data, sc.Cast(by, f32)))
    beside = form.made("beside", (run, *form.above), summed(form.of_run, data))
    lane = of.whole.n[0]
    word = sc.Load(form.packed.buffer, (lane // wide, form.g, h, lane % wide))
    mask = sc.Lit(2**of.bits - 1, i32)
    number = sc.Select(
        last,
        sc.BitAnd(word, sc.ShiftLeft(mask, shifts)),
        sc.BitAnd(sc.ShiftRight(word, sc.Lit(WORD - of.bits, i32)), mask),
    )
    block = ((lane, -(-rows // wide) * wide),)
    product = summed(form.of_run, sc.Mul(moved, sc.Cast(number, f32)))
    one = form.made("sum", (run, *form.above, *block), product, near=True)
    return form.formed(form.total(block, (lane // wide, lane % wide), one, beside))


def run_of(of: FewBits, terms: int) -> int:
    """The words of a run: a group, or the longest part of it that has at most so many terms."""
    _, _, held, several = of.sizes
    return next(each for each in range(min(held, terms // several), 0, -1) if held % each == 0)
