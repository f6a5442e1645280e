"""`plica fuzz graph`: the command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from plica.cli import main
from plica.cli.fuzz.graph import stages
from plica.ir.contract import approx, exact
from plica.rewrite.graph import PASSES
from plica.rewrite.packs import OWN

RULES = """
from plica import op
from plica.rewrite import holes, rule

x, y = holes("x y")
WRONG = rule("maximum-is-minimum", op.maximum(x, y), op.minimum(x, y))
"""


def test_every_pass_and_every_pack_is_a_stage() -> None:
    names = {each.name for each in stages(approx(1e-4), ())}
    assert names >= {each.name for each in PASSES}
    assert names >= set(OWN)


def test_modules_agree(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fuzz", "graph", "--examples", "12", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["examples"] == 12
    assert report["contract"] == str(exact)
    assert report["finding"] is None


def test_a_planted_rule_is_found(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fuzz", "graph", "--examples", "60", "--plant", "--json"]) == 1
    finding = json.loads(capsys.readouterr().out)["finding"]
    assert finding["rule"] == "planted-absolute-of-difference"
    assert "def test_planted_absolute_of_difference() -> None:" in finding["pytest"]


def test_rules_of_a_file_are_tried(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.py"
    file.write_text(RULES)
    assert main(["fuzz", "graph", "--examples", "60", "--rules", str(file)]) == 1
    shown = capsys.readouterr().out
    assert "maximum-is-minimum" in shown
    assert "A minimal case, as a test" in shown


def test_native_code_is_tried_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fuzz", "graph", "--examples", "6", "--native", "3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["compiled"] >= 0


def test_every_module_is_compiled(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fuzz", "graph", "--examples", "5", "--compiled", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["finding"] is None
    assert report["compiled"] >= 3
    assert report["fired"] == {}


def test_an_unknown_contract_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fuzz", "graph", "--contract", "roughly"]) == 2
    assert "Unknown float contract" in capsys.readouterr().err


THREE = """
from plica import op
from plica.rewrite import holes, rule

(x,) = holes("x")
A = rule("own-a", op.nn.relu(op.nn.relu(x)), op.nn.relu(x))
B = rule("own-b", op.floor(op.floor(x)), op.floor(x))
C = rule("own-c", op.exp(x * 1), op.exp(x), float="approx(0.02)")
"""


def test_each_own_rule_is_tried_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.py"
    file.write_text(THREE)
    asked = ["fuzz", "graph", "--rules", str(file), "--json", "--examples"]
    assert main([*asked, "2"]) == 0
    captured = capsys.readouterr()
    assert {"own-a", "own-b"} <= json.loads(captured.out)["fired"].keys()
    assert "own-c" in captured.err  # not within the contract, and that is said
    assert main([*asked, "3", "--contract", "approx(0.02)"]) == 0
    assert {"own-a", "own-b", "own-c"} <= json.loads(capsys.readouterr().out)["fired"].keys()


def test_no_examples_are_refused() -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["fuzz", "graph", "--examples", "0"])


def test_programs_and_oracles_of_ones_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(MINE)
    words = ["fuzz", "graph", "--examples", "1", "--rules", "mine.py"]
    asked = [*words, "--programs", "mine.py:programs", "--oracle", "mine.py:no_sums"]
    assert main([*asked, "--json"]) == 1
    found = json.loads(capsys.readouterr().out)["finding"]
    assert (found["kind"], found["rule"], found["reason"]) == ("oracle", "double", "a sum came in")
    for wrong, said in (("mine.py:nothing", "no function 'nothing'"), ("mine", "FILE.py:NAME")):
        assert main([*words, "--oracle", wrong]) == 2
        assert said in capsys.readouterr().err
    assert main([*words, "--programs", "mine.py:numbers"]) != 0
    assert "gives modules" in capsys.readouterr().err


MINE = """
import plica
from plica.rewrite import holes, pack, rule

(x,) = holes("x")
TWICE = pack("twice", rule("double", x * 2, x + x), version="1")

def programs(random):
    size = random.randrange(1, 4)
    return plica.from_text(f'''
@plica.function
def main(v: Tensor[({size},), f32]):
    return op.exp(v) * 2.0
''')

def no_sums(before, after, inputs):
    return "a sum came in" if str(after).count("+") > str(before).count("+") else None

def numbers(random):
    return 3
"""
