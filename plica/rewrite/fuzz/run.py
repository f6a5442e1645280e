"""Fuzzing: random well-typed modules go through stages, and mean afterwards what they meant before.

>>> from plica.rewrite.packs.algebra import ALGEBRA
>>> from plica.ir.contract import exact
>>> fuzz([ALGEBRA.within(exact)], examples=5).finding is None
True

Stages: the transformations applied to a module in sequence, so that failures can be attributed.

>>> from plica.rewrite.graph import find_pass
>>> from plica.rewrite.packs.algebra import ALGEBRA
>>> [each.name for each in (find_pass("to-anf"), ALGEBRA)]
['to-anf', 'algebra']
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import attrs
from hypothesis.strategies import SearchStrategy

from plica.core import CompilerBug, Term
from plica.ir.contract import Contract, exact
from plica.ir.driver import PassBroke
from plica.ir.graph import Expr, Module
from plica.ir.graph.check import check
from plica.ir.passes import Pass
from plica.ir.type import infer
from plica.rewrite.check.report import as_comment, text, unlike_test
from plica.rewrite.derivation import first_bad
from plica.rewrite.fuzz.case import Case, Programs, cases, made_by, of_programs
from plica.rewrite.fuzz.difference import Compiled, Meaning
from plica.rewrite.fuzz.driver import ByStrategy, Campaign, Say, Tally, Wrong
from plica.rewrite.fuzz.judge import CRASHES, crash
from plica.rewrite.fuzz.report import CASES, Finding, FuzzReport
from plica.rewrite.history import History, begun
from plica.rewrite.make import tabled
from plica.rewrite.pack import Pack
from plica.rewrite.rule import Rule
from plica.rewrite.rule_pass import Setting
from plica.runtime.error import UnsupportedError

Oracle: TypeAlias = Callable[[Any, Module, Any], "str | None"]
"""From a module, its rewritten form, and inputs, to an error, or None."""


@attrs.frozen
class StageFinding(Finding):
    """A smallest module that a stage does wrong, and the rule of a pack that is guilty."""

    stage: str = ""
    rule: str | None = None


def fuzz(
    stages: Sequence[Stage],
    examples: int = 200,
    seed: int = 0,
    *,
    first: int = 0,
    contract: Contract = exact,
    native: Compiled | None = None,
    every: int = 0,
    focus: Sequence[Rule | Expr] = (),
    whole: bool = False,
    programs: Programs | None = None,
    oracle: Oracle | None = None,
    say: Say | None = None,
) -> FuzzReport[StageFinding]:
    """Runs modules through the stages; with `native`, every such module is compiled and run as
    well.

    The rules and patterns in `focus`, and those that a pass among the stages looks for, are tried
    first, and then in every other module; with `whole`, modules include closures, data and
    recursion. `programs` generates custom modules from a `random.Random`; an `oracle` judges a
    rewritten module in addition to the interpreter. `say` is called for each module.
    """
    rules = tuple(rule for stage in stages if isinstance(stage, Pack) for rule in stage)
    patterns = [term for stage in stages if isinstance(stage, Pass) for term in stage.looks_for]
    sought = [each if isinstance(each, Rule) else _sought(each) for each in (*focus, *patterns)]

    def drawn(number: int) -> SearchStrategy[Case]:
        if programs is not None:
            return made_by(programs)
        return cases(rules, _turn(of_programs(sought), number), exact < contract, whole)

    def judge(case: Case, number: int, tally: Tally) -> StageFinding | None:
        module, inputs = case
        meaning = Meaning(module, inputs, contract)
        compiled = False
        history, refused = _through(stages, module)
        _compare(meaning, history, stages)
        if oracle is not None:
            _ask(oracle, meaning, history, stages)
        if native is not None and every and meaning.defined and number % every == every - 1:
            compiled = _compiled(native, meaning, history.module)
        tally[CASES].update(
            undefined=not meaning.defined, rounded=meaning.rounded, compiled=compiled,
            refused=refused,
        )  # fmt: skip
        tally["fired"].update(step.rule.name for step in history.derivation.steps)
        return None

    campaign = Campaign(
        StageFinding,
        ByStrategy(drawn),
        judge,
        counters={CASES: ("undefined", "rounded", "compiled", "refused"), "fired": ()},
        settings={"contract": str(contract)},
    )
    return campaign.run(examples, seed, first=first, say=say)


def _sought(pattern: Term) -> Rule:
    """A requested pattern as the left side of an identity rule."""
    return tabled("sought", pattern, lambda m: None)


def _turn(focus: Sequence[Rule], number: int) -> Rule | None:
    """The rule to try next, or None for a random module."""
    if number < len(focus):
        return focus[number]
    return focus[number // 2 % len(focus)] if focus and number % 2 == 0 else None


def _through(stages: Sequence[Stage], module: Module) -> tuple[History, int]:
    """The module through the stages, and how many refused it; what one breaks is found at once.

    A pass may refuse a module, as defunctionalize does for functions whose types have dims of an
    enclosing function; the module continues without it. Rules may not.
    """
    history, refused = begun(module), 0
    for stage in stages:
        before = history.module
        try:
            history = after(history, stage)
            if history.module is before:
                continue
            wrong = [str(diagnostic) for diagnostic in check(history.module)]
            if infer(history.module) is not history.module:
                wrong.append("the module is not inferred")
        except UnsupportedError as error:
            if isinstance(stage, Pack):
                raise _wrong("crash", stage.name, crash(error), before) from error
            refused += 1
            continue
        except CRASHES as error:
            raise _wrong("crash", stage.name, crash(error), before) from error
        if wrong:
            raise _wrong("ill-formed", stage.name, wrong[0], before)
    return history, refused


def _wrong(kind: str, stage: str, reason: str, module: Module, rule: str | None = None) -> Wrong:
    """The finding whose module shows it by itself."""
    words = as_comment(f"{rule or stage}: {reason}")
    source = f'{words}\nSOURCE = """\n{text(module)}\n"""\n'
    return Wrong(StageFinding(kind, rule or stage, reason, source, stage=stage, rule=rule))


def _compare(meaning: Meaning, history: History, stages: Sequence[Stage]) -> None:
    if (reason := meaning.differs(history.module)) is None:
        return
    found = blame(history, stages, lambda module: meaning.differs(module) is None)
    name = found.rule or found.stage
    why = Meaning(found.before, meaning.inputs, meaning.contract).differs(found.after) or reason
    test = as_pytest(name, why, (found.before, found.after), meaning.inputs, meaning.contract)
    raise Wrong(StageFinding("meaning", name, why, test, stage=found.stage, rule=found.rule))


def _ask(oracle: Oracle, meaning: Meaning, history: History, stages: Sequence[Stage]) -> None:
    """A custom oracle's error, with the step to blame."""

    def wrong(module: Module) -> str | None:
        return oracle(history.derivation.source, module, meaning.inputs)

    reason = wrong(history.module)
    if reason is None or not history.derivation.steps:
        return
    found = blame(history, stages, lambda module: wrong(module) is None)
    raise _wrong("oracle", found.stage, wrong(found.after) or reason, found.before, found.rule)


def _compiled(native: Compiled, meaning: Meaning, module: Module) -> bool:
    """Whether the module could be compiled; then native code must agree with its meaning."""
    try:
        reason = meaning.native_differs(module, native)
    except PassBroke as error:
        raise _wrong("ill-formed", error.guilty, str(error), module) from error
    except CRASHES as error:
        raise _wrong("native", "native", crash(error), module) from error
    if reason:
        raise _wrong("native", "native", reason, module)
    return reason is None


def as_pytest(
    name: str, reason: str, pair: tuple[Module, Module], inputs: tuple[Any, ...], under: Contract
) -> str:
    """A test that fails as long as the two modules differ: the states around the wrong step."""
    return unlike_test(
        name, reason, dict(zip(("BEFORE", "AFTER"), pair, strict=True)), inputs, under
    )


# --- stages ------------------------------------------------------------------------------------


Stage: TypeAlias = Pass | Pack


@attrs.frozen(eq=False)
class Blame:
    """What changed the meaning: a stage, in a pack one use of a rule, and the modules around it."""

    stage: str
    rule: str | None
    before: Module
    after: Module


def after(history: History, stage: Stage) -> History:
    """The history after one more stage."""
    if isinstance(stage, Pack):
        return history.under(stage)
    if stage.kind == "rules":
        made: History = stage.run(history, Setting(exact, ()))
        return made
    return history.through(stage)


def blame(history: History, stages: Sequence[Stage], good: Callable[[Module], bool]) -> Blame:
    """The step of the history after which `good` fails."""
    if (bad := first_bad(history.derivation, lambda term: good(_module(term)))) is None:
        raise CompilerBug("A history that went wrong is right at its end.")
    before, changed = _module(bad.before), _module(bad.after)
    name = bad.step.rule.name
    if bad.step.rule.is_pass:
        return Blame(name, None, before, changed)
    owners = [
        stage.name
        for stage in stages
        if isinstance(stage, Pack) and any(bad.step.rule is rule for rule in stage)
    ]
    owner = owners[0] if owners else "a pass of rules"
    return Blame(owner, name, before, changed)


def _module(term: Term) -> Module:
    """A state of the history as something to run: in the middle of a sweep it lacks types."""
    assert isinstance(term, Module)  # no rule speaks of modules
    return infer(term)
