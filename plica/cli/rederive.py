"""Deriving again: whether the steps an artefact records lead from a model to what was compiled.

The model is compiled anew as far as the rules go; what they do must be what was recorded, step for
step.  Then every step of a rule is taken by itself: the rule, alone, must make of the left side
what the record says.

>>> from plica.demo.cnn_script import cnn
>>> from plica.ir.text.script import as_module
>>> from plica.pipeline import lower, record
>>> rederive(as_module(cnn), record(lower(as_module(cnn)))).stages > 0
True
"""

from __future__ import annotations

from attrs import frozen

from plica.codegen.backend import AnyTarget
from plica.core.diagnostic import CompilerBug
from plica.ir.graph.module import Module
from plica.pipeline import assemble, contract_of, lower, packs_of, record
from plica.rewrite.derivation import Derivation, at
from plica.runtime.artefact import Artefact
from plica.runtime.error import ArtefactError, Diagnostic
from plica.runtime.record import CompilationRecord
from plica.runtime.store import key_of


@frozen
class Rederived:
    """How many stages and steps were taken again, and how many of those are rules."""

    stages: int
    steps: int
    rules: int
    objects: int = 0
    """How many objects were made again, byte for byte; none where that cannot be."""


def rederive(
    model: Module,
    recorded: CompilationRecord,
    target: AnyTarget | None = None,
    artefact: Artefact | None = None,
) -> Rederived:
    """Take the recorded steps again, from the model; an ArtefactError says where they differ.

    With the artefact its code is made again, too, if the kernels are those of default schedules.
    """
    contract = contract_of(recorded.asked)
    lowered = lower(model, contract, packs_of(recorded.packs, contract), target)
    again = record(lowered)
    _compare("model", recorded.module, again.module)
    known = {each.name: each for each in recorded.rules}
    for each in again.rules:
        if each.name in known:
            _compare(f"rule {each.name}", known[each.name].digest, each.digest)
    for number, (theirs, ours) in enumerate(zip(recorded.steps, again.steps, strict=False)):
        if theirs != ours:
            _compare(f"step {number}", " ".join(theirs), " ".join(ours))
    _compare("number of steps", str(len(recorded.steps)), str(len(again.steps)))
    _compare("chain of stages", str(recorded.stages), str(again.stages))
    _compare("result", recorded.result, again.result)
    rules = _taken(lowered.derivation, lowered.final)
    objects = 0
    if target is not None and artefact is not None and again.digests == recorded.digests:
        made = assemble(lowered, target, artefact.threads).objects
        _compare("number of objects", str(len(artefact.objects)), str(len(made)))
        for number, (one, other) in enumerate(zip(artefact.objects, made, strict=True)):
            _compare(f"code of object {number}", key_of(one)[:16], key_of(other)[:16])
        objects = len(made)
    return Rederived(len(again.stages), len(again.steps), rules, objects)


def _taken(derivation: Derivation, final: Module) -> int:
    """How many steps are of rules; each, taken by itself, gives what it gave."""
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
        message = f"The {what} is another when the model is compiled again."
        raise ArtefactError(Diagnostic("bad-artefact", message, None, again, recorded))
