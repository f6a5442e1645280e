"""The default schedule on a processor: form rules, then a trace whose decisions are analytical.

`FORMS` says which stages to begin with, `TEMPLATES` how to schedule them; both are tables.  The
decisions come from what is known of the machine.

>>> from plica.ir.loop.stage import stage
>>> from plica.ir.loop.stages import stages
>>> from plica.ir.loop.tensor import buffer, reduce
>>> x, w = buffer("x", (56, 8), f32), buffer("w", (8, 64), f32)
>>> dense = stage("y", (56, 64), lambda m, n: reduce("sum", (8,), lambda k: x[m, k] * w[k, n]))
>>> machine = Machine(vector=512, registers=32)
>>> made = formed(stages((x, w), (dense,)), Facts((False, True)), machine)
>>> made.form
'lanes-over-n'
>>> kernel = kernel_of(hoist(made.stages, (False, True)).rest)
>>> "reverse_compute_at" in default_trace(kernel, machine).to_python()
True
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from math import prod
from typing import TYPE_CHECKING, Final, TypeAlias

from attrs import frozen

from plica.analysis.site import map_of
from plica.core.collector import paused
from plica.ir.loop.scalar import Load, Reduce, Select
from plica.ir.loop.stage import Each
from plica.ir.loop.stages import Stages, kernel_of
from plica.ir.loop.statement import Kernel
from plica.ir.type.dtype import f32, f64, i8, i32, i64, u8
from plica.rewrite.contract import approx, exact, reassociates
from plica.runtime.late import late
from plica.schedule.default import role
from plica.schedule.default.contraction import Contraction, contraction, merged
from plica.schedule.default.depthwise import (
    holds_rows,
    is_of_channels,
    is_window,
    through_prologue,
    window_schedule,
    windowed,
)
from plica.schedule.default.dot_product_schedule import dot_form, dot_schedule
from plica.schedule.default.elementwise import elementwise_form, elementwise_schedule
from plica.schedule.default.estimate import (
    PICKED,
    fewest_lanes,
    keeps_totals,
    over_outputs,
    over_rows,
    packing,
    panels,
    sums_of_rows,
    vectors_abreast,
)
from plica.schedule.default.form import elements, register_tile
from plica.schedule.default.grouped import by_group
from plica.schedule.default.machine import Machine
from plica.schedule.default.panel import Panel, copied_operand, panel_of, panel_schedule, paneled
from plica.schedule.default.piecewise import piecewise_form, piecewise_schedule
from plica.schedule.default.reduction import is_across_rows, row_form
from plica.schedule.default.reduction_schedule import row_schedule
from plica.schedule.default.register_tile import (
    beside,
    data_ahead,
    has_far_weights,
    operand_bytes,
    rows_together,
    scheduled,
    tile_of,
)
from plica.schedule.default.role import Roles, contraction_blocks, made_by
from plica.schedule.default.row import chain_form
from plica.schedule.default.sample import sampled
from plica.schedule.default.share import cycles, pays, read_times
from plica.schedule.default.summed import in_runs
from plica.schedule.default.tile import RegisterTile
from plica.schedule.default.transpose import turned
from plica.schedule.default.winograd import tiled
from plica.schedule.do import Body, do, run
from plica.schedule.do import DoBlock as Do
from plica.schedule.form import (
    BY_COST,
    Apply,
    Facts,
    Form,
    Formed,
    Made,
    ScheduleTables,
    in_order,
    installed,
    itself,
    priced,
    reach,
)
from plica.schedule.hoist import hoist
from plica.schedule.problem import ScheduleRefused
from plica.schedule.trace import Trace

if TYPE_CHECKING:
    from plica.schedule.default.column import column_form
    from plica.schedule.default.few_bits import few_bits_form
    from plica.schedule.default.general import general_cycles, general_schedule
    from plica.schedule.default.merging import merging_form
    from plica.schedule.default.running import running_form
    from plica.schedule.default.scattered import scattered_form
    from plica.schedule.default.selection import selected
    from plica.schedule.default.tile_product import tile_form, tile_schedule
else:
    column_form = late("plica.schedule.default.column:column_form")
    merging_form = late("plica.schedule.default.merging:merging_form")
    running_form = late("plica.schedule.default.running:running_form")
    scattered_form = late("plica.schedule.default.scattered:scattered_form")
    selected = late("plica.schedule.default.selection:selected")
    tile_form = late("plica.schedule.default.tile_product:tile_form")
    tile_schedule = late("plica.schedule.default.tile_product:tile_schedule")
    few_bits_form = late("plica.schedule.default.few_bits:few_bits_form")
    general_cycles = late("plica.schedule.default.general:general_cycles")
    general_schedule = late("plica.schedule.default.general:general_schedule")

__all__ = [
    "FORMS", "PROCESSOR", "RefusedTemplate", "candidates", "default_schedule", "default_trace",
    "fallback_schedule", "formed", "hoist", "kernel_of",
]  # fmt: skip

FEWEST = 2048
"""Fewer products than that are not worth a schedule."""


def formed(of: Stages, facts: Facts, machine: Machine, only: str | None = None) -> Formed | None:
    """What to begin with, None where no form helps.

    With `only` a name that form alone is tried, for each group where there are groups.
    """
    apart = None if only is None else by_group(of)
    if apart is not None:
        return formed(apart, facts, machine, only)
    found = reach(every_form(), of, facts, machine, only)
    return found[0] if found else None


def candidates(
    of: Stages, facts: Facts, machine: Machine, forms: Sequence[Form] | None = None
) -> Iterator[Formed]:
    """What to begin with, the best first; forms of a higher rank come after all of a lower one."""
    return in_order(every_form(forms), of, facts, machine)


def every_form(forms: Sequence[Form] | None = None) -> tuple[Form, ...]:
    """The forms of a target (`FORMS` if none are given), and those of libraries: what these make is
    reckoned as plain loops if they do not say."""
    own = FORMS if forms is None else forms
    return (*own, *[priced(each, general_cycles) for each in installed()])


def _one(make: Callable[[Stages, Facts, Machine], Stages | None]) -> Apply:
    """A form that makes one thing or nothing."""

    def apply(of: Stages, facts: Facts, machine: Machine) -> list[Stages]:
        return [] if (made := make(of, facts, machine)) is None else [made]

    return apply


def _groups(of: Stages, facts: Facts, machine: Machine) -> list[Made]:
    """Each group is a contraction of its own."""
    apart = by_group(of)
    found = None if apart is None else formed(apart, facts, machine)
    return [] if found is None else [(found.cycles, found.make)]


def _contraction(
    of: Stages, facts: Facts, again: bool = False, other: bool = False
) -> Contraction | None:
    """The contraction some stages are, if it is worth a tile of registers."""
    found = contraction(of, again, other)
    if found is None or found.reduced.dtype not in (f32, f64, i32, i64):
        return None
    if prod(found.sizes.values()) < FEWEST:
        return None
    return in_runs(found, reassociates=facts.reassociates)


@through_prologue
def _window(of: Stages, facts: Facts, machine: Machine) -> Stages | None:
    found = _contraction(of, facts, again=True)  # what is read stays where it is
    if found is None or (found.run and found.depth > prod(found.run)):
        return None
    varies = is_of_channels(found) and not _is_constant(found.weight, found, facts)
    return None if varies or not is_window(found, machine) else windowed(found, machine)


def _window_columns(of: Stages, facts: Facts, machine: Machine) -> Stages | None:
    """A window so wide that rows would not stay in registers until all windows have read them."""
    found = _contraction(of, facts, again=True)
    if found is None or (found.run and found.depth > prod(found.run)):
        return None
    if not is_window(found, machine) or holds_rows(found, machine):
        return None
    return windowed(found, machine, by_columns=True)


def _pooled(of: Stages, _: Facts, machine: Machine) -> Stages | None:
    """A reduction of rows that has no weight is one of rows before it is a window."""
    found = contraction(of)
    return row_form(of, machine) if found is None or found.weight is None else None


def _ways(of: Contraction) -> list[tuple[Contraction, tuple[Each, ...]]]:
    """A contraction with its last axes as one, as they are or in a copy that a stage makes."""
    flat = merged(of)
    thin = None if flat is not None else sampled(of)
    return [(flat or of, ()), *([] if thin is None else [(thin[1], (thin[0],))])]


def _over_n(of: Stages, facts: Facts, machine: Machine) -> Iterator[Made]:
    found = _contraction(of, facts)
    for whole, before in [] if found is None else _ways(found):
        costs = sum([PICKED * elements(each.out) for each in before])
        if not (ready := _is_constant(whole.weight, whole, facts)):
            costs += packing(whole, machine)
        for each in over_outputs(whole, machine):
            made = partial(register_tile, whole, whole.n[-1], each.lanes, machine)
            kept, abreast = keeps_totals(whole, machine, each), vectors_abreast(each, whole, ready)
            yield each.cycles + costs, partial(made, abreast=abreast, kept=kept, before=before)


def _is_constant(of: Load | None, whole: Contraction, facts: Facts) -> bool:
    """Whether what is read is known before the program runs."""
    if of is None or of.buffer not in whole.inputs:
        return False
    at = whole.inputs.index(of.buffer)
    return at < len(facts.constant) and facts.constant[at]


def _over_rows(of: Stages, facts: Facts, machine: Machine) -> Iterator[Made]:
    found = _contraction(of, facts)
    ways = [found]
    if found is not None and not _is_constant(found.weight, found, facts):
        ways.append(_contraction(of, facts, other=True))  # nothing is packed that lies in rows
    for way in filter(None, ways):
        whole = merged(way) or way
        for each in over_rows(whole, machine):
            yield each.cycles, partial(register_tile, whole, whole.axes[-1], each.lanes, machine)


def _panels(of: Stages, facts: Facts, machine: Machine) -> Iterator[Made]:
    if (found := _contraction(of, facts)) is None:
        return
    columns, before = _ways(found)[-1]
    for each in panels(columns, machine, sampled=bool(before)):
        panel = Panel(each.tile, each.lanes)
        yield each.cycles, partial(paneled, columns, panel, before)


def _sums_of_rows(of: Stages, _: Facts, machine: Machine) -> Iterator[Made]:
    found, made = contraction(of), row_form(of, machine)
    if found is not None and made is not None:
        yield sums_of_rows(found, machine), partial(itself, made)


def _columns(of: Stages, _: Facts, machine: Machine) -> Stages | None:
    return column_form(of, machine) if is_across_rows(of) else None


def _chooses(of: Stages) -> bool:
    """Whether stages begin with a reduction that takes some of its terms alone."""
    value = of.stages[0].value if isinstance(of.stages[0], Each) else None
    return isinstance(value, Reduce) and isinstance(value.body, Select)


def _running(of: Stages, _: Facts, machine: Machine, back: bool = False) -> Stages | None:
    return running_form(of, machine, backwards=back) if _chooses(of) else None


def _scattered(of: Stages, facts: Facts, machine: Machine) -> Stages | None:
    return scattered_form(of, machine, free=facts.reassociates) if _chooses(of) else None


def _selected(of: Stages, _: Facts, machine: Machine) -> Stages | None:
    return selected(of, machine) if _chooses(of) else None


def _merging(of: Stages, _: Facts, machine: Machine) -> Stages | None:
    match of.stages:
        case (Each(out, _, Select()),) if out.dtype is i64 and len(of.inputs) == 1:
            return merging_form(of, machine)
        case _:
            return None


def _byte_tiles(of: Stages, facts: Facts, machine: Machine) -> Stages | None:
    narrow = any(each.dtype in (i8, u8) for each in of.inputs)
    has = machine.dot is not None and bool(machine.dot.tiles)
    return tile_form(of, facts, machine) if narrow and has else None


def _tiles_of_bytes(kernel: Kernel, machine: Machine) -> Do | None:
    narrow = any(each.dtype in (i8, u8) for each in kernel.params)
    return tile_schedule(kernel, machine) if narrow else None


def _few_bits(of: Stages, _: Facts, machine: Machine) -> Stages | None:
    narrow = any(each.dtype is i32 for each in of.inputs)
    return few_bits_form(of, machine) if narrow else None


# fmt: off
FORMS: Final[tuple[Form, ...]] = (
    Form("transpose-tiles", "Squares of elements are transposed in registers.", exact,
         _one(lambda of, _, machine: turned(of, machine)), 0),
    Form("split-pieces", "Each piece of a piecewise tensor has loops of its own.", exact,
         _one(lambda of, _, machine: piecewise_form(of, machine)), 1),
    Form("share-rows", "Cores share the rows of elementwise work.", exact,
         _one(lambda of, _, machine: elementwise_form(of, machine)), 2),
    Form("running-total", "A place goes on from the one before it.", exact,
         _one(_running), 3),
    Form("running-total-back", "A place goes on from the one behind it.", reassociates,
         _one(partial(_running, back=True)), 3),
    Form("scattered-terms", "Each term goes to the place that it names.", exact,
         _one(_scattered), 3),
    Form("merged-runs", "Of two sorted runs the first element of either comes next.", exact,
         _one(_merging), 0),
    Form("kept-places", "The first elements in order are kept as one goes through a row.", exact,
         _one(_selected), 0),
    Form("winograd-tiles", "Tiles are transformed, multiplied and transformed back.", exact,
         _one(tiled), 3),
    Form("byte-tiles", "An instruction multiplies tiles of bytes.", exact, _one(_byte_tiles), 3),
    Form("dot-by-four", "An instruction adds products of four bytes.", exact, _one(dot_form), 4),
    Form("few-bits", "Weights of few bits are widened in registers.", approx(1e-6),
         _one(_few_bits), 4),
    Form("split-groups", "Groups of channels become an axis.", exact, _groups, 5),
    Form("column-sums", "Sums across rows keep several vectors under way.", reassociates,
         _one(_columns), 5),
    Form("row-pools", "Sums without a weight go along rows.", reassociates, _one(_pooled), 6),
    Form("window-columns", "Wide windows are summed column after column.", reassociates,
         _one(_window_columns), 6),
    Form("window", "Windows over one channel read rows as they lie.", exact, _one(_window), 7),
    Form("lanes-over-n", "Lanes over outputs; the weight is packed.", exact, _over_n, BY_COST),
    Form("lanes-over-row", "Lanes over a row of the result.", exact, _over_rows, BY_COST),
    Form("column-panels", "Columns of the data are copied to where they are read.", exact,
         _panels, BY_COST),
    Form("partial-sums", "Lanes sum parts of a row.", reassociates, _sums_of_rows, BY_COST),
    Form("row-chain", "Stages of a row follow one another.", reassociates, _one(
        lambda of, facts, machine: chain_form(of, machine, approximates=facts.approximates)), 9),
)
# fmt: on
"""What stages may be made into, those of the lowest rank first."""


@frozen
class RefusedTemplate:
    """A template that knew a kernel and took a step that is not shown to be legal there."""

    template: str
    reason: str

    def __str__(self) -> str:
        return f"the template {self.template} is refused: {self.reason}"


@lru_cache(maxsize=1024)
def default_trace(kernel: Kernel, machine: Machine) -> Trace | None:
    """The schedule of a kernel by rules of thumb, None where there is none for it."""
    found = default_schedule(kernel, machine)
    return None if found is None or isinstance(found, RefusedTemplate) else found[0]


@lru_cache(maxsize=1024)
def default_schedule(
    kernel: Kernel, machine: Machine, tables: ScheduleTables | None = None
) -> tuple[Trace, Kernel] | RefusedTemplate | None:
    """The trace, and the kernel it makes; None where no template knows the kernel."""
    if not map_of(kernel).blocks:
        return Trace(()), kernel  # its form has the loops it should have
    found = by_template(kernel, machine, None if tables is None else tables.templates)
    if found is None:
        return None
    name, schedule = found
    try:
        return recorded(schedule, kernel)
    except ScheduleRefused as refused:
        problem = refused.problem
        told = f"{refused.kind} asks for {problem.precondition} at {problem.where}"
        return RefusedTemplate(
            name, f"{told}. expected: {problem.expected}; found: {problem.found}"
        )


@lru_cache(maxsize=1024)
def fallback_schedule(kernel: Kernel, machine: Machine) -> tuple[Trace, Kernel]:
    """The trace of the general template, which fits every kernel, and the kernel it makes."""
    return recorded(general_schedule(kernel, machine), kernel)


Template: TypeAlias = Callable[[Kernel, Machine], "Do | None"]
"""The schedule of kernels that some forms make, None for others."""


def by_template(
    kernel: Kernel, machine: Machine, templates: Mapping[str, Template] | None = None
) -> tuple[str, Do] | None:
    """The first template that knows a kernel, by its name, and the schedule."""
    for name, template in (TEMPLATES if templates is None else templates).items():
        if (schedule := template(kernel, machine)) is not None:
            return name, schedule
    return None


def recorded(schedule: Do, kernel: Kernel) -> tuple[Trace, Kernel]:
    """The trace of a schedule and what it makes; raises `ScheduleRefused` where it is illegal."""
    with paused():
        steps, state, _ = run(schedule, kernel, 0, {})
    return Trace(steps), state.kernel


def _in_panels(kernel: Kernel, machine: Machine) -> Do | None:
    panel = panel_of(kernel, machine)
    return None if panel is None else panel_schedule(kernel, panel, machine)


def _in_tiles(kernel: Kernel, machine: Machine) -> Do | None:
    """A contraction in tiles of registers."""
    found, stages = role.roles(kernel), contraction_blocks(kernel, runs=True)
    if found is None or stages is None:
        return None
    lanes = fewest_lanes(found.extents[found.lane], machine.lanes(found.dtype))
    work = cycles(machine, found.products, kernel.params, found.dtype)
    cores = machine.cores if pays(machine, found.products, kernel.params, found.dtype) else 1
    tile, more = beside(found, tile_of(found, machine, lanes, cores), machine, lanes)
    pad = stages.data
    near = pad is not None and made_by(pad) not in kernel.params
    reads = read_times(machine, *operand_bytes(found, stages.reduction), work)
    kept = stages.again is not None
    together = 0 if kept else _together(found, tile, machine, cores if reads[0] > reads[1] else 1)
    whole_rows = together or kept or more is not None
    rows = 0 if whole_rows else rows_together(found, stages.reduction, tile, lanes, machine)

    @do
    def whole() -> Body:
        yield scheduled(
            found,
            stages,
            tile,
            lanes,
            together,
            pads=near,
            cores=cores,
            region=machine.rates.region / work,
            reads=reads,
            fetches=not rows and more is None and has_far_weights(found, machine),
            ahead=data_ahead(found, stages.reduction, tile, lanes, machine),
            beside=more,
            rows=rows,
        )
        if pad is not None:
            yield from copied_operand(pad, machine, cores, near=near, turns=False)
        if stages.weight is not None:
            yield from copied_operand(stages.weight, machine, cores, near=False, turns=True)

    return whole


# fmt: off
TEMPLATES: Final[dict[str, Template]] = {
    "rows": row_schedule,
    "pieces": piecewise_schedule,
    "elementwise": elementwise_schedule,
    "window": window_schedule,
    "byte-tiles": _tiles_of_bytes,
    "dot-by-four": dot_schedule,
    "column-panels": _in_panels,
    "register-tile": _in_tiles,
}
# fmt: on
"""How kernels are scheduled: the first that knows one does."""

PROCESSOR: Final = ScheduleTables(FORMS, TEMPLATES)
"""What default schedules of processors are made of."""


def _together(of: Roles, tile: RegisterTile, machine: Machine, cores: int) -> int:
    """How many tiles of a matrix product go together: their rows stay in a cache, that of a core
    where so many share the rows; 0 for all."""
    if not of.blocked or of.steps is None or any(of.extents[at] > 1 for at in of.around):
        return 0
    row = of.dtype.bytes * tile.steps * of.depth
    tiles = -(-of.extents[of.steps] // tile.steps)
    most = machine.cache(2) // 2 // row
    if tiles <= most or most < 1:
        return tiles // cores if cores > 1 and tiles % cores == 0 else 0
    # A group with empty tiles at its end would have loops whose ends vary: no sums in registers.
    return max([each for each in range(-(-most // 4), most + 1) if tiles % each == 0], default=0)
