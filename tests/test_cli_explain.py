"""`plica explain --passes` and `--time-passes`: pipelines of targets, and the passes that ran."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest

from plica.cli import main

MODEL = """
import plica
from plica import op
from plica.script import Tensor, f32

@plica.function
def main(x: Tensor[(8, 16), f32], w: Tensor[(16, 8), f32]) -> Tensor[(8, 8), f32]:
    return op.nn.softmax(op.matmul(x, w), axis=-1)
"""
RECURSIVE = """
import plica
from plica import op
from plica.script import Tensor, f32, i64

@plica.function
def power(x: Tensor[(), f32], n: i64) -> Tensor[(), f32]:
    return f32(1.0) if n == 0 else x * power(x, n - 1)

@plica.function
def main(x: Tensor[(), f32]) -> Tensor[(), f32]:
    return power(x, op.cast(x, dtype=i64))
"""


@pytest.fixture
def model(tmp_path: Path) -> str:
    path = tmp_path / "model.txt"
    path.write_text(MODEL)
    return str(path)


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["explain", *words]) == 0
    return capsys.readouterr().out


def test_the_pipelines_of_all_targets(capsys: pytest.CaptureFixture[str]) -> None:
    text = said(capsys, "--passes")
    for word in ("cpu\n", "cuda\n", "accel\n", "programs with data", "emit-cuda", "winograd"):
        assert word in text


def test_the_pipeline_of_one_target_and_effort(capsys: pytest.CaptureFixture[str]) -> None:
    of, words = {}, ("--passes", "--target", "cpu", "--json", "--effort")
    for effort in ("fast", "default"):
        of[effort] = json.loads(said(capsys, *words, effort))["cpu"]
    assert [each["pass"] for each in of["fast"]] == [each["pass"] for each in of["default"]]
    assert of["fast"] != of["default"]
    assert all(each["why"] for each in of["fast"])


def test_the_road_of_a_model(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    report = json.loads(said(capsys, model, "--time-passes", "--json"))
    runs = report["passes"]
    assert runs[0]["kind"] == "graph"
    assert runs[-1]["pass"] == "emit-llvm"
    assert len({each["kind"] for each in runs}) <= 9
    for one, other in pairwise(runs):
        assert one["output"] == other["input"]
    assert report["built"] >= report["emitted"] == 2
    text = said(capsys, model, "--road")  # its former name
    assert "kinds" in text.splitlines()[-1]


def test_the_road_to_another_machine(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = said(capsys, model, "--time-passes", "--target", "cpu triple=aarch64-unknown-linux-gnu")
    assert "emit-llvm" in text


def test_the_road_of_a_program_with_recursion(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "recursive.txt"
    path.write_text(RECURSIVE)
    assert "emit-routines" in said(capsys, str(path), "--time-passes")


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ([], "no model to explain"),
        (["--passes", "--target", "cdua"], "Did you mean 'cuda'?"),
        (["--passes", "--effort", "most"], "There is no effort 'most'"),
        (["MODEL", "--target", "cuda"], "--time-passes"),
        (["BYTES"], "expected: an .onnx file, or a program of the graph language as text"),
    ],
)
def test_refusals(
    words: list[str], found: str, model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x.npy").write_bytes(b"\x93NUMPY")
    files = {"MODEL": model, "BYTES": str(tmp_path / "x.npy")}
    assert main(["explain", *[files.get(each, each) for each in words]]) != 0
    assert found in capsys.readouterr().err
