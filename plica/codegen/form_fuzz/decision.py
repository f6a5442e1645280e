"""Fuzzing of decisions: default traces of random stages, with other numbers than they decided.

    stages --form--> stages --template--> trace --change some numbers--> trace --replay--> kernel

>>> fuzz_decisions(examples=1).finding is None
True
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import Any, Final, TypeAlias

import attrs
import numpy as np

from plica.analysis.race import races
from plica.analysis.site import map_of
from plica.analysis.statement import LoweringRefused
from plica.codegen.form_fuzz.judge import MAX_INTERPRETED, StagesSubject, result_of
from plica.codegen.form_fuzz.run import Drawn, kinds
from plica.codegen.lower.passes import LOWERING
from plica.codegen.operation_count import operations
from plica.core import field_names
from plica.ir.interpret.value import Array
from plica.ir.loop.stages import Stages, evaluate_stages, kernel_of
from plica.ir.loop.statement import Kernel
from plica.ir.passes import Pass
from plica.rewrite.fuzz.driver import ByStrategy, Campaign, Say, Skipped, Tally
from plica.rewrite.fuzz.judge import CRASHES, crash
from plica.rewrite.fuzz.report import FuzzReport
from plica.schedule.default import FORMS, Machine
from plica.schedule.default.choose import TEMPLATES, by_template, recorded
from plica.schedule.default.gpu import GPU_FORMS, Gpu
from plica.schedule.default.gpu.choose import template_of
from plica.schedule.form import Form, Formed
from plica.schedule.fuzz import TraceFinding, blamed, numbered
from plica.schedule.generate.material import KernelCase
from plica.schedule.problem import ScheduleRefused
from plica.schedule.replay import scheduled
from plica.schedule.trace import Step, Trace

CHANGES: Final = 4  # changed traces of each default trace
NUMBERS: Final = 3  # numbers that are changed at once, at most
MAX_TRIES: Final = 8  # how many cases are drawn for one that has a trace
LARGEST_FACTOR: Final = 64

DECIDED: Final = frozenset(
    ("factor", "factors", "lengths", "multiple", "offset", "padding", "value")
)
"""Fields that hold decisions; other numbers identify loops or blocks."""

PLACES: Final = frozenset((("compute_at", "index"), ("reverse_compute_at", "index")))
"""Fields, by instruction, that hold positions."""

COUNTERS: Final = {"templates": (), "taken": (), "refused": ()}

Site: TypeAlias = tuple[int, str, tuple[int, ...]]
"""A number of a trace: the step, the field (empty for its decision), and the places inside."""


@attrs.frozen(eq=False)
class TracedCase:
    """A case in one form: a kernel of blocks, its default trace, and who lowers it."""

    subject: StagesSubject
    form: str
    template: str
    kernel: Kernel
    trace: Trace
    arrays: Sequence[Array]
    passes: tuple[Pass, ...]


def fuzz_decisions(
    examples: int = 200, seed: int = 0, *, first: int = 0, say: Say | None = None
) -> FuzzReport[TraceFinding]:
    """Changes the default traces of a number of cases, cycling through the kinds of stages, until
    the first finding."""
    every = kinds()
    names = tuple(every)

    def oracle(drawn: Drawn, number: int, tally: Tally) -> TraceFinding | Skipped | None:
        random = Random(f"{seed}/{number}")
        with np.errstate(all="ignore"):
            if (traced := _traced(drawn, random)) is None:
                return Skipped("no trace")
            for _ in range(CHANGES):
                trace, kinds_ = changed(traced.trace, random)
                outcome = judged(traced, trace, kinds_)
                if isinstance(outcome, TraceFinding):
                    return outcome
                if outcome:
                    tally["refused"][outcome] += 1
                else:
                    tally["taken"].update(kinds_)
        tally["templates"][traced.template] += 1
        return None

    generator = ByStrategy(lambda number: every[names[number % len(names)]])
    campaign = Campaign(TraceFinding, generator, oracle, MAX_TRIES, counters=COUNTERS)
    return campaign.run(examples, seed, first=first, say=say)


# --- a default trace ------------------------------------------------------------------------------


def _traced(drawn: Drawn, random: Random) -> TracedCase | None:
    """A default trace of a case, or None if none of its forms has one."""
    of, machine = drawn
    forms: list[Form] = [*(GPU_FORMS if isinstance(machine, Gpu) else FORMS)]
    random.shuffle(forms)
    wanted = np.asarray(evaluate_stages(of.stages, of.arrays))
    for form in forms:
        found = form.reach(of.stages, of.facts, machine)
        if not found:
            continue
        made: Formed = random.choice(found)
        subject = StagesSubject(of, form.name, wanted)
        rest, arrays = subject.held(made.stages)
        if (traced := _scheduled(rest, machine, form.name)) is not None:
            template, kernel, trace, passes = traced
            return TracedCase(subject, form.name, template, kernel, trace, arrays, passes)
    return None


def _scheduled(
    rest: Stages, machine: Machine | Gpu, form: str
) -> tuple[str, Kernel, Trace, tuple[Pass, ...]] | None:
    """The template of a form, where its trace begins, the trace, and what lowers its kernel."""
    kernel = kernel_of(rest)
    if not map_of(kernel).blocks:
        return None
    if isinstance(machine, Gpu):
        if operations(kernel) > MAX_INTERPRETED:
            return None
        made = template_of(form)(rest, machine)
        if made is None or not made[0].steps:
            return None
        return form, kernel, made[0], LOWERING["gpu"].passes
    if (found := by_template(kernel, machine, TEMPLATES)) is None:
        return None
    try:
        trace, _ = recorded(found[1], kernel)
    except ScheduleRefused:  # `plica fuzz form` tells of those
        return None
    return found[0], kernel, trace, LOWERING["cpu"].passes


# --- other numbers --------------------------------------------------------------------------------


def changed(trace: Trace, random: Random) -> tuple[Trace, tuple[str, ...]]:
    """The trace with one number or some changed, and the kinds of the steps that hold them."""
    sites = list(_sites(trace))
    if not sites:
        return trace, ()
    steps = list(trace.steps)
    some = random.sample(sites, min(len(sites), random.randint(1, NUMBERS)))
    for number, field, places in some:
        step = steps[number]
        if not field:
            steps[number] = Step(step.instruction, _with(step.decision, places, random))
            continue
        names = field_names(type(step.instruction))
        values = {name: getattr(step.instruction, name) for name in names}
        values[field] = _with(values[field], places, random)
        steps[number] = Step(type(step.instruction)(**values), step.decision)
    kinds_ = tuple(sorted({steps[number].instruction.kind for number, _, _ in some}))
    return Trace(tuple(steps)), kinds_


def _sites(trace: Trace) -> Iterator[Site]:
    for number, step in enumerate(trace.steps):
        for field in field_names(type(step.instruction)):
            if field not in DECIDED and (step.instruction.kind, field) not in PLACES:
                continue
            value = getattr(step.instruction, field)
            yield from [(number, field, places) for places in _places(value)]
        yield from [(number, "", places) for places in _places(step.decision)]


def _places(value: object) -> Iterator[tuple[int, ...]]:
    """Where numbers are in a value, which may be nested tuples."""
    if type(value) is int:
        yield ()
    elif isinstance(value, tuple):
        for at, each in enumerate(value):
            yield from [(at, *rest) for rest in _places(each)]


def _with(value: Any, places: tuple[int, ...], random: Random) -> Any:  # Any: nested tuples
    """A value with another number at a place."""
    if not places:
        near = (value - 1, value + 1, value * 2, value // 2, value * 3, 1, 2, 3, 4, 8, 0)
        usable = [each for each in near if each != value and 0 <= each <= LARGEST_FACTOR]
        return random.choice(usable)
    at = places[0]
    return (*value[:at], _with(value[at], places[1:], random), *value[at + 1 :])


# --- what comes of it -----------------------------------------------------------------------------


def judged(of: TracedCase, trace: Trace, kinds_: Sequence[str]) -> TraceFinding | str:
    """Why a changed trace is refused, empty if it preserves the meaning, or the error."""
    by = ", ".join(kinds_)
    try:
        kernel = scheduled(trace, of.kernel)
    except ScheduleRefused as refused:
        return refused.problem.precondition
    except CRASHES as error:
        return _finding("crash", by, crash(error), trace)
    if operations(kernel) > operations(of.kernel) + MAX_INTERPRETED:
        return "too-large-to-interpret"
    if (wrong := _wrong(of, kernel)) is not None:
        case = KernelCase(of.kernel, {}, tuple(of.arrays))
        return blamed(case, trace) or _finding("meaning", by, wrong, trace)
    state = kernel
    for pass_ in of.passes:
        try:
            after = pass_.run(state)
        except LoweringRefused:
            return "lowering"
        except CRASHES as error:
            return _finding("crash", f"the pass {pass_.name}", crash(error), trace)
        for race in races(after):
            return _finding("meaning", f"the pass {pass_.name}", str(race), trace)
        state = after
    if (wrong := of.subject.differs(result_of(state, of.arrays))) is not None:
        return _finding("meaning", f"lowering after {by}", wrong, trace)
    return ""


def _wrong(of: TracedCase, kernel: Kernel) -> str | None:
    """The error of a scheduled kernel, or None."""
    for race in races(kernel):
        return str(race)
    return of.subject.differs(result_of(kernel, of.arrays))


def _finding(kind: str, step: str, reason: str, trace: Trace) -> TraceFinding:
    return TraceFinding(kind, step, reason, trace.to_json(), parts=numbered(trace.steps))
