"""The schedule of a contraction: a tile of sums in registers, finished where it is made.

for …, tiles of lanes, tiles of the other axis:
    sum[tile] = 0                                  registers
    for terms: sum[tile] += data * weight          vectors x single elements
    out[tile] = f(sum[tile])

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

from collections.abc import Generator, Sequence
from math import prod
from typing import Any, TypeAlias

from plica.ir.loop.statement import Block
from plica.schedule.default.machine import LINE, Machine
from plica.schedule.default.role import MOST_SLIDING, ContractionBlocks, Roles
from plica.schedule.default.run_schedule import (
    BRIEF,
    HELD,
    Sums,
    TileNest,
    epilogue_after,
    has_rows,
    run_by_run,
    run_within,
    written_out,
)
from plica.schedule.default.share import BOTH, SharedReads, Side, bytes_along, share_of, shares
from plica.schedule.default.step import (
    annotate,
    block,
    compute_at,
    decompose_reduction,
    fuse,
    loops,
    parallel,
    reorder,
    set_scope,
    split,
    unroll,
    vectorize,
)
from plica.schedule.default.tile import (
    RegisterTile,
    apart,
    best_tile,
    bytes_of_line,
    cost,
    fits,
    most_steps,
    widening_tile,
)
from plica.schedule.do import Body, do
from plica.schedule.do import DoBlock as Do
from plica.schedule.handle import Handle

SPARE = 8
"""Registers for what is read."""

ENOUGH = 4
"""Sums that must be under way at once, at least."""

UNDER_WAY = 8
"""Sums that keep the units for products busy: an addition takes four cycles, and there are two."""

PASSES = 16
"""A tile of weights that is used more often than that need not be fetched ahead."""

WORTH = 0.75
"""Bytes that come from behind a cache, of those that would: fewer are worth another order."""

TURNED = 4
"""Steps that are stored as a vector, at least."""


def tile_of(of: Roles, machine: Machine, lanes: int, cores: int = 1) -> RegisterTile:
    """The tile a machine's registers hold, where so many cores share the work."""
    vectors = -(-of.extents[of.lane] // lanes)
    steps = 1 if of.steps is None else of.extents[of.steps]
    if of.sliding:
        return _sliding_tile(of, vectors, steps, machine)
    if of.widened:
        held = of.widened // lanes
        return widening_tile(vectors, steps, machine.registers, machine.rates, held)
    most = most_steps(of.apart, machine.cache(1))

    def uneven(tile: RegisterTile) -> float:
        loops = _iterations(of, tile, lanes, 0, None)
        every = [(at, count, left) for at, (count, left, _) in enumerate(loops)]
        return cores * min([each.time for each in shares(every, cores)]) if cores > 1 else 1.0

    short = not machine.masks and not of.blocked
    waits = short and has_rows(_extents(of))
    return best_tile(
        vectors,
        steps,
        machine.registers,
        apart(machine.rates) if short and not waits else machine.rates,
        most=most,
        held=of.held(lanes),
        waits=waits,
        size=bytes_of_line(lanes * of.dtype.bytes, of.apart) if of.blocked else LINE,
        uneven=uneven,
    )


def _sliding_tile(of: Roles, vectors: int, steps: int, machine: Machine) -> RegisterTile:
    """Sums beside all weights of a window in registers: as many as there is room for."""
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


def scheduled(
    of: Roles,
    blocks: ContractionBlocks,
    tile: RegisterTile,
    lanes: int,
    block_of: int = 0,
    *,
    pads: bool = False,
    cores: int = 1,
    region: float = 0.0,
    reads: tuple[float, float] = (0.0, 0.0),
    fetches: bool = False,
    ahead: int = 0,
    beside: int | None = None,
    rows: int = 0,
) -> Do:
    """The schedule with a tile; where the lanes are part of a loop, so many of them.

    So many tiles of steps go together, 0 for all, or so many `rows` of the last loop around, or
    tiles of the one row there is.  If
    it `pads`, the copy of the data with room around it is made where it is needed.  So many cores
    share loops around; to call them once takes `region` of the time of one, and to read all data
    and all weights `reads`.  If it `fetches`,
    weights of the next tile come from far away while this one is worked on, and data so many
    elements `ahead`.  All of the loop `beside`, one of those around, is part of every tile.
    """
    counts, ends = _counts(of, tile, lanes, beside), (of.lane, lanes)

    def tiled(of_block: Handle) -> Generator[Any, Any, TileNest]:
        every: tuple[Handle, ...] = yield loops(of_block)
        vectors, inner, lane = yield split(every[of.lane], (None, tile.vectors, lanes))
        many = [inner]
        ahead = [vectors]
        step: list[Handle] = []
        behind: list[Handle] = []
        first: list[Handle] = []
        if of.steps is not None and block_of:
            outer, inner = yield split(every[of.steps], (None, tile.steps))
            most, outer = yield split(outer, (None, block_of))
            first, step, behind = [most], [inner], [outer]
        elif of.steps is not None:
            outer, inner = yield split(every[of.steps], (None, tile.steps))
            step, behind = [inner], [outer]
        if not of.blocked:
            ahead, behind = behind, ahead
        batch, around = [every[at] for at in of.batch], [every[at] for at in _outside(of, beside)]
        if rows and not _is_one_row(of):
            most, last = yield split(around[-1], (None, rows))
            first, around = [*around[:-1], most], [last]
        elif rows:
            most, last = yield split(vectors, (None, rows))
            first, behind = [most], [last]
        step = [*([] if beside is None else [every[beside]]), *step]
        over = every[len(of.extents) - len(of.terms) :]
        order = (*batch, *first, *ahead, *around, *behind)
        outermost = over if blocks.again is not None else ()
        innermost = () if outermost else over
        yield reorder(*outermost, *order, *innermost, *step, *many, lane)
        return TileNest(order, over, (*step, *many), lane)

    def summed_up(sums: Sums, depth: int) -> Body:
        terms, extents = sums
        passes = _passes(of, tile, block_of) if fetches else 0
        if of.sliding:
            for each in terms:
                yield unroll(each)
        elif of.widened and len(terms) > 1:
            yield unroll(terms[-1])  # the numbers of a word
        elif passes:
            yield from _fetched(depth, extents, tile, lanes, terms, passes, lanes * of.dtype.bytes)
            if lanes * of.dtype.bytes <= BRIEF and has_rows(extents[1:]):
                rows = extents[1:], tile, terms[1:], of.near, lanes * of.dtype.bytes
                yield from written_out(*rows)
        else:
            yield from written_out(extents, tile, terms, of.near, lanes * of.dtype.bytes)

    def by_cores(order: Sequence[Handle], times: Sequence[_Loop]) -> Body:
        named = [(order[at], count, left) for at, (count, left, _) in enumerate(times)]
        read = SharedReads(*reads, tuple([sides for _, _, sides in times]))
        yield from shared(share_of(named, cores, region=region, reads=read))

    def kept() -> Body:
        last, nests, sums = yield from run_by_run(blocks, tiled, counts, ends)
        yield from summed_up(sums, prod(sums[1]))
        yield from _finished(of, tile, lanes, last, len(nests[-1]), beside)
        if cores > 1:
            times = _iterations(of, tile, lanes, block_of, beside, rows)
            for order in nests:
                yield from by_cores(order, times)

    def schedule() -> Body:
        total = yield block(str((blocks.total or blocks.reduction).label))
        last = yield block(str(blocks.epilogue.label))
        nest = yield from tiled(total)
        order, over, batch = nest.around, nest.terms, nest.around[: len(of.batch)]
        yield set_scope(total, 0, "local")
        sums = yield from epilogue_after(nest, blocks.tail, tiled, last)
        if of.runs:
            sums.append((yield from run_within(blocks.reduction, over[-1], counts, ends)))
        else:
            sums.append((list(over), _extents(of)))
        if pads and batch and blocks.data is not None:  # after all that reads it
            copy = yield block(str(blocks.data.label))
            yield compute_at(copy, batch[-1])
        start = yield decompose_reduction(total, over[0])
        for each in nest.places:
            yield unroll(each)
        yield vectorize(nest.lane)
        if ahead:
            yield annotate(nest.lane, "fetch", ahead)
        for one in [one for one in sums if one[0]]:
            yield from summed_up(one, of.depth)
        begun: tuple[Handle, ...] = yield loops(start)
        inside = begun[len(order) :]
        for each in inside[:-1]:
            yield unroll(each)
        yield vectorize(inside[-1])
        yield from _finished(of, tile, lanes, last, len(order), beside)
        if cores > 1:
            times = _iterations(of, tile, lanes, block_of, beside, rows)
            yield from by_cores(order, (times[: len(batch)] if pads else []) or times)

    return do(schedule if blocks.again is None else kept)()


_Loop: TypeAlias = tuple[int, float, frozenset[Side]]
"""How often a loop goes, what is left for the last time if it is cut short, and what it reads."""


def _iterations(  # noqa: PLR0917  # as the schedule
    of: Roles, tile: RegisterTile, lanes: int, block_of: int, beside: int | None, rows: int = 0
) -> list[_Loop]:
    """Each loop around a tile."""
    data, weight = frozenset[Side](("data",)), frozenset[Side](("weight",))

    def tiles(count: int, by: int, side: frozenset[Side]) -> _Loop:
        return -(-count // by), count % by / by, side

    lane, step = (weight, data) if of.blocked else (data, data if of.sliding else weight)
    ahead = [tiles(of.extents[of.lane], tile.vectors * lanes, lane)]
    first: list[_Loop] = []
    behind: list[_Loop] = []
    if of.steps is not None:
        many = tiles(of.extents[of.steps], tile.steps, step)
        behind = [many]
        if block_of:
            groups = -(-many[0] // block_of)
            first = [(groups, many[1] or many[0] % block_of / block_of, step)]
    if not of.blocked:
        ahead, behind = behind, ahead
    batch: list[_Loop] = [(of.extents[at], 0.0, BOTH) for at in of.batch]
    around: list[_Loop] = [(of.extents[at], 0.0, data) for at in _outside(of, beside)]
    if rows and not _is_one_row(of):
        last = around[-1][0]
        first, around = [*around[:-1], (last // rows, 0.0, data)], [(rows, 0.0, data)]
    elif rows:
        count, left, _ = behind[0]
        last_group = 1 - (1 - left) / rows if left else 0.0
        first, behind = [(count // rows, last_group, data)], [(rows, 0.0, data)]
    return [*batch, *first, *ahead, *around, *behind]


def _extents(of: Roles) -> tuple[int, ...]:
    return tuple([of.extents[at] for at in of.terms])


def _counts(of: Roles, tile: RegisterTile, lanes: int, beside: int | None) -> dict[int, int]:
    """How many places of each loop a tile has."""
    counts = {of.lane: tile.vectors * lanes}
    if of.steps is not None:
        counts[of.steps] = tile.steps
    if beside is not None:
        counts[beside] = of.extents[beside]
    return counts


def shared(outer: Sequence[Handle]) -> Body:
    """Cores share the iterations of nested loops."""
    whole = outer[0]
    if len(outer) > 1:
        whole = yield fuse(*outer)
    yield parallel(whole)


def _passes(of: Roles, tile: RegisterTile, block_of: int) -> int:
    """How often the loop around the terms goes over the same weights, 0 where no one loop does."""
    counts = [of.extents[at] for at in of.around]
    if of.steps is not None:
        counts.append(block_of or -(-of.extents[of.steps] // tile.steps))
    many = [each for each in counts if each > 1]
    return many[0] if len(many) == 1 and of.blocked and many[0] <= PASSES else 0


def _fetched(  # noqa: PLR0917  # as the schedule
    depth: int,
    extents: Sequence[int],
    tile: RegisterTile,
    lanes: int,
    terms: list[Handle],
    passes: int,
    vector: int,
) -> Body:
    """A loop of terms in which each pass fetches its share of the next tile's weights, in vectors
    of so many bytes."""
    loop, inside = terms[0], prod(extents[1:])
    # Elements of several terms are one short vector for each step, which would wait beside sums.
    waits = vector <= BRIEF and tile.vectors * tile.steps + tile.steps > HELD
    if inside == 1 and not waits:
        few = next((f for f in (4, 2) if extents[0] % f == 0 and f * tile.vectors <= passes + 1), 1)
        if few > 1:
            loop, inner = yield split(loop, (None, few))
            yield unroll(inner)
            inside = few
    lines = -(-inside * tile.vectors * vector // (LINE * passes))
    yield annotate(loop, "fetch_next", (depth * tile.vectors * lanes, passes, lines))


def _outside(of: Roles, beside: int | None) -> list[int]:
    return [at for at in of.around if at != beside]


def beside(
    of: Roles, tile: RegisterTile, machine: Machine, lanes: int
) -> tuple[RegisterTile, int | None]:
    """A loop around that should be part of every tile, and the tile that is beside it: since else
    too few sums are under way, or weights come from far away again for each of its iterations."""
    if not of.blocked or of.widened or not of.around:
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


def _finished(  # noqa: PLR0917  # as the schedule
    of: Roles, tile: RegisterTile, lanes: int, last: Handle, outside: int, beside: int | None
) -> Body:
    """The loops of the result inside a tile, which has one for each part that is more than one."""
    every: tuple[Handle, ...] = yield loops(last)
    inside = list(every[outside:])
    counts = _counts(of, tile, lanes, beside)
    there = [at for at in of.result if counts.get(at, 1) > 1]
    found = dict(zip(there, inside[len(inside) - len(there) :], strict=True))
    *many, lane = yield split(found[of.lane], (None, lanes))
    steps = [found[at] for at in (of.steps,) if at in found]
    rows = [found[at] for at in (beside,) if at in found]
    # Where steps, not lanes, are neighbours in the result, the tile is transposed before it is
    # stored.
    turns = of.blocked and of.result[-1] == of.steps and tile.steps >= TURNED
    order = [*rows, *many, lane, *steps] if turns else [*rows, *steps, *many, lane]
    if len(order) > 1:
        yield reorder(*order)
    for each in order[:-1]:
        yield unroll(each)
    yield vectorize(order[-1])


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
    return not of.widened and size > machine.cache(2) // 8


def data_ahead(
    of: Roles, reduction: Block, tile: RegisterTile, lanes: int, machine: Machine
) -> int:
    """How many elements ahead data are fetched that come from behind the second cache, else 0.

    A tile of lanes over a row reads a line or two in each row of the data: these are more streams
    than a processor foresees by itself.
    """
    if of.blocked or of.sliding or of.widened or max(_extents(of), default=0) != of.depth:
        return 0
    data, _ = operand_bytes(of, reduction)
    return tile.vectors * lanes if data > machine.cache(2) // 2 else 0


def _is_one_row(of: Roles) -> bool:
    """Whether the lanes go through all of a result but its outputs."""
    return all(of.extents[at] == 1 for at in of.around)


def rows_together(
    of: Roles, reduction: Block, tile: RegisterTile, lanes: int, machine: Machine
) -> int:
    """How many rows of a result go together for all of its outputs, 0 for all; of one long row, how
    many tiles of lanes.

    Then the data that they read stay in a cache, where all data came from behind it again for each
    tile of outputs; weights come again for each group, if they do not stay there as well.
    """
    if of.sliding or of.widened or prod([of.extents[at] for at in of.batch]) > 1:
        return 0
    one_row = _is_one_row(of)
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
