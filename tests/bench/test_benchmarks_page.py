"""`benchmarks/README.md` names every script, and no other."""

from __future__ import annotations

import re
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "benchmarks"


def test_the_page_names_every_script_once() -> None:
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    named = re.findall(r"`(\w+\.py)\b", text)
    scripts = {path.name for path in FOLDER.glob("*.py")}
    assert scripts - {*named} == set()
    assert {*named} - scripts == set()


def test_no_file_is_large() -> None:
    assert sum(path.stat().st_size for path in FOLDER.iterdir() if path.is_file()) < 3_000_000
