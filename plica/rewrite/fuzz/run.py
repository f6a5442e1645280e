"""Fuzzing: random well-typed modules go through stages, and mean afterwards what they meant before.

A module that does not is shrunk by hypothesis, the stage and in a pack the very rule that changed
it is named by bisection, and the two states around it are printed as a test.

>>> from plica.rewrite.packs.algebra import ALGEBRA
>>> from plica.rewrite.contract import exact
>>> fuzz([ALGEBRA.within(exact)], examples=5).finding is None
True
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final, Literal

import attrs
import hypothesis

from plica.core.diagnostic import CompilerBug
from plica.ir.check import check
from plica.ir.infer import infer
from plica.ir.module import Module
from plica.rewrite.contract import Contract, exact
from plica.rewrite.fuzz.case import cases
from plica.rewrite.fuzz.difference import Compiled, Meaning
from plica.rewrite.fuzz.report import as_pytest
from plica.rewrite.fuzz.stage import Stage, after, blame
from plica.rewrite.history import History, begun
from plica.rewrite.pack import Pack
from plica.rewrite.rule import Rule
from plica.runtime.error import PlicaError

CRASHES: Final = (
    PlicaError, CompilerBug, AssertionError, TypeError, ValueError, LookupError, AttributeError,
    ArithmeticError, RecursionError,
)  # fmt: skip
"""What a stage with a mistake in it ends with."""


@attrs.frozen
class Finding:
    """A smallest module that a stage does wrong."""

    kind: Literal["meaning", "crash", "ill-formed", "native"]
    stage: str
    rule: str | None
    reason: str
    pytest: str

    def to_data(self) -> dict[str, Any]:
        return attrs.asdict(self)


@attrs.frozen
class Report:
    """How many cases there were, what happened in them, and the finding if there is one."""

    examples: int
    seed: int
    contract: str
    undefined: int
    rounded: int
    compiled: int
    fired: dict[str, int]
    finding: Finding | None

    def to_data(self) -> dict[str, Any]:
        found = attrs.asdict(self, recurse=False)
        found["finding"] = None if self.finding is None else self.finding.to_data()
        return found


class Wrong(AssertionError):
    """Raised inside hypothesis where a case goes wrong."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.reason)
        self.finding = finding


def fuzz(
    stages: Sequence[Stage],
    examples: int = 200,
    seed: int = 0,
    *,
    contract: Contract = exact,
    native: Compiled | None = None,
    every: int = 0,
    focus: Sequence[Rule] = (),
) -> Report:
    """Modules through the stages; with `native` every so many-th is compiled and run as well.

    The rules of `focus` are tried more often than others.
    """
    counts: Counter[str] = Counter()
    fired: Counter[str] = Counter()
    rules = tuple(rule for stage in stages if isinstance(stage, Pack) for rule in stage)

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=(hypothesis.Phase.generate, hypothesis.Phase.shrink),
        suppress_health_check=list(hypothesis.HealthCheck),
        report_multiple_bugs=False,
        print_blob=False,
        verbosity=hypothesis.Verbosity.quiet,
    )
    @hypothesis.given(cases(rules, focus, finite=exact < contract))
    def one(case: tuple[Module, tuple[Any, ...]]) -> None:
        module, inputs = case
        counts["examples"] += not counts["wrong"]  # what shrinking tries is no further example
        counts["wrong"] += 1
        meaning = Meaning(module, inputs, contract)
        history = _through(stages, module)
        counts["undefined"] += not meaning.defined
        fired.update(step.rule.name for step in history.derivation.steps)
        _compare(meaning, history, stages)
        counts["rounded"] += meaning.rounded
        if native is not None and every and meaning.defined and counts["examples"] % every == 0:
            counts["compiled"] += _compiled(native, meaning, history.module)
        counts["wrong"] -= 1

    finding: Finding | None = None
    try:
        one()
    except Wrong as wrong:
        finding = wrong.finding
    return Report(
        counts["examples"],
        seed,
        str(contract),
        counts["undefined"],
        counts["rounded"],
        counts["compiled"],
        dict(sorted(fired.items())),
        finding,
    )


def _through(stages: Sequence[Stage], module: Module) -> History:
    """The module through the stages; what a stage breaks is found at once."""
    history = begun(module)
    for stage in stages:
        before = history.module
        try:
            history = after(history, stage)
            wrong = [str(each) for each in check(history.module)]
            if infer(history.module) is not history.module:
                wrong.append("the module is not inferred")
        except CRASHES as error:
            reason = f"{type(error).__name__}: {'; '.join(str(error).splitlines())}"
            raise Wrong(_finding("crash", stage.name, reason, before)) from error
        if wrong:
            raise Wrong(_finding("ill-formed", stage.name, wrong[0], before))
    return history


def _finding(
    kind: Literal["crash", "ill-formed", "native"], stage: str, reason: str, module: Module
) -> Finding:
    return Finding(kind, stage, None, reason, f"# {stage}: {reason}\nSOURCE = '''\n{module}'''\n")


def _compare(meaning: Meaning, history: History, stages: Sequence[Stage]) -> None:
    reason = meaning.differs(history.module)
    if reason is None:
        return
    found = blame(history, stages, lambda module: meaning.differs(module) is None)
    name = found.rule or found.stage
    why = Meaning(found.before, meaning.inputs, meaning.contract).differs(found.after) or reason
    text = as_pytest(name, why, (found.before, found.after), meaning.inputs, meaning.contract)
    raise Wrong(Finding("meaning", found.stage, found.rule, why, text))


def _compiled(native: Compiled, meaning: Meaning, module: Module) -> bool:
    """Whether the module could be compiled; then native code must agree with its meaning."""
    reason = meaning.native_differs(module, native)
    if reason:
        raise Wrong(_finding("native", "native", reason, module))
    return reason is None
