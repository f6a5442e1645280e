"""Following a derivation by digests alone, without knowing any rule.

>>> from plica.runtime.record import RecordStage, Used
>>> a, b = "a" * 32, "b" * 32
>>> steps, rules = (("fuse", "exact", a, b),), (Used("fuse", "pass", "exact", a),)
>>> good = CompilationRecord(a, "exact", steps, "", b, "exact", (), (RecordStage("fuse", a, b,
...     1),), rules)
>>> list(derivation_problems(good))
[]
>>> list(derivation_problems(replace(good, result=a)))
['The derivation ends with another module than the one that was compiled.']
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from plica.runtime.record import CompilationRecord, RecordStage, Step, Used

__all__ = ["CONTRACTS", "derivation_problems", "replace", "strictness"]

CONTRACTS: Final = ("exact", "signless_zero", "fused", "reassociates")
"""From the strictest on; contracts with a tolerance come after these."""

_DIGEST: Final = re.compile("[0-9a-f]{32}")


def derivation_problems(record: CompilationRecord) -> Iterator[str]:
    """Where a record is no chain of known rules from its source to its result, or breaks its
    contract."""
    if not _DIGEST.fullmatch(record.module) or not _DIGEST.fullmatch(record.result):
        yield "The derivation does not say where it starts, or where it ends."
    if strictness(record.contract) > strictness(record.asked):
        yield f"The contract asked for, {record.asked!r}, does not allow {record.contract!r}."
    rules = {used.name: used for used in record.rules}
    if len(rules) != len(record.rules):
        yield "Two rules of the derivation have one name."
    for rule in record.rules:
        if not _DIGEST.fullmatch(rule.digest):
            yield f"The derivation does not say what the rule {rule.name} is."
    for number, step in enumerate(record.steps):
        yield from _step_problems(number, step, rules, record.contract)
    if unused := {used.name for used in record.rules} - {step[0] for step in record.steps}:
        yield f"The derivation names a rule that no step uses: {min(unused)}."
    yield from _chain_problems(record, rules)


def _step_problems(number: int, step: Step, rules: dict[str, Used], limit: str) -> Iterator[str]:
    name, contract, before, after = step
    if not name or not (_DIGEST.fullmatch(before) and _DIGEST.fullmatch(after)):
        yield f"Step {number} of the derivation is damaged."
    elif name not in rules or rules[name].contract != contract:
        yield f"Step {number} uses {name} ({contract}), which the derivation does not know."
    if strictness(contract) > strictness(limit):
        yield f"Step {number} ({name}) is {contract}, which {limit} does not allow."


def _chain_problems(record: CompilationRecord, rules: dict[str, Used]) -> Iterator[str]:
    """Stages that do not begin where the one before ended, or whose steps are not theirs."""
    here, done = record.module, 0
    for number, stage in enumerate(record.stages):
        if stage.before != here:
            yield f"Stage {number} ({stage.name}) begins with another module than was there."
        here = stage.after
        own = record.steps[done : done + stage.steps]
        done += stage.steps
        if not _fits(stage, own, rules):
            yield f"The steps of stage {number} ({stage.name}) are not its own."
    if here != record.result:
        yield "The derivation ends with another module than the one that was compiled."
    if done != len(record.steps):
        yield f"The stages have {done} steps, and the derivation {len(record.steps)}."


def _fits(stage: RecordStage, steps: tuple[Step, ...], rules: dict[str, Used]) -> bool:
    """Whether a stage is its one step, a pass, or consists of steps that are none."""
    kinds = [rules[name].kind if name in rules else "" for name, _, _, _ in steps]
    if kinds == ["pass"]:
        ((name, _, before, after),) = steps
        return (stage.name, stage.before, stage.after) == (name, before, after)
    return bool(steps) and "pass" not in kinds and stage.before != stage.after


def strictness(contract: str) -> tuple[int, float]:
    """How much a contract allows, as something that can be compared.

    >>> strictness("exact") < strictness("approx(1e-06)") < strictness("approx(rel=1e-4)")
    True
    """
    if contract in CONTRACTS:
        return CONTRACTS.index(contract), 0.0
    match = re.fullmatch(r"approx\((?:rel=)?([0-9.e+-]+)\)", contract)
    return (len(CONTRACTS), float(match[1])) if match else (len(CONTRACTS) + 1, 0.0)
