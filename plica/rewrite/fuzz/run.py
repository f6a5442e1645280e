"""Fuzzing: random well-typed modules go through stages, and mean afterwards what they meant before.

A module that does not is shrunk by hypothesis, the stage and in a pack the very rule that changed
it is named by bisection, and the two states around it are printed as a test.

Each module is made from the seed and its own number: fewer examples are the first of more, and of
the rules that somebody asks about each is tried once before anything is tried twice.

>>> from plica.rewrite.packs.algebra import ALGEBRA
>>> from plica.ir.contract import exact
>>> fuzz([ALGEBRA.within(exact)], examples=5).finding is None
True
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, Literal, TypeAlias

import attrs

from plica.core.diagnostic import CompilerBug
from plica.core.term import Term
from plica.ir.contract import Contract, exact
from plica.ir.driver import PassBroke
from plica.ir.graph.check import check
from plica.ir.graph.expression import Expr
from plica.ir.graph.module import Module
from plica.ir.passes import Pass
from plica.ir.type.infer import infer
from plica.rewrite.check.report import as_comment, text
from plica.rewrite.fuzz.case import Case, Programs, cases, made_by, of_programs
from plica.rewrite.fuzz.difference import Compiled, Meaning
from plica.rewrite.fuzz.driver import ENDLESS, TOO_LONG, campaign, one_case
from plica.rewrite.fuzz.report import as_pytest
from plica.rewrite.fuzz.stage import Stage, after, blame
from plica.rewrite.history import History, begun
from plica.rewrite.make import tabled
from plica.rewrite.pack import Pack
from plica.rewrite.rule import Rule
from plica.runtime.error import PlicaError, UnsupportedError

CRASHES: Final = (
    PlicaError, CompilerBug, AssertionError, TypeError, ValueError, LookupError, AttributeError,
    ArithmeticError, RecursionError,
)  # fmt: skip
"""What a stage with a mistake in it ends with."""


Oracle: TypeAlias = Callable[[Any, Module, Any], "str | None"]
"""From a module, what was made of it, and inputs, to why that is wrong; None where it is right."""


@attrs.frozen
class StageFinding:
    """A smallest module that a stage does wrong."""

    kind: Literal["meaning", "crash", "ill-formed", "native", "endless", "oracle"]
    stage: str
    rule: str | None
    reason: str
    pytest: str

    def __str__(self) -> str:
        return f"{self.rule or self.stage}: {self.reason}\n\n{self.pytest}"

    def to_data(self) -> dict[str, Any]:
        return attrs.asdict(self)


@attrs.frozen
class GraphFuzzReport:
    """How many cases there were, what happened in them, and the finding if there is one."""

    examples: int
    seed: int
    contract: str
    undefined: int
    rounded: int
    compiled: int
    refused: int
    fired: dict[str, int]
    finding: StageFinding | None

    def to_data(self) -> dict[str, Any]:
        found = attrs.asdict(self, recurse=False)
        found["finding"] = None if self.finding is None else self.finding.to_data()
        return found


class WrongCase(AssertionError):
    """Raised inside hypothesis where a case goes wrong."""

    def __init__(self, finding: StageFinding) -> None:
        super().__init__(finding.reason)
        self.finding = finding


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
    say: Callable[[str], None] | None = None,
) -> GraphFuzzReport:
    """Modules through the stages; with `native` every so many-th is compiled and run as well.

    The rules and patterns of `focus`, and those that a pass among the stages looks for, are tried
    first, one after another, and then in every other module; where modules are of the `whole`
    language, all have closures, data or recursion to choose from.
    `programs` makes modules of somebody's own, from a `random.Random`; an `oracle` says why a
    module that was made of another is wrong, besides what the interpreter says.
    `say` is told of each module as its turn comes.
    """
    counts: Counter[str] = Counter()
    fired: Counter[str] = Counter()
    rules = tuple(rule for stage in stages if isinstance(stage, Pack) for rule in stage)
    patterns = [each for stage in stages if isinstance(stage, Pass) for each in stage.looks_for]
    sought = [each if isinstance(each, Rule) else _sought(each) for each in (*focus, *patterns)]

    def judged(number: int, case: Case, first: bool) -> None:
        module, inputs = case
        meaning = Meaning(module, inputs, contract)
        history, refused = _through(stages, module)
        _compare(meaning, history, stages)
        if oracle is not None:
            _ask(oracle, meaning, history, stages)
        compiled = 0
        if native is not None and every and meaning.defined and number % every == every - 1:
            compiled = _compiled(native, meaning, history.module)
        if first:  # what shrinking tries is no further example
            counts["undefined"] += not meaning.defined
            counts["rounded"] += meaning.rounded
            counts["compiled"] += compiled
            counts["refused"] += refused
            fired.update(step.rule.name for step in history.derivation.steps)

    def one(number: int) -> StageFinding | None:
        wanted = _turn(of_programs(sought), number)
        drawn = cases(rules, wanted, exact < contract, whole)
        drawn = drawn if programs is None else made_by(programs)
        try:
            one_case(partial(judged, number), drawn, seed, number, WrongCase)
        except WrongCase as wrong:
            return wrong.finding
        return None

    done = campaign(one, examples, hangs=_endless, first=first, say=say)
    return GraphFuzzReport(
        done.ran,
        seed,
        str(contract),
        counts["undefined"],
        counts["rounded"],
        counts["compiled"],
        counts["refused"],
        dict(sorted(fired.items())),
        done.finding,
    )


def _endless(number: int) -> StageFinding:
    return StageFinding("endless", ENDLESS, None, f"case {number}: {TOO_LONG}", "")


def _sought(pattern: Term) -> Rule:
    """A pattern that somebody looks for, as the left side of a rule that changes nothing."""
    return tabled("sought", pattern, lambda m: None)


def _turn(focus: Sequence[Rule], number: int) -> Rule | None:
    """The rule whose turn it is; None for whatever comes."""
    if number < len(focus):
        return focus[number]
    return focus[number // 2 % len(focus)] if focus and number % 2 == 0 else None


def _through(stages: Sequence[Stage], module: Module) -> tuple[History, int]:
    """The module through the stages, and how many refused it; what one breaks is found at once.

    A pass may say that it has no form for a module, as defunctionalize does of functions whose
    types have dims of the function around them; the module goes on without it.  Rules may not.
    """
    history, refused = begun(module), 0
    for stage in stages:
        before = history.module
        try:
            history = after(history, stage)
            if history.module is before:
                continue
            wrong = [str(each) for each in check(history.module)]
            if infer(history.module) is not history.module:
                wrong.append("the module is not inferred")
        except UnsupportedError as error:
            if isinstance(stage, Pack):
                raise WrongCase(_crash(stage, error, before)) from error
            refused += 1
            continue
        except CRASHES as error:
            raise WrongCase(_crash(stage, error, before)) from error
        if wrong:
            raise WrongCase(_finding("ill-formed", stage.name, wrong[0], before))
    return history, refused


def _crash(stage: Stage, error: Exception, before: Module) -> StageFinding:
    reason = f"{type(error).__name__}: {'; '.join(str(error).splitlines())}"
    return _finding("crash", stage.name, reason, before)


def _finding(
    kind: Literal["crash", "ill-formed", "native", "oracle"],
    stage: str,
    reason: str,
    module: Module,
) -> StageFinding:
    words = as_comment(f"{stage}: {reason}")
    return StageFinding(kind, stage, None, reason, f'{words}\nSOURCE = """\n{text(module)}\n"""\n')


def _compare(meaning: Meaning, history: History, stages: Sequence[Stage]) -> None:
    if (reason := meaning.differs(history.module)) is None:
        return
    found = blame(history, stages, lambda module: meaning.differs(module) is None)
    name = found.rule or found.stage
    why = Meaning(found.before, meaning.inputs, meaning.contract).differs(found.after) or reason
    text = as_pytest(name, why, (found.before, found.after), meaning.inputs, meaning.contract)
    raise WrongCase(StageFinding("meaning", found.stage, found.rule, why, text))


def _ask(oracle: Oracle, meaning: Meaning, history: History, stages: Sequence[Stage]) -> None:
    """What somebody's own oracle says of the result, with the step that is to blame."""

    def wrong(module: Module) -> str | None:
        return oracle(history.derivation.source, module, meaning.inputs)

    reason = wrong(history.module)
    if reason is None or not history.derivation.steps:
        return
    found = blame(history, stages, lambda module: wrong(module) is None)
    made = _finding("oracle", found.rule or found.stage, wrong(found.after) or reason, found.before)
    raise WrongCase(attrs.evolve(made, stage=found.stage, rule=found.rule))


def _compiled(native: Compiled, meaning: Meaning, module: Module) -> bool:
    """Whether the module could be compiled; then native code must agree with its meaning."""
    try:
        reason = meaning.native_differs(module, native)
    except PassBroke as error:
        raise WrongCase(_finding("ill-formed", error.guilty, str(error), module)) from error
    except CRASHES as error:
        reason = f"{type(error).__name__}: {'; '.join(str(error).splitlines())}"
        raise WrongCase(_finding("native", "native", reason, module)) from error
    if reason:
        raise WrongCase(_finding("native", "native", reason, module))
    return reason is None
