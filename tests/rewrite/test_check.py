"""Checking: verdicts, counterexamples that run, contracts, and the command line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import plica
from plica import op
from plica.cli import main
from plica.core.diagnostic import RuleRefused
from plica.rewrite import approx, exact, holes, pack, reassociates, rule, signless_zero
from plica.rewrite.check.compare import difference
from plica.rewrite.check.verdict import Refuted, Tested

x, y, z = holes("x y z")


def test_a_right_rule_is_tested_and_a_wrong_one_refuted() -> None:
    right = plica.check(rule("relu-twice", op.nn.relu(op.nn.relu(x)), op.nn.relu(x)), examples=30)
    assert isinstance(right, Tested)
    assert right.cases == 30
    wrong = plica.check(rule("relu-gone", op.nn.relu(x), x), examples=100)
    assert isinstance(wrong, Refuted)
    assert wrong.counterexample.nodes == 1


def test_an_understated_contract_is_refuted_and_the_true_one_is_not() -> None:
    left, right = (x + y) + z, x + (y + z)
    assert isinstance(plica.check(rule("a", left, right), examples=300), Refuted)
    verdict = plica.check(rule("b", left, right, float=reassociates), examples=100)
    assert isinstance(verdict, Tested)


def test_a_counterexample_is_a_test_that_fails(tmp_path: Path) -> None:
    verdict = plica.check(rule("swapped", x - y, y - x), examples=100)
    assert isinstance(verdict, Refuted)
    names: dict[str, object] = {}
    exec(compile(verdict.counterexample.pytest, "counterexample", "exec"), names)
    test = names["test_swapped"]
    assert callable(test)
    with pytest.raises(AssertionError):
        test()


def test_sides_of_different_types_are_refused_at_birth() -> None:
    with pytest.raises(RuleRefused) as refused:
        rule("flattened", op.transpose(x), op.reshape(x, (-1,)))
    assert refused.value.code == "rule-types"


def test_the_same_seed_gives_the_same_verdict() -> None:
    wrong = rule("halved", x * 2, x)
    first, second = (plica.check(wrong, examples=50, seed=7) for _ in range(2))
    assert isinstance(first, Refuted)
    assert isinstance(second, Refuted)
    assert first.counterexample.pytest == second.counterexample.pytest


def test_comparison_follows_the_contract() -> None:
    zero, minus = np.zeros(2, "f4"), -np.zeros(2, "f4")
    assert difference(zero, minus, exact, 0) is not None
    assert difference(zero, minus, signless_zero, 0) is None
    one, near = np.ones(1, "f4"), np.nextafter(np.ones(1, "f4"), np.float32(2))
    assert difference(one, near, signless_zero, 1) is not None
    assert difference(one, near, reassociates, 1) is None
    assert difference(one, one + np.float32(1e-3), reassociates, 1) is not None
    assert difference(one, one + np.float32(1e-3), approx(1e-2), 1) is None
    nan = np.full(1, np.nan, "f4")
    assert difference(nan, nan, exact, 0) is None
    assert difference(nan, one, reassociates, 1) is not None
    assert difference(np.ones(1, "i4"), np.full(1, 2, "i4"), approx(0.9), 9) is not None
    assert difference((one, one), (one, near), exact, 0) is not None
    assert difference(one, np.ones((1, 1), "f4"), approx(0.5), 1) is not None
    assert difference(one, one.astype("f8"), approx(0.5), 1) is not None


def test_the_command_line_lists_and_checks(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["rules", "list", "--json"]) == 0
    assert "algebra" in {row["name"] for row in json.loads(capsys.readouterr().out)}
    file = tmp_path / "mine.py"
    file.write_text(
        "from plica import op\n"
        "from plica.rewrite import holes, rule\n"
        "(x,) = holes('x')\n"
        "GOOD = rule('good', op.nn.relu(op.nn.relu(x)), op.nn.relu(x))\n"
    )
    assert main(["rules", "check", str(file), "--examples", "10", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["verdict"] == "tested"
    file.write_text(file.read_text() + "BAD = rule('bad', op.nn.relu(x), x)\n")
    assert main(["rules", "check", str(file), "--examples", "60"]) == 1
    assert "refuted" in capsys.readouterr().out


def test_an_unknown_pack_and_an_empty_file_are_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["rules", "check", "algebr"]) == 1
    assert "algebra" in capsys.readouterr().err
    empty = tmp_path / "empty.py"
    empty.write_text("")
    assert main(["rules", "check", str(empty)]) == 1
    assert main(["rules", "check", str(tmp_path / "none.py")]) == 1


def test_a_pack_within_a_contract_leaves_the_freer_rules_out() -> None:
    loose = pack(
        "loose",
        rule("sum", (x + y) + z, x + (y + z), float=reassociates),
        rule("one", x * 1, x),
        version="1",
    )
    assert [each.name for each in loose.within(exact)] == ["one"]
    assert loose.contract is reassociates
