"""Checking rules: instances of the left side, both sides interpreted, compared under the contract.

check(rule)  -> Proved | Tested(n) | Untested(why) | Refuted(counterexample)
check(pack)  -> a verdict for each rule; a pack can be given by its name
check(operator) -> one on its meaning, one on its gradient
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, overload

import hypothesis
import numpy as np
from hypothesis import strategies as st

from plica.core.binding import free_vars, name_of
from plica.core.diagnostic import EvaluationError, IllTyped, RuleFailed
from plica.core.extension import said
from plica.core.fold import post_order
from plica.core.term import Term
from plica.ir.graph.expression import Apply, Const, Expr, Tuple
from plica.ir.graph.operator import Operator
from plica.ir.interpret.interpreter import interpret
from plica.ir.loop.scalar import Scalar
from plica.ir.type.infer import type_of
from plica.ir.type.term import TensorType
from plica.rewrite.check.compare import difference
from plica.rewrite.check.data import Choose
from plica.rewrite.check.decline import Declined
from plica.rewrite.check.index import check_index
from plica.rewrite.check.instance import Instance
from plica.rewrite.check.offer import offered
from plica.rewrite.check.operator import check_operator
from plica.rewrite.check.probe import types_differ
from plica.rewrite.check.region import chains
from plica.rewrite.check.report import as_pytest, closed
from plica.rewrite.check.verdict import Counterexample, Refuted, Tested, Untested, Verdict
from plica.rewrite.check.widen import widened
from plica.rewrite.contract import signless_zero
from plica.rewrite.pack import Pack, as_rules
from plica.rewrite.packs import find_pack
from plica.rewrite.pattern import Dominator
from plica.rewrite.rule import Rule


@overload
def check(of: Rule, examples: int = 200, seed: int = 0) -> Verdict: ...
@overload
def check(
    of: Pack | Operator | str | Iterable[Rule], examples: int = 200, seed: int = 0
) -> tuple[Verdict, ...]: ...
def check(
    of: Rule | Pack | Operator | str | Iterable[Rule], examples: int = 200, seed: int = 0
) -> Verdict | tuple[Verdict, ...]:
    """What can be said of a rule, of each rule of a pack, or of an operator."""
    if examples < 1:
        raise ValueError(f"A check needs at least one example, found {examples}.")
    if isinstance(of, Operator):
        return check_operator(of, examples, seed)
    if not isinstance(of, Rule):
        rules = find_pack(of) if isinstance(of, str) else as_rules(of)
        return tuple(check(rule, examples, seed) for rule in rules)
    if isinstance(of.left, Scalar):
        return check_index(of)
    if isinstance(of.left, Dominator):
        return _check_region(of, examples, seed)
    return _test(of, examples, seed)


def _check_region(rule: Rule, examples: int, seed: int) -> Verdict:
    """What can be said of a rule of regions: it is tested on chains."""
    ways = chains(rule)
    share = max(1, examples // max(1, len(ways)))
    cases = overflowed = 0
    for each in ways:
        found = _test(each, share, seed)
        if isinstance(found, Untested):
            continue
        if not isinstance(found, Tested):
            return found
        cases, overflowed = cases + found.cases, overflowed + found.overflowed
    if not cases:
        return Untested(rule.name, "no chain of the path was found that the rule changes")
    return Tested(rule.name, cases, overflowed, "on chains of the path")


TAPE: Final = 96
"""Bytes that decide an instance: one draw of many bytes costs far less than many draws."""


def reader(tape: bytes) -> Choose:
    """Choices read from a tape; lower bytes mean simpler choices, beyond its end the simplest."""
    position = 0

    def choose(options: Sequence[Any]) -> Any:
        nonlocal position
        width = 1 if len(options) <= 256 else 2
        number = int.from_bytes(tape[position : position + width].ljust(width, b"\0"))
        position += width
        return options[number * len(options) >> 8 * width]

    return choose


class Differs(AssertionError):
    """Raised inside hypothesis where the sides of a rule differ."""

    def __init__(self, counterexample: Counterexample) -> None:
        super().__init__(counterexample.reason)
        self.counterexample = counterexample


def _test(rule: Rule, examples: int, seed: int) -> Verdict:
    seen, overflowed, declined = 0, 0, Declined()

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
    @hypothesis.given(st.binary(min_size=TAPE, max_size=TAPE))
    def compare(tape: bytes) -> None:
        nonlocal seen, overflowed
        made = offered(rule, reader(tape))
        if made is None:
            declined.add(None)
            hypothesis.reject()
        try:
            after = rule.at(made.term)
        except RuleFailed as error:
            reason = f"the rule fails with {said(error.__cause__ or error)}"
            raise Differs(_counterexample(rule, made, None, None, reason)) from error
        if after is None:
            declined.add(made)
            hypothesis.reject()
        verdict = sides_differ(rule, made, after)
        if isinstance(verdict, Counterexample):
            raise Differs(verdict)
        seen += 1
        overflowed += verdict

    try:
        compare()
    except Differs as found:
        return Refuted(rule.name, found.counterexample)
    except hypothesis.errors.Unsatisfiable:
        if seen:
            why = "the guard" if rule.when is not None else "the right side"
            note = f"{why} declines nearly every instance"
            return Tested(rule.name, seen, overflowed, note)
    if not seen:
        return Untested(rule.name, declined.why(rule))
    return Tested(rule.name, seen, overflowed)


def sides_differ(rule: Rule, made: Instance, after: Term) -> Counterexample | bool:
    """A counterexample where the sides differ; otherwise whether something overflowed."""
    wrong = types_differ(made.term, after)
    if wrong is not None:
        return _counterexample(rule, made, after, None, wrong)
    assert isinstance(after, Expr)
    loose = sorted(str(name_of(each)) for each in free_vars(after) - free_vars(made.term))
    if loose:
        wrong = f"the right side speaks of {', '.join(loose)}, which nothing binds there"
        return _counterexample(rule, made, after, None, wrong)
    left, heavy = _evaluate(made.term, made)
    try:
        right, heavier = _evaluate(after, made)
    except EvaluationError as error:
        return _counterexample(rule, made, after, (left, None), f"the right side fails: {error}")
    reason = difference(left, right, rule.contract, max(heavy, heavier))
    if reason is None:
        return False
    if signless_zero < rule.contract and _agree_in_f64(rule, made):
        return True
    return _counterexample(rule, made, after, (left, right), reason)


def _agree_in_f64(rule: Rule, made: Instance) -> bool:
    """Whether the sides agree with wider floats: then what differed was an overflow."""
    wide = widened(made)
    after = None if wide is None else rule.at(wide.term)
    if wide is None or not isinstance(after, Expr):
        return False
    left, heavy = _evaluate(wide.term, wide)
    right, heavier = _evaluate(after, wide)
    return difference(left, right, rule.contract, max(heavy, heavier)) is None


def _evaluate(term: Expr, made: Instance) -> tuple[Any, float]:
    """The value of a term, and the largest sum of magnitudes among its parts and inputs.

    Parts that speak of variables bound in the term are left out.
    """
    known = frozenset(made.variables)
    parts = [
        node
        for node in post_order(term)
        if isinstance(node, Apply | Const)
        and isinstance(type_of(node), TensorType)
        and free_vars(node) <= known
    ]
    values = interpret(closed(Tuple((term, *parts)), made), *(array for _, array in made.inputs))
    heaviest = 0.0
    for value in (*values[1:], *(array for _, array in made.inputs)):
        with np.errstate(over="ignore", invalid="ignore"):
            sizes = np.abs(value.astype(np.float64))
        heaviest = max(heaviest, float(sizes[np.isfinite(sizes)].sum()))
    return values[0], heaviest * max(1, len(parts))


def _counterexample(
    rule: Rule, made: Instance, after: Term | None, values: tuple[Any, Any] | None, reason: str
) -> Counterexample:
    inputs = tuple((str(var.name), array) for var, array in made.inputs)
    left, right = values or (None, None)
    typed = isinstance(after, Expr) and _has_type(after)
    text = as_pytest(rule, made, after, reason, typed)
    return Counterexample(made.term, after, inputs, left, right, reason, text)


def _has_type(term: Expr) -> bool:
    try:
        type_of(term)
    except IllTyped:
        return False
    return True
