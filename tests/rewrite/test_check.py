"""Checking: verdicts, counterexamples that run, contracts, and the command line."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, strategies as st

import plica
from plica import op
from plica.cli import main
from plica.core.diagnostic import RuleRefused
from plica.core.name import Name
from plica.ir.graph.expression import Var
from plica.ir.type.term import tensor
from plica.rewrite import (
    PatternMatch,
    approx,
    exact,
    fused,
    hole,
    holes,
    index_constants,
    index_holes,
    pack,
    reassociates,
    rule,
    signless_zero,
)
from plica.rewrite.check.compare import difference
from plica.rewrite.check.instance import Instance
from plica.rewrite.check.trial import SidesAgree, SidesDiffer, Trial
from plica.rewrite.check.verdict import Refuted, Tested, Untested, is_good
from plica.rewrite.make import tabled
from plica.rewrite.packs.view import VIEW

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
    verdict = plica.check(rule("b", left, right, float=reassociates), examples=20)
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
    whole = hole("x", dtypes=("i32",))
    with pytest.raises(
        RuleRefused, match="float literal does not convert to i32: write an integer"
    ):
        rule("doubled", whole + whole, whole * 2.0)


def test_products_inside_of_an_operator_scale_the_tolerance() -> None:
    a, b = Var(Name("x"), tensor((1, 1), "f32")), Var(Name("y"), tensor((3, 1), "f32"))
    data = [np.full((1, 1), 7.9e3, "f4"), np.array([[-2.5e-4], [-4.5e3], [4.5e3]], "f4")]
    sums, alone = op.einsum((x, y), "ab,cb->a"), op.einsum((x, op.sum(y, axis=0)), "ab,b->a")
    made = Instance(op.einsum((a, b), "ab,cb->a"), ((a, data[0]), (b, data[1])), (a, b))
    after = op.einsum((a, op.sum(b, axis=0)), "ab,b->a")
    apart = rule("sum-alone", sums, alone, float=reassociates)
    assert isinstance(Trial(apart, made, after).outcome(data), SidesAgree)
    doubled = rule("sum-doubled", sums, alone * 2, float=reassociates)
    assert isinstance(Trial(doubled, made, after * 2).outcome(data), SidesDiffer)


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


@given(
    st.sampled_from(["float64", "float32", "float16", "bfloat16"]),
    st.floats(-100, 100),
    st.floats(-0.1, 0.1) | st.sampled_from([0.0, 1e-40]),
    st.floats(0, 200),
)
@example("bfloat16", 5.15625, 0.03125, 5.0)
@example("float16", -3.709, 0.002, 3.7)
@example("float32", 0.0, 1e-40, 0.0)
def test_what_a_contract_allows_freer_ones_do(
    of: str, value: float, apart: float, magnitude: float
) -> None:
    left, right = (np.array([each]).astype(of) for each in (value, value + apart))
    order = [exact, signless_zero, fused, reassociates, approx(1e-6), approx(1e-4), approx(1e-1)]
    found = [difference(left, right, each, magnitude) is None for each in order]
    assert found == sorted(found)


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


BROKEN = {
    "none.py": (None, "cannot-read", None),
    "empty.py": ("", "unknown-pack", None),
    "syntax.py": ("x = 1\ndef f(:\n", "broken-file", 2),
    "import.py": ("import nothing_there\n", "broken-file", 1),
    "fails.py": ("x = 1\n\nx / 0\n", "broken-file", 3),
}


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.parametrize("command", [["rules", "check"], ["fuzz", "graph", "--rules"]])
def test_a_file_that_is_no_pack_is_wrong_usage(
    name: str, command: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    text, code, line = BROKEN[name]
    file = tmp_path / name
    if text is not None:
        file.write_text(text)
    assert main([*command, str(file)]) == 2
    assert f"{name}:{line}" if line else name in capsys.readouterr().err
    assert main([*command, str(file), "--json"]) == 2
    (found,) = json.loads(capsys.readouterr().out)["diagnostics"]
    assert (found["code"], found["place"]["line"]) == (code, line)


def test_an_unknown_pack_or_contract_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules", "check", "algebr"]) == 2
    assert "algebra" in capsys.readouterr().err
    assert main(["rules", "check", "algebra", "--contract", "roughly"]) == 2
    assert "approx(rel)" in capsys.readouterr().err


def test_a_rule_that_is_refused_at_birth_is_a_bad_rule(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "from plica.rewrite import holes, rule\nx, y = holes('x y')\nBAD = rule('lost', -x, y)\n"
    )
    assert main(["rules", "check", str(file), "--json"]) == 1
    (found,) = json.loads(capsys.readouterr().out)["diagnostics"]
    assert (found["code"], found["place"]["line"]) == ("unbound-hole", 3)


def test_rules_within_a_contract_are_checked(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "from plica.rewrite import holes, rule\n"
        "x, y, z = holes('x y z')\n"
        "A = rule('a', x * y + x * z, x * (y + z), float='approx(0.02)')\n"
        "B = rule('b', -(-x), x)\n"
    )
    asked = ["rules", "check", str(file), "--examples", "5", "--json", "--contract"]
    assert main([*asked, "exact"]) == 0
    assert [each["rule"] for each in json.loads(capsys.readouterr().out)] == ["b"]
    assert main([*asked, "approx(0.05)"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 2


def test_a_refutation_says_for_which_numbers() -> None:
    (x,) = holes("x")
    wrong = rule("exp-of-log", op.exp(op.log(x)), x, float=approx(1e-5))
    assert re.search(r"is nan on the left and (-\S+) on the right, where x = \S*\1\b",
                     str(plica.check(wrong, examples=100)))  # fmt: skip


def test_a_rule_that_was_never_tried_is_untested_and_not_good() -> None:
    never = rule("never", op.nn.relu(x), x, when=lambda m: False)
    verdict = plica.check(never, examples=5)
    assert isinstance(verdict, Untested)
    assert not is_good(verdict)
    assert "the guard declines" in str(verdict)
    assert verdict.to_data()["verdict"] == "untested"


def test_a_rule_that_fails_on_an_instance_is_refuted() -> None:
    def fussy(m: PatternMatch) -> Any:
        assert m.x.type.shape != (), "a scalar"
        return m.x

    made = tabled("fussy", op.negative(-x), fussy)
    verdict = plica.check(made, examples=50)
    assert isinstance(verdict, Refuted)
    assert "AssertionError: a scalar" in verdict.counterexample.reason


def test_a_pack_is_checked_by_its_name() -> None:
    named = plica.check("view", examples=1)
    assert [each.rule for each in named] == [each.rule for each in plica.check(VIEW, examples=1)]
    wrong: Any = 3
    with pytest.raises(RuleRefused, match="no pack and no rules"):
        plica.check(wrong)


def test_verdicts_read_as_sentences() -> None:
    i, j = index_holes("i j")
    assert str(plica.check(rule("sum", i + j, j + i))).startswith("sum: proved, for all integers")
    twice = rule("twice", op.negative(-x), x)
    assert str(plica.check(twice, examples=3)) == "twice: tested on 3 instances"
    text = str(plica.check(rule("off", i + 1, i)))
    assert text == "off: refuted, the sides differ at i = 0: 1 on the left and 0 on the right"


def test_predicates_of_constants_are_honoured() -> None:
    (i,) = index_holes("i")
    (p,) = index_constants("p", when=lambda c: c.value > 0)
    (far,) = index_constants("p", when=lambda c: c.value > 100)
    (no,) = index_constants("p", when=lambda c: False)
    good = plica.check(rule("good", (i * p) // p, i))
    assert isinstance(good, Tested)
    assert good.cases == 12
    assert isinstance(plica.check(rule("far", (i * far) // far, i)), Tested)
    assert isinstance(plica.check(rule("no", (i * no) // no, i)), Untested)
    computed = rule("computed", (i * far) // far, lambda m: m.i)
    assert isinstance(plica.check(computed), Tested)
    bad = plica.check(rule("bad", (i * p) // p, i + 1))
    assert isinstance(bad, Refuted)
    assert dict(bad.counterexample.inputs)["p"] > 0


def test_a_counterexample_of_a_computed_index_rule_has_the_names_of_the_rule() -> None:
    (i,) = index_holes("i")
    c, d = index_constants("c d")
    wrong = rule("wrong", (i + c) + d, lambda m: m.i + (m.c.value - m.d.value))
    verdict = plica.check(wrong)
    assert isinstance(verdict, Refuted)
    assert [name for name, _ in verdict.counterexample.inputs] == ["c", "d", "i"]


def test_a_pack_within_a_contract_leaves_the_freer_rules_out() -> None:
    loose = pack(
        "loose",
        rule("sum", (x + y) + z, x + (y + z), float=reassociates),
        rule("one", x * 1, x),
        version="1",
    )
    assert [each.name for each in loose.within(exact)] == ["one"]
    assert loose.contract is reassociates


@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_an_order_in_which_no_float_holds_a_product_says_nothing(kind: str) -> None:
    data = np.full(70, 1e7, kind)
    data[0] = 0.0  # first or last: 0, or infinity times 0
    var = Var(Name("x"), tensor((70,), kind.replace("loat", "")))
    turned = rule("turned", op.prod(x), op.prod(op.flip(x)), float=reassociates)
    made = Instance(op.prod(var), ((var, data),), (var,))
    found = Trial(turned, made, op.prod(op.flip(var))).outcome([data])
    assert found == SidesAgree(overflowed=True)
