"""The memory cost of a contraction's data: cache lines, pages and copies, in cycles.

Estimates of forms (`plica.schedule.default.estimate`) add these to the cost of computing.

>>> tiles_of_group(12, 5), tiles_of_group(13, 5)
(4, 0)
"""

from __future__ import annotations

from math import prod

from plica.core import free_vars
from plica.ir.loop.scalar import ScalarVar
from plica.ir.type import known
from plica.runtime.machine import CycleRates
from plica.schedule.default.contraction import Contraction, stride
from plica.schedule.default.form import elements
from plica.schedule.default.machine import LINE, PAGE, Machine
from plica.schedule.default.tile import RegisterTile, most_steps, reads_of

PICKED = 1.0
"""Cycles for each element that is copied from between others: a load and its place in a vector."""

PAGES = 48  # the number of TLB entries
APART = 3 / 8  # the fraction of the latency of lines from several rows that computing does not hide
STREAMED = 1 / 4  # the same for lines of one stream, which is prefetched


def lines_of_vector(of: Contraction, row: ScalarVar, lanes: int, rates: CycleRates) -> float:
    """The average number of cache lines of a vector along a row of the data."""
    size = of.data.buffer.dtype.bytes
    if row not in free_vars(of.data.indices[-1]):
        return lanes * PICKED * reads_of(rates)  # neighbours are read one by one
    others = [var for var in (*of.axes, *of.k) if var is not row]
    if all(stride(of.data, var) % (lanes * size) == 0 for var in others):
        return 1
    return 1 + (lanes - 1) * size / LINE


def page_misses(of: Contraction, rates: CycleRates) -> float:
    """Cycles for one tile in which addresses of the data are looked up."""
    apart, step = 1, of.data.buffer.dtype.bytes
    found = 0.0
    for place, size in zip(reversed(of.data.indices), reversed(of.data.buffer.shape), strict=True):
        count = prod(of.sizes[var] for var in of.k if var in free_vars(place))
        pages = count * min(1.0, step * apart / PAGE)
        if pages > PAGES:
            found += rates.lookup * pages
        apart *= known(size) or 1
    return found


def page_misses_of_rows(of: Contraction, row: ScalarVar, rates: CycleRates) -> float:
    """The same for a copy in which the row's places are contiguous: terms adjacent in the data are
    whole rows of the copy apart."""
    size, place = of.data.buffer.dtype.bytes, of.data.indices[-1]
    count = prod(of.sizes[var] for var in of.k if var in free_vars(place))
    pages = min(count, stride(of.data, row) // size) * min(1.0, size * of.sizes[row] / PAGE)
    return rates.lookup * pages if pages > PAGES else 0.0


def rows_displaced(
    of: Contraction, row: ScalarVar, tile: RegisterTile, lanes: int, machine: Machine
) -> float:
    """The cycles for reloading evicted lines from the second cache, per tile of lanes over a row:
    the prefetched lines of the next tile, if its rows exceed the cache before they are used."""
    size, last = of.data.buffer.dtype.bytes, free_vars(of.data.indices[-1])
    if row not in last:
        return 0.0
    rows = prod([of.sizes[k] for k in of.k if k not in last and k in free_vars(of.data)])
    beside = prod([of.sizes[k] for k in of.k if k in last])  # terms that lie along the row
    step = stride(of.data, row)
    wide = (tile.vectors * lanes - 1) * step + beside * size
    lines = rows * (wide / LINE + (LINE - size) / LINE)
    gone = max(0.0, 1 - machine.cache(1) / (lines * LINE)) if lines else 0.0
    return gone * lines * LINE / machine.rates.near


def lines_apart(of: Contraction, tile: RegisterTile, lanes: int, machine: Machine) -> float:
    """The cycles of loads beyond the nearest cache, for separate rows: a processor tracks a few
    streams, not as many as a tile has.

    Rows that exceed the second cache are split into groups that fit, and weights are loaded again
    for each; without such groups, the excess is loaded for every tile of outputs, without overlap.
    """
    size, steps = of.data.buffer.dtype.bytes, of.sizes[of.m[-1]] if of.m else 1
    data, rates = elements(of.data.buffer) * size, machine.rates
    if of.data.indices[-1] is not of.k[-1] or data <= machine.cache(1) // 2:
        return 0.0  # neighbours are terms of a window, or of no row
    outputs = -(-of.sizes[of.n[-1]] // (tile.vectors * lanes))
    again = APART * steps * of.depth * size * outputs
    if of.m and most_steps(stride(of.data, of.m[-1]), machine.cache(1)) is not None:
        again *= 2  # lines of some rows are in the place of others before they are read to the end
    if data <= machine.cache(2) // 2:
        return again / rates.near
    tiles, most = -(-steps // tile.steps), machine.cache(2) // 2 // (tile.steps * of.depth * size)
    if not (group := tiles_of_group(tiles, most)):
        gone = max(0.0, 1 - machine.cache(2) / data)
        return (1 - gone) * again / rates.near + gone * again / APART / rates.far
    weights = of.depth * of.sizes[of.n[-1]] * size
    return again / rates.near + STREAMED * weights * (tiles // group) / rates.far


def tiles_of_group(tiles: int, most: int) -> int:
    """How many tiles of rows go together, of this many at most; 0 where groups would be short.

    A group with empty tiles at its end would have loops whose ends vary: no sums in registers.
    """
    return max([n for n in range(max(1, -(-most // 4)), most + 1) if tiles % n == 0], default=0)


def padding_cost(of: Contraction, machine: Machine) -> float:
    """The cycles of copying the data into a padded buffer."""
    return elements(of.data.buffer) * copying_cost(of, machine)


def copying_cost(of: Contraction, machine: Machine) -> float:
    """The cycles of copying an element of the data."""
    size = of.reduced.dtype.bytes
    near = elements(of.data.buffer) * size <= machine.cache(2)
    return 2 * size / (machine.rates.near if near else machine.rates.far)
