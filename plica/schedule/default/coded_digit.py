"""Products of many rows by unpacked integers: panels of codes by digits of the data.

    out[m, n] = f(sum over k of x[m, k] * (scale[n, g] * number[n, k] + minimum[n, g]))

Data is rounded to 16-bit integers relative to the maximum of a group, as for one row
(`plica.schedule.default.coded_dot`), but with lanes along the rows of the data: an instruction
multiplies a few terms of a vector of rows by the same terms of a column. Integers are operands as
they are where one multiplies pairs of 16 bits, else two digits of 8 bits, as below; or they have 8
bits, and are one digit, where the contract allows it. Groups g have one scale; q and s are the
quads of a group and their bytes, l the lanes:

    turned[g, j, m]       = x[m, g, j]
    unit[g, m]            = the greatest |x| of the group / 2**15
    factor[g, m]          = 1 / unit[g, m]
    fixed[g, j, m]        = round(x[m, g, j] * factor[g, m])
    digits[g, b, q, d, l] = the d-th byte of fixed, of rows 16 b + l, as a word of four terms
    below[g, m]           = sum over j of fixed[g, j, m] * offset
    codes[n, g, j]        = number[n, g, j] - offset                  in the range of an operand
    sum[g, d, n, m]       = sum over q, s of digits * codes
    part[r, n, m]         = sum over g of a run of scale * unit * (sum << 8 * (1 - d) + below)
                                                   + minimum * sums   sums[g, m] of all x of a group
    total[n, m]           = sum over r of part
    out[m, n]             = f(total[n, m])

A panel of codes and scales is unpacked once for all rows, for a group of columns and the terms of a
run (`plica.schedule.default.coded_digit_schedule`). Non-finite data gives a non-finite result.

>>> from plica.ir.loop.stage import stage
>>> from plica.ir.loop.stages import stages
>>> from plica.ir.loop.tensor import buffer, reduce
>>> from plica.ir.type.dtype import u8
>>> x, w = buffer("x", (32, 1024), f32), buffer("w", (8, 512), u8)
>>> product = stage("y", (32, 8), lambda m, n: reduce("sum", (1024,), lambda k: x[m, k] * sc.Cast(
...     sc.Cast(w[n, k // 32 * 16 + k % 16], i32), f32)))
>>> made = coded_digit_form(stages((x, w), (product,)), Machine(512, 32, dot=Dot("a.dot", 16, u8)))
>>> [str(each.out.name) for each in made.stages][:6]
['turned', 'peak', 'unit', 'factor', 'fixed', 'digits']
>>> [str(each.out.name) for each in made.stages][6:]
['codes', 'sum', 'scale', 'part', 'total', 'y']
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from plica.core import Term, free_vars, map_bottom_up, substitute
from plica.ir.loop import Each, Names, Stages, loads, scalar as sc
from plica.ir.loop.stages import stages
from plica.ir.type import f32, i32, known
from plica.schedule.default.coded import (
    CodedProduct,
    coded_product,
    digit_cuts,
    sides_of,
    term_digits,
)
from plica.schedule.default.coded_dot import GREATEST, MAX_BLOCK, IntegerWeight, integer_weight
from plica.schedule.default.coded_panel import MIN_ROWS, run_of
from plica.schedule.default.limb import Axes, StageList, digit_of, in_places, integers, summed
from plica.schedule.default.machine import BYTE, DIGITS, QUAD, Dot, Machine

MIN_RUN: Final = 16
"""Fewer terms with a common scale are multiplied as floats: scaling takes longer than products."""


UNDER_WAY: Final = 16  # sums that keep the units for products busy
MAX_VECTORS: Final = 2
"""Adjacent vectors of rows, at most: their digits stay in the nearest cache for all columns."""


def coded_digit_form(of: Stages, machine: Machine, digits: int = DIGITS) -> Stages | None:
    """The stages, or None if the machine has no such instruction, weights are no integers, or rows
    are few or fill no vectors."""
    dot, product = machine.dot, coded_product(of)
    sides = None if product is None else sides_of(product)
    if dot is None or dot.terms != QUAD or product is None or sides is None:
        return None
    dot = (dot.wide if digits > 1 else None) or dot
    data, weight = sides
    if not isinstance(data, sc.Load) or data.indices[-1] is not product.term:
        return None
    cuts = digit_cuts(weight, product.term, product.count, machine.vector // BYTE)
    sizes = dict(zip(product.fold.axes, product.fold.out.shape, strict=True))
    columns = [axis for axis in sizes if axis in free_vars(weight)]
    rows = [axis for axis in sizes if axis not in columns and known(sizes[axis]) != 1]
    if cuts is None or cuts[-2] > MAX_BLOCK or len(columns) != 1 or len(rows) != 1:
        return None
    count = known(sizes[rows[0]]) or 0
    if columns[0] in free_vars(data) or count < MIN_ROWS or count % dot.lanes:
        return None
    if not _lies(product, rows[0], columns[0]):
        return None
    return _DigitForm(of, product, data, rows[0], columns[0], dot, digits).formed(weight, cuts)


def _lies(of: CodedProduct, row: sc.ScalarVar, column: sc.ScalarVar) -> bool:
    """Whether columns are contiguous in the result, and it has all rows as one axis."""
    last = of.fold if of.epilogue is None else of.epilogue
    read = [load for load in loads(last.value) if load.buffer is of.fold.out]
    places = of.fold.axes if of.epilogue is None else read[0].indices
    at = dict(zip(of.fold.axes, places, strict=True))
    return len(read) < 2 and at[column] is last.axes[-1] and at[row] in last.axes[:-1]


def digit_tile(vectors: int, columns: int, registers: int, digits: int) -> tuple[int, int]:
    """The vectors of rows and the columns of a tile, which divide all of them: sums of each digit
    are in registers, enough of them, and vectors of digits.

    >>> digit_tile(4, 64, 32, 2), digit_tile(4, 64, 32, 1), digit_tile(3, 21, 32, 2)
    ((2, 4), (2, 8), (1, 7))
    """

    def worth(tile: tuple[int, int]) -> tuple[int, float]:
        v, r = tile
        return min(digits * v * r, UNDER_WAY), v * r / (v + r)

    tiles = [
        (v, r)
        for v in range(1, min(vectors, MAX_VECTORS) + 1) if vectors % v == 0
        for r in range(1, columns + 1)
        if columns % r == 0 and digits * v * (r + 1) + 2 <= registers
    ]  # fmt: skip
    return max(tiles, key=worth, default=(1, 1))


class _DigitForm(StageList):
    """The stages, and what they have in common."""

    def __init__(  # noqa: PLR0917  # a product, and the roles of its axes
        self, of: Stages, product: CodedProduct, data: sc.Load, row: sc.ScalarVar,
        column: sc.ScalarVar, dot: Dot, digits: int,
    ) -> None:  # fmt: skip
        super().__init__(Names(of, anew=of.made))
        self.of, self.product, self.data, self.dot = of, product, data, dot
        self.row, self.column = row, column
        self.digits, self.greatest = digits // dot.weight.bytes, GREATEST[digits]
        sizes = dict(zip(product.fold.axes, product.fold.out.shape, strict=True))
        self.rows, self.columns = known(sizes[row]) or 0, sizes[column]
        self.units: dict[Term, Term] = {
            axis: sc.index(0) for axis in sizes if axis not in (row, column)
        }

    def formed(self, weight: sc.Scalar, cuts: Sequence[int]) -> Stages | None:
        """The stages for digits of the term between such cuts."""
        digits = term_digits(cuts, self.names)
        found = integer_weight(weight, digits, self.product, self.dot.dtype)
        if found is None or found.run < MIN_RUN:
            return None
        every = list(zip(digits.axes, digits.sizes, digits.units, strict=True))
        return self._stages(every, found)

    def _stages(
        self, digits: Sequence[tuple[sc.ScalarVar, int, int]], weight: IntegerWeight
    ) -> Stages:
        names, lanes, n = self.names, self.dot.lanes, self.column
        run, offset = weight.run, weight.offset
        most = min(self.greatest, (2**31 - 1) // (weight.greatest * run) - 1)
        outer, inner = (
            [each for each in digits if (each[2] >= run) is far] for far in (True, False)
        )
        (first, count, unit_of_first), *rest = outer
        near = run_of([count, unit_of_first])[0]
        groups = near * unit_of_first // run

        # The data stages: integers for each group of terms, and their bytes.
        b, mb, g, j, l, d, q, s, i, v = (names.var(each) for each in "bmgjldqsiv")  # noqa: E741
        blocks, many = count // near, self.rows // lanes
        old = self.data.buffer
        shape = (*old.shape[:-1], *map(sc.index, (blocks, groups, run)))
        view = sc.Buffer(old.name, shape, old.dtype)
        units = {**self.units, self.row: mb * lanes + l}
        places = [substitute(place, units) for place in self.data.indices[:-1]]
        here = ((b, blocks), (mb, many), (g, groups), (l, lanes))
        of_run = ((j, run),)
        inside = (*here[:3], *of_run, here[3])
        x = self.made("turned", inside, sc.Load(view, (*places, b, g, j)), near=True)
        unit, fixed = integers(self, x, most, here, of_run, inside, near=True)
        quad = self.dot.terms
        which = ((d, self.digits),) * (self.digits > 1)
        integer = sc.Load(fixed.buffer, (b, mb, g, q * quad + s, l))
        digit = digit_of(integer, d, self.digits) if which else sc.Cast(integer, self.dot.weight)
        own = (*here[:3], (q, run // quad), *which, here[3], (s, quad))
        split = self.made("digits", own, digit).buffer

        # The panels: bytes of columns, and what scales them.
        after = [(axis, size) for axis, size, _ in rest]
        around: Axes = ((n, self.columns), (first, count), *after)
        code = weight.number - sc.Lit(offset, i32) if offset else weight.number
        small = [(axis, size) for axis, size, _ in inner]
        codes = self.made("codes", (*around, *small), sc.Cast(code, self.dot.dtype), near=True)

        # Sums of digits times bytes, and the scaled results of a run.
        start = b * near + i if near > 1 else b
        group = sum([axis * (size // run) for axis, _, size in rest],
                    i * (unit_of_first // run) if near > 1 else sc.index(0))  # fmt: skip
        there = sum([axis * (size // quad) for axis, _, size in inner[:-1]], sc.index(0) + v)
        *wider, (_, width, _) = inner
        over = [*[(axis, size) for axis, size, _ in wider], (v, width // quad), (s, quad)]
        byte_at = (n, start, *[axis for axis, _ in (*after, *over[:-2])], v * quad + s)
        byte = sc.Load(codes.buffer, byte_at)
        digit = sc.Load(split, (b, mb, group, there, *[axis for axis, _ in which], l, s))
        run_axes = [*([(i, near)] if near > 1 else []), *after]
        tile = ((n, self.columns), (mb, many), (l, lanes))
        product = summed(over, sc.Mul(sc.Cast(byte, i32), sc.Cast(digit, i32)))
        one = self.made("sum", ((b, blocks), *run_axes, *which, *tile), product, near=True)
        at_run, where = (b, *[axis for axis, _ in run_axes]), (n, mb, l)
        placed = in_places([
            sc.Load(one.buffer, (*at_run, *[sc.index(at) for _ in which], *where))
            for at in range(self.digits)
        ])  # fmt: skip
        of_group = (b, mb, group, l)
        if offset:
            less = self.made("below", here, summed(of_run, fixed * sc.Lit(offset, i32)))
            placed = sc.Add(placed, sc.Load(less.buffer, of_group))
        of_scale = (n, start, *[axis for axis, _ in after])
        factors, minima = (
            [scale for scale, what in weight.terms if (what is None) is wanted]
            for wanted in (False, True)
        )
        scale = self.made("scale", around, sum(factors[1:], start=factors[0]), near=True)
        whole = sc.Mul(sc.Load(unit.buffer, of_group), sc.Cast(placed, f32))
        value: sc.Scalar = sc.Mul(sc.Load(scale.buffer, of_scale), whole)
        if minima:
            sums = self.made("sums", here, summed(of_run, x)).buffer
            lowest = sum(minima[1:], start=minima[0])
            least = self.made("minimum", around, lowest, near=True).buffer
            value = sc.Add(value, sc.Mul(sc.Load(least, of_scale), sc.Load(sums, of_group)))
        some = self.made("part", ((b, blocks), *tile), summed(run_axes, value), near=True)
        total = self.made("total", tile, summed([(b, blocks)], some)).buffer
        return self._result(total, view)

    def _result(self, total: sc.Buffer, view: sc.Buffer) -> Stages:
        """All stages, with the last one at the axes of the product."""
        fold, lanes = self.product.fold, self.dot.lanes
        last = fold if self.product.epilogue is None else self.product.epilogue
        whole = last.value if last is not fold else sc.Load(fold.out, fold.axes)

        def result(node: Term) -> Term:
            if not isinstance(node, sc.Load) or node.buffer is not fold.out:
                return node
            at = dict(zip(fold.axes, node.indices, strict=True))
            row = at[self.row]
            return sc.Load(total, (at[self.column], row // lanes, row % lanes))

        value = map_bottom_up(result, whole)
        assert isinstance(value, sc.Scalar)
        out = Each(last.out, last.axes, value)
        inputs = [view if buffer is self.data.buffer else buffer for buffer in self.of.inputs]
        return stages(inputs, (*self.stages, out), (*self.memory, last.out))
