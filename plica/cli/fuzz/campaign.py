"""Campaigns: fuzzers of one or all kinds for a given time, on many cores; their coverage and
findings.

    $ plica fuzz all --seconds 420 --jobs 14 --corpus found/
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import random
import time
from collections.abc import Iterator, Sequence
from typing import Any, Final

import attrs
from attrs import evolve

from plica.cli.fuzz.corpus import Corpus, tested
from plica.cli.fuzz.jobs import FuzzTask, work_through
from plica.cli.fuzz.kind import FuzzKind, check_names, cores, examples_of
from plica.cli.fuzz.table import KINDS
from plica.rewrite.fuzz.report import CASES, Finding, FuzzReport

NOT_OF_A_KIND: Final = frozenset(
    ("command", "verb", "examples", "first", "seconds", "jobs", "corpus", "keep_going", "json")
)
"""Options of a campaign."""
MAX_LISTED_NAMES: Final = 12  # the number of unexercised names that are printed


@attrs.define
class CampaignLine:
    """One kind in a campaign: its goal and results."""

    kind: FuzzKind
    ways: Sequence[tuple[argparse.Namespace, tuple[str, ...]]]
    first: int = 0
    most: int | None = None  # how many cases at most
    given: int = 0
    tasks: int = 0
    share: FuzzReport[Finding] = attrs.field(factory=FuzzReport)
    missing: str | None = None  # why it does not run here

    def task(self) -> FuzzTask | None:
        """The next share, or None if the goal is reached."""
        kind = self.kind
        left = kind.together if self.most is None else min(kind.together, self.most - self.given)
        if self.missing is not None or left <= 0:
            return None
        arguments, words = self.ways[self.tasks % len(self.ways)]
        room = kind.together * kind.numbers
        fuzz_task = FuzzTask(kind.name, arguments, words, self.first + self.tasks * room, left)
        self.given += left
        self.tasks += 1
        return fuzz_task

    def never(self) -> dict[str, list[str]]:
        """What can fire and never did, by group."""
        found = {
            group: sorted(set(names) - set(self.share[group]))
            for group, names in self.kind.every().items()
        }
        return {group: names for group, names in found.items() if names}

    def seldom(self) -> dict[str, tuple[str, int]]:
        """The least exercised items, by group."""
        found = {}
        for group, names in self.kind.every().items():
            counts = self.share[group]
            least = min(names, key=lambda name: counts.get(name, 0))
            found[group] = (least, counts.get(least, 0))
        return found

    def to_data(self) -> dict[str, Any]:
        """The line as JSON data."""
        if self.missing is not None:
            return {"ran": 0, "skipped": self.missing}
        counts = {group: dict(words) for group, words in self.share.counts.items()}
        seldom = {group: list(least) for group, least in self.seldom().items()}
        return {
            "ran": self.share.examples,
            "counts": counts,
            "never": self.never(),
            "seldom": seldom,
        }


def campaign(kind: FuzzKind, arguments: argparse.Namespace) -> int:
    """Cases of one kind; exit code 1 if one fails or a requested item was never exercised."""
    most = None if arguments.seconds and arguments.examples is None else examples_of(arguments)
    line = CampaignLine(kind, [(arguments, _words(arguments))], arguments.first, most,
                missing=_missing(kind))  # fmt: skip
    corpus = _run([line], arguments)
    idle = [name for group, name in kind.asked(arguments) if not line.share[group].get(name)]
    _tell([line], corpus, arguments, arguments.seed, idle)
    return 1 if corpus.kept or idle or not line.share.examples else 0


def campaign_of_all(arguments: argparse.Namespace) -> int:
    """Cases of all requested kinds; exit code 1 if anything fails."""
    from plica.cli import parser

    check_names(arguments.only, [fuzz_kind.name for fuzz_kind in KINDS], "fuzzer")
    seed = (
        arguments.seed if arguments.seed is not None else random.SystemRandom().randrange(1 << 31)
    )
    lines = []
    for kind in KINDS:
        if arguments.only and kind.name not in arguments.only:
            continue
        ways = []
        for way in kind.ways:
            words = ("--seed", str(seed), *way)
            ways.append((parser().parse_args(["fuzz", kind.name, *words]), words))
        lines.append(CampaignLine(kind, ways, missing=_missing(kind)))
    corpus = _run(lines, arguments)
    _tell(lines, corpus, arguments, seed, [])
    idle = [line for line in lines if line.missing is None and not line.share.examples]
    return 1 if corpus.kept or idle else 0


def _words(arguments: argparse.Namespace) -> tuple[str, ...]:
    """The options of a kind as they would be typed, those of the campaign left out."""
    words: list[str] = []
    for name, value in vars(arguments).items():
        option = {"passes": "--pass"}.get(name, f"--{name.replace('_', '-')}")
        if name in NOT_OF_A_KIND or value is None or value is False:
            continue
        for each in value if isinstance(value, list) else [value]:
            words += [option] if each is True else [option, str(each)]
    return tuple(words)


def _missing(kind: FuzzKind) -> str | None:
    lacking = [need for need in kind.needs if importlib.util.find_spec(need) is None]
    return f"{', '.join(lacking)} is not installed" if lacking else None


def _run(lines: Sequence[CampaignLine], arguments: argparse.Namespace) -> Corpus:
    corpus = Corpus(arguments.corpus)
    named = {each.kind.name: each for each in lines}
    begun = time.monotonic()

    def tasks() -> Iterator[FuzzTask]:
        while True:
            waiting = sorted(lines, key=lambda each: each.given / each.kind.goal)
            fuzz_task = next((task for each in waiting if (task := each.task()) is not None), None)
            if fuzz_task is None:
                return
            yield fuzz_task

    def done(task: FuzzTask, share: FuzzReport[Finding]) -> bool:
        line = named[task.kind]
        for finding in share.findings:
            command = task.command(finding.case)
            new = corpus.add(task.kind, tested(finding, command), f"plica {' '.join(command)}")
            if new and not arguments.json:
                spent = time.monotonic() - begun
                print(f"[{spent:.0f} s] {task.kind}, {finding.guilty}: {finding.reason[:300]}",
                      flush=True)  # fmt: skip
        line.share += evolve(share, findings=())
        return arguments.keep_going or not corpus.kept

    work_through(tasks(), arguments.jobs or cores(), arguments.seconds, done)
    return corpus


def _tell(
    lines: Sequence[CampaignLine],
    corpus: Corpus,
    arguments: argparse.Namespace,
    seed: int,
    idle: Sequence[str],
) -> None:
    """Prints coverage and findings; writes them to the corpus."""
    data: dict[str, Any] = {
        "seed": seed,
        "kinds": {each.kind.name: each.to_data() for each in lines},
        "not_tested": list(idle),
    }
    corpus.summarise(data)
    if arguments.json:
        findings = [kept_finding.to_data() for kept_finding in corpus.kept.values()]
        print(json.dumps({**data, "findings": findings}, indent=2))
        return
    print(f"seed {seed}")
    for line in lines:
        kind = line.kind
        if line.missing is not None:
            print(f"{kind.name:9} left out: {line.missing}")
            continue
        words = [
            f"{len(line.share[group])} {group}, each {least} times or more ({name})"
            for group, (name, least) in line.seldom().items()
        ]
        words += [f"{count} {word}" for word, count in line.share[CASES].items()]
        print(f"{kind.name:9} {'; '.join([f'{line.share.examples:7} {kind.cases}', *words])}")
        for group, names in line.never().items():
            more = (
                f" and {len(names) - MAX_LISTED_NAMES} more"
                if len(names) > MAX_LISTED_NAMES
                else ""
            )
            print(f"          never {group}: {', '.join(names[:MAX_LISTED_NAMES])}{more}")
        for listed in kind.lists(line.share):
            print(f"          {listed}")
    for name in idle:
        print(f"NOT TESTED: {name} never fired.")
    for each in corpus.kept.values():
        print(f"WRONG ({each.times} times) {each.kind}, {each.found.guilty}: {each.found.reason}")
        print(f"  again: {each.command}")
        print(f"  test:  {each.path}" if each.path else each.found.pytest)
    if not corpus.kept:
        print("Nothing was found.")
