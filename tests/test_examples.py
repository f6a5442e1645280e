"""What Plica's four users set out to do, as scripts that run: `examples/user_*.py`."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from plica.schedule import instruction

ROOT = Path(__file__).parents[1]
SCRIPTS = sorted((ROOT / "examples").glob("user_*.py"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda each: each.stem)
def test_a_user_does_it(
    script: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(instruction, "_kinds", dict(instruction.kinds()))  # one is added
    runpy.run_path(str(script), run_name="__main__")
    assert capsys.readouterr().out


def test_all_four_are_there() -> None:
    names = ["user_deploy", "user_research", "user_rules", "user_schedule"]
    assert [each.stem for each in SCRIPTS] == names


def test_they_use_public_names_only() -> None:
    """One room deep or on the list of what is public, and nothing with an underscore before it."""
    public = (ROOT / "docs" / "stable.md").read_text(encoding="utf-8")
    for script in SCRIPTS:
        for line in script.read_text(encoding="utf-8").splitlines():
            if line.startswith(("from plica", "import plica")):
                module = line.split()[1]
                assert module.count(".") <= 1 or f"`{module}`" in public, line
                assert "._" not in line
