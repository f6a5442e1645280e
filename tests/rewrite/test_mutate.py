"""Mutants: they are wrong rules of every kind, and checking refutes them."""

from __future__ import annotations

from collections import Counter

import pytest

from plica.ir.contract import reassociates
from plica.rewrite import Rule
from plica.rewrite.check import run
from plica.rewrite.check.run import check
from plica.rewrite.check.verdict import Refuted, Tested, is_good
from plica.rewrite.mutate.mutant import KINDS, Mutant
from tests.deep import spread
from tests.rewrite.mutants.draw import candidates, draw, named_mutants, shipped
from tests.rewrite.mutants.equivalent import cases_without_difference, proof_of

RULES = {rule.name: rule for rule in shipped()}
BASES = (
    "add-negative", "sum-axes-explicit", "matmul-of-transposes", "slice-slice", "subtract-same",
    "where-same", "transpose-transpose", "mul-distribute", "div-div", "min-literal-last",
    "less-of-transpose-constant", "mul-mod", "sum-of-scaled", "integer-add-back",
)  # fmt: skip


@pytest.fixture(autouse=True)
def as_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """That a mutant is refuted is looked at, not how small a counterexample is."""
    monkeypatch.setattr(run, "MAX_SHRINKS", 0)


@pytest.mark.parametrize("mutant", named_mutants(), ids=lambda each: each.base)
@pytest.mark.parametrize("seed", spread(range(5), 2))
def test_what_was_once_believed_is_refuted_by_every_seed(mutant: Mutant, seed: int) -> None:
    assert isinstance(check(mutant.rule, seed=seed), Refuted)


@pytest.mark.slow
def test_mutants_of_each_kind_are_refuted() -> None:
    drawn = draw(1, seed=3, rules=[RULES[name] for name in BASES])
    wrong = [each for each in drawn if proof_of(each) is None]
    assert {each.kind for each in wrong} == set(KINDS)
    verdicts = {each.name: check(each.rule, seed=1) for each in wrong}
    assert [name for name, found in verdicts.items() if not isinstance(found, Refuted)] == []


def test_the_same_seed_draws_the_same_mutants() -> None:
    rules = [RULES[name] for name in BASES]
    first, second = ([each.name for each in draw(2, 5, rules)] for _ in range(2))
    assert first == second
    assert set(Counter(each.split(":")[0] for each in first)) == set(KINDS)


def test_a_mutant_is_left_out_by_proof_or_by_cases_alone() -> None:
    lost = next(each for each in candidates(RULES["maximum-constants"], "guard") if proof_of(each))
    assert "associative" in str(proof_of(lost))
    (symmetric,) = candidates(RULES["sin-of-negative"], "contract")
    assert cases_without_difference(symmetric) >= 1_000_000
    (wrong,) = candidates(RULES["multiply-reciprocal"], "contract")
    assert cases_without_difference(wrong) == 0


@pytest.mark.parametrize(
    ("name", "kind", "what"),
    [
        ("add-constants", "guard", "no guard summed"),  # 3e38 + 3e38, of no data
        pytest.param(
            "full-like-is-broadcast",
            "dtype",
            "argument of broadcast_to through bf16",
            marks=pytest.mark.slow,
        ),
        ("ones-is-broadcast", "broadcast", "add from the first axis"),
        pytest.param(
            "conv-transpose-pixel", "contract", "fused for reassociates", marks=pytest.mark.slow
        ),
    ],
)
def test_what_survived_once_is_refuted(name: str, kind: str, what: str) -> None:
    (mutant,) = (each for each in candidates(RULES[name], kind) if each.what == what)
    assert proof_of(mutant) is None
    assert isinstance(check(mutant.rule, seed=2), Refuted)


@pytest.mark.parametrize("name", spread(BASES, 5))
def test_the_rules_they_are_made_of_are_not_doubted(name: str) -> None:
    rule: Rule = RULES[name]
    verdict = check(rule, examples=20, seed=7)
    assert is_good(verdict), verdict
    if rule.contract is reassociates:
        assert isinstance(verdict, Tested)
        assert verdict.sets > 4 * verdict.cases
