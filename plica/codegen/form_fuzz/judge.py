"""Whether forms, templates and lowering keep what stages mean, and who does not.

stages --form--> stages --hoisting--> stages and constants --> kernel --template--> scheduled
kernel --lowering passes--> lowered kernel

Planted mistakes in a form, a trace template and a lowering pass, which fuzzing must find.

>>> sorted(WAYS)
['form', 'pass', 'template']
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import prod
from typing import Final, Literal, TypeAlias

import numpy as np
from attrs import evolve, frozen

from plica.analysis.race import races
from plica.analysis.site import map_of
from plica.analysis.statement import LoweringRefused
from plica.codegen.dot_product import DOTS, TILES
from plica.codegen.lower.passes import lower
from plica.codegen.operation_count import operations
from plica.codegen.plant import planted, with_a_longer_loop
from plica.codegen.subject import CPU, Passes
from plica.core import EvaluationError, Term, map_bottom_up
from plica.ir.contract import DEFAULT_CONTRACT
from plica.ir.interpret.value import Array
from plica.ir.loop import Each, Kernel, Lit, Reduce, Scan, Stages, index, kernel_of
from plica.ir.loop.stages import evaluate_stages
from plica.ir.type import DType
from plica.rewrite.fuzz.judge import CRASHES, crash
from plica.schedule.default import FORMS, Machine
from plica.schedule.default.choose import TEMPLATES, Template, by_template, recorded
from plica.schedule.default.gpu import GPU_FORMS, Gpu
from plica.schedule.default.role import contraction_blocks
from plica.schedule.do import Body, DoBlock, DoBlock as Do, do
from plica.schedule.form import Facts, Form
from plica.schedule.generate.stages import StagesCase, shape_of
from plica.schedule.hoist import constants, hoist
from plica.schedule.primitive import block, loops, parallel
from plica.schedule.problem import ScheduleRefused
from plica.schedule.unlowered import run_unlowered

Level: TypeAlias = Literal["form", "template", "pass"]

_DOTS: Final = {dot.lanes: dot for *_, dot in DOTS}
MACHINES: Final = tuple([
    Machine(bits, registers, cores=cores, dot=_DOTS[bits // 32])
    for bits, registers in ((512, 32), (256, 16), (128, 32)) for cores in (1, 2)
] + [Machine(512, 32, dot=evolve(_DOTS[16], tiles=TILES))])  # fmt: skip
"""Processors with vectors of every width, of one core and of two, and one that multiplies tiles."""

GPUS: Final = (
    Gpu(groups=True),
    Gpu(threads=64, processors=1),
    Gpu(threads=8, warp=8, processors=2),
    Gpu(threads=16, warp=8, processors=1, block=32, shared=8000),
)
"""A GPU, and smaller ones, for which few elements are many."""

ON_GPU: Final = 3  # the number of GPU form candidates considered: tiles of many sizes, all large


MAX_INTERPRETED: Final = 1 << 16  # operations of a launch for threads that is interpreted, at most


class Guilty(AssertionError):
    """Something that is computed otherwise than it was meant: by whom, and how."""

    def __init__(self, level: Level, name: str, form: str, reason: str) -> None:
        super().__init__(f"The {level} {name} {reason}")
        self.level, self.name, self.form, self.reason = level, name, form, reason


@frozen(eq=False)
class FormWay:
    """The forms, templates and passes that stages go through."""

    forms: Sequence[Form] = FORMS
    gpu_forms: Sequence[Form] = GPU_FORMS
    templates: Mapping[str, Template] = TEMPLATES
    passes: Passes = CPU


def judge(
    of: StagesCase, machine: Machine | Gpu, way: FormWay
) -> tuple[Counter[str], Counter[str]]:
    """How often each form and each template applied to a case; raises `Guilty`.

    On a GPU stages are looked at, not schedules; but for forms that write their own launches.
    """
    wanted = np.asarray(evaluate_stages(of.stages, of.arrays))
    formed: Counter[str] = Counter()
    scheduled: Counter[str] = Counter()
    allowed = max(DEFAULT_CONTRACT, of.facts.contract)
    every_form = way.gpu_forms if isinstance(machine, Gpu) else way.forms
    for form in [form for form in every_form if form.contract <= allowed]:
        try:
            found = form.reach(of.stages, of.facts, machine)
            if isinstance(machine, Gpu):
                found = found[:: max(1, len(found) // ON_GPU)]
            every = [each.stages for each in found]
        except CRASHES as error:
            raise Guilty("form", form.name, form.name, f"fails: {crash(error)}") from error
        for stages in every:
            formed[form.name] += 1
            subject = StagesSubject(of, form.name, wanted)
            rest, arrays = subject.held(stages)
            if isinstance(machine, Gpu):
                subject.launched(rest, arrays)
            else:
                scheduled.update(subject.scheduled(rest, arrays, machine, way))
    return formed, scheduled


@frozen(eq=False)
class StagesSubject:
    """A case, the form that was applied to it, and the expected result."""

    case: StagesCase
    form: str
    wanted: Array

    def held(self, made: Stages) -> tuple[Stages, list[Array]]:
        """The remaining stages, and their inputs, if the form is right."""
        of = self.case
        if _kept(made) != _kept(of.stages):
            raise self.guilty("form", self.form, "changes what is read or made")
        try:
            if _is_pure(made):
                self.same("form", self.form, evaluate_stages(made, of.arrays))
            apart = hoist(made, of.facts.constant)
            told = {n: of.arrays[n] for n, known in enumerate(of.facts.constant) if known}
            before = constants(apart, told)
            arrays = [
                np.reshape(of.arrays[n] if isinstance(n, int) else before[n], shape_of(buffer))
                for n, buffer in zip(apart.reads, apart.rest.inputs, strict=True)
            ]
            if _is_pure(apart.rest):
                self.same("form", self.form, evaluate_stages(apart.rest, arrays))
        except CRASHES as error:
            if isinstance(error, Guilty):
                raise
            raise self.guilty("form", self.form, f"fails: {crash(error)}") from error
        return apart.rest, arrays

    def launched(self, rest: Stages, arrays: Sequence[Array]) -> None:
        """Compares launches written by a form with the stages, after barriers are inserted."""
        kernel = kernel_of(rest)
        if _is_pure(rest) or operations(kernel) > MAX_INTERPRETED:
            return
        try:
            lowered = lower(kernel, "gpu")
        except LoweringRefused:  # another candidate is scheduled instead
            return
        for race in races(lowered):
            raise self.guilty("form", self.form, str(race))
        self.same("form", self.form, result_of(lowered, arrays))

    def scheduled(
        self, rest: Stages, arrays: Sequence[Array], machine: Machine, way: FormWay
    ) -> tuple[str, ...]:
        """The template that schedules stages, if there is one and it is right."""
        kernel = kernel_of(rest)
        self.same("form", self.form, result_of(kernel, arrays))
        made, names = kernel, tuple[str, ...]()
        if map_of(kernel).blocks:  # some forms have the loops they should have
            if (found := by_template(kernel, machine, way.templates)) is None:
                return ()
            made, names = self.by_template(kernel, *found), (found[0],)
            for race in races(made):
                raise self.guilty("template", found[0], str(race))
        states = [made]
        for pass_ in way.passes:
            try:
                states.append(pass_.run(states[-1]))
            except CRASHES as error:
                raise self.guilty("pass", pass_.name, f"fails: {crash(error)}") from error
            for race in races(states[-1]):
                raise self.guilty("pass", pass_.name, str(race))
        if self.differs(result_of(states[-1], arrays)) is not None:
            for name in names:
                self.same("template", name, result_of(made, arrays))
            for pass_, state in zip(way.passes, states[1:], strict=True):
                self.same("pass", pass_.name, result_of(state, arrays))
        return names

    def by_template(self, kernel: Kernel, name: str, schedule: Do) -> Kernel:
        """The kernel after the trace of a template."""
        try:
            return recorded(schedule, kernel)[1]
        except ScheduleRefused as error:
            said = error.diagnostics[0].message
            raise self.guilty("template", name, f"has a trace that is refused: {said}") from error
        except CRASHES as error:
            raise self.guilty("template", name, f"fails: {crash(error)}") from error

    def same(self, level: Level, name: str, found: Array | str) -> None:
        if (wrong := self.differs(found)) is not None:
            raise self.guilty(level, name, f"means something else: {wrong}")

    def differs(self, found: Array | str) -> str | None:
        """How numbers differ: to the bit, unless they may be off."""
        if isinstance(found, str):
            return found
        wanted, near = self.wanted, self.case.near
        if found.size != wanted.size:
            return f"it has the shape {found.shape} instead of {wanted.shape}"
        flat = found.reshape(wanted.shape)
        about = float(np.abs(wanted[np.isfinite(wanted)]).max(initial=1)) if near else 0.0
        far = ~((flat == wanted) | (np.isnan(flat) & np.isnan(wanted)))
        if near:
            far &= ~np.isclose(flat, wanted, near, near * about, equal_nan=True)
        if not far.any():
            return None
        at = tuple([int(each) for each in np.argwhere(far)[0]])
        return f"the element {list(at)} is {flat[at]} instead of {wanted[at]}"

    def guilty(self, level: Level, name: str, reason: str) -> Guilty:
        return Guilty(level, name, self.form, reason)


def _kept(of: Stages) -> list[tuple[int, DType]]:
    """The invariants of inputs and the result: their order, sizes and dtypes."""
    return [(prod(shape_of(buffer)), buffer.dtype) for buffer in (*of.inputs, of.result)]


def _is_pure(of: Stages) -> bool:
    """Whether stages have an interpreter: some hold loops that a form made."""
    return all(isinstance(stage, Each | Scan) for stage in of.stages)


def result_of(of: Kernel, arrays: Sequence[Array]) -> Array | str:
    """The last output of a kernel, or why it cannot be computed."""
    try:
        return run_unlowered(of, arrays)[-1]
    except EvaluationError as error:
        return error.diagnostics[0].message


# --- planted mistakes in a form, a trace template and a lowering pass, which fuzzing must find ---


def without_last_term(of: Stages) -> Stages:
    """The stages whose sums leave out the last place of their innermost axis."""

    def shorter(node: Term) -> Term:
        match node:
            case Reduce(combiner, axes, (*before, Lit(size)), body) if size > 1:
                return Reduce(combiner, axes, (*before, index(size - 1)), body)
            case _:
                return node

    return map_bottom_up(shorter, of)


def wrong_form(of: Form) -> Form:
    """The form with a mistake in whatever it makes."""

    def apply(stages: Stages, facts: Facts, machine: object) -> list[Stages]:
        return [without_last_term(each.stages) for each in of.reach(stages, facts, machine)]

    return evolve(of, apply=apply)


def tile_with_shared_lanes(kernel: Kernel, machine: Machine) -> DoBlock | None:
    """The template of register tiles, in which cores then share the lanes of vectors."""
    tile, stages = TEMPLATES["register-tile"](kernel, machine), contraction_blocks(kernel)
    if tile is None or stages is None:
        return None

    @do
    def whole() -> Body:
        yield tile
        around = yield loops((yield block(str(stages.reduction.label))))
        yield parallel(around[-1])

    return whole


WAYS: Final[dict[str, FormWay]] = {
    "form": FormWay(forms=[wrong_form(e) if e.name == "lanes-over-n" else e for e in FORMS]),
    "template": FormWay(templates={**TEMPLATES, "register-tile": tile_with_shared_lanes}),
    "pass": FormWay(passes=planted("partition", with_a_longer_loop)),
}
"""What stages go through, with a mistake in it."""
