"""Processors: which schedule a primitive function gets on one, and the kernel that gives.

>>> from plica.core.name import Name
>>> from plica.ir.graph.expression import Apply, Var
>>> from plica.ir.type.term import tensor
>>> x, w = Var(Name("x"), tensor((8, 32), "f32")), Var(Name("w"), tensor((32, 64), "f32"))
>>> function = Function((), (), (x, w), tensor((8, 64), "f32"), Apply("matmul", (x, w)))
>>> made = on_processor(function, Facts((False, True)), Machine(512, 32))
>>> [str(each.name) for each in made.kernel.params], made.reads[0]
(['x', 'packed', 'out'], 0)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache, partial

from attrs import evolve

from plica.analysis.statement import LoweringRefused
from plica.codegen.dot_product import dot_of
from plica.codegen.lower.candidate import Candidate, PassedOver, ScheduleSteps, StagedGroup
from plica.codegen.lower.passes import LOWERING, LoweredKernel, digest_of, lowered
from plica.codegen.lower.scheduled import (
    ChosenSchedule,
    Scheduled,
    Scheduler,
    TunedBy,
    from_form,
    of_kernel,
    plain,
    untuned,
)
from plica.codegen.target import Target
from plica.core.fold import post_order
from plica.ir.contract import Contract
from plica.ir.graph.expression import Function
from plica.ir.loop.scalar import Select
from plica.ir.loop.stage import Each
from plica.ir.loop.stages import Stages, kernel_of, reductions
from plica.ir.loop.statement import Alloc, Kernel
from plica.ir.type.dim import known
from plica.rewrite.fuse.to_stages import to_stages
from plica.runtime.late import lazy_imports
from plica.schedule.default.machine import Machine
from plica.schedule.form import GENERAL, UNCHANGED, Facts, Formed, ScheduleTables, itself
from plica.schedule.hoist import hoist

with lazy_imports(__name__):  # kernels that are kept were scheduled elsewhere
    from plica.codegen.lower.chunk import sizes_of as row_counts
    from plica.codegen.lower.flatten import flatten
    from plica.codegen.lower.loop_kind import roll
    from plica.codegen.lower.nest import nest, nest_along_rows
    from plica.codegen.lower.open_tile import open_tile
    from plica.codegen.lower.open_tile_nest import tiled
    from plica.codegen.lower.open_window import open_windows
    from plica.codegen.lower.shared import shared
    from plica.codegen.lower.size_abstraction import abstracted
    from plica.codegen.lower.tidy import tidy
    from plica.schedule.collapse import collapsed
    from plica.schedule.default.bilinear import bilinear_form
    from plica.schedule.default.choose import candidates, fallback_schedule, template_schedule
    from plica.schedule.default.processor_form import formed


def machine_of(target: Target) -> Machine:
    """What default schedules ask of a target."""
    caches = tuple([target.cache(level) for level in (1, 2)])
    dot = dot_of(target)
    registers = target.vector_registers - target.waiting_elements
    return Machine(target.vector_bits, registers, caches, target.cores, dot, target.cycle_rates)


def processor(
    machine: Machine | None,
    contract: Contract,
    tuned: TunedBy = untuned,
    tables: ScheduleTables | None = None,
) -> Scheduler:
    """Kernels for a machine, by the forms and templates of its target; plain loops where no machine
    is given."""

    def schedule(function: Function, facts: Facts, chosen: ChosenSchedule | None) -> Scheduled:
        if machine is None:
            return plain(function)
        return on_processor(function, facts, machine, chosen, tables)

    def takes_all(function: Function, facts: Facts) -> bool:
        if machine is None:
            return False
        return _has_open_rows(function, facts, machine)

    looks = machine is not None and machine.dot is not None
    counts = None if machine is None else row_counts
    steps = None if machine is None else processor_steps(machine, tables)
    return Scheduler(schedule, contract, tuned, looks, counts, takes_all, steps=steps)


@lru_cache(maxsize=512)
def on_processor(
    function: Function,
    facts: Facts,
    machine: Machine,
    chosen: ChosenSchedule | None = None,
    tables: ScheduleTables | None = None,
) -> Scheduled:
    """The kernel of a function; what was `chosen` takes the place of what the default would be.

    Of what could be done the first is taken whose template is legal and that can be lowered; after
    all others the stages as they are, by the general template.
    """
    return processor_steps(machine, tables).schedule(function, facts, chosen)


def processor_steps(machine: Machine, tables: ScheduleTables | None = None) -> ScheduleSteps:
    """What a machine makes of groups, step by step."""
    own = None if tables is None else tables.forms
    return ScheduleSteps(
        stages=partial(_staged, machine),
        forms=lambda of: candidates(of.stages, of.facts, machine, own),
        candidates=lambda of, forms: in_turn(forms, of.stages, of.facts, machine, tables),
        lower=lambda _, kernel: lowered_for_processor(kernel),
        plain=partial(_plain, machine),
    )


def _staged(
    machine: Machine,
    steps: ScheduleSteps,
    function: Function,
    facts: Facts,
    chosen: ChosenSchedule | None,
) -> StagedGroup:
    """The stages that forms are asked about; or a kernel: the tuned one, loops for open sizes, or
    those that are soon made."""
    passed: list[str] = []
    if chosen is not None:
        made = lowered_for_processor(chosen.kernel)
        if isinstance(made, LoweredKernel):
            tuned = from_form(function, facts, chosen.form, chosen.trace, chosen.kernel)
            tuned = evolve(tuned, lowered=made)
            return StagedGroup(steps, function, facts, chosen.form, done=tuned)
        passed.append(f"the tuned schedule: {made}")
    told = abstracted(to_stages(function).stages)
    whole = collapsed(told.stages, facts.reassociates, opened=True)
    done: Scheduled | None = None
    if machine.soon and not whole.dims:
        done = without_trace(function, facts, machine)
    elif whole.dims and (tiles := in_open_tiles(function, whole, facts, machine)):
        done = evolve(tiles, passed_over=tuple(passed), given=told.given)
    return StagedGroup(steps, function, facts, whole, told.given, tuple(passed), done)


def _plain(machine: Machine, of: StagedGroup) -> Scheduled:
    """The loops of a group of open sizes, those that their author wrote, and those that stay where
    no trace can be lowered."""
    function, whole = of.function, of.stages
    if not whole.dims:
        return plain(function, machine)
    windows = open_windows(whole, machine, free=of.facts.reassociates)
    return of_kernel(function, windows or nest(whole, of.facts.reassociates, machine))


@lru_cache(maxsize=512)
def _has_open_rows(function: Function, facts: Facts, machine: Machine) -> bool:
    """Whether a function of open sizes is a product that takes any number of rows; tiles of bytes
    by a constant are as good in kernels of some rows."""
    told = abstracted(to_stages(function).stages)
    whole = collapsed(told.stages, facts.reassociates, opened=True)
    tiles = machine.dot is not None and machine.dot.tiles and any(facts.constant)
    names = ("lanes-over-n", *([] if tiles else ["dot-by-four"]))
    return any(formed(whole, facts, machine, name) is not None for name in names)


def by_default(
    whole: Stages, facts: Facts, machine: Machine, lowers: Callable[[Kernel], object] | None = None
) -> Candidate | None:
    """The first of the forms of some stages whose template is legal and that can be lowered, by the
    general template where no other does; None for open sizes and loops that somebody wrote.
    Whether one can be lowered is asked of `lowers`, which gives a text where not; else by lowering
    it."""
    lowers = lowers or lowered_for_processor
    for each in in_turn(candidates(whole, facts, machine), whole, facts, machine):
        if isinstance(each, Candidate) and not isinstance(lowers(each.kernel), str):
            return each
    return None


def in_turn(
    forms: Iterator[Formed],
    of: Stages,
    facts: Facts,
    machine: Machine,
    tables: ScheduleTables | None = None,
) -> Iterator[Candidate | PassedOver]:
    """Forms with their traces; after all of them those whose template was refused, then the stages
    as they are, by the general template, unless plain loops fit them better."""
    without: list[tuple[Formed, Kernel]] = []
    for form in forms:
        begun = kernel_of(hoist(form.stages, facts.constant).rest)
        made = template_schedule(begun, machine, tables, form.templates)
        if made is None or isinstance(made, tuple):
            yield Candidate(form, *(made or (GENERAL, *fallback_schedule(begun, machine))))
        else:
            yield PassedOver(form, str(made))
            without.append((form, begun))
    if of.dims and _is_for_plain_loops(of, machine):
        return
    if all(isinstance(stage, Each) for stage in of.stages):
        without.append(
            (Formed(UNCHANGED, partial(itself, of)), kernel_of(hoist(of, facts.constant).rest))
        )
    for form, begun in without:
        yield Candidate(form, GENERAL, *fallback_schedule(begun, machine), last=True)


def _is_for_plain_loops(of: Stages, machine: Machine) -> bool:
    """Whether stages of open sizes reduce, or choose where lanes are not masked."""
    values = [stage.value for stage in of.stages if isinstance(stage, Each)]
    chooses = any(isinstance(node, Select) for node in post_order(*values))
    return any(map(reductions, values)) or (chooses and not machine.masks)


def without_trace(function: Function, facts: Facts, machine: Machine) -> Scheduled | None:
    """The kernel of a function whose loops are written as those of open sizes are, None where these
    would be slow: nobody has to schedule and lower it, but there is no trace to look at either.
    """
    whole = collapsed(to_stages(function).stages, facts.reassociates, opened=True)
    if (kernel := open_windows(whole, machine, free=facts.reassociates)) is not None:
        return of_kernel(function, flatten(roll(tidy(kernel))))
    if bilinear_form(whole, facts, machine) is not None:
        return None  # its form has a template
    tile = open_tile(whole, facts.constant, machine, facts.reassociates)

    def finish(written: Kernel, soon: bool = True) -> Kernel:
        simple = flatten(roll(tidy(written), soon=soon))
        return shared(simple) if machine.cores > 1 else simple

    if tile is None or not tile.fills():
        rows = nest_along_rows(whole, facts.reassociates, machine)
        return None if rows is None else of_kernel(function, finish(rows, soon=False))

    return in_tiles(function, facts, tile.stages, lambda rest: finish(tiled(tile, rest, machine)))


def in_open_tiles(
    function: Function, whole: Stages, facts: Facts, machine: Machine
) -> Scheduled | None:
    """The kernel of a function of open sizes whose sum is made in tiles, None where there is no
    such sum."""
    tile = open_tile(whole, facts.constant, machine, facts.reassociates)
    if tile is None:
        return None
    return in_tiles(function, facts, tile.stages, lambda rest: tiled(tile, rest, machine))


def in_tiles(
    function: Function, facts: Facts, form: Stages, write: Callable[[Stages], Kernel]
) -> Scheduled:
    """The kernel of a function whose sums are made in tiles, written once constants are packed."""
    whole = to_stages(function)
    apart = hoist(form, facts.constant)
    kernel = write(apart.rest)
    reads = tuple([whole.reads[e] if isinstance(e, int) else e for e in apart.reads])
    return Scheduled(kernel, digest_of(kernel), reads, whole.source, None, apart, whole.reads)


def lowered_for_processor(kernel: Kernel) -> LoweredKernel | str:
    """A scheduled kernel lowered for a processor, or why it cannot be."""
    passes = LOWERING["cpu"].passes
    try:
        made = lowered(kernel, passes)
    except LoweringRefused as refusal:
        return refusal.reason
    own = [each.buffer for each in post_order(made.body) if isinstance(each, Alloc)]
    if any(known(size) is None for buffer in own for size in buffer.shape):
        return "the size of a buffer is not known before the kernel is launched"
    return LoweredKernel(made, passes)
