"""Mutants of proved rules: wrong ones have no proof."""

from __future__ import annotations

import pytest

from plica.cli import main
from plica.rewrite.check.verdict import Proved
from plica.rewrite.make import tabled
from plica.rewrite.mutate.mutant import Mutant
from plica.rewrite.packs import find_pack
from plica.rewrite.packs.word import b, d, f, op
from plica.rewrite.prove.fuzz import drawn_mutants, judged_mutant, mutants_of
from plica.rewrite.prove.run import attempt
from plica.rewrite.prove.solver import is_available

pytestmark = pytest.mark.skipif(not is_available("z3"), reason="z3 is not installed")

both, either, negated = map(op, ["logical_and", "logical_or", "logical_not"])
RULE = tabled("and-of-nots", both(negated(b), negated(d)), negated(either(b, d)))


def test_a_rule_has_mutants_of_every_kind() -> None:
    names = [mutant.what for mutant in mutants_of(RULE)]
    assert {"logical_and for logical_or", "no logical_not", "d for b"} <= {*names}


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
    first, again = ([each.name for each in drawn_mutants([RULE], 5, 3)] for _ in range(2))
    assert first == again
    assert len(first) == 5


def test_the_command_line_counts_mutants(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fuzz", "prove", "--pack", "view", "--examples", "1", "--instances", "2"]) == 0
    assert "0 error" in capsys.readouterr().out
