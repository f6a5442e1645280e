"""Templates for unchanged stages: rows, cooperative sums, transposes, elementwise work.

What can be computed where it is read is.  The plainest template, each element by a thread, fits
everything that has a size.

>>> from plica.ir.text.script import from_text
>>> kernel = from_text(DOUBLED).values[0]
>>> "threadIdx.x" in gpu_trace(kernel, Gpu()).to_python()
True
"""

from __future__ import annotations

from functools import lru_cache
from itertools import product as product_of
from typing import Final

from plica.core import free_vars, post_order
from plica.core.collector import paused
from plica.ir.loop import Block, Kernel, Load
from plica.ir.type import known
from plica.schedule.dataflow import stages as flow
from plica.schedule.default.gpu.elementwise import elementwise
from plica.schedule.default.gpu.machine import VECTOR_BYTES, Gpu
from plica.schedule.default.gpu.row import by_rows, costly_rows, reads_once, rowed
from plica.schedule.default.gpu.row_passes import is_along
from plica.schedule.default.gpu.shape import BlockStage, inlined, stages
from plica.schedule.default.gpu.thread_map import across, down, spread, spread_apart
from plica.schedule.default.gpu.transpose import tiled_transpose, transpose_of
from plica.schedule.do import Body, DoBlock, do, run
from plica.schedule.problem import ScheduleRefused
from plica.schedule.replay import begin
from plica.schedule.trace import Trace

MANY: Final = 128  # terms of a sum that many threads share, at least


def gpu_trace(kernel: Kernel, gpu: Gpu) -> Trace | None:
    """The default schedule of a kernel, or None."""
    found = gpu_schedule(kernel, gpu)
    return None if found is None else found[0]


@lru_cache(maxsize=1024)
def gpu_schedule(kernel: Kernel, gpu: Gpu) -> tuple[Trace, Kernel] | None:
    """The trace, and the kernel it makes, by the first template that fits."""
    for template in (elementwise_schedule, row_schedule, shared_sums, plain_threads):
        if (found := template(kernel, gpu)) is not None:
            return found
    return None


def elementwise_schedule(kernel: Kernel, gpu: Gpu) -> tuple[Trace, Kernel] | None:
    """The schedule of a block without sums, each element of which is its own."""
    bare = _bare(kernel)
    if bare is None or len(bare[2]) > 1 or bare[2][0].reduce:
        return None
    before, inner, (one,) = bare
    turn = transpose_of(inner, one)
    size = flow(inner.body)[one.label].writes[0].dtype.bytes

    @do
    def across_tiles() -> Body:
        yield before
        assert turn is not None
        yield tiled_transpose(one, turn)

    @do
    def along(wide: bool, even: bool) -> Body:
        yield before
        yield elementwise(one, size, gpu, one.spatial[-1] if wide and one.spatial else 1, even)

    found = None if turn is None else recorded(across_tiles(), kernel)
    for wide, even in product_of((True, False), (False, True)):
        found = found or recorded(along(wide, even), kernel)
    return found


def flat_schedule(kernel: Kernel, gpu: Gpu) -> tuple[Trace, Kernel] | None:
    """The schedule of one row of elements, in the widest possible vectors."""
    (one,) = stages(kernel) or (None,)
    if one is None:
        return None
    rows = [param for param in kernel.params if tuple(map(known, param.shape)) == one.spatial]
    return recorded(
        elementwise(one, max(row.dtype.bytes for row in rows), gpu, VECTOR_BYTES), kernel
    )


def row_schedule(kernel: Kernel, gpu: Gpu, *, uneven: bool = True) -> tuple[Trace, Kernel] | None:
    """The schedule of stages of rows, each row by the threads of a block."""
    every = stages(begin(kernel).kernel)
    if not every or not any(block_stage.reduce for block_stage in every):
        return None
    costly = costly_rows(begin(kernel).kernel, every)
    inline = tuple([stage.label for stage in every[:-1] if stage.label not in costly])
    bare = recorded(inlined(inline), kernel)
    left = None if bare is None else stages(bare[1])
    found = None if bare is None or not left else rowed(bare[1], left, gpu, uneven=uneven)
    return None if found is None else recorded(by_rows(found, inline), kernel)


def shared_sums(kernel: Kernel, gpu: Gpu) -> tuple[Trace, Kernel] | None:
    """The schedule of long sums, each by the threads of a warp or a block, launch by launch."""
    if (bare := _bare(kernel)) is None:
        return None
    _, inner, left = bare
    sums = [block_stage for block_stage in left if block_stage.reduce]
    blocks = flow(inner.body)
    if not sums or any(
        each.terms < MANY or (each.elements > gpu.most and not reads_once(blocks[each.label].block))
        for each in sums
    ):
        return None
    return launch_by_launch(kernel, gpu)


def launch_by_launch(kernel: Kernel, gpu: Gpu) -> tuple[Trace, Kernel] | None:
    """The schedule of stages one after another: threads share long sums, and have short ones."""
    if (bare := _bare(kernel)) is None:
        return None
    before, inner, left = bare
    blocks = flow(inner.body)
    *first, last = left
    ends: tuple[BlockStage, ...] = ()
    if first and not last.reduce and first[-1].terms < MANY and first[-1].spatial == last.spatial:
        ends = (first.pop(),)

    @do
    def together() -> Body:
        yield before
        for each in (*first, last):
            if each.terms < MANY:  # or none
                yield spread(each, ends if each is last else (), gpu)
            elif reads_near(blocks[each.label].block):
                yield across(each, gpu)
            else:
                yield down(each, gpu)

    return recorded(together(), kernel)


def reads_near(node: Block) -> bool:
    """Whether neighbours along the last axis of a sum are neighbours in all that is read of it."""
    terms = [v for v, kind in zip(node.vars, node.kinds, strict=True) if kind == "reduce"]
    read = [each for each in post_order(node.body) if isinstance(each, Load)]
    loads = [load for load in read if not free_vars(load).isdisjoint(terms)]
    return bool(loads) and all(is_along(load, terms[-1]) for load in loads)


def plain_threads(kernel: Kernel, gpu: Gpu) -> tuple[Trace, Kernel] | None:
    """The schedule in which each element is a thread's own, with the sums it needs."""
    if (bare := _bare(kernel)) is None:
        return None
    before, _, left = bare

    @do
    def whole(wide: bool) -> Body:
        yield before
        yield spread(left[-1], left[:-1], gpu, wide)

    @do
    def apart() -> Body:
        yield before
        yield spread_apart(left[-1], left[:-1], gpu)

    every = (whole(True), whole(False), apart())
    return next((made for made in (recorded(do_block, kernel) for do_block in every) if made), None)


@lru_cache(maxsize=256)
def _bare(kernel: Kernel) -> tuple[DoBlock, Kernel, tuple[BlockStage, ...]] | None:
    """How blocks that can be computed where they are read are, the kernel then, and its blocks."""
    if not (every := stages(begin(kernel).kernel)):
        return None
    before = inlined(tuple([each.label for each in every[:-1]]))
    bare = recorded(before, kernel)
    left = None if bare is None else stages(bare[1])
    return None if bare is None or not left else (before, bare[1], left)


def recorded(
    schedule: DoBlock, kernel: Kernel, *, late: bool = True
) -> tuple[Trace, Kernel] | None:
    """The trace of a schedule; one that is not shown to be legal is none."""
    with paused():
        try:
            steps, state, _ = run(schedule, kernel, 0, {}, late=late)
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
