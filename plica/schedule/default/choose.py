"""Choose: the form and the schedule of some work by rules of thumb.

`formed` says which kernel to begin with, `default_trace` how to schedule it: an ordinary trace,
whose decisions come from what is known of the machine.  Both give None where no rule applies.

>>> from plica.ir.tensor import buffer, compute, reduce
>>> x, w = buffer("x", (56, 8), f32), buffer("w", (8, 64), f32)
>>> dense = compute((x, w), (56, 64), lambda m, n: reduce("sum", (8,), lambda k: x[m, k] * w[k, n]))
>>> machine = Machine(vector=512, registers=32)
>>> form = formed(Work(dense), (False, True), machine)
>>> "reverse_compute_at" in default_trace(form.kernel, machine).to_python()
True
"""

from __future__ import annotations

from functools import lru_cache
from math import prod

from plica.core.binding import free_vars
from plica.core.collector import paused
from plica.core.fold import post_order
from plica.core.name import Name
from plica.ir.dtype import DType, f32, f64
from plica.ir.loop import Block, Kernel, Store
from plica.ir.scalar import Load, Select
from plica.ir.stage import Each
from plica.schedule.default.contraction import Contraction, Work, bared, contraction, merged
from plica.schedule.default.depthwise import is_window, window_schedule, windowed
from plica.schedule.default.dot_schedule import dot_form, dot_schedule
from plica.schedule.default.elementwise import elementwise_form, elementwise_schedule
from plica.schedule.default.estimate import Choice, over_outputs, over_rows, panels
from plica.schedule.default.form import Formed, blocked, rowed
from plica.schedule.default.grouped import by_group
from plica.schedule.default.joined import joined_form, joined_schedule
from plica.schedule.default.machine import Machine
from plica.schedule.default.panel import Panel, panel_of, panel_schedule, paneled
from plica.schedule.default.reduction import row_form, row_schedule
from plica.schedule.default.register_tile import (
    SHARED,
    Roles,
    beside,
    roles,
    scheduled,
    shared,
    tile_of,
)
from plica.schedule.default.sample import sampled
from plica.schedule.default.tile import Tile
from plica.schedule.default.transpose import turned
from plica.schedule.default.winograd import is_tiled, tiled
from plica.schedule.do import Block as Do
from plica.schedule.do import Body, do, run
from plica.schedule.primitive import block, decompose_padding, loops, reorder, vectorize
from plica.schedule.problem import ScheduleRefused
from plica.schedule.site import map_of
from plica.schedule.trace import Trace

FEWEST = 2048
"""Fewer products than that are not worth a schedule."""


def formed(
    of: Work,
    constant: tuple[bool, ...],
    machine: Machine,
    *,
    reassociates: bool = False,
    bytes_: tuple[int, ...] = (),
    form: str | None = None,
) -> Formed | None:
    """The kernel to schedule for some work; `constant` says which inputs are known now.

    Terms of sums are joined in the order in which they come, unless it `reassociates`.  `bytes_`
    are the inputs that are constants of i32 between -128 and 127.  Of contractions, a `form` that
    is given is the only one.
    """
    of = bared(of)
    by_element = turned(of, machine) or joined_form(of, machine) or elementwise_form(of, machine)
    if by_element is not None:
        return by_element
    by_tiles = tiled(of, constant, machine)
    if by_tiles is not None:
        return by_tiles
    in_fours = dot_form(of, constant, bytes_, machine)
    if in_fours is not None:
        return in_fours
    apart = by_group(of)
    if apart is not None:
        of_one = formed(apart.work, constant, machine, reassociates=reassociates, form=form)
        return None if of_one is None else apart.seen(of_one)
    found = contraction(of)
    along_rows = row_form(of, machine) if reassociates else None
    if found is None or (found.weight is None and along_rows is not None):
        return along_rows
    if found.reduced.dtype not in (f32, f64):
        return None
    whole = 1
    for size in found.sizes.values():
        whole *= size
    if whole < FEWEST:
        return None
    if is_window(found, machine):
        return windowed(found, machine)
    flat = merged(found)
    before: tuple[Each, ...] = ()
    thin = None if flat is not None else sampled(found)
    if thin is not None:
        before, columns = (thin[0],), thin[1]
    else:
        columns = flat or found
    choices = [
        *_shapes(flat or found, machine),
        *[(each, columns) for each in panels(columns, machine, sampled=bool(before))],
    ]
    choices = [each for each in choices if form in (None, each[0].form)]
    if not choices:
        return along_rows if form is None else None  # outputs too few for lanes: sums of products
    best, chosen = min(choices, key=lambda each: each[0].cycles)
    weight = chosen.weight
    known_weight = weight is not None and constant[chosen.inputs.index(weight.buffer)]
    match best.form:
        case "paneled":
            return paneled(chosen, Panel(best.tile, best.lanes), known_weight, before)
        case "blocked":
            return blocked(chosen, best.lanes, best.tile.steps, known_weight)
        case "rowed":
            return rowed(chosen, best.lanes)


def _shapes(of: Contraction, machine: Machine) -> list[tuple[Choice, Contraction]]:
    return [(each, of) for each in (*over_outputs(of, machine), *over_rows(of, machine))]


@lru_cache(maxsize=1024)
def default_trace(kernel: Kernel, machine: Machine) -> Trace | None:
    """The schedule of a kernel by rules of thumb, None where there is none for it."""
    found = default_schedule(kernel, machine)
    return None if found is None else found[0]


@lru_cache(maxsize=1024)
def default_schedule(kernel: Kernel, machine: Machine) -> tuple[Trace, Kernel] | None:
    """The trace, and the kernel it makes."""
    if is_tiled(kernel):
        return Trace(()), kernel  # its form has the loops it should have
    along_rows = row_schedule(kernel, machine) or elementwise_schedule(kernel)
    if along_rows is not None:
        return _recorded(along_rows, kernel)
    by_kind = window_schedule(kernel, machine) or joined_schedule(kernel, machine)
    if by_kind is not None:
        return _recorded(by_kind, kernel)
    in_fours = dot_schedule(kernel, machine)
    if in_fours is not None:
        return _recorded(in_fours, kernel)
    panel = panel_of(kernel, machine)
    if panel is not None:
        return _recorded(panel_schedule(kernel, panel, machine), kernel)
    found = roles(kernel)
    if found is None:
        return None
    whole_lane = found.extents[found.lane]
    lanes = whole_lane if found.blocked else _row_lanes(whole_lane, found.dtype, machine)
    tile = tile_of(found, machine, lanes)
    blocks = map_of(kernel).blocks
    near = Name("pad") in blocks and all(str(each.name) != "pad" for each in kernel.params)
    together = _together(found, tile, machine)
    shares = machine.cores > 1 and prod(found.extents) >= SHARED

    more = beside(found, tile, machine)
    weights = found.dtype.bytes * prod(
        [found.extents[at] for at in (found.vectors, found.lane, *found.terms) if at is not None]
    )

    @do
    def whole() -> Body:
        yield scheduled(
            found,
            tile,
            lanes,
            together,
            pads=near,
            shares=shares,
            fetches=more is None and weights > machine.cache(2) // 8,
            beside=more,
        )
        for name in ("pad", "packed"):
            if Name(name) in blocks:
                copy = yield block(name)
                every = yield loops(copy)
                if name == "packed" and len(every) == 3 and _reads_rows(blocks[Name(name)].node):
                    yield reorder(every[1], every[0])  # along rows of what is read
                    every = (every[1], every[0], every[2])
                if name == "pad" and near and _is_guarded(blocks[Name("pad")].node):
                    fill = yield decompose_padding(copy, every[-1])
                    filled = yield loops(fill)
                    yield vectorize(filled[-1])
                yield vectorize(every[-1])
                if shares and not (name == "pad" and near):
                    yield from shared(every[:-2] or every[:1])

    return _recorded(whole, kernel)


def _recorded(schedule: Do, kernel: Kernel) -> tuple[Trace, Kernel] | None:
    """The trace of a schedule; one that is not shown to be legal is none."""
    with paused():
        try:
            steps, state, _ = run(schedule, kernel, 0, {})
        except ScheduleRefused:
            return None
    return Trace(steps), state.kernel


def _reads_rows(of: Block) -> bool:
    """Whether a copy reads along the rows of what it copies."""
    loads = [node for node in post_order(of.body) if isinstance(node, Load)]
    return all(of.vars[-1] in free_vars(each.indices[-1]) for each in loads)


def _is_guarded(of: Block) -> bool:
    return isinstance(of.body, Store) and isinstance(of.body.value, Select)


def _row_lanes(extent: int, dtype: DType, machine: Machine) -> int:
    """As many lanes as a vector has, or as divide a row."""
    lanes = machine.lanes(dtype)
    while extent % lanes:
        lanes //= 2
    return lanes


def _together(of: Roles, tile: Tile, machine: Machine) -> int:
    """How many tiles of a matrix product go together: their rows stay in a cache; 0 for all."""
    if not of.blocked or of.steps is None or any(of.extents[at] > 1 for at in of.around):
        return 0
    row = of.dtype.bytes * tile.steps
    for at in of.terms:
        row *= of.extents[at]
    tiles = of.extents[of.steps] // tile.steps
    most = machine.cache(2) // 2 // row
    if tiles <= most or most < 1:
        return 0
    return max(each for each in range(1, most + 1) if tiles % each == 0)
