"""The corpus: findings as test files, one per finding, and the counts.

DIR/graph/test_merge_common_1f0c33ab.py     a test that fails as long as the mistake is there
DIR/onnx/test_interpreted_77aa01b2.py       beside the model and the arrays that it reads
DIR/summary.json                            counts by kind, what fired, each finding once
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attrs import evolve

from plica.rewrite.check.report import as_comment, slug
from plica.rewrite.fuzz.report import FILES, Finding


@dataclass(slots=True)
class KeptFinding:
    """A finding, how often it came, and its file."""

    kind: str
    found: Finding
    command: str
    times: int = 1
    path: Path | None = None

    def to_data(self) -> dict[str, Any]:
        """The finding as JSON data."""
        return {
            "kind": self.kind,
            "guilty": self.found.guilty,
            "reason": self.found.reason,
            "case": self.found.case,
            "times": self.times,
            "command": self.command,
            "file": None if self.path is None else str(self.path),
        }


class Corpus:
    """Findings, each once, on disk where a folder is given."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self.kept: dict[tuple[str, str], KeptFinding] = {}

    def add(self, kind: str, found: Finding, command: str) -> bool:
        """Keep a finding; whether it is a new one."""
        key = kind, found.key
        if (known := self.kept.get(key)) is not None:
            known.times += 1
            if len(found.pytest) < len(known.found.pytest):
                known.found, known.command = found, command
                self._write(known)
            return False
        kept_finding = self.kept[key] = KeptFinding(kind, found, command)
        self._write(kept_finding)
        return True

    def _write(self, of: KeptFinding) -> None:
        if self.folder is None:
            return
        place = self.folder / of.kind
        place.mkdir(parents=True, exist_ok=True)
        name = f"test_{slug(of.found.guilty)[:40]}_{of.found.key}"
        of.path = place / f"{name}.py"
        text = f"# {of.command}\n{of.found.pytest.replace(FILES, name)}"
        if of.path.exists() and len(of.path.read_text()) <= len(text):
            return
        of.path.write_text(text)
        for ending, data in of.found.files.items():
            (place / f"{name}{ending}").write_bytes(data)

    def summarise(self, data: dict[str, Any]) -> None:
        """Writes the counts and each finding."""
        if self.folder is None:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        findings = [kept_finding.to_data() for kept_finding in self.kept.values()]
        text = json.dumps({**data, "findings": findings}, indent=1)
        (self.folder / "summary.json").write_text(text + "\n")


def tested(found: Finding, command: list[str]) -> Finding:
    """A finding with a test: its own, or a rerun of the case."""
    if "def test_" in found.pytest:
        return found
    again = rerun(command, found.guilty, found.reason)
    return evolve(found, pytest=f"{again}\n\n{found.pytest}" if found.pytest else again)


def rerun(command: list[str], guilty: str, reason: str) -> str:
    """A test that runs a case again."""
    return f"""from plica.cli import main

{as_comment(reason)}


def test_{slug(guilty)}() -> None:
    assert main({command!r}) == 0
"""
