"""Choose: the schedule of a kernel for threads by rules of thumb.

>>> from plica.ir.script import from_text
>>> kernel = from_text(DOUBLED).values[0]
>>> "threadIdx.x" in gpu_trace(kernel, Gpu()).to_python()
True
"""

from __future__ import annotations

from functools import lru_cache
from itertools import product as product_of
from math import gcd, prod
from typing import Final

from attrs import evolve, frozen

from plica.core.collector import paused
from plica.ir.dtype import f32
from plica.ir.loop import Kernel
from plica.schedule.default.contraction import Contraction, Work, bared, contraction
from plica.schedule.default.gpu.across import across, down
from plica.schedule.default.gpu.elementwise import elementwise
from plica.schedule.default.gpu.form import ProductForm, product_form
from plica.schedule.default.gpu.machine import Gpu
from plica.schedule.default.gpu.product import Tile, product
from plica.schedule.default.gpu.row import by_rows, kept_rows, reads_along, reads_once, rowed
from plica.schedule.default.gpu.shape import Stage, inlined, stages
from plica.schedule.default.gpu.spread import spread
from plica.schedule.default.gpu.tensor_core_choice import tensor_core_product
from plica.schedule.default.gpu.turn import turn_of, turned
from plica.schedule.do import Block, Body, do, run
from plica.schedule.flow import stages as flow
from plica.schedule.problem import ScheduleRefused
from plica.schedule.replay import begin
from plica.schedule.trace import Trace


def gpu_trace(kernel: Kernel, gpu: Gpu) -> Trace | None:
    """The schedule of a kernel by rules of thumb, None where there is none for it."""
    found = gpu_schedule(kernel, gpu)
    return None if found is None else found[0]


@lru_cache(maxsize=1024)
def gpu_schedule(kernel: Kernel, gpu: Gpu, rows: bool = True) -> tuple[Trace, Kernel] | None:
    """The trace, and the kernel it makes; without `rows` nothing is kept in shared memory."""
    every = stages(begin(kernel).kernel)
    if not every:
        return None
    bare = _recorded(inlined(tuple([each.label for each in every[:-1]])), kernel)
    left = None if bare is None else stages(bare[1])
    if bare is None or not left:
        return None

    @do
    def whole(wide: bool) -> Body:
        yield inlined(tuple([each.label for each in every[:-1]]))
        yield spread(left[-1], left[:-1], gpu, wide)

    @do
    def together() -> Body:
        yield inlined(tuple([each.label for each in every[:-1]]))
        for each in left:
            if not each.reduce:
                yield spread(each, (), gpu)
            elif reads_along(blocks[each.label].block):
                yield across(each, gpu)
            else:
                yield down(each, gpu)

    if len(left) == 1 and not left[0].reduce:
        return _elementwise(kernel, every, left[0], gpu)
    by_row = _row_schedule(kernel, every, gpu) if rows else None
    if by_row is not None:
        return by_row
    sums = [each for each in left if each.reduce]
    blocks = flow(bare[1].body)
    if sums and all(
        each.terms >= MANY and (each.elements <= gpu.most or reads_once(blocks[each.label].block))
        for each in sums
    ):
        found = _recorded(together(), kernel)
        if found is not None:
            return found

    return _recorded(whole(True), kernel) or _recorded(whole(False), kernel)


def _elementwise(
    kernel: Kernel, every: tuple[Stage, ...], one: Stage, gpu: Gpu
) -> tuple[Trace, Kernel] | None:
    """The schedule of a block without sums, each element of which is its own."""
    before = inlined(tuple([each.label for each in every[:-1]]))
    bare = _recorded(before, kernel)
    assert bare is not None
    turn = turn_of(bare[1], one)
    size = flow(bare[1].body)[one.label].writes[0].dtype.bytes

    @do
    def across() -> Body:
        yield before
        assert turn is not None
        yield turned(one, turn)

    @do
    def along(wide: bool, even: bool) -> Body:
        yield before
        yield elementwise(one, size, gpu, wide, even)

    found = None if turn is None else _recorded(across(), kernel)
    for wide, even in product_of((True, False), (False, True)):
        found = found or _recorded(along(wide, even), kernel)
    return found


def _row_schedule(
    kernel: Kernel, every: tuple[Stage, ...], gpu: Gpu
) -> tuple[Trace, Kernel] | None:
    """The schedule of stages of rows, None where they are not such."""
    if not any(each.reduce for each in every):
        return None
    kept = kept_rows(begin(kernel).kernel, every)
    inline = tuple([each.label for each in every[:-1] if each.label not in kept])
    bare = _recorded(inlined(inline), kernel)
    left = None if bare is None else stages(bare[1])
    found = None if bare is None or not left else rowed(bare[1], left, gpu)
    return None if found is None else _recorded(by_rows(found, inline), kernel)


MANY: Final = 128
"""Terms of a sum that many threads share, at least."""

FEWEST: Final = 1 << 16
"""Fewer products than that are spread over threads, one sum each."""


def contracted(of: Work, constant: tuple[bool, ...], gpu: Gpu) -> Contracted | None:
    """Products of matrices in tiles, for work that is such; None for other work."""
    on_cores = tensor_core_product(of, gpu)
    if on_cores is not None:
        return Contracted(*on_cores)
    found = contraction(bared(of))
    if found is None or found.weight is None or found.combiner != "sum":
        return None
    if found.reduced.dtype is not f32 or not found.lanes or not found.pixels:
        return None
    sizes = [prod(found.sizes[a] for a in axes) for axes in (found.lanes, found.pixels)]
    batch = prod(found.sizes[a] for a in found.shared)
    if min(sizes) < LEAST or prod(sizes) * found.depth * batch < FEWEST:
        return None
    known_weight = constant[found.inputs.index(found.weight.buffer)]
    return in_tiles(found, *tile_for(found, gpu), known_weight, gpu)


def in_tiles(
    of: Contraction, tile: Tile, parts: int, known_weight: bool, gpu: Gpu
) -> Contracted | None:
    """A product in tiles of some shape, its terms in so many parts; None where that is refused.

    What is done to each sum is done in its register where the tiles cover the result.
    """
    form = product_form(of, tile, parts, known_weight)
    every = stages(begin(form.kernel).kernel)
    if every is None:
        return None
    after = every[3:]

    @do
    def whole(wide: bool) -> Body:
        yield spread(after[-1], after[:-1], gpu, wide)
        count = tile.count(form.sizes)
        yield product(tile, form.labels, form.along, form.sizes[0], count=count)

    made = _finished(form, tile) if form.exact else None
    made = made or _recorded(whole(True), form.kernel) or _recorded(whole(False), form.kernel)
    return None if made is None else Contracted(form, *made)


def _finished(form: ProductForm, tile: Tile) -> tuple[Trace, Kernel] | None:
    """A product with what is done to each sum done in registers."""
    near = evolve(tile, near=gcd(NEAR, form.sizes[1] // tile.rows))
    count = tile.count(form.sizes)
    whole = product(near, form.labels, form.along, 1, fused=True, count=count)
    return _recorded(whole, form.kernel)


def tile_for(of: Contraction, gpu: Gpu) -> tuple[Tile, int]:
    """The tile, and in how many parts the terms go: large, but enough for all processors."""
    rows, columns, batch = (prod(of.sizes[a] for a in n) for n in (of.lanes, of.pixels, of.shared))
    if of.axes[-1] in of.lanes:
        rows, columns = columns, rows
    gathers = WINDOW if len(of.terms) > 1 or of.guarded else ROW
    plain = gathers == ROW and batch == 1
    best: tuple[float, Tile, int] | None = None
    for tile in (*TILES, HIGH) if plain else TILES:
        tiles = -(-rows // tile.rows) * -(-columns // tile.columns) * batch
        for parts in PARTS:
            deep = -(-of.depth // parts)
            enough = deep < 4 * tile.terms or (plain and tiles >= 2 * gpu.processors)
            if parts > 1 and enough:
                break
            turns = -(-tiles * parts // gpu.processors)
            slices = -(-deep // tile.terms) * tile.terms
            fetching = 1 + gathers / tile.rows + ROW / tile.columns
            work = turns * tile.rows * tile.columns * slices * fetching
            if plain:
                warps = tile.threads // gpu.warp * min(AT_ONCE[tile.threads], turns)
                work *= 1 + STALL / warps
            joining = JOIN * parts * rows * columns * batch / gpu.processors if parts > 1 else 0
            if best is None or work + joining < best[0]:
                best = work + joining, tile, parts
    assert best is not None
    return best[1], best[2]


NEAR: Final = 8
"""Tiles below one another that run at once: they read the same columns."""

ROW: Final = 8
"""What fetching an element of a row costs, in products."""

STALL: Final = 0.8
"""How much of its time a warp that is alone waits, of that in which it multiplies."""

AT_ONCE: Final = {128: 3, 256: 1}
"""Blocks of so many threads that have registers enough on one processor."""

WINDOW: Final = 20
"""What fetching an element of a window costs: where it is takes quotients."""

JOIN: Final = 24
"""What writing and adding up an element of a part costs."""

PARTS: Final = (1, 2, 4, 8, 16, 32)

LEAST: Final = 8
"""Rows and columns of matrices that are worth tiles, at least."""

TILES: Final = (
    Tile(128, 128, 16, 8, 16, ahead=1),
    Tile(64, 128, 16, 8, 16, ahead=1),
    Tile(64, 64, 16, 8, 16, ahead=1),
    Tile(32, 64, 16, 8, 16, ahead=1),
)


HIGH: Final = Tile(256, 128, 16, 16, 16, ahead=2, kept=True)
"""For products of matrices of which there are not many tiles."""


@frozen(eq=False)
class Contracted:
    """The form of a contraction, the trace, and the kernel it makes."""

    form: ProductForm
    trace: Trace
    kernel: Kernel


def _recorded(schedule: Block, kernel: Kernel) -> tuple[Trace, Kernel] | None:
    """The trace of a schedule; one that is not shown to be legal is none."""
    with paused():
        try:
            steps, state, _ = run(schedule, kernel, 0, {}, late=True)
        except ScheduleRefused:
            return None
    return Trace(steps), state.kernel


DOUBLED: Final = """
from plica.script import Buffer, block, f32, grid
import plica

@plica.kernel
def doubled(x: Buffer[(64,), f32], y: Buffer[(64,), f32]):
    for i in grid(64):
        with block("out", spatial=(i,)):
            y[i] = x[i] * 2.0
"""
"""A kernel for examples."""
