"""The schedule of a contraction in runs (`plica.schedule.default.summed`): each in registers.

for …, tiles:
    total[tile] = 0                                   f64
    for b:
        sum[tile] = 0                                 registers
        for terms: sum[tile] += data * weight
        total[tile] += f64(sum[tile])
    the same for the terms of `tail`, where there is one
    out[tile] = f(total[tile] + f64(tail[tile]))

Or run by run for all tiles: a run's data and weights stay in a cache until all tiles have read
them, and totals wait in memory.

total[…] = 0
for b, …, tiles:
    sum[tile] = 0                                     registers
    for terms: sum[tile] += data * weight
    total[tile] += f64(sum[tile])
for …, tiles:
    whole[tile] = total[tile]                         registers
    out[tile] = f(whole[tile])

Data that is unpacked for the terms of a run goes in groups of tiles, with these loops in each.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, TypeAlias

from attrs import frozen

from plica.ir.loop.statement import Block
from plica.schedule import primitive as st
from plica.schedule.default.nest import in_registers, vectors
from plica.schedule.default.role import ContractionBlocks, terms_of
from plica.schedule.default.tile import RegisterTile
from plica.schedule.do import Body
from plica.schedule.handle import Handle

MOST = 27  # multiply-adds in the text of the innermost loop, at most
LONGEST = 160  # the same, if the operand read by elements has an address without an index register
WINDOW = 192
"""The same of a row of a window, where vectors are short: it would be a loop of few cycles."""

BRIEF = 16  # bytes of a short vector
HELD = 28  # sums, and vectors of elements for their steps, in registers of short vectors
SCALED = 8  # bytes by which an index in an address is scaled, at most
SHORT = 8  # a sum over so few places of a window is written out

Sums: TypeAlias = tuple[list[Handle], tuple[int, ...], Handle]
"""The term loops of a sum, their extents, and the loop over lanes."""


def run_within(
    of: Block, loop: Handle, counts: Mapping[int, int], lane: tuple[int, int]
) -> Generator[Any, Any, Sums]:
    """The sum of a run in registers, at the tile's addition to the total; returns its term loops
    and their extents, without unit loops, and that over lanes.

    A tile has a number of places along each axis (`counts`), one if not named; `lane` is the
    vectorized axis and its vector length.
    """
    long = tuple([each for each in terms_of(of) if each > 1])
    one = yield from in_registers(of, loop)
    every: tuple[Handle, ...] = yield st.loops(one)
    spatial = [at for at in sorted(counts) if counts[at] > 1]
    inside = every[len(every) - len(spatial) - len(long) :]
    found = dict(zip(spatial, inside, strict=False))
    *many, last = yield st.split(found.pop(lane[0]), (None, lane[1]))
    rest = inside[len(spatial) :]
    yield st.reorder(*rest, *found.values(), *many, last)
    yield from vectors((*found.values(), *many, last))
    if not rest:  # of one term
        return [], (), last
    yield st.decompose_reduction(one, rest[0])
    return list(rest), long, last


@frozen
class TileNest:
    """The loops of a sum in tiles: those around each, terms, places of a tile, and lanes."""

    around: tuple[Handle, ...]
    terms: tuple[Handle, ...]
    places: tuple[Handle, ...]
    lane: Handle


def epilogue_after(
    total: TileNest,
    tail: Block | None,
    tiled: Callable[[Handle], Generator[Any, Any, TileNest]],
    last: Handle,
) -> Generator[Any, Any, list[Sums]]:
    """What reads the total, where a tile of it is made; before that the sum of the last run in the
    same tiles, if it is apart: gives what `run_within` does for it.

    The tail has all lanes of a tile, like the total, although the result may need fewer: partial
    sums do not stay in registers.
    """
    if tail is None:
        yield st.reverse_compute_at(last, total.around[-1])
        return []
    one = yield st.block(str(tail.label))
    nest = yield from tiled(one)
    yield st.merge_loops(total.around[-1], nest.around[-1])
    yield st.set_scope(one, 0, "local")
    yield st.reverse_compute_at(last, total.around[-1])
    yield from vectors((*nest.places, nest.lane))
    yield st.decompose_reduction(one, nest.terms[0])
    both = zip(nest.terms, terms_of(tail), strict=True)
    long = [(loop, count) for loop, count in both if count > 1]
    return [([loop for loop, _ in long], tuple([count for _, count in long]), nest.lane)]


def run_by_run(
    blocks: ContractionBlocks,
    tiled: Callable[[Handle], Generator[Any, Any, TileNest]],
    counts: Mapping[int, int],
    lane: tuple[int, int],
    merged: int = 0,
) -> Generator[Any, Any, tuple[Handle, list[tuple[Handle, ...]], Sums]]:
    """Each run for all tiles; gives the block of the result, the loops around tiles of each nest,
    and the terms of a run.

    All runs of a group of tiles go before the next group if a number of outer loops are `merged`:
    then the data of a run is computed for the group.
    """
    assert blocks.total is not None
    assert blocks.again is not None
    total = yield st.block(str(blocks.total.label))
    whole = yield st.block(str(blocks.again.label))
    last = yield st.block(str(blocks.epilogue.label))
    nest, back = (yield from tiled(total)), (yield from tiled(whole))
    if merged:
        yield st.merge_loops(nest.around[merged - 1], back.around[merged - 1])
    yield st.set_scope(whole, 0, "local")
    yield st.reverse_compute_at(last, back.around[-1])
    sums = yield from run_within(blocks.reduction, nest.around[-1], counts, lane)
    if merged and blocks.data is not None:
        copy = yield st.block(str(blocks.data.label))
        yield st.compute_at(copy, nest.terms[0])
    start = yield st.decompose_reduction(total, nest.terms[0])
    for handle in (*nest.places, *back.places):
        yield st.unroll(handle)
    begun: tuple[Handle, ...] = yield st.loops(start)
    for handle in (nest.lane, back.lane, begun[-1]):
        yield st.vectorize(handle)
    nests = [begun[: len(back.around)], nest.around, back.around]
    return last, nests[1:2] if merged else nests, sums


def has_rows(extents: Sequence[int]) -> bool:
    """Whether the innermost terms are so few that all of them are written out."""
    return 1 < last_terms(extents) <= SHORT


def last_terms(extents: Sequence[int]) -> int:
    """The number of innermost terms."""
    return next((extent for extent in reversed(extents) if extent > 1), 1)


def written_out(
    extents: Sequence[int],
    tile: RegisterTile,
    terms: Sequence[Handle],
    near: int = 0,
    wide: int = 0,
) -> Body:
    """Unrolls the innermost terms, a few of them if there are many; for a window a whole row, with
    a longer text for short vectors (`wide` bytes), and then all rows if that is no longer.

    If one vector is multiplied, a product and the read of its element, which is used once, are one
    instruction: unless the address has an index, which it gets where terms lie so `near` one
    another that the index can be scaled.  So as many are written out as make the step longer.
    """
    count = tile.vectors * tile.steps
    at = max([n for n, each in enumerate(extents) if each > 1], default=0)
    extent = extents[at]
    plain = tile.vectors == 1 and 0 < near <= SCALED
    longest = LONGEST if plain else WINDOW if 0 < wide <= BRIEF else MOST
    if extent <= SHORT and extent * count <= longest:
        rows = extents[at - 1] if at else 0
        if longest == WINDOW and 1 < rows <= SHORT and rows * extent * count <= WINDOW:
            yield st.unroll(terms[at - 1])
        yield st.unroll(terms[at])
        return
    # Elements of four terms are one short vector, of which products take the lanes.
    picked = longest == WINDOW and count + tile.steps <= HELD
    few = [(4, WINDOW if picked else MOST // 2), (2, MOST // 2)]
    if plain:
        few = [(factor, LONGEST) for factor in (4, 3, 5, 7, 2) if factor * near > SCALED]
    for factor, most in few:
        if extent % factor == 0 and factor * count <= most:
            _, inner = yield st.split(terms[at], (None, factor))
            yield st.unroll(inner)
            return
