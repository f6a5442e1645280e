"""Register tiles: the size of a contraction's tile of sums, and the order of tiles, from registers
and caches (`plica.schedule.default.register_tile_schedule` has the loops).

>>> from plica.ir.type.dtype import f32
>>> from plica.ir.loop.stage import stage
>>> from plica.ir.loop.stages import kernel_of, stages
>>> from plica.ir.loop.tensor import buffer, reduce
>>> from plica.schedule.default.contraction import contraction
>>> from plica.schedule.default.form import register_tile
>>> from plica.schedule.default.role import roles
>>> x, w = buffer("x", (56, 8), f32), buffer("w", (8, 64), f32)
>>> dense = stage("y", (56, 64), lambda m, n: reduce("sum", (8,), lambda k: x[m, k] * w[k, n]))
>>> of = contraction(stages((x, w), (dense,)))
>>> found = roles(kernel_of(register_tile(of, of.n[-1], 16, Machine(512, 32))))
>>> found.extents, found.blocked, tile_of(found, Machine(512, 32), 16)
((56, 64, 8), True, RegisterTile(vectors=2, steps=14))
"""

from __future__ import annotations

from math import prod
from typing import TypeAlias

from plica.ir.loop.statement import Block
from plica.schedule.default.machine import LINE, Machine
from plica.schedule.default.role import MOST_SLIDING, Roles
from plica.schedule.default.share import BOTH, Side, bytes_along, shares
from plica.schedule.default.tile import (
    RegisterTile,
    apart,
    best_open_tile,
    best_tile,
    bytes_of_line,
    cost,
    elements_waiting,
    fits,
    most_steps,
    widening_tile,
)
from plica.schedule.default.written_terms import has_rows, last_terms

SPARE = 8  # registers for operands
ENOUGH = 4  # sums that must be under way at once, at least
UNDER_WAY = 8  # the number of sums that keep the multipliers busy: latency four, two per cycle
WORTH = 0.75  # the fraction of bytes from beyond a cache below which another order is chosen


def tile_of(of: Roles, machine: Machine, lanes: int, cores: int = 1) -> RegisterTile:
    """The tile a machine's registers hold, where a given number of cores share the work."""
    vectors = -(-of.extents[of.lane] // lanes)
    steps = 1 if of.steps is None else of.extents[of.steps]
    if of.sliding:
        return _sliding_tile(of, vectors, steps, machine)
    if of.widened:
        held = of.widened // lanes
        return widening_tile(vectors, steps, machine.registers, machine.rates, held)
    if of.open_steps is not None:
        size = bytes_of_line(lanes * of.dtype.bytes, of.apart)
        across, rates = of.held(lanes), machine.rates
        return best_open_tile(
            vectors, of.open_steps, machine.registers, rates, held=across, size=size
        )
    most = most_steps(of.apart, machine.cache(1))

    def uneven(tile: RegisterTile) -> float:
        loops = loops_around(of, tile, lanes, 0, None)
        every = [(at, count, left) for at, (count, left, _) in enumerate(loops)]
        return cores * min([share.time for share in shares(every, cores)]) if cores > 1 else 1.0

    short = not machine.masks and not of.blocked
    rows = not machine.masks and has_rows(term_extents(of))
    waits = elements_waiting(last_terms(term_extents(of)), of.near, of.apart, machine)
    return best_tile(
        vectors,
        steps,
        machine.registers,
        apart(machine.rates) if short and not rows else machine.rates,
        most=most,
        held=of.held(lanes),
        waits=waits if rows else lambda _: 0,
        size=bytes_of_line(lanes * of.dtype.bytes, of.apart) if of.blocked else LINE,
        uneven=uneven,
    )


def _sliding_tile(of: Roles, vectors: int, steps: int, machine: Machine) -> RegisterTile:
    """Sums with all weights of a window in registers: as many as fit."""
    taps = prod([of.extents[at] for at in of.terms])
    written = max(ENOUGH, MOST_SLIDING // taps)
    room = max(1, min(written, machine.registers - min(taps, 9) - SPARE))
    tiles = [
        RegisterTile(m, r)
        for r in range(1, min(room, steps) + 1) if steps % r == 0
        for m in range(1, room // r + 1) if vectors % m == 0
    ]  # fmt: skip
    # Rows are better than columns: a row that is read serves all windows it is in.
    return max(tiles, key=lambda each: (min(each.vectors * each.steps, ENOUGH), each.steps))


def beside(
    of: Roles, tile: RegisterTile, machine: Machine, lanes: int
) -> tuple[RegisterTile, int | None]:
    """An outer loop to include in every tile, and the resulting tile, if otherwise too few sums are
    in flight, or weights are reloaded for each of its iterations."""
    if not of.blocked or of.widened or not of.around or of.opened:
        return tile, None
    at, count = of.around[-1], tile.vectors * tile.steps
    extent = of.extents[at]
    if extent == 1:
        return tile, None
    if of.batch and count < UNDER_WAY and extent * count <= machine.registers - SPARE:
        return tile, at
    vectors = -(-of.extents[of.lane] // lanes)
    steps = 1 if of.steps is None else of.extents[of.steps]
    every = steps * extent
    whole = [RegisterTile(m, every) for m in range(1, vectors + 1)]
    whole = [each for each in whole if of.held(lanes) in (None, each.vectors)]
    whole = [each for each in whole if fits(each, machine.registers)]
    size = of.dtype.bytes * of.depth * lanes
    if size * tile.vectors <= machine.cache(2) // 2 or not whole:
        return tile, None  # weights stay near until all sums have read them
    far = size * vectors / machine.rates.far

    def cycles(each: RegisterTile, times: int) -> float:
        terms = cost(each, vectors, every // times, rates=machine.rates) * of.depth * times
        return max(terms, far * times * -(-steps // each.steps))

    best = min(whole, key=lambda each: cycles(each, 1))
    if cycles(best, 1) > WORTH * cycles(tile, extent):
        return tile, None
    return RegisterTile(best.vectors, steps), at


def operand_bytes(of: Roles, reduction: Block) -> tuple[int, int]:
    """Bytes of data and of weights."""
    outputs = of.lane if of.blocked else of.steps
    if outputs is None or of.sliding:
        return 0, 0
    weights, data = bytes_along(reduction, reduction.vars[of.runs + outputs])
    return data, weights


def has_far_weights(of: Roles, machine: Machine) -> bool:
    """Whether weights take so much that those of the next tile are not near when it begins."""
    size = of.dtype.bytes * of.extents[of.lane] * of.depth
    return not (of.widened or of.opened) and size > machine.cache(2) // 8


def data_ahead(
    of: Roles, reduction: Block, tile: RegisterTile, lanes: int, machine: Machine
) -> int:
    """The prefetch distance in elements for data beyond the second cache, else 0.

    A tile of lanes over a row reads a line or two in each row of the data: these are more streams
    than a processor foresees by itself.
    """
    terms = term_extents(of)
    if of.blocked or of.sliding or of.widened or max(terms, default=0) != prod(terms):
        return 0
    data, _ = operand_bytes(of, reduction)
    return tile.vectors * lanes if data > machine.cache(2) // 2 else 0


def rows_together(
    of: Roles, reduction: Block, tile: RegisterTile, lanes: int, machine: Machine
) -> int:
    """How many rows of a result go together for all of its outputs, 0 for all; of one long row, how
    many tiles of lanes.

    Then their data stays in a cache, instead of being reloaded for each tile of outputs; weights
    are reloaded for each group, unless they fit as well.
    """
    if of.sliding or of.widened or of.opened or prod([of.extents[at] for at in of.batch]) > 1:
        return 0
    one_row = is_one_row(of)
    if one_row and of.blocked:
        return 0
    place = of.lane if one_row else of.around[-1]
    data, weights = bytes_along(reduction, reduction.vars[of.runs + place])
    *others, count = [of.extents[at] for at in of.around] or [1]
    if one_row:
        count = -(-of.extents[of.lane] // (tile.vectors * lanes))
    outputs = of.lane if of.blocked else of.steps
    many = 1 if outputs is None else of.extents[outputs]
    tiles = -(-many // (tile.vectors * lanes if of.blocked else tile.steps))
    own, cache = data / prod(others) / count, machine.cache(2)
    fitting = [n for n in range(1, count) if count % n == 0 and n * own <= cache // 4]
    if data <= cache // 2 or not fitting or (one_row and fitting[-1] * own < cache // 16):
        return 0  # in short groups weights would come from behind the first cache all the time
    groups = {n: prod(others) * count // n for n in fitting}
    even = [n for n in fitting if groups[n] % machine.cores == 0 and n * own >= cache // 16]
    most = (even or fitting)[-1]  # cores have as much to do, if that takes groups no shorter
    again = groups[most] if weights > cache // 2 else 1
    return most if data + weights * again < (data * tiles + weights) * WORTH else 0


def panel_tile(of: Roles, machine: Machine, lanes: int) -> RegisterTile:
    """The tile of a sum whose data is unpacked in panels: one that divides all, so that groups of
    tiles do, if it keeps the multipliers busy."""
    vectors = -(-of.extents[of.lane] // lanes)
    steps = 1 if of.steps is None else of.extents[of.steps]
    even = best_tile(vectors, steps, machine.registers, machine.rates, exact=True)
    return even if even.vectors * even.steps >= UNDER_WAY else tile_of(of, machine, lanes)


def tiles_of_panel(of: Roles, tile: RegisterTile, machine: Machine) -> int:
    """How many tiles of steps share a panel of the data: as many as a near cache holds."""
    own = prod(term_extents(of)) * tile.steps * of.dtype.bytes
    tiles = 1 if of.steps is None else -(-of.extents[of.steps] // tile.steps)
    return max([n for n in range(1, tiles + 1) if tiles % n == 0 and n * own <= machine.panel],
               default=1)  # fmt: skip


TileLoop: TypeAlias = tuple[int, float, frozenset[Side]]
"""A loop's extent, the remainder of its last iteration if it is cut short, and the operands that
vary with it."""


def loops_around(  # noqa: PLR0917  # as the schedule
    of: Roles, tile: RegisterTile, lanes: int, block_of: int, beside: int | None, rows: int = 0
) -> list[TileLoop]:
    """Each loop around a tile."""
    data, weight = frozenset[Side](("data",)), frozenset[Side](("weight",))

    def tiles(count: int, by: int, side: frozenset[Side]) -> TileLoop:
        return -(-count // by), count % by / by, side

    lane, step = (weight, data) if of.blocked else (data, data if of.sliding else weight)
    ahead = [tiles(of.extents[of.lane], tile.vectors * lanes, lane)]
    first: list[TileLoop] = []
    behind: list[TileLoop] = []
    if of.steps is not None:
        many = tiles(of.extents[of.steps], tile.steps, step)
        behind = [many]
        if block_of:
            groups = -(-many[0] // block_of)
            first = [(groups, many[1] or many[0] % block_of / block_of, step)]
    if not of.blocked:
        ahead, behind = behind, ahead
    batch: list[TileLoop] = [(of.extents[at], 0.0, BOTH) for at in of.batch]
    around: list[TileLoop] = [(of.extents[at], 0.0, data) for at in loops_outside(of, beside)]
    if rows and not is_one_row(of):
        last = around[-1][0]
        first, around = [*around[:-1], (last // rows, 0.0, data)], [(rows, 0.0, data)]
    elif rows:
        count, left, _ = behind[0]
        last_group = 1 - (1 - left) / rows if left else 0.0
        first, behind = [(count // rows, last_group, data)], [(rows, 0.0, data)]
    return [*batch, *first, *ahead, *around, *behind]


def term_extents(of: Roles) -> tuple[int, ...]:
    """The extents of the term loops."""
    return tuple([of.extents[at] for at in of.terms])


def loops_outside(of: Roles, beside: int | None) -> list[int]:
    """Loops around that are no part of a tile."""
    return [at for at in of.around if at != beside]


def is_one_row(of: Roles) -> bool:
    """Whether the lanes go through all of a result but its outputs."""
    return all(of.extents[at] == 1 for at in of.around)
