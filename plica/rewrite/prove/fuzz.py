"""Fuzzing the prover: mutants of proved rules, none of which may be proved if it is wrong.

A mutant is a proved rule with one mistake: another operator, sign, number or operand, or a lost
guard or contract.  Instances are tried first.  A proof of a mutant that an instance refutes is an
error of the prover; a mutant without a proof should be refuted.

Consecutive numbers are mutants of one rule, so that a process proves few rules.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final, Literal, TypeAlias

import attrs

from plica.core import RuleFailed
from plica.ir.contract import reassociates
from plica.ir.graph.expression import Expr
from plica.ir.type import DType, TensorType, type_of
from plica.rewrite.check.instance import Instance
from plica.rewrite.check.probe import variables_of
from plica.rewrite.check.run import check, refutation
from plica.rewrite.check.trial import SidesDiffer, Trial
from plica.rewrite.check.verdict import Proved, Refuted
from plica.rewrite.fuzz.report import CASES, Counts, Finding, FuzzReport
from plica.rewrite.match import match
from plica.rewrite.mutate.mutant import Mutant
from plica.rewrite.mutate.rule_edit import contract_edits, guard_edits
from plica.rewrite.mutate.term_edit import term_edits
from plica.rewrite.prove.equality import REALS
from plica.rewrite.prove.run import attempt
from plica.rewrite.rule import Rule

Word: TypeAlias = Literal["refuted", "still right", "right of reals", "open", "error"]
Say: TypeAlias = Callable[[str], None]

MUTANTS_OF_A_RULE: Final = 5  # consecutive numbers that are mutants of one rule
RULES_OF_A_SHARE: Final = 4
"""Rules that may be tried for one share of cases: those without a proof have no mutants here."""
QUICK_EXAMPLES: Final = 24  # instances that are tried before a search that also makes rounding show
MORE_EXAMPLES: Final = 5  # how often more instances are tried on what is neither refuted nor proved


@attrs.frozen
class MutantVerdict:
    """What is known of a mutant: a proof, a counterexample, both (an error) or nothing."""

    mutant: Mutant
    proof: Proved | None
    refutation: Refuted | None

    @property
    def word(self) -> Word:
        """`error` where a wrong rule is proved.

        A proof given real arithmetic says nothing of rounding and overflow: where an instance
        differs by these alone, the equation is right of reals.
        """
        wrong = self.refutation
        if self.proof is None:
            return "open" if wrong is None else "refuted"
        if wrong is None:
            return "still right"
        of_reals = REALS in self.proof.laws and not differs_in_reals(self.mutant.rule, wrong)
        return "right of reals" if of_reals else "error"


def mutants_of(base: Rule) -> list[Mutant]:
    """Every mutant of a rule that the prover can be tried on."""
    edits = {"term": term_edits, "guard": guard_edits, "contract": contract_edits}
    return [
        Mutant(kind, base.name, what, rule)
        for kind, found in edits.items() for what, rule in found(base)
    ]  # fmt: skip


@lru_cache(maxsize=4096)
def is_proved(base: Rule) -> bool:
    """Whether a rule has a proof, so that its mutants are of use."""
    return isinstance(attempt(base), Proved)


@lru_cache(maxsize=64)
def ordered_mutants(base: Rule, seed: int) -> tuple[Mutant, ...]:
    """The mutants of a rule in the order in which they are drawn: kinds of mistakes in rotation."""
    kinds: dict[str, list[Mutant]] = {}
    for each in mutants_of(base):
        kinds.setdefault(each.kind, []).append(each)
    for found in kinds.values():
        random.Random(f"{base.name} {seed}").shuffle(found)
    rows = itertools.zip_longest(*reversed(kinds.values()))
    return tuple([each for row in rows for each in row if each is not None])


def numbered_mutant(rules: Sequence[Rule], number: int, seed: int) -> Mutant | None:
    """The mutant of a number; None where its rule has no proof or no more mutants."""
    order = random.Random(seed).sample(range(len(rules)), len(rules))
    block, within = divmod(number, MUTANTS_OF_A_RULE)
    share, other = divmod(block, RULES_OF_A_SHARE)
    at = (share + other * len(rules) // RULES_OF_A_SHARE) % len(rules)
    base = rules[order[at]]
    turn = share // len(rules) * RULES_OF_A_SHARE + other
    mutants = ordered_mutants(base, seed)[turn * MUTANTS_OF_A_RULE :]
    return mutants[within] if within < len(mutants) and is_proved(base) else None


def judged_mutant(mutant: Mutant, examples: int = 100, seed: int = 0) -> MutantVerdict:
    """What instances say of a mutant, and the prover.

    Of a mutant that an instance refutes the prover is first asked for the dtypes of that instance:
    without a proof for these, it has none.
    """
    rule = mutant.rule
    wrong = refutation(rule, QUICK_EXAMPLES, seed) or _tested(rule, examples, seed)
    dtypes = {} if wrong is None else dtypes_at(rule, wrong)
    found = attempt(rule, dtypes)
    if dtypes and isinstance(found, Proved):
        found = attempt(rule)
    proof = found if isinstance(found, Proved) else None
    if wrong is None and proof is None:
        wrong = _tested(rule, examples * MORE_EXAMPLES, seed + 1)
    return MutantVerdict(mutant, proof, wrong)


def _tested(rule: Rule, examples: int, seed: int) -> Refuted | None:
    tested = check(rule, examples, seed)
    return tested if isinstance(tested, Refuted) else None


def dtypes_at(rule: Rule, wrong: Refuted) -> dict[str, DType]:
    """The dtypes of holes in a counterexample; none where the rule failed on it otherwise."""
    found = match(rule.left, wrong.counterexample.left)
    dtypes: dict[str, DType] = {}
    for name, value in {} if found is None else found.filling.items():
        first = value[0] if isinstance(value, tuple) and value else value
        of = type_of(first) if isinstance(first, Expr) else first
        if isinstance(of, TensorType):
            dtypes[name] = of.dtype
        elif isinstance(of, DType):
            dtypes[name] = of
    return dtypes


def differs_in_reals(rule: Rule, wrong: Refuted) -> bool:
    """Whether the sides differ on a counterexample in f64, too, by more than rounding."""
    example = wrong.counterexample
    if not isinstance(example.left, Expr):
        return True
    arrays = dict(example.inputs)
    variables = variables_of(example.left)
    inputs = tuple((var, arrays[str(var.name)]) for var in variables)
    loose = attrs.evolve(rule, contract=max(rule.contract, reassociates))
    try:
        after = loose.at(example.left)
    except RuleFailed:
        return True
    if not isinstance(after, Expr):
        return True
    trial = Trial(loose, Instance(example.left, inputs, variables), after)
    trial = trial.wide or trial
    if trial.ill_made is not None:
        return True
    return isinstance(trial.outcome([array for _, array in trial.made.inputs]), SidesDiffer)


def fuzz(
    rules: Sequence[Rule], examples: int, seed: int = 0, *, first: int = 0, instances: int = 60,
    say: Say = lambda _: None,
) -> FuzzReport[Finding]:  # fmt: skip
    """A number of mutants of proved rules, drawn by seed, and what became of them."""
    tried, report = 0, FuzzReport[Finding](seed=seed)
    while report.examples < examples and tried < examples * RULES_OF_A_SHARE:
        number, tried = first + tried, tried + 1
        mutant = numbered_mutant(rules, number, seed)
        say("" if mutant is None else mutant.base)
        if mutant is not None:
            report += _report(judged_mutant(mutant, instances, seed), number, seed)
    return report


def _report(verdict: MutantVerdict, number: int, seed: int) -> FuzzReport[Finding]:
    mutant, word = verdict.mutant, verdict.word
    listed = mutant.name if word == "open" else f"{mutant.name}: {verdict.proof}"
    counts: Counts = {
        CASES: {word: 1}, "rules": {mutant.base: 1}, "mistakes": {mutant.kind: 1},
        **({} if word in ("refuted", "error") else {word: {listed: 1}}),
    }  # fmt: skip
    findings: tuple[Finding, ...] = ()
    if word == "error":
        assert verdict.refutation is not None
        reason = f"{verdict.proof}, but {verdict.refutation}"
        test = verdict.refutation.counterexample.pytest
        findings = (Finding("proof", mutant.name, reason, test, number),)
    return FuzzReport(1, seed, counts, findings)
