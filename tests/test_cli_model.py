"""`plica bench`, `explain`, `debug` and `demo`: what they print, write and end with."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from plica import demo
from plica.cli import main
from plica.cli.command import DIFFERS
from plica.cli.offered import COMMANDS
from tests.frontend.zoo.small import SMALL
from tests.report.model import model_file
from tests.report.test_page import data_of

WRONG = """
from plica.op import nn
from plica.rewrite import holes, pack, rule

(x,) = holes("x")
WRONG = pack("wrong", rule("relu-is-nothing", nn.relu(x), x), version="1")
"""

SCRIPT = """
from plica.op import nn
from plica.script import Tensor, f32
import plica

@plica.function
def main(x: Tensor[(4,), f32]) -> Tensor[(4,), f32]:
    return nn.relu(x)
"""


@pytest.fixture
def mlp(tmp_path: Path) -> Path:
    return model_file("mlp", tmp_path)


@pytest.mark.parametrize("name", ["bench", "debug", "demo", "explain"])
def test_help_shows_examples(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([name, "--help"])
    shown = capsys.readouterr().out
    command = COMMANDS.load(name)
    assert command.examples
    assert all(f"  {each}\n" in shown for each in command.examples)


def test_bench_shows_times_kernels_and_the_difference(
    mlp: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--against", "onnxruntime", "--rounds", "1", "--seconds", "0.001"]
    assert main(["bench", str(mlp), *words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    ours, theirs = found["entries"]
    assert (ours["name"], theirs["name"]) == ("plica", "onnxruntime")
    assert ours["difference"] < 1e-5
    assert theirs["ratio"] == pytest.approx(theirs["min"] / ours["min"])
    assert found["contract"] == "approx(0.0001)"
    assert found["kernels"][0]["nodes"] == ["Gemm_2", "Relu"]
    assert all(row["gflops"] > 0 for row in found["kernels"])
    words = ["--rounds", "1", "--seconds", "0.001", "--tolerance", "-1"]
    assert main(["bench", str(mlp), *words]) == DIFFERS  # no difference is below zero
    shown = capsys.readouterr().out
    assert "GFLOP/s" in shown
    assert "Gemm_2" in shown


def test_bench_refuses_systems_and_files_it_does_not_know(
    mlp: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", str(mlp), "--against", "nobody"]) == 1
    assert "onnxruntime" in capsys.readouterr().err
    assert main(["bench", str(mlp), "--against", "onnxruntim"]) == 1
    assert "Did you mean 'onnxruntime'?" in capsys.readouterr().err
    (tmp_path / "m.py").write_text(SCRIPT)
    assert main(["bench", str(tmp_path / "m.py")]) == 1
    assert "ONNX" in capsys.readouterr().err


def test_explain_writes_a_page(
    mlp: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = tmp_path / "report.html"
    assert main(["explain", str(mlp), "-o", str(report)]) == 0
    assert "3 kernels" in capsys.readouterr().out
    (view,) = data_of(report.read_text(encoding="utf-8"))["views"]
    assert "Gemm_2" in view["graph"]["names"].values()


def test_explain_prints_json_and_tables(mlp: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", str(mlp), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["stages"][0]["name"] == "as read"
    assert {"from", "to", "fused", "reason", "because"} == set(found["fusion"][0])
    assert main(["explain", str(mlp)]) == 0
    assert "as read" in capsys.readouterr().out


def test_explain_takes_a_script_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "m.py").write_text(SCRIPT)
    assert main(["explain", str(tmp_path / "m.py"), "--json"]) == 0
    (kernel,) = json.loads(capsys.readouterr().out)["kernels"]
    assert kernel["operators"] == ["nn.relu"]


def test_debug_is_content_with_a_model_that_is_right(
    mlp: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "x.npy", np.ones((1, 8), np.float32))
    assert main(["debug", str(mlp), "--input", f"x={tmp_path / 'x.npy'}"]) == 0
    assert "agree with the interpreter" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["bench", "debug", "explain"])
def test_open_sizes_are_asked_for(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["batch", 3]) for n in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"], "act")], "g", [x], [y])
    onnx.save(helper.make_model(graph), tmp_path / "M.onnx")
    assert main([name, str(tmp_path / "M.onnx")]) == 1
    assert "--dim batch=1" in capsys.readouterr().err


def test_debug_names_the_wrong_rule_and_the_node(
    mlp: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = tmp_path / "wrong.py"
    wrong.write_text(WRONG)
    assert main(["debug", str(mlp), "--packs", str(wrong)]) == DIFFERS
    shown = capsys.readouterr().out
    assert "The rule relu-is-nothing changes what the model means" in shown
    assert "where: Relu (" in shown
    assert main(["debug", str(mlp), "--packs", str(wrong), "--json"]) == DIFFERS
    assert json.loads(capsys.readouterr().out)["step"]["rule"] == "relu-is-nothing"


@pytest.mark.slow
def test_the_small_networks_of_the_demonstration_agree(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", "--small", "--json", "-o", str(tmp_path / "report.html")]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [each["model"] for each in found] == ["resnet18", "mobilenet_v2"]
    assert all(each["difference"] < 1e-5 for each in found)


def test_the_demonstration_compiles_checks_and_reports(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "SMALL", {name: SMALL[name] for name in ("mlp", "transformer")})
    report = tmp_path / "report.html"
    assert main(["demo", "--small", "-o", str(report)]) == 0
    shown = capsys.readouterr().out
    for name in ("mlp", "transformer"):
        assert name in shown
    views = data_of(report.read_text(encoding="utf-8"))["views"]
    assert [each["name"] for each in views] == ["mlp", "transformer"]
    assert "agrees" in shown
    assert "DIFFERS" not in shown


def test_without_other_systems_the_interpreter_is_the_reference(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(demo, "find_spec", lambda name: None)
    said: list[str] = []
    shown = demo.show_network("mlp", SMALL["mlp"], progress=said.append)
    assert (shown.reference, shown.peer) == ("the interpreter", None)
    assert shown.agrees
    assert not shown.study.nodes
    assert len(said) == demo.STEPS
