"""Futures: a derivation forked at a step and gone on without it, compiled and run beside the first.

A step of a rule is left out by going on, from the state before it, with pipelines whose packs lack
that rule; a step of a pass by a pipeline that lacks the pass.  What was done before the step stays
done.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from attrs import evolve

from plica.codegen.backend import backend_of
from plica.frontend.onnx.origin import OnnxReading
from plica.ir.graph.module import Module
from plica.ir.passes import Pass, Pipeline
from plica.pipeline import pipeline_of
from plica.report.graph_film import film
from plica.report.model_view import facts, launch_rows
from plica.report.study import StudiedModel, compiled, examine
from plica.rewrite.derivation import Derivation, at, fork
from plica.rewrite.history import History
from plica.rewrite.pack import Pack
from plica.rewrite.rule_pass import Rules, Setting
from plica.runtime.error import Diagnostic, InputError, PlicaError
from plica.runtime.port import Array


def future(
    of: StudiedModel,
    step: int,
    inputs: Mapping[str, Array] | None = None,
    progress: Callable[[str], None] = lambda word: None,
) -> dict[str, Any]:
    """What becomes of a model without a step (counted from 1), as the page shows it."""
    derivation = of.lowered.derivation
    check_step(step, len(derivation.steps))
    rule = derivation.steps[step - 1].rule
    title = f"without {rule.name}"
    progress(f"going on {title}")
    before = at(derivation, step - 1)
    assert isinstance(before, Module)
    begun = History(before, fork(derivation, step - 1))
    seen = backend_of(of.target).with_threads(of.target, of.threads)
    try:
        pipeline = rest_of(pipeline_of(seen), of, step)
        made = compiled(of.name, OnnxReading(before, of.nodes), of.target, threads=of.threads,
                        contract=of.contract, pipeline=pipeline, history=begun)  # fmt: skip
        study = examine(made, inputs)
    except PlicaError as error:
        return {"step": step, "title": title, "refused": error.diagnostics[0].message}
    new = made.lowered.derivation.steps[step - 1 :]
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


def check_step(step: int, steps: int) -> None:
    """Refuse a step that there is not."""
    if not 1 <= step <= steps:
        message = f"There is no step {step} to go on without."
        expected = f"a number from 1 to {steps}"
        raise InputError(Diagnostic("input-unknown", message, None, expected, str(step)))


def rest_of(pipeline: Pipeline, of: StudiedModel, step: int) -> Pipeline:
    """The pipeline from the pass that took a step on, without the step's rule or pass."""
    rule = of.lowered.derivation.steps[step - 1].rule
    ended = {each.name for each in of.passes if each.steps < step}
    kept = [each for each in pipeline if each.name not in ended]
    if rule.is_pass:
        return Pipeline(tuple([each for each in kept if each.name != rule.name]))
    return Pipeline(tuple([without(each, rule.name) for each in kept]))


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
