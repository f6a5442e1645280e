"""What a release says of itself agrees: version, changelog and citation."""

from __future__ import annotations

import re
from pathlib import Path

import plica

ROOT = Path(__file__).parents[1]


def test_the_citation_names_the_version_and_the_day_of_the_changelog() -> None:
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    latest = re.search(r"^## (\S+) \((.*)\)$", changelog, re.MULTILINE)
    assert latest is not None
    said = [re.search(rf"^{key}: (.*)$", citation, re.MULTILINE) for key in
            ("version", "date-released")]  # fmt: skip
    assert [found and found[1] for found in said] == [latest[1], latest[2]]
    assert latest[1] == plica.__version__
