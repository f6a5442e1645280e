"""`plica rules`: each rule once, as it comes; why one does not apply; broken packages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import plica
from plica import op
from plica.cli import doctor, main
from plica.cli.rules import shown
from plica.ir.graph.expression import const
from plica.rewrite import holes
from plica.rewrite.check import run
from plica.rewrite.check.verdict import Counterexample, Refuted
from tests.library import Library

RULES = """
from plica import op
from plica.op import nn
from plica.rewrite import holes, pack, rule

(x,) = holes("x")
SILU = rule("silu", x * op.sigmoid(x), op.sigmoid(x) * x)
TWICE = rule("relu-relu", nn.relu(nn.relu(x)), nn.relu(x))
PACK = pack("mine", SILU, TWICE, version="1")
WRONG = rule("wrong", x + 1, x)
"""
MODEL = """
import plica
from plica import op
from plica.op import nn
from plica.script import Tensor, f32

@plica.function
def main(x: Tensor[(4,), f32], y: Tensor[(4,), f32]) -> Tensor[(4,), f32]:
    return x * op.sigmoid(y) + nn.relu(nn.relu(x))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "mine.py").write_text(RULES)
    (tmp_path / "model_script.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Library]:
    made = Library(tmp_path, monkeypatch)
    yield made
    made.remove()


@pytest.mark.parametrize("more", [(), ("--seconds", "60"), ("--jobs", "2")])
def test_each_rule_is_checked_once(
    folder: Path, capsys: pytest.CaptureFixture[str], more: tuple[str, ...]
) -> None:
    assert main(["rules", "check", "mine.py", "--examples", "12", *more]) == 1
    said = capsys.readouterr().out
    lines = [
        line for line in said.splitlines() if line.startswith(("silu ", "relu-relu ", "wrong "))
    ]
    assert sorted(line.split()[:2] for line in lines) == [
        ["relu-relu", "tested"], ["silu", "tested"], ["wrong", "refuted,"]
    ]  # fmt: skip
    assert said.count("a smallest counterexample, as a test") == 1


def test_verdicts_come_one_by_one(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    whole = run.check

    def check(rule: object, examples: int, seed: int) -> object:
        seen.append(capsys.readouterr().out)
        return whole(rule, examples, seed)  # type: ignore[call-overload]  # a rule

    monkeypatch.setattr("plica.cli.check_rules.check", check)
    main(["rules", "check", "mine.py", "--examples", "3"])
    assert seen[0] == ""
    assert seen[1].startswith("silu")
    assert seen[2].startswith("relu-relu")


def test_a_rule_for_which_no_time_is_left_is_untested(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["rules", "check", "mine.py", "--seconds", "0.000001"]) == 1
    assert capsys.readouterr().out.count("untested, no time was left for it") == 3


def test_constants_are_shown_by_their_types() -> None:
    weight = const(np.linspace(0, 1, 64, dtype=np.float32).reshape(4, 16))
    line = shown(op.nn.relu(op.matmul(const(np.ones((2, 4), np.float32)), weight)))
    assert 'data("…", (4, 16), f32)' in line


def test_why_a_rule_does_not_apply(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules", "why", "mine.py:silu", "model_script.py"]) == 0
    said = capsys.readouterr().out
    assert "silu applies at 0 places of model_script.py." in said
    assert "x * nn.sigmoid(y)" in said
    assert "the hole x: expected the same as before, the variable x, found the variable y" in said
    assert main(["rules", "why", "mine.py:relu-relu", "model_script.py", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["applies"] == ["nn.relu(nn.relu(x))"]
    assert data["misses"][0]["expected"] == "nn.relu"


def test_a_rule_that_there_is_not(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules", "why", "mine.py:sulu", "model_script.py"]) == 2
    assert "Did you mean 'silu'?" in capsys.readouterr().err


def test_packs_are_compiled_with(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["compile", "model_script.py", "-o", "m.plica", "--packs", "good.py"]
    (folder / "good.py").write_text(RULES.partition("WRONG")[0])
    assert main([*words, "--contract", "approx(1e-4)"]) == 0
    x, y = np.ones(4, np.float32), np.ones(4, np.float32)
    assert np.shape(plica.load("m.plica")(x, y)) == (4,)
    assert main([*words, "--packs", "nowhere"]) == 1
    assert "There is no rule pack 'nowhere'" in capsys.readouterr().err


def test_a_broken_package_breaks_no_command(
    library: Library, capsys: pytest.CaptureFixture[str]
) -> None:
    points = "[plica.packs]\nbrk = brk_rules:NOPE\n\n[plica.instructions]\nbrk = not_there\n"
    library.install("brk", points, brk_rules="")
    assert main(["rules", "list"]) == 0
    said = capsys.readouterr()
    assert "algebra" in said.out
    assert "warning: brk 1.0: The entry point brk of plica.packs" in said.err
    assert main(["fuzz", "schedule", "--examples", "1"]) == 0
    assert "The entry point brk of plica.instructions" in capsys.readouterr().err
    status = {each.group: each for each in doctor._extensions()}
    assert [each.works for each in status.values()] == [False, False]
    assert status["plica.packs"].package == "brk 1.0"
    assert "has no attribute 'NOPE'" in status["plica.packs"].reason


def test_a_clash_of_names_is_an_error_that_names_both(
    library: Library, capsys: pytest.CaptureFixture[str]
) -> None:
    pack = "from plica.rewrite import pack\nP = pack('algebra', version='9')\n"
    library.install("other", "[plica.packs]\nalgebra = other_rules:P\n", "9", other_rules=pack)
    assert main(["rules", "list"]) == 1
    said = " ".join(capsys.readouterr().err.split())
    assert "Two packages offer a rule pack 'algebra': plica and other 9." in said


WRONG_PACK = """
from plica import op
from plica.rewrite import holes, pack, rule

(x,) = holes("x")
WRONG = pack("wrong", rule("up", op.floor(x), op.ceil(x)), version="1")
"""


@pytest.mark.parametrize("command", [("compile", "-o", "m.plica"), ("explain",), ("tune",)])
def test_a_pack_with_a_wrong_rule_is_refused(
    command: tuple[str, ...], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "wrong.py").write_text(WRONG_PACK)
    verb, *more = command
    assert main([verb, "model_script.py", *more, "--packs", "wrong.py"]) == 1
    said = capsys.readouterr().err
    assert "wrong.py:6: error: A rule of wrong.py is wrong. [refuted-rule]" in said
    assert "found: up: refuted" in said
    assert "plica rules check wrong.py" in said
    assert not (folder / "m.plica").exists()


def test_a_wrong_rule_is_only_warned_of_on_request(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "wrong.py").write_text(WRONG_PACK)
    words = ["compile", "model_script.py", "-o", "m.plica", "--packs", "wrong.py"]
    assert main([*words, "--allow-refuted"]) == 0
    assert "warning: wrong.py:6: A rule of wrong.py is wrong." in capsys.readouterr().err
    assert (folder / "m.plica").exists()


def test_whole_numbers_that_refute_a_rule_hint_at_dtypes() -> None:
    (x,) = holes("x")
    whole = Counterexample(x, x, (("x", np.uint8(3)),), 1, 2, "they differ", "")
    part = Counterexample(x, x, (("x", np.float32(3)),), 1, 2, "they differ", "")
    assert "hole('x', dtypes=…)" in str(Refuted("r", whole))
    assert "dtypes" not in str(Refuted("r", part))
