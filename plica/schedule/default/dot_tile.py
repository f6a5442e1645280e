"""Products of two sides that both lie along their terms: tiles of dot products in registers.

    out[i, j] = sum over k of x[i, k] * w[j, k]
      -->  acc[r, c, v] = sum over h of x[i + r, h * 16 + v] * w[j + c, h * 16 + v]      vectors
           few[r, c, v] = acc[r, c, v] + acc[r, c, v + 4] + …                    shorter vectors
           out[i + r, j + c] = few[r, c, 0] + … + few[r, c, 3]                   four at once

A vector of either side is multiplied by all vectors of the other that a tile has, and nothing is
packed; the price is that lanes are joined for each result.  A tile that is too small to keep the
units for products busy has several sums for each result.

A lane of a long sum would lose digits, so it goes in runs like those of other products
(`plica.schedule.default.summed`).  Terms are joined in another order than they come.  The loops are
in `plica.schedule.default.dot_writer`.

>>> from plica.ir.loop.stage import stage
>>> from plica.ir.loop.stages import stages
>>> from plica.ir.loop.tensor import buffer, reduce
>>> from plica.schedule.default.contraction import contraction
>>> x, w = buffer("x", (13, 983), f32), buffer("w", (117, 983), f32)
>>> dense = stage("y", (13, 117), lambda i, j: reduce("sum", (983,), lambda k: x[i, k] * w[j, k]))
>>> machine = Machine(512, 32)
>>> found = contraction(stages((x, w), (dense,)))
>>> dots_of(found, machine).tile
DotTile(rows=5, columns=5)
"""

from __future__ import annotations

from itertools import product
from math import log2, prod
from typing import Final

from attrs import frozen

from plica.core import free_vars
from plica.ir.loop import scalar as sc
from plica.ir.type import f32, f64, i32, i64
from plica.schedule.default.contraction import Contraction
from plica.schedule.default.machine import LINE, Machine
from plica.schedule.default.reduction import AT_ONCE
from plica.schedule.default.summed import FEW, LONGEST
from plica.schedule.default.tile import LOOP, VECTOR_AWAY, reads_of

TOGETHER: Final = 4
"""Results that are joined at once: their lanes are turned."""

BEGUN: Final = 16
"""Cycles in which a tile begins and ends."""

JOINED_ALONE: Final = 4
"""Cycles in which the last four lanes of a sum are joined by themselves."""

JOINED_TOGETHER: Final = 2
"""The same for each of four sums that are joined at once."""

MOST: Final = 8
"""Rows or columns of a tile."""

HIDDEN: Final = 0.5
"""Which part of the time in which vectors come from the second cache products do not hide."""


@frozen
class DotTile:
    """A given number of rows of one side, by this many of the other."""

    rows: int
    columns: int

    @property
    def sums(self) -> int:
        """How many results it has."""
        return self.rows * self.columns

    def fits(self, registers: int) -> bool:
        """Whether sums and vectors of the side that has fewer are all in registers."""
        return self.sums + min(self.rows, self.columns) + 1 <= registers

    def independent_sums(self, machine: Machine) -> int:
        """Independent partial sums per result, so that the multiply-add units are busy."""
        enough = machine.rates.fma * machine.rates.latency
        return max(1, min(AT_ONCE, int(enough // self.sums)))


@frozen(eq=False)
class Dots:
    """A contraction whose sides lie along its terms: the axis of the `rows` of a tile, if there is
    one, that of its `columns`, and what it would take in tiles of that size."""

    whole: Contraction
    rows: sc.ScalarVar | None
    columns: sc.ScalarVar
    tile: DotTile
    cycles: float

    @property
    def depth(self) -> int:
        """How many terms there are."""
        return self.whole.depth

    @property
    def by_columns(self) -> bool:
        """Whether the side of columns goes by once, and all rows for each tile of it."""
        sizes = self.whole.sizes
        return self.rows is None or sizes[self.rows] <= sizes[self.columns]


def dots_of(of: Contraction, machine: Machine) -> Dots | None:
    """The tile for a contraction and what that takes, None where a side does not lie along its
    terms, or where no axis is one side's own."""
    lanes = machine.lanes(of.reduced.dtype)
    if of.weight is None or of.guarded or len(of.k) != 1 or of.reduced.dtype not in _NUMBERS:
        return None
    (term,) = of.k
    runs = -(-of.depth // (lanes * LONGEST["box"]))
    if lanes < TOGETHER or of.depth < lanes or runs > FEW:
        return None
    if not all(_lies_along(each, term) for each in (of.data, of.weight)):
        return None
    own = [*of.m[-1:], *of.n[-1:]]
    if not own:
        return None
    columns = max(own, key=of.axes.index)
    rows = next((each for each in own if each is not columns), None)
    return _cheapest(of, rows, columns, machine)


_NUMBERS: Final = (f32, f64, i32, i64)


def _lies_along(of: sc.Load, term: sc.ScalarVar) -> bool:
    *outer, last = of.indices or (None,)
    return last is term and all(term not in free_vars(at) for at in outer)


def _cheapest(
    of: Contraction, rows: sc.ScalarVar | None, columns: sc.ScalarVar, machine: Machine
) -> Dots:
    high, wide = 1 if rows is None else of.sizes[rows], of.sizes[columns]
    times = prod([of.sizes[axis] for axis in of.axes if axis not in (rows, columns)])
    best: Dots | None = None
    for r, c in product(range(1, min(high, MOST) + 1), range(1, min(wide, MOST) + 1)):
        tile = DotTile(r, c)
        if not tile.fits(machine.registers):
            continue
        moved = _moved(of, tile, (high, wide), machine)
        computed = sum(
            many * often * _cycles(DotTile(some, more), of, machine)
            for some, many in _parts(high, r)
            for more, often in _parts(wide, c)
        )
        if best is None or (computed + moved) * times < best.cycles:
            best = Dots(of, rows, columns, tile, (computed + moved) * times)
    assert best is not None
    return best


def _parts(whole: int, part: int) -> list[tuple[int, int]]:
    """How often a part goes into a whole, and once what is left."""
    count, rest = divmod(whole, part)
    return [(size, times) for size, times in ((part, count), (rest, 1)) if size and times]


def _moved(of: Contraction, tile: DotTile, sizes: tuple[int, int], machine: Machine) -> float:
    """What it takes to bring both sides from the second cache: the longer one once, the other for
    each tile of that, unless it stays in the nearest."""
    row = of.depth * of.reduced.dtype.bytes
    (short, _), (long, some) = sorted(zip(sizes, (tile.rows, tile.columns), strict=True))
    near = short * row <= machine.cache(1) // 2
    often = 1 if near else -(-long // some)
    return HIDDEN * (long + short * often) * row / machine.rates.near


def _cycles(tile: DotTile, of: Contraction, machine: Machine) -> float:
    """What a tile takes: a vector that lies on two lines of a cache waits for the second."""
    size, lanes, rates = of.reduced.dtype.bytes, machine.lanes(of.reduced.dtype), machine.rates
    vectors, read = -(-of.depth // lanes), tile.rows + tile.columns
    lines = 1 if of.depth % lanes == 0 else 1 + (lanes - 1) * size / LINE
    begun = (tile.sums + read + LOOP / tile.independent_sums(machine)) / rates.issue
    waits = rates.latency / tile.independent_sums(machine)
    busy = max(tile.sums / rates.fma, read * lines / reads_of(rates), begun, waits)
    busy += read * (lines - 1) * VECTOR_AWAY
    alone = tile.columns % TOGETHER
    shorter = log2(lanes / TOGETHER) + tile.independent_sums(machine) - 1
    last = JOINED_TOGETHER * (tile.columns - alone) + JOINED_ALONE * alone
    return vectors * busy + tile.sums * shorter + tile.rows * last + BEGUN
