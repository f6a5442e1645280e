"""`plica certify` writes certificates, and refuses damaged ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from plica.cli import main

SCRIPT = """
import plica
from plica import op
from plica.script import Tensor, f32

@plica.function
def main(x: Tensor[(2, 3), f32]) -> Tensor[(2,), f32]:
    return op.sum(-(-x), axis=(-1,))
"""


@pytest.fixture
def written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    model, made = tmp_path / "model.py", tmp_path / "model.json"
    model.write_text(SCRIPT)
    assert main(["certify", str(model), "-o", str(made)]) == 0
    assert "good: from" in capsys.readouterr().out
    return made


def test_a_certificate_is_checked(written: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["certify", "--check", str(written), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["matched"] > 0


def test_a_damaged_certificate_is_refused(
    written: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damaged = json.loads(written.read_text())
    damaged["result"] = damaged["source"]
    written.write_text(json.dumps(damaged))
    assert main(["certify", "--check", str(written)]) == 1
    assert "proves nothing" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["no JSON", "[]"])
def test_another_file_is_refused(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "other.json"
    path.write_text(text)
    assert main(["certify", "--check", str(path)]) == 1
    assert "certificate" in capsys.readouterr().err


def test_something_to_certify_is_needed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["certify"]) == 1
    assert "is needed" in capsys.readouterr().err
    assert main(["certify", "--check", str(tmp_path / "none.json")]) == 1
    assert "cannot be read" in capsys.readouterr().err
