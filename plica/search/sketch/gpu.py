"""Sketches for GPUs: what each form makes with its template, and other tiles and threads.

A tile is part of the stages that a schedule starts from, so each tile is a separate form, whose
trace decides everything. Forms are built on demand: a record names one, and only that one is
rebuilt.

    gpu/default                            what a build without tuning does
    gpu/block-rows                         what one form rule makes, as its template schedules it
    gpu/online-softmax-wgmma-2             what the rule makes that is estimated to take longer:
                                           other tiles, parts of the terms, padding
    gpu/product-128x64x16-8x16-2-8-1       rows, columns and terms, threads, slices under way,
                                           tiles that are near, parts of the terms; -kept
    gpu/warps-2x4-4x8-2-3-1                warps, squares of a warp, steps, slices under way
    gpu/threads-128                        each element by a thread, this many in a block
    acme/whole/threads                     what rules of installed libraries add

>>> from plica.ir.type.dtype import f32
>>> from plica.ir.loop.stage import stage
>>> from plica.ir.loop.stages import stages
>>> from plica.ir.loop.tensor import buffer, reduce
>>> x, w = buffer("x", (64, 64), f32), buffer("w", (64, 64), f32)
>>> dense = stage("y", (64, 64), lambda m, n: reduce("sum", (64,), lambda k: x[m, k] * w[k, n]))
>>> query = sketch_rule.Query(stages((x, w), (dense,)), Facts((False, True)))
>>> names = [name for name, _ in drafts(query, Gpu())]
>>> names[:2], names[-1]
(['default', 'product-32x64x8-8x16-2-1-1-kept'], 'threads-512')
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from itertools import product as every_choice
from typing import Final, TypeAlias

from attrs import evolve, frozen

from plica.codegen.cuda.scheduled import refused
from plica.core import digest
from plica.ir.loop.stages import Stages, from_kernel
from plica.ir.loop.statement import Kernel
from plica.ir.type import f32
from plica.schedule.default.gpu import GPU_FORMS, Gpu, candidates, cost, gpu_trace
from plica.schedule.default.gpu.choose import laid_out, template_of
from plica.schedule.default.gpu.narrow_read import NARROW
from plica.schedule.default.gpu.operand import Operands
from plica.schedule.default.gpu.product import WIDE, ProductTile
from plica.schedule.default.gpu.product_form import PARTS, in_tiles, in_warps, product_of
from plica.schedule.default.gpu.template import product_schedule, tensor_core_schedule
from plica.schedule.default.gpu.tensor_core import Warps
from plica.schedule.form import Facts, Formed, in_order, installed
from plica.schedule.problem import ScheduleRefused
from plica.schedule.trace import Trace
from plica.search import sketch_rule
from plica.search.space import Sketch, Space, sketch

RULE: Final = "gpu"

TILES: Final = 24  # how many tiles of matrices are tried, at most: those first that promise most
MADE: Final = 12  # results of one form rule that are tried, at most: the fastest estimates
HOPELESS: Final = 64  # times the best estimate: then a thread per element is not tried
WINDOWED: Final = 8  # how many of what is gathered from windows, where each takes longer to make
SLICES_IN_FLIGHT: Final = (
    (2, True),
    (2, False),
    (1, False),
)  # slices in flight, left operand as in memory
RASTER_TILES: Final = 8  # tiles that follow one another down, where there are this many
SQUARES: Final = (16, 128)  # sums of a thread, from and to
THREADS: Final = (64, 128, 256, 512)  # threads of a block

WARPS: Final = (
    Warps(2, 2, 4, 8, 4, ahead=2), Warps(2, 4, 4, 8, 2, ahead=2), Warps(4, 2, 4, 8, 2, ahead=3),
    Warps(2, 4, 4, 4, 2, ahead=3), Warps(2, 2, 4, 4, 4, ahead=2),
)  # fmt: skip
"""Warp tiles besides the heuristic ones."""


@frozen(eq=False)
class Draft:
    """A form to begin with, and the schedule of its kernel."""

    form: Stages
    trace: Trace


Making: TypeAlias = Callable[[], Draft | None]


def gpu_space_of(query: sketch_rule.Query, gpu: Gpu) -> Space:
    """The space of some work, heuristic candidates first."""
    return _space(query, gpu)


@lru_cache(maxsize=64)
def _space(query: sketch_rule.Query, gpu: Gpu) -> Space:
    found: dict[object, Sketch] = {}
    for name, make in drafts(query, gpu):
        if (draft := make()) is None:
            continue
        key = (digest(draft.form), draft.trace)
        if key not in found:
            kernel = sketch_rule.hoisted_kernel(draft.form, query.facts.constant).kernel
            # The trace was recorded on this very kernel, so it is legal, and nothing in it is open.
            found[key] = Sketch(f"{RULE}/{name}/default", kernel, draft.trace, (), (), draft.form)
    for sketched in _by_rules(query, gpu):
        found.setdefault((digest(sketched.form), sketched.trace), sketched)
    return Space(tuple(found.values()))


def _by_rules(query: sketch_rule.Query, gpu: Gpu) -> Iterator[Sketch]:
    """What rules of libraries make of some work, as far as their traces are legal."""
    for rule in sketch_rule.installed(gpu):
        for name, form, trace in sketch_rule.drafts_of(rule, query, gpu):
            try:
                kernel = sketch_rule.hoisted_kernel(form, query.facts.constant).kernel
                yield sketch(name, kernel, trace, form)
            except ScheduleRefused:
                continue


def gpu_space_of_kernel(kernel: Kernel, gpu: Gpu) -> Space:
    """The space of a user's kernel: other thread counts only."""
    query = sketch_rule.Query(from_kernel(kernel), Facts((False,) * kernel.inputs))
    found: dict[Trace, Sketch] = {}
    for name, make in _spread(query, gpu):
        draft = make()
        if draft is not None and draft.trace not in found:
            whole = f"{RULE}/{name}/default"
            found[draft.trace] = Sketch(whole, kernel, draft.trace, (), (), draft.form)
    return Space(tuple(found.values()))


def gpu_form_named(name: str, query: sketch_rule.Query, gpu: Gpu) -> Stages | None:
    """The form of a sketch name, or None if it no longer exists."""
    word, _, rest = name.partition("/")
    wanted = rest.partition("/")[0]
    if word == RULE:
        for each, make in drafts(query, gpu):
            if each == wanted:
                draft = make()
                return None if draft is None else draft.form
    return sketch_rule.form_of_rules(sketch_rule.installed(gpu), name, query, gpu)


def drafts(query: sketch_rule.Query, gpu: Gpu) -> Iterator[tuple[str, Making]]:
    """Forms and schedules by name, made lazily: the default, then by rank and estimated cycles."""
    yield "default", partial(_default, query, gpu)
    query = evolve(query, stages=laid_out(query.stages, query.facts))
    tiles = _other_tiles(query, gpu)
    made: Counter[str] = Counter()
    least = 0.0
    for formed in in_order((*GPU_FORMS, *installed()), query.stages, query.facts, gpu):
        least = least or formed.cycles
        if not formed.cycles and _is_hopeless(query, least, gpu):
            break
        made[formed.form] += 1
        number = made[formed.form]
        if number > MADE:
            continue
        while tiles and formed.cycles >= tiles[0][0]:
            yield tiles.pop(0)[1:]
        name = formed.form if number == 1 else f"{formed.form}-{number}"
        yield name, partial(_by_form, query, formed, gpu)
    yield from [tile[1:] for tile in tiles]
    if not _is_hopeless(query, least, gpu):
        yield from _spread(query, gpu)


def _is_hopeless(query: sketch_rule.Query, least: float, gpu: Gpu) -> bool:
    """Whether threads for each element are far behind forms whose cycles are known."""
    return bool(least) and cost.element_cost(query.stages, gpu) > HOPELESS * least


def _other_tiles(query: sketch_rule.Query, gpu: Gpu) -> list[tuple[float, str, Making]]:
    """Tiles of products that no form rule makes, with the cycles they are estimated to take."""
    operands = product_of(query.stages)
    made: list[tuple[float, str, Making]] = []
    if operands is not None and operands.dtype in NARROW:
        for warps in WARPS:
            squares = f"{warps.down}x{warps.across}-{warps.high}x{warps.wide}"
            name = f"warps-{squares}-{warps.steps}-{warps.ahead}-{warps.near}"
            cycles = cost.warps_cost(operands, warps, 1, (False, False), gpu)
            made.append((cycles, name, partial(_on_cores, query, operands, warps, gpu)))
    if operands is not None and operands.dtype is f32:
        for tile, parts in tiles(operands, gpu):
            size = f"{tile.rows}x{tile.columns}x{tile.terms}-{tile.down}x{tile.across}"
            how = f"{tile.ahead}-{tile.near}-{parts}{'-kept' * tile.kept}"
            cycles = cost.tile_cost(operands, tile, parts, gpu)
            make = partial(_in_tiles, query, operands, tile, parts, gpu)
            made.append((cycles, f"product-{size}-{how}", make))
    return sorted(made, key=lambda each: each[0])


def _spread(query: sketch_rule.Query, gpu: Gpu) -> Iterator[tuple[str, Making]]:
    for threads in (gpu.threads, *[thread for thread in THREADS if thread != gpu.threads]):
        yield f"threads-{threads}", partial(_threads, query, evolve(gpu, threads=threads))


def tiles(of: Operands, gpu: Gpu) -> list[tuple[ProductTile, int]]:
    """Tiles and parts of the terms, those first that promise most."""
    found: list[tuple[float, ProductTile, int]] = []
    for high, wide, terms, (down, across), parts in every_choice(
        (32, 64, 128, 256), (64, 128, 256), (8, 16), ((8, 8), (8, 16), (16, 16)), PARTS
    ):
        tile = ProductTile(high, wide, terms, down, across, ahead=1)
        each = high * wide // tile.threads
        fits = high % (down * WIDE) == 0 and wide % (across * WIDE) == 0
        shared = 2 * (high + wide) * terms * of.dtype.bytes
        if not fits or not SQUARES[0] <= each <= SQUARES[1] or shared > gpu.shared:
            continue
        if (parts > 1 and cost.is_enough(of, tile, parts, gpu)) or terms < down:
            continue
        found.append((cost.tile_cost(of, tile, parts, gpu), tile, parts))
    found.sort(key=lambda each: (each[0], each[1].rows, each[1].columns, each[1].terms, each[2]))
    best: dict[ProductTile, int] = {}
    for _, tile, parts in found:
        best.setdefault(tile, parts)
    if cost.is_window(of):
        return list(best.items())[:WINDOWED]
    return [
        (evolve(tile, ahead=ahead, kept=kept, near=_near(of, tile, parts)), parts)
        for tile, parts in list(best.items())[: TILES // len(SLICES_IN_FLIGHT)]
        for ahead, kept in SLICES_IN_FLIGHT
    ]


def _near(of: Operands, tile: ProductTile, parts: int) -> int:
    """How many tiles follow one another down."""
    many = -(-of.size("rows") // tile.rows) % RASTER_TILES == 0
    return RASTER_TILES if many and parts == 1 else 1


def _default(query: sketch_rule.Query, gpu: Gpu) -> Draft | None:
    for candidate in candidates(query.stages, query.facts, gpu):
        if not refused(candidate.kernel, gpu):
            return Draft(candidate.form.stages, candidate.trace)
    return None


def _by_form(query: sketch_rule.Query, made: Formed, gpu: Gpu) -> Draft | None:
    found = template_of(made.form)(_rest(made.stages, query), gpu)
    return None if found is None else Draft(made.stages, found[0])


def _on_cores(query: sketch_rule.Query, of: Operands, warps: Warps, gpu: Gpu) -> Draft | None:
    form = in_warps(query.stages, query.facts, of, warps)
    found = tensor_core_schedule(_rest(form, query), gpu, (warps,))
    return None if found is None else Draft(form, found[0])


def _in_tiles(
    query: sketch_rule.Query, of: Operands, tile: ProductTile, parts: int, gpu: Gpu
) -> Draft | None:
    form = in_tiles(query.stages, query.facts, of, tile, parts)
    found = product_schedule(_rest(form, query), gpu, (tile,))
    return None if found is None else Draft(form, found[0])


def _threads(query: sketch_rule.Query, gpu: Gpu) -> Draft | None:
    trace = gpu_trace(sketch_rule.hoisted_kernel(query.stages, query.facts.constant).kernel, gpu)
    return None if trace is None else Draft(query.stages, trace)


def _rest(form: Stages, query: sketch_rule.Query) -> Stages:
    """A form without the constants computed in advance."""
    return sketch_rule.hoisted_kernel(form, query.facts.constant).hoisted.rest
