"""Shares of fuzzing: so many cases of one kind, what fired in them, and what was found.

A kind of fuzzer is a row of a table: what it is called, how its cases are run, from a number on,
and what it needs.  A share says which rules, primitives, passes or operators fired, by group, so
that what was asked for and never fired can be told from what held.

>>> one = FuzzShare(2, {"rules": {"add-zero": 1}})
>>> (one + FuzzShare(3, {"rules": {"add-zero": 2}, "passes": {"to-anf": 1}})).counts
{'rules': {'add-zero': 3}, 'passes': {'to-anf': 1}}
"""

from __future__ import annotations

import argparse
import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

Say = Callable[[str], None]
Counts = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class FoundCase:
    """A case that goes wrong, as small as it could be made: who is guilty, how, and a test."""

    guilty: str
    reason: str
    case: int
    pytest: str = field(repr=False)
    files: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    """What the test reads, by its name."""

    @property
    def key(self) -> str:
        """The same for findings that differ in numbers and names of elements alone."""
        words = re.sub(r"\d+(\.\d+)?(e[+-]?\d+)?", "#", f"{self.guilty}: {self.reason}")
        return hashlib.sha256(words[:160].encode()).hexdigest()[:8]


@dataclass(frozen=True, slots=True)
class FuzzShare:
    """How many cases ran, what fired in them how often, by group, and what was found."""

    ran: int = 0
    counts: Counts = field(default_factory=dict)
    findings: tuple[FoundCase, ...] = ()

    def __add__(self, other: FuzzShare) -> FuzzShare:
        return FuzzShare(
            self.ran + other.ran, added(self.counts, other.counts), self.findings + other.findings
        )


def added(*several: Counts) -> dict[str, dict[str, int]]:
    """Counts together, group by group."""
    total: dict[str, Counter[str]] = {}
    for each in several:
        for group, words in each.items():
            total.setdefault(group, Counter()).update(words)
    return {group: dict(sorted(words.items())) for group, words in total.items()}


Run = Callable[[argparse.Namespace, int, int, Say], FuzzShare]
"""So many cases from a number on, as options say; it may end with its first finding."""

Asked = Callable[[argparse.Namespace], Iterable[tuple[str, str]]]
"""What somebody wants tried: the groups and names of counts that must not stay empty."""


def nothing(arguments: argparse.Namespace) -> Iterable[tuple[str, str]]:
    """Nothing in particular is asked for."""
    return ()


@dataclass(frozen=True, slots=True, eq=False)
class FuzzKind:
    """A kind of fuzzer: cases that are tried together, how many of them in proportion to others."""

    name: str
    cases: str
    """What a case is, in the plural."""
    goal: int
    """How many belong to a whole campaign over all kinds."""
    together: int
    """Cases of a share: some seconds of work."""
    run: Run
    asked: Asked = nothing
    every: Callable[[], Mapping[str, Iterable[str]]] = dict
    """All that can fire, by group; what never did is listed."""
    needs: tuple[str, ...] = ()
    """Packages without which it is left out."""
    ways: tuple[tuple[str, ...], ...] = ((),)
    """Options of shares in a campaign over all kinds, in turn."""
    numbers: int = 8
    """How many numbers of cases a share may use up for each that runs: some cases say nothing."""
