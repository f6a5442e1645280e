"""docs/features.md: what shows a row is there; slowly, all of it runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "features.md"
ROW = re.compile(r"^\| ([\w.-]+) \| (.+) \| `([^`]+)` \|$")


def rows() -> list[tuple[str, str]]:
    """The ids of the rows, and what shows each."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    table = [
        line for line in lines if line.startswith("| ") and not line.startswith(("| row", "| ---"))
    ]
    found = [ROW.match(line) for line in table]
    assert None not in found, [line for line, row in zip(table, found, strict=True) if row is None]
    return [(row[1], row[3]) for row in found if row is not None]


def test_ids_are_unique() -> None:
    names = [name for name, _ in rows()]
    assert len(set(names)) == len(names)
    assert names


@pytest.mark.parametrize(("row", "shown"), rows(), ids=[name for name, _ in rows()])
def test_what_shows_a_row_is_there(row: str, shown: str) -> None:
    first, *_ = shown.split()
    if first == "plica":
        return
    for each in shown.split():
        path, _, name = each.partition("::")
        assert (ROOT / path).is_file(), row
        if name:
            assert f"def {name}(" in (ROOT / path).read_text(encoding="utf-8"), row


@pytest.mark.slow
@pytest.mark.parametrize(("row", "shown"), rows(), ids=[name for name, _ in rows()])
def test_a_row_is_shown(row: str, shown: str, tmp_path: Path) -> None:
    first, *rest = shown.split()
    tested = [sys.executable, "-m", "pytest", "-n0", "-q", "-p", "no:cacheprovider", *shown.split()]
    command = [sys.executable, "-m", "plica", *rest] if first == "plica" else tested
    cwd = tmp_path if first == "plica" else ROOT
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{row}\n{done.stdout[-4000:]}\n{done.stderr[-2000:]}"
