"""Futures: alternative continuations of a compilation from some step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from attrs import evolve, frozen

from plica.bench.peer import difference
from plica.bench.sample import sample
from plica.codegen.backend import backend_of
from plica.codegen.memory_plan import WorkspacePlan
from plica.codegen.program import kernel_name
from plica.core.digest import digests
from plica.frontend.onnx.origin import OnnxReading
from plica.ir.graph.module import Module
from plica.ir.passes import Pass, Pipeline
from plica.pipeline import pipeline_of
from plica.report.graph_film import film
from plica.report.model_view import facts, launch_rows
from plica.report.study import NO_SCHEDULES, StudiedModel, compiled, examine
from plica.rewrite.derivation import Derivation, DerivationStep, RewriteSweep, Rewritten, at, fork
from plica.rewrite.history import History
from plica.rewrite.pack import Pack
from plica.rewrite.rule import Rule, term_text
from plica.rewrite.rule_pass import Rules, Setting
from plica.runtime.error import Diagnostic, InputError, PlicaError
from plica.runtime.port import Array
from plica.runtime.store import key_of
from plica.runtime.timing import time
from plica.schedule.trace import Trace


def future(
    of: StudiedModel,
    step: int,
    inputs: Mapping[str, Array] | None = None,
    progress: Callable[[str], None] = lambda word: None,
) -> dict[str, Any]:
    """What becomes of a model without a step (counted from 1), as the page shows it."""
    check_step(step, len(of.lowered.derivation.steps))
    title = f"without {of.lowered.derivation.steps[step - 1].rule.name}"
    progress(f"going on {title}")
    try:
        model = gone_on(of, step)
        study = examine(model, inputs)
    except PlicaError as error:
        return {"step": step, "title": title, "refused": error.diagnostics[0].message}
    before = at(of.lowered.derivation, step - 1)
    new = model.lowered.derivation.steps[step - 1 :]
    graph = film(Derivation(before, new))
    return {
        "step": step,
        "title": title,
        "refused": "",
        "facts": facts(study),
        "graph": graph.to_data(),
        "launches": launch_rows(study, graph),
        "seconds": study.run,
    }


def gone_on(of: StudiedModel, step: int, instead: Rule | None = None) -> StudiedModel:
    """The model without a step of its derivation (counted from 1), or with another rule there."""
    derivation = of.lowered.derivation
    check_step(step, len(derivation.steps))
    before = at(derivation, step - 1)
    assert isinstance(before, Module)
    history = History(before, fork(derivation, step - 1))
    if instead is not None:
        replaced = derivation.steps[step - 1].before
        if (after := instead.at(replaced)) is None:
            message = f"The rule {instead.name} does not apply where step {step} is taken."
            found = term_text(replaced)
            raise InputError(Diagnostic("input-unknown", message, None, "its left side", found))
        taken = DerivationStep(instead, replaced, after, (), RewriteSweep("normal"))
        whole = at(Derivation(before, (taken,)), 1)
        history = history.rewritten(Rewritten(whole, (taken,)))
    return _compiled(of, rest_of(_pipeline(of), of, step), history)


def recompiled(of: StudiedModel, edit: Callable[[Pipeline], Pipeline]) -> StudiedModel:
    """The model compiled from the beginning by an edited pipeline."""
    return _compiled(of, edit(_pipeline(of)))


def without_rule(of: StudiedModel, name: str) -> StudiedModel:
    """The model compiled without a rule, or without a pass."""
    if name in _pipeline(of).names:
        return recompiled(of, lambda pipeline: pipeline.without(name))
    return recompiled(of, lambda passes: Pipeline(tuple([without(each, name) for each in passes])))


def with_schedule(of: StudiedModel, kernel: str, trace: Trace) -> StudiedModel:
    """The model with another schedule of one kernel."""
    return _compiled(of, _pipeline(of), schedules={kernel: trace})


def _pipeline(of: StudiedModel) -> Pipeline:
    return pipeline_of(backend_of(of.target).with_threads(of.target, of.threads))


def _compiled(
    of: StudiedModel,
    pipeline: Pipeline,
    history: History | None = None,
    schedules: Mapping[str, Trace] = NO_SCHEDULES,
) -> StudiedModel:
    """A model compiled like another, except for the given options."""
    module = of.lowered.module if history is None else history.module
    return compiled(
        of.name, OnnxReading(module, of.nodes), of.target, threads=of.threads, packs=of.packs,
        contract=of.contract, pipeline=pipeline, history=history, schedules=schedules,
    )  # fmt: skip


@frozen
class FutureFacts:
    """A compiled model in numbers: seconds of a call, sizes in bytes, kernels and digests."""

    seconds: float
    code: int
    constants: int
    workspace: int
    steps: int
    kernels: tuple[tuple[str, str], ...]  # the name of each kernel, and its digest
    digest: str


@frozen
class FutureDifference:
    """A compilation and another future of it; `ratio` above 1 says that the other is slower."""

    first: FutureFacts
    other: FutureFacts
    ratio: float
    output: float  # the greatest difference between their outputs, relative to the greatest number
    warning: str = ""

    @property
    def gone(self) -> tuple[str, ...]:
        """Kernels that the other future has not."""
        return _only(self.first, self.other)

    @property
    def new(self) -> tuple[str, ...]:
        """Kernels that only the other future has."""
        return _only(self.other, self.first)


def _only(of: FutureFacts, other: FutureFacts) -> tuple[str, ...]:
    known = {digest for _, digest in other.kernels}
    return tuple([name for name, digest in of.kernels if digest not in known])


def compared(
    of: StudiedModel, other: StudiedModel, inputs: Mapping[str, Array] | None = None
) -> FutureDifference:
    """Compares two compilations of one model: cost, and numbers, timed alternately."""
    arrays = sample(of.executable.inputs, inputs)
    values = [[np.asarray(y) for y in _outputs(model.executable(*arrays))] for model in (other, of)]
    taken = time(other.executable, *arrays, against=of.executable)
    assert taken.against is not None
    seconds = taken.against.median, taken.median
    first, second = _facts(of, seconds[0]), _facts(other, seconds[1])
    ratio = seconds[1] / seconds[0]
    return FutureDifference(first, second, ratio, difference(*values), str(taken.warning or ""))


def _outputs(result: Any) -> Sequence[Any]:  # Any: arrays
    return result if isinstance(result, tuple) else (result,)


def _facts(of: StudiedModel, seconds: float) -> FutureFacts:
    program, plan = of.lowered.program, of.lowered.plan
    artefact = of.executable.artefact
    names = [kernel_name(number, program) for number in range(len(program.kernels))]
    return FutureFacts(
        seconds,
        sum(map(len, artefact.objects)),
        sum(constant.nbytes for constant in artefact.constants),
        plan.size if isinstance(plan, WorkspacePlan) else 0,
        len(of.lowered.derivation.steps),
        tuple(zip(names, digests(program.kernels), strict=True)),
        key_of("code", *artefact.objects)[:16],
    )


def check_step(step: int, steps: int) -> None:
    """Refuses an invalid step number."""
    if not 1 <= step <= steps:
        message = f"There is no step {step} to go on without."
        expected = f"a number from 1 to {steps}"
        raise InputError(Diagnostic("input-unknown", message, None, expected, str(step)))


def rest_of(pipeline: Pipeline, of: StudiedModel, step: int) -> Pipeline:
    """The pipeline from the pass that took a step on, without the step's rule or pass."""
    rule = of.lowered.derivation.steps[step - 1].rule
    ended = {pass_end.name for pass_end in of.passes if pass_end.steps < step}
    kept = [pass_ for pass_ in pipeline if pass_.name not in ended]
    if rule.is_pass:
        return Pipeline(tuple([pass_ for pass_ in kept if pass_.name != rule.name]))
    return Pipeline(tuple([without(pass_, rule.name) for pass_ in kept]))


def without(each: Pass, name: str) -> Pass:
    """A pass whose packs lack a rule."""
    if not isinstance(each.run, Rules):
        return each
    whole = each.run

    def chosen(setting: Setting) -> list[Pack]:
        return [
            evolve(pack, rules=tuple([rule for rule in pack.rules if rule.name != name]))
            for pack in whole.packs(setting)
        ]

    return evolve(each, run=Rules(chosen, whole.by))
