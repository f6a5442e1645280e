"""What Plica's four users set out to do, as scripts that run: `examples/user_*.py`."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

SCRIPTS = sorted((Path(__file__).parents[1] / "examples").glob("user_*.py"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda each: each.stem)
def test_a_user_does_it(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(script), run_name="__main__")
    assert capsys.readouterr().out


def test_all_four_are_there() -> None:
    names = ["user_deploy", "user_research", "user_rules", "user_schedule"]
    assert [each.stem for each in SCRIPTS] == names


def test_they_use_public_names_only() -> None:
    """One room deep, and nothing that begins with an underscore."""
    for script in SCRIPTS:
        for line in script.read_text(encoding="utf-8").splitlines():
            if line.startswith(("from plica", "import plica")):
                module = line.split()[1]
                assert module.count(".") <= 1, line
                assert "._" not in line
