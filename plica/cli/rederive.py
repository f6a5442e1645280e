"""Rederivation: whether an artefact's recorded steps lead from a model to the compiled module.

>>> from plica.demo.cnn_script import cnn
>>> from plica.ir.text.script import as_module
>>> from plica.pipeline import lower, record
>>> rederive(as_module(cnn), record(lower(as_module(cnn)))).stages > 0
True
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attrs import evolve, frozen

from plica.codegen.artefact_target import target_of_artefact
from plica.codegen.backend import AnyTarget
from plica.codegen.compilation import Arranged, emitted
from plica.core import CompilerBug
from plica.ir.graph.module import Module
from plica.ir.interpret.value import Array
from plica.ir.passes import Pipeline
from plica.pipeline import contract_of, lower, packs_of, record
from plica.pipeline.compiled import job_for, pipeline_of
from plica.rewrite.derivation import Derivation, at
from plica.runtime.artefact import Artefact
from plica.runtime.error import ArtefactError, Diagnostic
from plica.runtime.record import CompilationRecord
from plica.runtime.store import key_of


@frozen
class Rederived:
    """The number of repeated stages and steps, and how many of these are rules."""

    stages: int
    steps: int
    rules: int
    objects: int = 0  # how many objects were made again, byte for byte
    not_made: str = ""  # why the artefact was not made again as a whole, where it was not


def rederive(
    model: Module, recorded: CompilationRecord, artefact: Artefact | None = None
) -> Rederived:
    """Take the recorded steps again, from the model; an ArtefactError says where they differ.

    With the artefact all of it is made again, too, if the kernels are those of default schedules:
    code, constants, the memory plan, launches and interface.  An artefact may be of any effort.
    """
    target = None if artefact is None else target_of_artefact(artefact)
    pipelines = {effort: pipeline_of(target, effort) for effort in ("default", "fast")}
    steps: list[ArtefactError] = []
    parts: list[ArtefactError] = []
    kernels: list[Rederived] = []
    for pipeline in dict.fromkeys(pipelines.values()):  # of the pipelines one is the right one
        try:
            lowered, rederived = _steps_again(model, recorded, target, pipeline)
        except ArtefactError as error:
            steps.append(error)
            continue
        if target is None or artefact is None:
            return evolve(rederived, not_made="there is no artefact")
        if record(lowered).digests != recorded.digests:
            why = "its kernels have schedules that were tuned or given"
            kernels.append(evolve(rederived, not_made=why))
            continue
        try:
            return _whole_again(lowered, rederived, target, artefact, pipeline)
        except ArtefactError as error:
            parts.append(error)
    if kernels and not parts:
        return kernels[0]
    raise [*parts, *steps][0]


def _steps_again(
    model: Module, recorded: CompilationRecord, target: AnyTarget | None, pipeline: Pipeline
) -> tuple[Arranged[Any, Any], Rederived]:  # Any: as the pipeline makes it
    """The steps of a pipeline, which are those that are recorded."""
    contract = contract_of(recorded.asked)
    lowered = lower(model, contract, packs_of(recorded.packs, contract), target, pipeline=pipeline)
    again = record(lowered)
    _compare("model", recorded.module, again.module)
    known = {rule.name: rule for rule in recorded.rules}
    for rule in again.rules:
        if rule.name in known:
            _compare(f"rule {rule.name}", known[rule.name].digest, rule.digest)
    for number, (theirs, ours) in enumerate(zip(recorded.steps, again.steps, strict=False)):
        if theirs != ours:
            _compare(f"step {number}", " ".join(theirs), " ".join(ours))
    _compare("number of steps", str(len(recorded.steps)), str(len(again.steps)))
    _compare("chain of stages", str(recorded.stages), str(again.stages))
    _compare("result", recorded.result, again.result)
    rules = _taken(lowered.derivation, lowered.final)
    return lowered, Rederived(len(again.stages), len(again.steps), rules)


def _whole_again(
    lowered: Arranged[Any, Any],  # Any: as the pipeline makes it
    found: Rederived,
    target: AnyTarget,
    artefact: Artefact,
    pipeline: Pipeline,
) -> Rederived:
    """All of an artefact, made of the kernels that are recorded."""
    if artefact.interface.donated:
        return evolve(found, not_made="it writes over inputs that its caller gives away")
    threads = getattr(target, "cores", artefact.threads)  # a GPU has none that are counted
    made = emitted(pipeline, lowered, job_for(target, threads=threads))
    _compare_parts(artefact, made)
    if dict(artefact.versions) != dict(made.versions):  # files hold them in another order
        other = ", ".join(" ".join(version) for version in artefact.versions)
        return evolve(found, not_made=f"its code is of other versions: {other}")
    codes = [[key_of(each)[:16] for each in of.objects] for of in (artefact, made)]
    _compare_each("objects of code", *codes)
    return evolve(found, objects=len(made.objects))


def _compare_parts(artefact: Artefact, made: Artefact) -> None:
    """All of an artefact but its code."""
    for what in ("threads", "workspace", "interface", "device"):
        _compare(what, str(getattr(artefact, what)), str(getattr(made, what)))
    _compare_each("constants", *[list(map(_told, each.constants)) for each in (artefact, made)])
    _compare_each("memory plan", artefact.plan, made.plan)
    _compare_each("launches", artefact.launches, made.launches)
    _compare_each("sources", artefact.sources, made.sources)


def _compare_each(what: str, recorded: Sequence[object], again: Sequence[object]) -> None:
    _compare(f"length of the {what}", str(len(recorded)), str(len(again)))
    for number, (one, other) in enumerate(zip(recorded, again, strict=True)):
        _compare(f"entry {number} of the {what}", str(one), str(other))


def _told(of: Array) -> str:
    return f"{of.dtype} {list(of.shape)} {key_of(of.tobytes())[:16]}"


def _taken(derivation: Derivation, final: Module) -> int:
    """The number of rule steps; each is repeated in isolation."""
    count = 0
    for number, step in enumerate(derivation.steps):
        if step.rule.is_pass:
            continue
        count += 1
        if step.rule.at(step.before) is not step.after:
            raise CompilerBug(f"Step {number}: {step.rule.name} does not make what it made.")
    if at(derivation, len(derivation.steps)) is not final:
        raise CompilerBug("The steps of the derivation do not lead to what was compiled.")
    return count


def _compare(what: str, recorded: str, again: str) -> None:
    if recorded != again:
        message = f"The {what} differs when the model is compiled again."
        raise ArtefactError(Diagnostic("bad-artefact", message, None, again, recorded))
