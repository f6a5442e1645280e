"""Products by weights that are unpacked to bytes: dot products of these by digits of the data.

    out[m, n] = f(sum over k of x[m, k] * (scale[n, g] * number[n, k] + minimum[n, g]))

Blocks of weights are low-bit integers times a scale of their group g. A byte dot product takes four
per lane in memory order (`plica.schedule.default.coded` has the digits b, g and v of the term k),
so that none is converted to float; data is rounded to integers of two 8-bit digits relative to the
maximum of a block, or of one digit where the contract allows it (`ROUNDED`):

    peak[g], unit[g]  = the greatest |x| of the group, peak[g] / 2**15
    fixed[g, j]       = round(x[g, j] / unit[g])
    digits[g, d, j]   = the d-th of the two bytes of fixed[g, j]
    below[g, l]       = sum over s of fixed[g, 4 l + s] * offset
    codes[n, g, j]    = number[n, g, j] - offset                       in the range of a byte
    sum[n, g, l]      = sum over d, s of digits[g, d, 4 l + s] * codes[n, g, 4 l + s] << 8 * (1 - d)
    part[n, l]        = sum over g of scale[n, g] * unit[g] * (sum[n, g, l] + below[g, l])
    rest[n]           = sum over g of minimum[n, g] * sums[g]          sums[g] of all x of the group

Where a group has fewer bytes than a vector, a span of several fills one: its lanes have the scales
of their groups.

Non-finite data gives a non-finite result. This is for one row of data; more rows share floats
(`plica.schedule.default.coded`).

>>> from plica.ir.loop.stage import stage
>>> from plica.ir.loop.stages import stages
>>> from plica.ir.loop.tensor import buffer, reduce
>>> from plica.ir.type.dtype import u8
>>> x, w = buffer("x", (1, 64), f32), buffer("w", (8, 64), i8)
>>> product = stage("y", (1, 8), lambda m, n: reduce("sum", (64,), lambda k: x[m, k] * sc.Cast(
...     sc.Cast(w[n, k // 32 * 32 + k % 32], i32), f32)))
>>> made = coded_dot_form(stages((x, w), (product,)),
...                       Machine(512, 32, dot=Dot("some.dot", 16, u8, pairs="some.pairs")))
>>> [str(each.out.name) for each in made.stages]
['peak', 'unit', 'fixed', 'digits', 'below', 'codes', 'sum', 'part', 'few', 'total', 'y']
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final

from attrs import frozen

from plica.analysis.constant_bound import interval
from plica.analysis.enclosing import simple
from plica.analysis.index import EMPTY
from plica.core import Term, free_vars, map_bottom_up, substitute
from plica.ir.loop import Each, Names, Stages, scalar as sc
from plica.ir.type import DType, f32, i8, i32, known
from plica.schedule.default.coded import (
    CodedProduct,
    CodedSum,
    TermDigits,
    coded_product,
    digit_cuts,
    hoisted,
    joined,
    sides_of,
    term_digits,
    tidied,
)
from plica.schedule.default.limb import StageList, digit_of, integers, summed
from plica.schedule.default.machine import BYTE, DIGITS, PAIR_LANES, QUAD, Dot, Machine, worth

GREATEST: Final = {1: 127, 2: 32_600}
"""What some digits that have signs can stand for, less what rounding may add."""
MAX_BLOCK: Final = 256
"""Data that have a unit in common, at most: the digits of more would have fewer bits."""


def coded_dot_form(of: Stages, machine: Machine, digits: int = DIGITS) -> Stages | None:
    """The stages, or None if the machine has no such instruction or weights are no integers."""
    dot, product = machine.dot, coded_product(of)
    sides = None if product is None else sides_of(product)
    if dot is None or not dot.pairs or product is None or sides is None:
        return None
    data, weight = sides
    shared = [size for axis, size in zip(product.fold.axes, product.fold.out.shape, strict=True)
              if axis not in free_vars(weight)]  # fmt: skip
    if prod([known(scalar) or 0 for scalar in shared]) != 1:
        return None
    cuts = digit_cuts(weight, product.term, product.count, machine.vector // BYTE)
    if cuts is None or not QUAD * PAIR_LANES[0] <= cuts[1] or cuts[-2] > MAX_BLOCK:
        return None
    return _formed(of, product, (data, weight), cuts, dot, digits)


def _fits(width: int, run: int, cuts: Sequence[int]) -> bool:
    """Whether spans of a width are whole runs, or parts of one, and whole digits of the term."""
    return run % width == 0 or (
        width < cuts[-1] and all(width % cut == 0 or cut % width == 0 for cut in (run, *cuts))
    )


def _formed(  # noqa: PLR0917  # a product, and how it is cut
    of: Stages, product: CodedProduct, sides: tuple[sc.Scalar, sc.Scalar], cuts: Sequence[int],
    dot: Dot, several: int,
) -> Stages | None:  # fmt: skip
    """The stages for digits of the term between such cuts, and several of each datum."""
    made, fold = StageList(Names(of, anew=of.made)), product.fold
    names = made.names
    digits = term_digits(cuts, names)
    if (weight := integer_weight(sides[1], digits, product, dot.dtype)) is None:
        return None
    run, offset = weight.run, weight.offset
    lanes = max([n for n in PAIR_LANES if n <= dot.lanes and _fits(QUAD * n, run, cuts)])
    span = max(run, QUAD * lanes)
    most = min(GREATEST[several], (2**31 - 1) // (weight.greatest * span // lanes) - 1)
    extents = dict(zip(fold.axes, fold.out.shape, strict=True))

    def around(value: Term) -> list[tuple[sc.ScalarVar, sc.Scalar | int]]:
        """The axes of the result that a value depends on, with their sizes."""
        return [(axis, size) for axis, size in extents.items() if axis in free_vars(value)]

    # The data stages: integers, their digits and the sums of each run.
    j, t, d, l, s, e, g, k = (names.var(each) for each in "jtdlsegk")  # noqa: E741  # as above
    units: dict[Term, Term] = {axis: sc.index(0) for axis, n in extents.items() if known(n) == 1}
    row = substitute(sides[0], units)
    own, spans, spread = around(row), product.count // span, span // run
    above = tuple([axis for axis, _ in own])
    data = substitute(row, {product.term: g * run + j})
    assert isinstance(data, sc.Scalar)
    of_run = (*own, (g, product.count // run))
    unit, fixed = integers(made, data, most, of_run, ((j, run),))
    inside = EMPTY.loop(j, span).loop(l, lanes).loop(s, QUAD).loop(t, span // (QUAD * lanes))

    def integer(place: sc.Scalar) -> sc.Load:
        """The integer at a place of the span k."""
        found = (k * spread + simple(place // run, inside), simple(place % run, inside))
        return sc.Load(fixed.buffer, (*above, *found))

    which = ((d, several),) if several > 1 else ()
    digit = digit_of(integer(j), d, several) if which else sc.Cast(integer(j), i8)
    split = made.made("digits", (*own, (k, spans), *which, (j, span)), digit)
    steps = span // (QUAD * lanes)
    place = (t * lanes + l) * QUAD + s if steps > 1 else l * QUAD + s
    first = ((t, steps),) if steps > 1 else ()
    below = None
    if offset:
        less = summed((*first, (s, QUAD)), integer(place) * sc.Lit(offset, i32))
        below = made.made("below", (*own, (k, spans), (l, lanes)), less)

    # Bytes, their dot products, and the scaled results.
    wide = term_digits([1, span, *[cut for cut in cuts if cut > span]], names)
    blocks = dict(zip(wide.axes[:-1], wide.sizes, strict=False))
    context = EMPTY.loop(j, span).loop(e, spread)
    for axis, count in blocks.items():
        context = context.loop(axis, count)
    above_span = dict(zip(wide.units, blocks, strict=False))

    def at_place(value: sc.Scalar, place: sc.Scalar) -> sc.Scalar:
        """A value of the digits, at a place of a span."""
        found: dict[Term, Term] = {}
        for axis, unit, count in zip(digits.axes, digits.units, digits.sizes, strict=True):
            if unit >= span:
                found[axis] = above_span[unit]
            elif unit * count > span:
                found[axis] = above_span[span] * (span // unit) + simple(place // unit, context)
            else:
                found[axis] = simple(place // unit % count, context)
        result = map_bottom_up(tidied(context), substitute(value, found))
        assert isinstance(result, sc.Scalar)
        return result

    code = at_place(weight.number, j)
    used = around(weight.number)
    every = (*used, *blocks.items())
    at = tuple([axis for axis, _ in every])
    code = sc.Cast(code - sc.Lit(offset, i32) if offset else code, dot.dtype)
    codes = made.made("codes", (*every, (j, span)), code)
    there = sum([axis * (u // span) for u, axis in above_span.items()], sc.index(0))
    byte = sc.Cast(sc.Load(codes.buffer, (*at, place)), i32)
    of_digit = (*above, there, *[axis for axis, _ in which], place)
    both: sc.Scalar = sc.Mul(sc.Cast(sc.Load(split.buffer, of_digit), i32), byte)
    both = worth(both, d, several) if which else both
    one = made.made("sum", (*every, (l, lanes)), summed((*first, *which, (s, QUAD)), both))
    total: sc.Scalar = one
    if below is not None:
        total = sc.Add(total, sc.Load(below.buffer, (*above, there, l)))
    runs = {**blocks, e: spread} if spread > 1 else blocks
    at_run = (*above, there * spread + e if spread > 1 else there)
    zero = sc.Lit(0.0, f32)
    value: sc.Scalar = zero
    rest: sc.Scalar = zero
    scales = list[Each]()
    for scale, what in weight.terms:
        scale = at_place(scale, e * run)
        if what is None:
            rest = scale if rest is zero else sc.Add(rest, scale)
            continue
        scale = sc.Mul(scale, sc.Load(unit.buffer, at_run))
        found, scale = hoisted(scale, fold, runs, l, names, (unit.buffer,))
        if spread > 1 and not found:  # lanes of several runs, each with a scale
            apart = StageList(names)
            scale = apart.made("scale", (*around(scale), *blocks.items(), (e, spread)), scale)
            found = apart.stages
        scales += found
        of_lanes = substitute(scale, {e: l // (lanes // spread)})
        assert isinstance(of_lanes, sc.Scalar)
        value = sc.Mul(of_lanes, sc.Cast(total, f32))
    parts = [CodedSum(summed(tuple(blocks.items()), value), l, lanes)]
    if rest is not zero:
        sums = made.made("sums", of_run, summed(((j, run),), data)).buffer
        minima, read = hoisted(sc.Mul(rest, sc.Load(sums, at_run)), fold, runs, l, names, (sums,))
        made.stages += minima
        if isinstance(read, sc.Load) and minima:  # in the lanes in which they are made
            (*axes_of, last), width = minima[0].axes, known(read.buffer.shape[-1]) or 0
            read = sc.Load(read.buffer, (*axes_of, last))
            left = [(axis, n) for axis, n in runs.items() if axis in axes_of]
            parts.append(CodedSum(summed(left, read), last, width))
        else:
            parts.append(CodedSum(summed(tuple(runs.items()), read)))
    return joined(of, product, (*made.stages, *scales), parts, names)


@frozen(eq=False)
class IntegerWeight:
    """A weight that is a sum of scales times a whole number, or times 1; less the `offset` the
    number fits into an operand, and all is at most the `greatest`.  Scales are those of a run."""

    terms: list[tuple[sc.Scalar, sc.Scalar | None]]
    number: sc.Scalar
    run: int
    offset: int
    greatest: int


def integer_weight(
    weight: sc.Scalar, digits: TermDigits, product: CodedProduct, operand: DType
) -> IntegerWeight | None:
    """A weight in the digits of the term as such a sum, or None if it is none."""
    terms = linear(digits.of_term(weight, product), digits.axes[-1])
    numbers = {number for _, number in terms or () if number is not None}
    if terms is None or len(numbers) != 1:
        return None
    (number,) = numbers
    scaled = {digits.axes[0], *[axis for scale, _ in terms for axis in free_vars(scale)]}
    run = min([n for axis, n in zip(digits.axes, digits.units, strict=True) if axis in scaled])
    each = zip(digits.axes, digits.sizes, strict=True)
    ranges: dict[Term, tuple[int, int]] = {axis: (0, size - 1) for axis, size in each}
    low, high = interval(number, ranges, {})
    least, greatest = map(int, operand.bounds)
    offset = 0 if least <= low and high <= greatest else low - least
    if high - offset > greatest:
        return None
    return IntegerWeight(terms, number, run, offset, max(-low, high, 1))


def linear(of: sc.Scalar, lane: Term) -> list[tuple[sc.Scalar, sc.Scalar | None]] | None:
    """A weight as a sum of uniform factors times per-lane integers (or 1)."""
    if lane not in free_vars(of):
        return [(of, None)]
    one, minus = (sc.Lit(each, f32) for each in (1.0, -1.0))
    match of:
        case sc.Cast(number, dtype) if dtype is f32 and sc.dtype_of(number) is i32:
            return [(one, number)]
        case sc.Mul(left, right):
            common, other = (right, left) if lane in free_vars(left) else (left, right)
            inner = None if lane in free_vars(common) else linear(other, lane)
            if inner is None:
                return None
            return [(common if scalar is one else sc.Mul(common, scalar), n) for scalar, n in inner]
        case sc.Add(left, right) | sc.Sub(left, right):
            first, second = linear(left, lane), linear(right, lane)
            if first is None or second is None:
                return None
            if isinstance(of, sc.Sub):
                second = [(sc.Mul(scalar, minus), number) for scalar, number in second]
            return [*first, *second]
        case _:
            return None
