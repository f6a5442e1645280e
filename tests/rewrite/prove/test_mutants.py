"""Mutants of proved rules: wrong ones have no proof."""

from __future__ import annotations

import json

import pytest

from plica.cli import main
from plica.core import Name
from plica.ir.contract import fused, reassociates
from plica.ir.loop.scalar import ScalarVar
from plica.ir.op.elementwise import call
from plica.ir.type import f32, u8
from plica.rewrite.check.run import refutation
from plica.rewrite.check.verdict import Proved, Refuted
from plica.rewrite.make import tabled
from plica.rewrite.mutate.mutant import Mutant
from plica.rewrite.packs import OWN, find_pack
from plica.rewrite.packs.word import (
    Evaluated,
    FirstFilled,
    b,
    c,
    d,
    e,
    f,
    op,
    spread,
    v,
    w as evaluated,
    x,
)
from plica.rewrite.pattern import either, hole
from plica.rewrite.prove.fuzz import (
    MUTANTS_OF_A_RULE,
    RULES_OF_A_SHARE,
    MutantVerdict,
    dtypes_at,
    fuzz,
    judged_mutant,
    mutants_of,
    numbered_mutant,
)
from plica.rewrite.prove.run import attempt
from plica.rewrite.prove.smt import query
from plica.rewrite.prove.solver import is_available

pytestmark = pytest.mark.skipif(not is_available("z3"), reason="z3 is not installed")

X = ScalarVar(Name("x"), f32)
both, joined, negated = map(op, ["logical_and", "logical_or", "logical_not"])
w = hole("w", rank=0)
OPEN = tabled("no-proof", op("sort")(op("sort")(x)), op("sort")(x))
RULE = tabled("and-of-nots", both(negated(b), negated(d)), negated(joined(b, d)))


def test_a_rule_has_mutants_of_every_kind() -> None:
    names = [mutant.what for mutant in mutants_of(RULE)]
    assert {"logical_and for logical_or", "no logical_not", "d for b"} <= {*names}


def test_right_sides_in_words_have_mutants_of_each_term() -> None:
    chosen = FirstFilled((both(negated(b), d), negated(b)))
    first = tabled("first", either(both(negated(b), d), negated(negated(negated(b)))), chosen)
    constants = tabled("constants", (f + c) + e, Evaluated(f + evaluated, c + e), float=fused)
    whole = tabled("whole", *spread(both(b, b), b))
    changed = {
        word: {each.what for each in mutants_of(word) if each.kind == "term"}
        for word in (first, constants, whole)
    }
    assert {"no logical_not in term 0", "no logical_not in term 1"} <= changed[first]
    assert {"subtract for add", "c for e", "operands of add exchanged"} <= changed[constants]
    assert {"another sign", "reshape for broadcast_to"} <= changed[whole]
    for mutant in mutants_of(first):
        assert judged_mutant(mutant, 20).word != "error", mutant.name


def test_what_is_computed_beforehand_stays_a_constant() -> None:
    rules = [each for each in find_pack("algebra") if isinstance(each.right, Evaluated)]
    mutants = [each for rule in rules for each in mutants_of(rule) if each.kind == "guard"]
    assert len(rules) > 5
    assert not [each.what for each in mutants if "constant" in each.what]
    for mutant in mutants:
        assert isinstance(refutation(mutant.rule, 4), Refuted | None), mutant.name


def test_solvers_have_no_laws_that_a_proof_does_not_name() -> None:
    base = next(rule for rule in find_pack("algebra") if rule.name == "floor-of-negative")
    lost = next(each for each in mutants_of(base) if each.what == "sin for negative")
    assert judged_mutant(lost, 20).word == "refuted"
    asked = query(call("sin", X), call("sin", -X), "reals", signless=True)
    assert "declare-fun sin_real " in asked.text
    assert asked.axioms == ("sin is odd",)


def test_no_wrong_mutant_of_a_rule_is_proved() -> None:
    words = {}
    for mutant in mutants_of(RULE):
        if mutant.kind == "term" and mutant.what != "another sign":
            words[mutant.what] = judged_mutant(mutant, 20).word
    assert words["operands of logical_or exchanged"] == "still right"
    assert words["logical_and for logical_or"] == "refuted"
    assert "error" not in words.values()


def test_a_contract_too_strong_has_no_proof() -> None:
    base = next(rule for rule in find_pack("algebra") if rule.name == "add-zero")
    mutants = {each.kind: each for each in mutants_of(base)}
    assert isinstance(attempt(base), Proved)
    assert not isinstance(attempt(mutants["contract"].rule), Proved)


def test_a_lost_guard_has_no_proof() -> None:
    base = next(rule for rule in find_pack("motion") if rule.name == "add-of-reshapes")
    lost = next(each for each in mutants_of(base) if each.what.startswith("no guard"))
    assert isinstance(attempt(base), Proved)
    assert not isinstance(attempt(lost.rule), Proved)


def test_an_error_of_the_prover_is_one() -> None:
    wrong = Mutant("term", "sign", "lost", tabled("sign", op("absolute")(f), f))
    found = judged_mutant(wrong, 20)
    assert found.word == "refuted"
    assert found.refutation is not None


def test_mutants_are_drawn_by_seed() -> None:
    rules, numbers = [RULE, OPEN], range(4 * MUTANTS_OF_A_RULE * RULES_OF_A_SHARE)
    first, again = ([numbered_mutant(rules, each, 3) for each in numbers] for _ in range(2))
    names = [each.name for each in first if each is not None]
    assert [each and each.name for each in again] == [each and each.name for each in first]
    assert len(names) == len({*names}) > MUTANTS_OF_A_RULE
    assert {each.base for each in first if each is not None} == {RULE.name}


def test_a_share_goes_on_with_another_rule() -> None:
    report = fuzz([OPEN, RULE], 4, 1)
    assert report.examples == 4
    assert report["rules"] == {RULE.name: 4}
    assert {*report["mistakes"]} <= {"term", "guard", "contract"}


def test_a_refuted_mutant_is_first_tried_at_its_dtypes() -> None:
    rule = tabled("sign-of-integers", op("absolute")(x), x)
    wrong = refutation(rule)
    assert wrong is not None
    dtypes = dtypes_at(rule, wrong)
    assert {*dtypes} == {"x"}
    assert not isinstance(attempt(rule, dtypes), Proved)
    assert isinstance(attempt(tabled("masks", op("absolute")(x), x), {"x": u8}), Proved)


def test_a_wrong_mutant_with_a_proof_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    proof = Proved("wrong", "by mistake")
    monkeypatch.setattr("plica.rewrite.prove.fuzz.attempt", lambda rule, at=None: proof)
    report = fuzz([RULE], 2, 1, instances=4)
    assert report.findings
    assert report.findings[0].guilty.startswith(("term", "guard"))
    assert "by mistake, but" in report.findings[0].reason


def test_a_proof_of_reals_says_nothing_of_rounding() -> None:
    sides = (f + v) + w, f + (v + w)
    mutant = Mutant("contract", "sums", "fused", tabled("sums", *sides, float=fused))
    found = judged_mutant(mutant, 100)
    assert found.proof is not None
    assert found.refutation is not None
    assert found.word == "right of reals"
    assert found.refutation.rule == "sums"


def test_a_wrong_equation_of_reals_is_an_error() -> None:
    rule = tabled("sums", f + v, f - v, float=reassociates)
    wrong = refutation(rule)
    assert wrong is not None
    proof = Proved("sums", "by mistake", ("real arithmetic",))
    assert MutantVerdict(Mutant("term", "sums", "sign", rule), proof, wrong).word == "error"


def test_the_command_line_counts_mutants(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fuzz", "prove", "--pack", "view", "--examples", "2", "--instances", "2"]) == 0
    assert "0 error" in capsys.readouterr().out
    words = ["fuzz", "prove", "--pack", "logic", "--examples", "5", "--jobs", "1", "--json"]
    assert main([*words, "--instances", "4"]) == 0
    counts = json.loads(capsys.readouterr().out)["kinds"]["prove"]["counts"]
    assert sum(counts["mistakes"].values()) == sum(counts["cases"].values()) == 5
    assert sum(counts.get("still right", {}).values()) == counts["cases"].get("still right", 0)


@pytest.mark.parametrize(
    ("name", "lost"),
    [
        ("tile-once", "any when of ones"),
        ("f16-matmul-norm", "any ranks of w"),
        ("bf16-matmul-left-norm", "any ranks of x"),
        ("matmul-left-relu-scale", "any ranks of x"),
        ("constant-minus-minus", "x for e"),
        ("wide-nn-max-pool", "any dtypes of x"),
        ("flatten-of-bytes", "flip for nn.flatten"),
        ("f16-dense-norm", "zeros_like for cast in term 0"),
    ],
)
def test_a_mutant_of_a_shipped_rule_is_refuted(name: str, lost: str) -> None:
    assert _judged(name, lost).word == "refuted"


def test_a_rule_of_narrow_floats_alone_may_be_right_of_reals() -> None:
    assert _judged("bf16-dense-norm", "fused for reassociates").word == "right of reals"


def _judged(name: str, mistake: str) -> MutantVerdict:
    rules = {rule.name: rule for pack in OWN for rule in find_pack(pack)}
    return judged_mutant(next(m for m in mutants_of(rules[name]) if m.what == mistake), 60, 920)
