"""Findings and reports, for every kind of fuzzing: what failed, and what was exercised.

>>> one = FuzzReport(2, counts={"rules": {"add-zero": 1}})
>>> (one + FuzzReport(3, counts={"rules": {"add-zero": 2}, "cases": {"compiled": 1}})).to_data()
{'examples': 5, 'seed': 0, 'compiled': 1, 'rules': {'add-zero': 3}, 'finding': None, 'findings': []}
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Generic, TypeAlias, TypeVar

import attrs

Counts: TypeAlias = Mapping[str, Mapping[str, int]]

CASES: Final = "cases"  # the group that counts cases themselves
SKIPPED: Final = "skipped"  # the group that says why cases that were drawn did not run
FILES: Final = "FILES_OF_THE_FINDING"
"""A placeholder in a test for the prefix of the files it reads."""


@attrs.frozen
class Finding:
    """A failing case, shrunk: the failure, the blame, and a test."""

    kind: str
    guilty: str
    reason: str
    pytest: str = attrs.field(default="", repr=False)
    case: int = 0
    parts: tuple[str, ...] = ()
    """The size of the smallest case: steps, nodes, calls or operators."""
    files: Mapping[str, bytes] = attrs.field(factory=dict, repr=False)
    """The files that the test reads, by suffix."""

    def __str__(self) -> str:
        return "\n".join((f"{self.guilty}: {self.reason}", *self.parts, "", self.pytest))

    @property
    def key(self) -> str:
        """The same for findings that differ in numbers and names of elements alone."""
        words = re.sub(r"\d+(\.\d+)?(e[+-]?\d+)?", "#", f"{self.guilty}: {self.reason}")
        return hashlib.sha256(words[:160].encode()).hexdigest()[:8]

    def save(self, folder: Path) -> Path:
        """Write the files that the test reads; the path of the first."""
        folder.mkdir(parents=True, exist_ok=True)
        paths = [folder / f"{self.stem}{ending}" for ending in self.files]
        for path, data in zip(paths, self.files.values(), strict=True):
            path.write_bytes(data)
        return paths[0]

    @property
    def stem(self) -> str:
        """The prefix of the files that the test reads."""
        return f"fuzz-{self.case}"

    def to_data(self) -> dict[str, Any]:
        """The finding as JSON data."""
        return attrs.asdict(self, filter=lambda field, _: field.name != "files")


F_co = TypeVar("F_co", bound=Finding, covariant=True)


@attrs.frozen
class FuzzReport(Generic[F_co]):
    """The number of cases, what they exercised by group, and the findings."""

    examples: int = 0
    seed: int = 0
    counts: Counts = attrs.field(factory=dict)
    findings: tuple[F_co, ...] = ()
    settings: Mapping[str, Any] = attrs.field(factory=dict)
    """The parameters of the run, as JSON data."""

    @property
    def finding(self) -> F_co | None:
        """The first finding, or None."""
        return self.findings[0] if self.findings else None

    def __getitem__(self, group: str) -> Mapping[str, int]:
        """The counts of a group."""
        return self.counts.get(group, {})

    def number(self, word: str) -> int:
        """How many cases something is true of."""
        return self[CASES].get(word, 0)

    def __add__(self, other: FuzzReport[F_co]) -> FuzzReport[F_co]:
        return FuzzReport(
            self.examples + other.examples,
            self.seed,
            added(self.counts, other.counts),
            self.findings + other.findings,
            self.settings,
        )

    def to_data(self) -> dict[str, Any]:
        """The report as JSON data."""
        groups = {group: dict(of) for group, of in self.counts.items() if group != CASES}
        found = [finding.to_data() for finding in self.findings]
        return {
            "examples": self.examples, "seed": self.seed, **self.settings, **self[CASES], **groups,
            "finding": found[0] if found else None, "findings": found,
        }  # fmt: skip


def added(*several: Counts) -> dict[str, dict[str, int]]:
    """Counts together, group by group."""
    total: dict[str, Counter[str]] = {}
    for counts in several:
        for group, words in counts.items():
            total.setdefault(group, Counter()).update(words)
    return {group: dict(sorted(words.items())) for group, words in total.items()}
