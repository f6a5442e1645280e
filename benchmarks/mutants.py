"""The power of `plica.check`: how many wrong rules it refutes, and how many right ones it doubts.

    python benchmarks/mutants.py [--each 40] [--seeds 5] [--draw 0] [--kind axis] [--json out.json]
    python benchmarks/mutants.py --shipped 200000 [--seed 0]

Wrong rules are made of right ones, so many of each kind of mistake, drawn by seed from all shipped
rules (`plica.rewrite.mutate`), and checked with the default budget under several seeds.  A mutant
that is no mistake is left out only by a proof, or because a million cases could not tell its sides
apart, and is printed.  `--shipped` checks the right rules themselves on so many cases (instances,
each with several data sets) in all: none may be refuted.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from plica.rewrite.check.run import check
from plica.rewrite.check.verdict import Proved, Refuted, Tested, Untested
from plica.rewrite.mutate.draw import draw, shipped
from plica.rewrite.mutate.equivalent import cases_without_difference, proof_of
from plica.rewrite.mutate.mutant import KINDS, Mutant

GOAL = 0.99
SECONDS = 2.0


def tried(mutant: Mutant, seed: int) -> dict[str, Any]:
    """The verdict on one mutant, and how long it took."""
    start = time.perf_counter()
    verdict = check(mutant.rule, seed=seed)
    seconds = time.perf_counter() - start
    row = {"kind": mutant.kind, "name": mutant.name, "seed": seed, "seconds": seconds}
    return row | {"refuted": isinstance(verdict, Refuted), "verdict": str(verdict)[:300]}


def power(console: Console, arguments: argparse.Namespace) -> bool:
    """The share of mutants refuted under each seed."""
    drawn = draw(arguments.each, arguments.draw)
    if arguments.kind:
        drawn = tuple(mutant for mutant in drawn if mutant.kind == arguments.kind)
    wrong = [mutant for mutant in drawn if proof_of(mutant) is None]
    console.print(f"{len(drawn)} mutants of {len({each.base for each in drawn})} rules")
    for mutant in drawn:
        proof = proof_of(mutant)
        if proof is not None:
            console.print(f"equivalent: {mutant.name}: {proof}", markup=False)
    rows: list[dict[str, Any]] = []
    right: set[str] = set()
    for seed in range(arguments.seeds):
        for mutant in wrong:
            if mutant.name in right:
                continue
            row = tried(mutant, seed)
            cases = 0 if row["refuted"] else cases_without_difference(mutant)
            if cases:
                right.add(mutant.name)
                console.print(f"equivalent: {mutant.name}: {cases} cases", markup=False)
                continue
            rows.append(row)
            if not row["refuted"]:
                told = f"survived seed {seed}: {row['name']} ({row['verdict']})"
                console.print(told, markup=False)
        console.print(f"seed {seed}: {sum(row['refuted'] for row in rows if row['seed'] == seed)}")
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


def doubted(console: Console, cases: int, seed: int) -> bool:
    """The shipped rules on so many cases in all; whether none is refuted."""
    rules = shipped()
    share = -(-cases // len(rules))
    count = sets = overflowed = proved = 0
    wrong: list[str] = []
    start = time.perf_counter()
    for at, rule in enumerate(rules):
        match check(rule, share, seed):
            case Refuted(name, example):
                wrong.append(name)
                console.print(f"refuted: {name}\n{example.pytest}", markup=False)
            case Tested() as tested:
                count, sets = count + tested.cases, sets + tested.sets
                overflowed += tested.overflowed
            case Proved():
                proved += 1
            case Untested(name, why):
                wrong.append(name)
                console.print(f"untested: {name}, {why}", markup=False)
        if at % 50 == 49:
            spent = time.perf_counter() - start
            console.print(f"{at + 1} rules, {count} cases, {sets} data sets, {spent:.0f} s")
    told = f"{len(rules)} rules, {proved} proved, {count} cases, {sets} data sets, "
    console.print(f"{told}{overflowed} overflowed, {len(wrong)} doubted: {', '.join(wrong)}")
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
    arguments = parser.parse_args()
    console = Console(width=200)
    if arguments.shipped:
        return 0 if doubted(console, arguments.shipped, arguments.seed) else 1
    return 0 if power(console, arguments) else 1


if __name__ == "__main__":
    sys.exit(main())
