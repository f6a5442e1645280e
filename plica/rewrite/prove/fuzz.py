"""Fuzzing the prover: mutants of proved rules, none of which may be proved if it is wrong.

A mutant is a proved rule with one mistake: another operator, sign, number or operand, or a lost
guard.  A proof of a mutant is an error of the prover where an instance refutes the mutant; a mutant
without a proof should be refuted.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator

import attrs

from plica.core.extension import FAILURES
from plica.rewrite.check.run import check
from plica.rewrite.check.verdict import Proved, Refuted
from plica.rewrite.mutate.mutant import Mutant
from plica.rewrite.mutate.rule_edit import contract_edits, guard_edits
from plica.rewrite.mutate.term_edit import term_edits
from plica.rewrite.prove.run import attempt
from plica.rewrite.rule import Rule


@attrs.frozen
class MutantVerdict:
    """What is known of a mutant: a proof, a counterexample, both (an error) or nothing."""

    mutant: Mutant
    proof: Proved | None
    refutation: Refuted | None

    @property
    def word(self) -> str:
        """`error` where a wrong rule is proved."""
        if self.proof is not None:
            return "still right" if self.refutation is None else "error"
        return "open" if self.refutation is None else "refuted"


def mutants_of(base: Rule) -> list[Mutant]:
    """Every mutant of a rule that the prover can be tried on."""
    found = [Mutant("term", base.name, what, made) for what, made in term_edits(base)]
    found += [Mutant("guard", base.name, what, made) for what, made in guard_edits(base)]
    return found + [
        Mutant("contract", base.name, what, made) for what, made in contract_edits(base)
    ]


def drawn_mutants(rules: Iterable[Rule], count: int, seed: int = 0) -> Iterator[Mutant]:
    """A number of mutants of proved rules, drawn by seed."""
    source, proved = random.Random(seed), dict[Rule, bool]()
    every = [mutant for rule in rules for mutant in mutants_of(rule)]
    bases = {rule.name: rule for rule in rules}
    source.shuffle(every)
    left = count
    for mutant in every:
        base = bases[mutant.base]
        if base not in proved:
            proved[base] = isinstance(attempt(base), Proved)
        if proved[base]:
            yield mutant
            left -= 1
        if not left:
            return


def judged_mutant(mutant: Mutant, examples: int = 100, seed: int = 0) -> MutantVerdict:
    """The prover's verdict on a mutant, and that of instances."""
    found = attempt(mutant.rule)
    try:
        tested = check(mutant.rule, examples, seed)
    except FAILURES as error:  # no term comes out: whoever uses the rule is told so
        del error
        return MutantVerdict(mutant, found if isinstance(found, Proved) else None, None)
    return MutantVerdict(
        mutant,
        found if isinstance(found, Proved) else None,
        tested if isinstance(tested, Refuted) else None,
    )
