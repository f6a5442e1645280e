"""Sketches for GPUs: the schedules by rule of thumb, and those with other tiles and threads.

A tile is part of the kernel that a schedule begins with, so each tile is a form of its own, and the
trace of each decides everything.  Forms are made when they are asked for: a record names one, and
only that one is made again.

    gpu/default                            what a build without tuning does
    gpu/product-128x64x16-8x16-2-8-1       rows, columns and terms, threads, slices under way,
                                           tiles that are near, parts of the terms; -kept
    gpu/warps-2x4-4x8-2-3-1                warps, squares of a warp, steps, slices under way
    gpu/threads-128                        each element by a thread, so many in a block

>>> from plica.core.name import Name
>>> from plica.ir.graph import Apply, Function, Var
>>> from plica.ir.type import tensor
>>> x, w = Var(Name("x"), tensor((64, 64), "f32")), Var(Name("w"), tensor((64, 64), "f32"))
>>> product = Function((), (), (x, w), tensor((64, 64), "f32"), Apply("matmul", (x, w)))
>>> asked = Asked(product, (False, True), True)
>>> names = [name for name, _ in drafts(asked, Gpu())]
>>> names[0], [each for each in names if each.startswith("product")][0]
('default', 'product-32x64x8-8x8-2-1-2-kept')
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from itertools import product as every_choice
from math import prod
from typing import Final, TypeAlias

from attrs import evolve, frozen

from plica.codegen.lower.scheduled import work_of
from plica.core.collector import paused
from plica.core.digest import digest
from plica.ir.dtype import f32
from plica.ir.loop import Kernel
from plica.ir.staged import kernel_of
from plica.runtime.error import UnsupportedError
from plica.schedule.default import Formed
from plica.schedule.default.contraction import Contraction, bared, contraction
from plica.schedule.default.gpu import Gpu, contracted, gpu_schedule
from plica.schedule.default.gpu.choose import FEWEST, JOIN, LEAST, PARTS, ROW, WINDOW, in_tiles
from plica.schedule.default.gpu.product import WIDE, Tile
from plica.schedule.default.gpu.tensor_core import Warps, tensor_core
from plica.schedule.default.gpu.tensor_core_choice import GROUPS
from plica.schedule.default.gpu.tensor_core_choice import WARPS as USUAL
from plica.schedule.default.gpu.tensor_core_form import tensor_core_form
from plica.schedule.do import Block, run
from plica.schedule.problem import ScheduleRefused
from plica.schedule.trace import Trace
from plica.search.rule import Asked
from plica.search.space import Sketch, Space

RULE: Final = "gpu"

TILES: Final = 24
"""How many tiles of matrices are tried, at most: those first that promise most."""

WINDOWED: Final = 8
"""How many of what is gathered from windows, where each takes longer to make."""

AHEAD: Final = ((2, True), (2, False), (1, False))
"""Slices that are under way, and whether those on the left stay as they lie in memory."""

NEAR: Final = 8
"""Tiles that follow one another down, where there are so many."""

SQUARES: Final = (16, 128)
"""Sums of a thread, from and to."""

THREADS: Final = (64, 128, 256, 512)
"""Threads of a block."""

WARPS: Final = (
    Warps(2, 2, 4, 8, 4, ahead=2), Warps(2, 4, 4, 8, 2, ahead=2), Warps(4, 2, 4, 8, 2, ahead=3),
    Warps(2, 4, 4, 4, 2, ahead=3), Warps(2, 2, 4, 4, 4, ahead=2),
)  # fmt: skip
"""Tiles of warps beside those by rule of thumb."""


@frozen(eq=False)
class Draft:
    """A kernel to begin with, and its schedule."""

    form: Formed
    trace: Trace


Making: TypeAlias = Callable[[], Draft | None]


def gpu_space_of(asked: Asked, gpu: Gpu) -> Space:
    """The space of some work: what rules of thumb give comes first."""
    return _space(asked, gpu)


@lru_cache(maxsize=64)
def _space(asked: Asked, gpu: Gpu) -> Space:
    found: dict[object, Sketch] = {}
    for name, make in drafts(asked, gpu):
        draft = make()
        if draft is None:
            continue
        key = (digest(draft.form.kernel), draft.form.packings, draft.trace)
        if key not in found:
            whole = f"{RULE}/{name}/default"
            # The trace was recorded on this very kernel, so it is legal, and nothing in it is open.
            found[key] = Sketch(whole, draft.form.kernel, draft.trace, (), (), draft.form)
    return Space(tuple(found.values()))


def gpu_space_of_kernel(kernel: Kernel, gpu: Gpu) -> Space:
    """The space of a kernel as somebody wrote it: other numbers of threads alone."""
    found: dict[object, Sketch] = {}
    for name, make in _spread(kernel, gpu):
        draft = make()
        if draft is not None and draft.trace not in found:
            whole = f"{RULE}/{name}/default"
            found[draft.trace] = Sketch(whole, kernel, draft.trace, (), (), draft.form)
    return Space(tuple(found.values()))


def gpu_form_named(name: str, asked: Asked, gpu: Gpu) -> Formed | None:
    """The kernel that a sketch of that name begins with, None where there is none any more."""
    rule, _, rest = name.partition("/")
    wanted = rest.partition("/")[0]
    for each, make in drafts(asked, gpu):
        if rule == RULE and each == wanted:
            draft = make()
            return None if draft is None else draft.form
    return None


def drafts(asked: Asked, gpu: Gpu) -> Iterator[tuple[str, Making]]:
    """Kernels and schedules by name, each made when it is asked for; the default is first."""
    work = asked.work
    if work is not None:
        yield "default", partial(_contracted, asked, gpu)
        for warps in dict.fromkeys((*(GROUPS if gpu.groups else ()), *USUAL, *WARPS)):
            squares = f"{warps.down}x{warps.across}-{warps.high}x{warps.wide}"
            how = f"{warps.steps}-{warps.ahead}-{warps.near}{'-together' * warps.together}"
            yield f"warps-{squares}-{how}", partial(_on_cores, asked, warps)
        found = contraction(bared(work))
        if found is not None and _is_tiled(found):
            for tile, parts in tiles(found, gpu):
                size = f"{tile.rows}x{tile.columns}x{tile.terms}-{tile.down}x{tile.across}"
                making = partial(_tiled, asked, found, tile, parts, gpu)
                how = f"{tile.ahead}-{tile.near}-{parts}{'-kept' * tile.kept}"
                yield f"product-{size}-{how}", making
    if asked.fused.reads == tuple(range(len(asked.function.params))):
        try:
            whole = kernel_of(asked.function)
        except UnsupportedError:  # a procedure, which one thread does
            return
        yield from _spread(whole, gpu)


def _spread(kernel: Kernel, gpu: Gpu) -> Iterator[tuple[str, Making]]:
    for threads in (gpu.threads, *[each for each in THREADS if each != gpu.threads]):
        yield f"threads-{threads}", partial(_scheduled, kernel, evolve(gpu, threads=threads))


def _is_tiled(of: Contraction) -> bool:
    """Whether work is a product of matrices that is worth tiles."""
    if of.weight is None or of.combiner != "sum" or of.reduced.dtype is not f32:
        return False
    sizes = [prod(of.sizes[a] for a in axes) for axes in (of.lanes, of.pixels)]
    batch = prod(of.sizes[a] for a in of.shared)
    if not of.lanes or not of.pixels:
        return False
    return min(sizes) >= LEAST and prod(sizes) * of.depth * batch >= FEWEST


def tiles(of: Contraction, gpu: Gpu) -> list[tuple[Tile, int]]:
    """Tiles and parts of the terms, those first that promise most."""
    rows, columns, batch = (prod(of.sizes[a] for a in n) for n in (of.lanes, of.pixels, of.shared))
    if of.axes[-1] in of.lanes:
        rows, columns = columns, rows
    gathers = WINDOW if len(of.terms) > 1 or of.guarded else ROW
    found: list[tuple[float, Tile, int]] = []
    for high, wide, terms, (down, across), parts in every_choice(
        (32, 64, 128, 256), (64, 128, 256), (8, 16), ((8, 8), (8, 16), (16, 16)), PARTS
    ):
        tile = Tile(high, wide, terms, down, across, ahead=1)
        each, deep = high * wide // tile.threads, -(-of.depth // parts)
        fits = high % (down * WIDE) == 0 and wide % (across * WIDE) == 0
        shared = 2 * (high + wide) * terms * of.reduced.dtype.bytes
        if not fits or not SQUARES[0] <= each <= SQUARES[1] or shared > gpu.shared:
            continue
        count = -(-rows // high) * -(-columns // wide) * batch
        enough = count >= 2 * gpu.processors  # parts would only have to be joined
        if (parts > 1 and (deep < 4 * terms or enough)) or terms < down:
            continue
        turns = -(-count * parts // gpu.processors)
        slices = -(-deep // terms) * terms
        work = turns * high * wide * slices * (1 + gathers / high + ROW / wide)
        joining = JOIN * parts * rows * columns * batch / gpu.processors if parts > 1 else 0
        found.append((work + joining, tile, parts))
    found.sort(key=lambda each: (each[0], each[1].rows, each[1].columns, each[1].terms, each[2]))
    best: dict[Tile, tuple[float, Tile, int]] = {}
    for one in found:
        best.setdefault(one[1], one)
    found = [*best.values()]
    if gathers == WINDOW:
        return [(tile, parts) for _, tile, parts in found[:WINDOWED]]
    near = [(tile, parts, -(-rows // tile.rows) % NEAR == 0) for _, tile, parts in found]
    return [
        (evolve(tile, ahead=ahead, kept=kept, near=NEAR if many and parts == 1 else 1), parts)
        for tile, parts, many in near[: TILES // len(AHEAD)]
        for ahead, kept in AHEAD
    ]


def _contracted(asked: Asked, gpu: Gpu) -> Draft | None:
    made = contracted(work_of(asked.fused), asked.constant, gpu)
    return None if made is None else Draft(Formed(made.form.kernel, made.form.packings, ()),
                                           made.trace)  # fmt: skip


def _on_cores(asked: Asked, warps: Warps) -> Draft | None:
    form = tensor_core_form(work_of(asked.fused), warps)
    if form is None:
        return None
    count = warps.count(form.sizes)
    trace = _recorded(tensor_core(warps, form.along, form.labels, count=count), form.kernel)
    return None if trace is None else Draft(Formed(form.kernel, form.packings, ()), trace)


def _tiled(asked: Asked, of: Contraction, tile: Tile, parts: int, gpu: Gpu) -> Draft | None:
    assert of.weight is not None
    constant = asked.constant[of.inputs.index(of.weight.buffer)]
    made = in_tiles(of, tile, parts, constant, gpu)
    return (
        None
        if made is None
        else Draft(Formed(made.form.kernel, made.form.packings, ()), made.trace)
    )


def _scheduled(kernel: Kernel, gpu: Gpu) -> Draft | None:
    made = gpu_schedule(kernel, gpu)
    return None if made is None else Draft(Formed(kernel, (), ()), made[0])


def _recorded(schedule: Block, kernel: Kernel) -> Trace | None:
    """The trace of a schedule, None where it is refused."""
    with paused():
        try:
            steps, _, _ = run(schedule, kernel, 0, {})
        except ScheduleRefused:
            return None
    return Trace(steps)
