"""Planted mistakes: one at each level of the road, found by its fuzzer and blamed by name."""

from __future__ import annotations

import json

import pytest

from plica.cli import main
from plica.runtime.process import can_part

DEEP = pytest.mark.slow
"""The tests of its room ask the fuzzer for such a mistake; here the command is asked."""

# fmt: off
PLANTS = [
    pytest.param("graph --plant pass --seed 6 --examples 60", "stage", "merge-common", marks=DEEP),
    pytest.param("graph --plant rule --examples 60", "rule", "planted-absolute-of-difference"),
    pytest.param("form --plant template --examples 13", "guilty", "register-tile"),
    pytest.param("form --plant pass --examples 13", "guilty", "partition", marks=DEEP),
    pytest.param("kernel --plant bound --seed 3 --examples 9", "guilty", "partition", marks=DEEP),
    pytest.param("kernel --plant order --seed 6 --examples 60", "guilty", "tidy-again", marks=DEEP),
    pytest.param("kernel --plant emitter --seed 6 --examples 60", "guilty", "emit-llvm"),
]
# fmt: on


@pytest.mark.skipif(not can_part(), reason="code that may be wrong runs apart")
@pytest.mark.parametrize(("words", "who", "name"), PLANTS)
def test_it_is_found_and_blamed(
    words: str, who: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fuzz", *words.split(), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["finding"][who] == name


@pytest.mark.slow
def test_the_guilty_form_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fuzz", "form", "--plant", "form", "--examples", "2"]) == 1
    shown = capsys.readouterr().out
    assert "lanes-over-n: means something else" in shown
    assert "sum(" in shown


def test_nothing_is_found_where_nothing_is_planted(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fuzz", "form", "--examples", "13", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["finding"] is None
    assert report["forms"]
    assert report["templates"]


def test_a_row_of_one_run_has_no_loop_over_runs() -> None:
    assert main(["fuzz", "form", "--seed", "706", "--first", "4800", "--examples", "1"]) == 0


def test_an_emitter_without_a_mistake_to_plant_is_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["fuzz", "kernel", "--plant", "emitter", "--target", "c"]) == 1
    assert "A mistake is planted in the emitter of LLVM." in capsys.readouterr().err
