"""Choose: the schedule of a kernel for threads by rules of thumb.

>>> from plica.ir.script import from_text
>>> kernel = from_text(DOUBLED).values[0]
>>> "threadIdx.x" in gpu_trace(kernel, Gpu()).to_python()
True
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Final

from attrs import frozen

from plica.core.collector import paused
from plica.ir.dtype import f32
from plica.ir.loop import Kernel
from plica.schedule.default.contraction import Work, bared, contraction
from plica.schedule.default.gpu.form import ProductForm, product_form
from plica.schedule.default.gpu.machine import Gpu
from plica.schedule.default.gpu.product import Tile, product
from plica.schedule.default.gpu.shape import inlined, stages
from plica.schedule.default.gpu.spread import spread
from plica.schedule.do import Block, Body, do, run
from plica.schedule.problem import ScheduleRefused
from plica.schedule.replay import begin
from plica.schedule.trace import Trace


def gpu_trace(kernel: Kernel, gpu: Gpu) -> Trace | None:
    """The schedule of a kernel by rules of thumb, None where there is none for it."""
    found = gpu_schedule(kernel, gpu)
    return None if found is None else found[0]


@lru_cache(maxsize=1024)
def gpu_schedule(kernel: Kernel, gpu: Gpu) -> tuple[Trace, Kernel] | None:
    """The trace, and the kernel it makes."""
    every = stages(begin(kernel).kernel)
    if not every:
        return None
    bare = _recorded(inlined(tuple([each.label for each in every[:-1]])), kernel)
    left = None if bare is None else stages(bare[1])
    if not left:
        return None

    @do
    def whole(wide: bool) -> Body:
        yield inlined(tuple([each.label for each in every[:-1]]))
        yield spread(left[-1], left[:-1], gpu, wide)

    return _recorded(whole(True), kernel) or _recorded(whole(False), kernel)


FEWEST: Final = 1 << 16
"""Fewer products than that are spread over threads, one sum each."""


def contracted(of: Work, constant: tuple[bool, ...], gpu: Gpu) -> Contracted | None:
    """Products of matrices in tiles, for work that is such; None for other work."""
    found = contraction(bared(of))
    if found is None or found.weight is None or found.combiner != "sum":
        return None
    if found.reduced.dtype is not f32 or not found.lanes or not found.pixels:
        return None
    sizes = [prod(found.sizes[a] for a in axes) for axes in (found.lanes, found.pixels)]
    batch = prod(found.sizes[a] for a in found.shared)
    if min(sizes) < LEAST or prod(sizes) * found.depth * batch < FEWEST:
        return None
    tile, parts = tile_for(*sizes, batch, found.depth, gpu)
    known_weight = constant[found.inputs.index(found.weight.buffer)]
    form = product_form(found, tile, parts, known_weight)
    every = stages(begin(form.kernel).kernel)
    if every is None:
        return None
    after = every[3:]

    @do
    def whole(wide: bool) -> Body:
        yield spread(after[-1], after[:-1], gpu, wide)
        yield product(tile, form.labels)

    made = _recorded(whole(True), form.kernel) or _recorded(whole(False), form.kernel)
    return None if made is None else Contracted(form, *made)


def tile_for(rows: int, columns: int, batch: int, terms: int, gpu: Gpu) -> tuple[Tile, int]:
    """The tile, and in how many parts the terms go: large, but enough for all processors."""
    best: tuple[float, Tile, int] | None = None
    for tile in TILES:
        tiles = -(-rows // tile.rows) * -(-columns // tile.columns) * batch
        for parts in (1, 2, 4, 8, 16, 32):
            deep = -(-terms // parts)
            if parts > 1 and deep < 4 * tile.terms:
                break
            turns = -(-tiles * parts // gpu.processors)
            # A tile is as fast as its share of what is loaded for what is multiplied.
            reuse = tile.rows * tile.columns / (tile.rows + tile.columns)
            slices = -(-deep // tile.terms) * tile.terms
            work = turns * tile.rows * tile.columns * slices * (1 + 12 / reuse)
            joined = parts * rows * columns * batch / gpu.processors * 24 if parts > 1 else 0
            cost = work + joined + 40000
            if best is None or cost < best[0]:
                best = cost, tile, parts
    assert best is not None
    return best[1], best[2]


LEAST: Final = 8
"""Rows and columns of matrices that are worth tiles, at least."""

TILES: Final = (
    Tile(128, 128, 16, 8, 16, ahead=True),
    Tile(64, 128, 16, 8, 16, ahead=True),
    Tile(64, 64, 16, 8, 16, ahead=True),
    Tile(32, 64, 16, 8, 16, ahead=True),
)


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
            steps, state, _ = run(schedule, kernel, 0, {})
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
