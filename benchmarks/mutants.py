"""The power of `plica.check`: how many wrong rules it refutes, and how many right ones it doubts.

    python benchmarks/mutants.py [--each 40] [--seeds 5] [--draw 0] [--kind axis] [--jobs 16]
                                 [--json out.json]
    python benchmarks/mutants.py --shipped 200000 [--seed 0] [--jobs 16]

Wrong rules are made of right ones, this many of each kind of mistake, drawn by seed from all
shipped rules (`tests.rewrite.mutants`), and checked with the default budget under several seeds.  A
mutant that is no mistake is left out only by a proof, or because a million cases could not tell its
sides apart, and is printed.  `--shipped` checks the right rules themselves on a given number of
cases (instances, each with several data sets) in all: none may be refuted.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console
from rich.table import Table

from plica.rewrite.check.run import check
from plica.rewrite.check.verdict import Proved, Refuted, Tested, Untested, Verdict
from plica.rewrite.mutate.mutant import KINDS, Mutant
from plica.runtime.error import PlicaError
from tests.rewrite.mutants.draw import draw, shipped
from tests.rewrite.mutants.equivalent import cases_without_difference, proof_of

GOAL = 0.99
SECONDS = 2.0
RARE = 200
"""Cases asked for where a right rule applied to none of a few."""


def tried(mutant: Mutant, seed: int) -> dict[str, Any]:
    """The verdict on one mutant, and how long it took the processor: others may be at work."""
    start = time.process_time()
    try:
        verdict: Verdict | str = check(mutant.rule, seed=seed)
    except PlicaError as refused:  # a term that has no type: whoever uses the rule is told so
        verdict = f"refused: {refused.diagnostics[0].message}"
    seconds = time.process_time() - start
    row = {"kind": mutant.kind, "name": mutant.name, "seed": seed, "seconds": seconds}
    return row | {"refuted": isinstance(verdict, Refuted | str), "verdict": str(verdict)[:300]}


A = TypeVar("A")
B = TypeVar("B")


def each_of(work: Callable[[int], B], of: Sequence[A], jobs: int) -> Iterator[tuple[A, B]]:
    """What is made of the numbers of things, in their order, in a given number of processes.

    The processes begin as copies of this one: rules are functions, which do not travel.
    """
    _WORK[:] = [work]
    if jobs == 1:
        yield from zip(of, map(work, range(len(of))), strict=True)
        return
    with multiprocessing.get_context("fork").Pool(jobs) as pool:
        yield from zip(of, pool.imap(_worked, range(len(of))), strict=True)


_WORK: list[Callable[[int], Any]] = []
"""What the processes do, which is there before they begin."""


def _worked(number: int) -> Any:
    return _WORK[0](number)


def power(console: Console, arguments: argparse.Namespace) -> bool:
    """The share of mutants refuted under each seed."""
    drawn = draw(arguments.each, arguments.draw)
    if arguments.kind:
        drawn = tuple(mutant for mutant in drawn if mutant.kind == arguments.kind)
    console.print(f"{len(drawn)} mutants of {len({each.base for each in drawn})} rules")
    wrong: list[Mutant] = []
    for mutant, proof in each_of(lambda at: proof_of(drawn[at]), drawn, arguments.jobs):
        if proof is None:
            wrong.append(mutant)
        else:
            console.print(f"equivalent: {mutant.name}: {proof}", markup=False)
    pairs = [(mutant, seed) for mutant in wrong for seed in range(arguments.seeds)]
    rows = [row for _, row in each_of(lambda at: tried(*pairs[at]), pairs, arguments.jobs)]
    missed = [each for each in wrong if any(
        row["name"] == each.name and not row["refuted"] for row in rows)]  # fmt: skip
    right: set[str] = set()
    work = lambda at: cases_without_difference(missed[at])  # noqa: E731  # what the copies do
    for mutant, cases in each_of(work, missed, arguments.jobs):
        if cases:
            right.add(mutant.name)
            console.print(f"equivalent: {mutant.name}: {cases} cases", markup=False)
    rows = [row for row in rows if row["name"] not in right]
    for row in rows:
        if not row["refuted"]:
            told = f"survived seed {row['seed']}: {row['name']} ({row['verdict']})"
            console.print(told, markup=False)
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(rows, indent=1))
    return shown(console, rows, arguments.seeds)


def shown(console: Console, rows: list[dict[str, Any]], seeds: int) -> bool:
    """A table of what was refuted; whether it is enough."""
    table = Table("kind", "mutants", *(f"seed {seed}" for seed in range(seeds)), "median s")
    good = True
    for kind in (*KINDS, "all"):
        of = [row for row in rows if kind in (row["kind"], "all")]
        if not of:
            continue
        counts = []
        for seed in range(seeds):
            refuted = [row["refuted"] for row in of if row["seed"] == seed]
            counts.append(f"{sum(refuted)} ({sum(refuted) / max(1, len(refuted)):.1%})")
            good = good and (kind != "all" or sum(refuted) >= GOAL * len(refuted))
        median = statistics.median(row["seconds"] for row in of)
        good = good and (kind != "all" or median <= SECONDS)
        table.add_row(kind, str(len(of) // seeds), *counts, f"{median:.2f}")
    console.print(table)
    return good


def doubted(console: Console, arguments: argparse.Namespace) -> bool:
    """The shipped rules on a given number of cases in all; whether none is refuted."""
    rules = shipped()
    share = -(-arguments.shipped // len(rules))
    count = sets = overflowed = proved = 0
    wrong: list[str] = []
    start = time.perf_counter()

    def work(at: int) -> tuple[str, str, int, int, int]:
        verdict = check(rules[at], share, arguments.seed)
        if isinstance(verdict, Untested) and share < RARE:
            verdict = check(rules[at], RARE, arguments.seed)
        match verdict:
            case Refuted(name, example):
                return "refuted", f"{name}\n{example.pytest}", 0, 0, 0
            case Tested() as tested:
                return "tested", "", tested.cases, tested.sets, tested.overflowed
            case Proved():
                return "proved", "", 0, 0, 0
            case Untested(name, why):
                return "untested", f"{name}, {why}", 0, 0, 0

    for at, (rule, told) in enumerate(each_of(work, rules, arguments.jobs)):
        verdict, words, *counts = told
        count, sets, overflowed = count + counts[0], sets + counts[1], overflowed + counts[2]
        proved += verdict == "proved"
        if words:
            wrong.append(rule.name)
            console.print(f"{verdict}: {words}", markup=False)
        if at % 50 == 49:
            spent = time.perf_counter() - start
            console.print(f"{at + 1} rules, {count} cases, {sets} data sets, {spent:.0f} s")
    summary = f"{len(rules)} rules, {proved} proved, {count} cases, {sets} data sets, "
    console.print(f"{summary}{overflowed} overflowed, {len(wrong)} doubted: {', '.join(wrong)}")
    return not wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--each", type=int, default=40, help="mutants of each kind")
    parser.add_argument("--seeds", type=int, default=5, help="seeds to check with")
    parser.add_argument("--draw", type=int, default=0, help="the seed mutants are drawn by")
    parser.add_argument("--kind", choices=KINDS, help="only this kind")
    parser.add_argument("--json", help="where to write every verdict")
    parser.add_argument("--shipped", type=int, help="cases of right rules, instead of mutants")
    parser.add_argument("--seed", type=int, default=0, help="the seed right rules are checked with")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    arguments = parser.parse_args()
    console = Console(width=200)
    if arguments.shipped:
        return 0 if doubted(console, arguments) else 1
    return 0 if power(console, arguments) else 1


if __name__ == "__main__":
    sys.exit(main())
