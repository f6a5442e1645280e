"""Estimates: the cycles of a contraction in each of its forms, from the machine description.

    lanes-over-n     what is stored is scattered where outputs are no neighbours
    lanes-over-row   vectors of the data as it lies
    column-panels    columns of the data are copied to where they are read in order

The figures are only compared with each other: the form with the fewest cycles is chosen.

>>> from plica.ir.type.dtype import f32
>>> from plica.ir.loop.stage import stage
>>> from plica.ir.loop.stages import stages
>>> from plica.ir.loop.tensor import buffer, reduce
>>> from plica.schedule.default.contraction import contraction
>>> x, w = buffer("x", (256, 3136), f32), buffer("w", (64, 256), f32)
>>> conv = stage("y", (64, 3136), lambda o, p: reduce(
...     "sum", (256,), lambda k: x[k, p] * w[o, k]))
>>> found = contraction(stages((x, w), (conv,)))
>>> machine = Machine(512, 32, (48 * 1024, 2048 * 1024))
>>> every = [*over_outputs(found, machine), *over_rows(found, machine), *panels(found, machine)]
>>> min(every, key=lambda each: each.cycles).form
'column-panels'
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from math import gcd, log2, prod
from typing import Literal

from attrs import frozen

from plica.core import free_vars
from plica.ir.loop.scalar import ScalarVar
from plica.ir.type import polynomial
from plica.schedule.default.contraction import Contraction, stride
from plica.schedule.default.form import elements
from plica.schedule.default.machine import LINE, MIN_LANES, Machine
from plica.schedule.default.memory_estimate import (
    PICKED,
    STREAMED,
    copying_cost,
    lines_apart,
    lines_of_vector,
    padding_cost,
    page_misses,
    page_misses_of_rows,
    rows_displaced,
    tiles_of_group,
)
from plica.schedule.default.panel import group_of, has_panels, panel_budget, tiles_in_groups
from plica.schedule.default.role import MOST_SLIDING, Roles
from plica.schedule.default.summed import FEW
from plica.schedule.default.tile import (
    LARGE_WAYS,
    WAYS,
    RegisterTile,
    apart,
    best_open_tile,
    best_tile,
    bytes_of_line,
    cost,
    elements_waiting,
    fits,
    most_steps,
    reads_of,
)
from plica.schedule.default.written_terms import has_rows, last_terms

SCATTERED = 1.2  # cycles for each lane of a vector that is stored to places far apart
TURNED = 5  # cycles per vector of a tile that is transposed before its store
JOINED = 12  # cycles in which the lanes of a sum are joined


SELDOM = 1 / 4
"""The fraction of bytes from beyond a cache at which repeated weights are acceptable, compared with
data in sequential order, which may be prefetched."""

RAGGED = 1.03  # the cost factor of a last tile with a different size
TURNED_STEPS = (4, 8)
"""Steps of a tile with a weight packed at run time: registers transpose squares."""

LEAST = 12  # the minimum number of outputs for which panels are read more often than written


@frozen
class FormChoice:
    """A form, its tile and lanes, and what that would take."""

    cycles: float
    form: Literal["lanes-over-n", "lanes-over-row", "column-panels"]
    lanes: int
    tile: RegisterTile
    tiles: int = 0  # the number of column tiles, if that is chosen as well
    whole: bool = False  # whether all columns are copied before all else


def over_outputs(of: Contraction, machine: Machine) -> list[FormChoice]:
    """What lanes over outputs would cost."""
    if not of.n:
        return []
    lane = of.n[-1]
    lanes = fewest_lanes(of.sizes[lane], machine.lanes(of.reduced.dtype))
    if lanes < MIN_LANES:
        return []
    steps = of.sizes[of.m[-1]] if of.m else 1
    vectors = -(-of.sizes[lane] // lanes)
    times = _rest(of, [lane, *of.m[-1:]])
    scattered = 1.0 if of.axes[-1] is lane else SCATTERED * lanes
    if of.m and of.axes[-1] is of.m[-1] and steps >= MIN_LANES:
        scattered = TURNED
    between = stride(of.data, of.m[-1]) if of.m else 0
    rates = machine.rates
    size = bytes_of_line(lanes * of.reduced.dtype.bytes, between)
    most = most_steps(between, machine.cache(1))
    waits = _waits(of, machine, between)
    if of.m and of.m[-1] in of.open:
        extent = of.open[of.m[-1]]
        tile = best_open_tile(vectors, extent, machine.registers, rates, size=size)
    else:
        tile = best_tile(
            vectors, steps, machine.registers, rates, most=most, waits=waits, size=size
        )
    each = cost(tile, vectors, steps, rates=rates, size=size) * of.depth
    each += vectors * steps * scattered
    each += _tiles(tile, vectors, steps) * page_misses(of, rates)
    each += lines_apart(of, tile, lanes, machine)
    room = padding_cost(of, machine) if of.guarded else 0
    return [FormChoice(each * times + room, "lanes-over-n", lanes, tile)]


def _waits(of: Contraction, machine: Machine, between: int) -> Callable[[int], int]:
    """How many vectors the data of a given number of steps wait in, which lie a given number of
    bytes apart."""
    terms = [of.sizes[k] for k in of.k]
    if machine.masks or not has_rows(terms):
        return lambda _: 0
    last = [k for k in of.k if of.sizes[k] > 1][-1]
    return elements_waiting(last_terms(terms), stride(of.data, last), between, machine)


def vectors_across_of(of: FormChoice, whole: Contraction, ready: bool) -> int:
    """The vectors of a term that are side by side in a packed weight: those of a tile where it is
    `ready` before the program runs."""
    if not ready:
        return 1
    return vectors_side_by_side(of.tile.vectors, of.lanes, whole.reduced.dtype.bytes)


def vectors_side_by_side(vectors: int, lanes: int, size: int) -> int:
    """All vectors of a tile, unless one is a line of a cache by itself.

    Each block of a packed weight is a stream, and of short vectors a tile would read more streams
    than a processor foresees, whose lines fall into few sets of the nearest cache.
    """
    return 1 if lanes * size >= LINE else vectors


def fewest_lanes(size: int, lanes: int) -> int:
    """The shortest vectors that cover an axis with the minimum number of them."""
    while lanes > MIN_LANES and -(-size // lanes) == -(-size // (lanes // 2)):
        lanes //= 2
    return lanes


def slides(of: Contraction, machine: Machine) -> bool:
    """Whether it is of windows along a row that have terms in common, and no weight: lanes are
    places, neighbours or every other one, rather than terms, where these can be written out.

    Terms that may be out of bounds are checked one by one for every window on a machine without
    masks, and once by a copy: there strided places are lanes, too, if vectors are read of them, and
    the terms of a row are too few to fill several vectors.
    """
    if of.weight is not None or not of.axes or of.depth > MOST_SLIDING:
        return False
    last = polynomial(of.data.indices[-1]).values()
    steps = {atoms[0]: factor for atoms, factor in last if len(atoms) == 1}
    apart = steps.get(of.axes[-1], 0)
    wide = max([of.sizes[k] for k in of.k if k in steps], default=0)
    asked = of.guarded and not machine.masks and wide < 2 * machine.lanes(of.reduced.dtype)
    return 0 < apart < wide and apart <= (MIN_LANES if asked else 2)


def over_rows(of: Contraction, machine: Machine) -> list[FormChoice]:
    """What lanes over a row of the result would cost."""
    if not of.axes:
        return []
    row = of.axes[-1]
    # Of windows without a weight neighbours may be those of another axis than the one that slides.
    beside = row in of.m or (of.weight is None and bool(of.m))
    if row in of.n or of.sizes[row] < MIN_LANES or not beside:
        return []
    lanes = fewest_lanes(of.sizes[row], machine.lanes(of.reduced.dtype))
    vectors = -(-of.sizes[row] // lanes)
    steps = of.sizes[of.n[-1]] if of.n else 1
    waits = not machine.masks and has_rows([of.sizes[k] for k in of.k])
    rates = machine.rates if machine.masks or waits else apart(machine.rates)
    if not of.n and of.weight is None:
        if of.depth > MOST_SLIDING:
            return []
        tile = RegisterTile(1, 1)
    else:  # also where one row is multiplied: what lies in rows is read as it lies
        tile = best_tile(
            vectors, steps, machine.registers, rates, waits=lambda steps: steps * waits
        )
    lines = lines_of_vector(of, row, lanes, rates)
    each = cost(tile, vectors, steps, lines, rates) * of.depth + vectors * steps
    strided = stride(of.data, row) > of.data.buffer.dtype.bytes
    lookups = page_misses(of, rates) + (page_misses_of_rows(of, row, rates) if strided else 0)
    # Cache lines arrive during TLB misses.
    away = max(lookups, rows_displaced(of, row, tile, lanes, machine))
    each += _tiles(tile, vectors, steps) * away
    ragged = of.sizes[row] % lanes != 0 and not machine.masks
    room = padding_cost(of, machine) if of.guarded or strided or ragged else 0
    whole = each * _rest(of, [row, *of.n[-1:]]) + room
    return [FormChoice(whole, "lanes-over-row", lanes, tile)]


def panels(of: Contraction, machine: Machine, *, sampled: bool = False) -> list[FormChoice]:
    """What panels of columns would cost; `sampled` data is copied once more."""
    if not has_panels(of) or of.sizes[of.n[-1]] < LEAST:
        return []
    row, output = of.axes[-1], of.n[-1]
    lanes = machine.lanes(of.reduced.dtype)
    if lanes < MIN_LANES:
        return []
    vectors, outputs = -(-of.sizes[row] // lanes), of.sizes[output]
    times = _rest(of, [row, output])
    copied = prod(of.sizes[a] for a in (*of.axes, *of.k) if a in free_vars(of.data))
    copying = copied * copying_cost(of, machine) * (2 if sampled else 1)
    found = []
    for wide in range(1, 5):
        if of.depth * wide * lanes * of.reduced.dtype.bytes > machine.panel:
            break
        tile = best_tile(wide, outputs, machine.registers, machine.rates, exact=True)
        if tile.vectors == wide:
            each = cost(tile, vectors, outputs, rates=machine.rates) * of.depth
            each += vectors * outputs
            each *= 1 if vectors % wide == 0 else RAGGED
            found.append(FormChoice(each * times + copying, "column-panels", lanes, tile))
    return found


def packed_panels(
    of: Contraction, machine: Machine, *, copied: bool = False, packed: bool = False
) -> list[FormChoice]:
    """The cost of column panels with a weight transposed while it is packed: tiles are complete,
    even with fewer outputs or columns.

    Columns may be `copied`, or the weight `packed`, in advance. Otherwise columns are copied where
    they are read, or all of them before, in longer groups: weights beyond the second cache are
    loaded again for each group.
    """
    if not has_panels(of) or of.weight is None or of.sizes[of.n[-1]] < LEAST:
        return []
    row, output = of.axes[-1], of.n[-1]
    lanes, size, rates = machine.lanes(of.reduced.dtype), of.reduced.dtype.bytes, machine.rates
    if lanes < MIN_LANES or stride(of.weight, of.k[-1]) != size or of.sizes[of.k[-1]] < MIN_LANES:
        return []
    vectors, outputs = -(-of.sizes[row] // lanes), of.sizes[output]
    times, weights = _rest(of, [row, output]), elements(of.weight.buffer) * size
    columns = prod(of.sizes[a] for a in (*of.axes, *of.k) if a in free_vars(of.data))
    near = 0.0 if copied else columns * copying_cost(of, machine)
    apart = near if copied else near + 2 * columns * size / rates.far  # it goes out and comes back
    packs = 0.0 if packed else packing(of, machine)
    found = []
    for whole, steps, wide in product((False, True), TURNED_STEPS, range(1, 5)):
        tile, width = RegisterTile(wide, steps), wide * lanes
        panel = of.depth * width * size
        room = panel_budget(machine, weights, whole=whole)
        if wide * steps <= rates.latency * rates.fma or not fits(tile, machine.registers):
            continue
        if panel > room or whole < copied or (whole and machine.masks):
            continue  # beside long vectors elements of rows are read as fast as packed ones
        if width * size % LINE and LINE % (width * size):
            continue  # rows of a panel would begin within lines of a cache
        if whole and not copied and most_steps(panel, machine.cache(1)) == LARGE_WAYS:
            continue  # panels would be in the place of rows, and rows in that of panels
        tiles = -(-vectors // wide)
        if _has_equal_runs(of):  # else sums are read where they are made, by ends that vary
            tiles = tiles_in_groups(tiles, panel, width, machine, room)
        groups = tiles // group_of(tiles, panel, width, machine, room)
        each = tile.cycles(rates=rates) * of.depth + wide * steps
        each *= tiles * -(-outputs // steps) * times
        each += packs + (apart if whole else near)
        if weights > machine.cache(2) // 2:
            each += STREAMED * weights * groups / rates.far
        found.append(FormChoice(each, "column-panels", lanes, tile, tiles, whole=whole))
    return found


def _has_equal_runs(of: Contraction) -> bool:
    """Whether a sum has several runs of equal length."""
    cut = zip(of.k, of.run, strict=True) if of.run else ()
    remainders = [of.sizes[k] % part for k, part in cut]
    return bool(remainders) and not any(remainders) and of.depth > prod(of.run)


def keeps_totals(of: Contraction, machine: Machine, choice: FormChoice) -> bool:
    """Whether a sum in runs is computed run by run for all tiles, with totals kept in memory.

    Tile by tile, all data is loaded from beyond the second cache for each tile of outputs, unless
    it fits there together with two tiles' weights (the current and the next). Data that fills half
    of it is split, and all weights are loaded for each part. Run by run, each is loaded once, and
    totals are read and written for each run.
    """
    if not _has_equal_runs(of) or of.batch or of.weight is None:
        return False
    runs, size, cache = of.depth // prod(of.run), of.reduced.dtype.bytes, machine.cache(2)
    tiles = -(-of.sizes[of.n[-1]] // (choice.lanes * choice.tile.vectors))
    data, weights = elements(of.data.buffer) * size, elements(of.weight.buffer) * size
    if runs < 2 or tiles < 2 or data + 2 * weights / tiles <= cache:
        return False
    totals = prod([of.sizes[axis] for axis in of.axes]) * (size if of.free and runs <= FEW else 8)
    again = data * (tiles - 1)
    if data > cache // 2:
        again = min(again, weights * (data // (cache // 2)))
    stays = totals + (data + weights / tiles) / runs <= cache
    rate = machine.rates.near if stays else machine.rates.far
    return 2 * totals * (runs + 1) / rate < again / machine.rates.far


def tiles_together(
    of: Roles, tile: RegisterTile, lanes: int, machine: Machine, cores: int, *, kept: bool
) -> int:
    """How many tiles of a matrix product are processed together, so that their rows stay in a
    cache, that of one core if a given number share the rows; 0 for all.

    With totals `kept` from run to run these are the rows of one run, and its weights are loaded for
    each group: all go together unless that saves loads of data.
    """
    if not of.blocked or of.steps is None or of.opened:
        return 0
    if any(of.extents[at] > 1 for at in of.around):
        return 0
    tiles, cache = -(-of.extents[of.steps] // tile.steps), machine.cache(2)
    own = of.dtype.bytes * (prod([of.extents[at] for at in of.terms]) if kept else of.depth)
    # Rows at a distance of a multiple of a cache way's size conflict in the cache.
    held = min(1, own / gcd(of.apart, cache // WAYS)) if of.apart else 1
    most = int(cache // 2 * held) // (tile.steps * own)
    if tiles <= most or most < 1:
        return tiles // cores if not kept and cores > 1 and tiles % cores == 0 else 0
    group = tiles_of_group(tiles, most)
    if not kept or not group:
        return group
    data, weights = of.extents[of.steps] * own, of.extents[of.lane] * own
    outputs = -(-of.extents[of.lane] // (tile.vectors * lanes))
    again = data + weights * (tiles // group)
    return group if again < SELDOM * (data * outputs + weights) else 0


def sums_of_rows(of: Contraction, machine: Machine) -> float:
    """What it would cost to sum each element along its terms: two vectors are read for a product,
    and lanes are joined in the end."""
    lanes = machine.lanes(of.reduced.dtype)
    rates = machine.rates
    each = -(-of.depth // lanes) * max(2 / reads_of(rates), 1 / rates.fma) + JOINED
    return each * prod([of.sizes[axis] for axis in of.axes])


def _tiles(tile: RegisterTile, vectors: int, steps: int) -> int:
    return -(-vectors // tile.vectors) * -(-steps // tile.steps)


def packing(of: Contraction, machine: Machine) -> float:
    """The cost of packing a weight at run time: transposed rows take one register exchange per
    halving of the lanes."""
    if of.weight is None or not of.n:
        return 0.0
    size, copying = of.weight.buffer.dtype.bytes, copying_cost(of, machine)
    if stride(of.weight, of.n[-1]) == size:
        return elements(of.weight.buffer) * copying
    lanes = fewest_lanes(of.sizes[of.n[-1]], machine.lanes(of.reduced.dtype))
    turns = any(stride(of.weight, k) == size and of.sizes[k] >= lanes for k in of.k[-1:])
    each = copying + (log2(lanes) + 1) / lanes if turns and lanes >= MIN_LANES else PICKED
    return elements(of.weight.buffer) * each


def _rest(of: Contraction, taken: list[ScalarVar]) -> int:
    """The trip count of the loops over some axes' tiles."""
    return prod([of.sizes[axis] for axis in of.axes if axis not in taken])
