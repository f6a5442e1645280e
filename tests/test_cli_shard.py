"""`plica shard`: plans made, read, shown, checked and written."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest

from plica.cli import main
from plica.frontend.onnx.writer import to_onnx
from plica.frontend.zoo import mlp
from tests.mesh.test_rank import Queues
from tests.report.test_page import data_of


@pytest.fixture
def model(tmp_path: Path) -> str:
    path = tmp_path / "m.onnx"
    onnx.save(to_onnx(mlp((8, 16, 4))), path)
    return str(path)


def test_a_plan_is_made_shown_and_checked(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "plan.json")
    words = ["shard", model, "--mesh", "data=2,model=2"]
    assert main([*words, "--plan", "split result.0 1 on model", "--check", "-o", out]) == 0
    shown = capsys.readouterr().out
    assert "who holds which block" in shown
    assert "simulated on 4 devices" in shown
    assert main([*words, "--plan", out, "--against", "split x 0 on data", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["plan"] == ["split result.0 1 on model"]
    assert data["devices"] == 4


def test_a_page_is_written(model: str, tmp_path: Path) -> None:
    page = tmp_path / "p.html"
    assert main(["shard", model, "--mesh", "model=2", "-o", str(page)]) == 0
    (view,) = data_of(page.read_text())["views"]
    assert view["kind"] == "mesh"
    assert view["graph"]["nodes"]


def test_one_rank_runs_a_model(
    model: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class OneRank(Queues):
        def __init__(self, engine: str | None, timeout: float) -> None:
            assert (engine, timeout) == ("gloo", 5.0)
            super().__init__(0, 1, {}, {})

    monkeypatch.setattr("plica.mesh.transport.transport", OneRank)
    words = ["shard", model, "--mesh", "data=1", "--plan", "split x 0 on data", "--timeout", "5"]
    assert main([*words, "--on", "gloo"]) == 0
    assert "run by gloo on 1 devices: differs by" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--mesh", "model"], "without a size"),
        (["--mesh", "model=2", "--plan", "none.json"], "cannot be read"),
        (["--mesh", "model=2", "--topology", "none.json"], "cannot be read"),
        (["--mesh", "model=2", "--plan", "cut x"], "no step of a plan"),
        (["--mesh", "model=2", "--on", "gloo"], "RANK of this process is not a number"),
    ],
)
def test_refusals(
    model: str, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["shard", model, *words]) == 1
    assert said in capsys.readouterr().err
