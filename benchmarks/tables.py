"""Tables of measured candidates, and the model of cost that is learned from them.

    python benchmarks/tables.py collect FILE.npz --seed S [--first N --step K] [--seconds T]
    python benchmarks/tables.py learn FILE.npz … [--hold 0.25] [--split 0]
    python benchmarks/tables.py replay FILE.npz … [--hold 0.25] [--split 0]
    python benchmarks/tables.py ship FILE.npz …

`collect` draws operators as `cliffs.py` does, takes the pieces of work whose schedules are worth
a search, and measures candidates of each on one core: what every sketch decides by itself, then in
thirds drawn points, and changes of the fastest.  A file holds their features, costs and points.

`learn` parts the work, never the candidates of one piece of it, into what is learned from and what
is held out, fits a model, and says how well it orders the candidates of work it has never seen:
pairs that differ by more than 5 %, and how many of the best 30 are among its first 30; then the
same once it has also seen 32 candidates of that work.

`replay` says how many candidates of such work are measured until one is within 5 % of the best, in
batches of 8: drawn, as reckoned, by a model of what was seen here alone (after the defaults, as
they lie in the space), and by one that stands on other work.  `ship` writes the model of all tables
that comes with the package.  `benchmarks/tables.npz` is what that was made of.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from statistics import mean, median
from typing import Any

import numpy as np
from attrs import frozen

from benchmarks.cliffs import drawn
from plica.codegen.backend import backend_of, find_target
from plica.codegen.lower.scheduled import machine_of
from plica.codegen.target import Target
from plica.frontend.onnx import from_onnx
from plica.rewrite.optimise import DEFAULT_CONTRACT
from plica.runtime.error import PlicaError
from plica.search.feature.layout import Floats
from plica.search.feature.packs import Packs
from plica.search.measure import LocalMeasurer, TrialLimits
from plica.search.model import Analytical, Model, SummedTime, pairwise_accuracy, recall
from plica.search.model import shipped as shipped_model
from plica.search.observation import point_text
from plica.search.policy.cost_judge import Features, stores
from plica.search.space import Point, Space
from plica.search.space_of import space_of
from plica.search.task import Task, tasks

LEAST_SIZE = 64
"""Work with fewer schedules needs no model: all of them can be tried."""

PIECES = 2
"""Of one operator at most so many pieces of work, those with the largest spaces."""

NOISE = 0.05
"""Pairs that differ by less say nothing."""

BATCH = 8
"""So many are measured at once."""

SEEN = 32
"""After so many candidates of the work at hand a search has a model of its own."""


@frozen(eq=False)
class MeasuredTable:
    """The candidates of one piece of work: their features, seconds, and points as text."""

    name: str
    packs: Packs
    costs: Floats
    points: tuple[str, ...]


def collected(
    seed: int, numbers: Iterator[int], each: int, seconds: float
) -> Iterator[MeasuredTable]:
    """Tables of drawn operators, as long as there is time."""
    here = find_target("cpu")
    target = backend_of(here).with_threads(here, 1)
    assert isinstance(target, Target)
    machine = machine_of(target)
    features = stores(machine)
    end = time.monotonic() + seconds
    with LocalMeasurer(
        target, TrialLimits(repeats=6, least=0.003, run_seconds=6.0), builders=1
    ) as measurer:
        for number in numbers:
            name, made, _ = drawn(seed, number)
            try:
                found = tasks(from_onnx(made), DEFAULT_CONTRACT, (), target)
            except PlicaError as error:
                print(f"{number} {name[:60]}: {error.diagnostics[0].code}", flush=True)
                continue
            spaces = [(task, space_of(task, machine)) for task in found]
            worth = [
                (task, space)
                for task, space in spaces
                if space.sketches and space.size >= LEAST_SIZE
            ]
            worth.sort(key=lambda pair: -pair[1].size)
            for task, space in worth[:PIECES]:
                if time.monotonic() > end:
                    return
                table = _table(
                    f"{seed}/{number} {name} | {task.name}",
                    task,
                    space,
                    features,
                    measurer,
                    each,
                    end,
                )
                if table is not None:
                    yield table


def _table(  # noqa: PLR0917  # an experiment is these things
    name: str,
    task: Task,
    space: Space,
    features: Features,
    measurer: LocalMeasurer,
    each: int,
    end: float,
) -> MeasuredTable | None:
    random = Random(name)
    costs: dict[Point, float] = {}
    tried: set[Point] = set()

    def measured(points: Sequence[Point]) -> None:
        fresh = [point for point in dict.fromkeys(points) if point not in tried]
        tried.update(fresh)
        if not fresh:
            return
        legal = features(space, fresh).is_legal
        for at in measurer.measure(
            task, space, [p for p, ok in zip(fresh, legal, strict=True) if ok]
        ):
            if at.cost is not None:
                costs[at.point] = at.cost

    measured(space.defaults()[: each // 3])
    for share in (1 / 3, 2 / 3, 1.0):
        while len(costs) < share * each and len(tried) < 6 * each and time.monotonic() < end:
            best = sorted(costs, key=lambda point: costs[point])[:8]
            half = (
                [space.mutated(random.choice(best), random) for _ in range(8)]
                if best and share > 0.5
                else []
            )
            measured([*half, *(space.drawn(random) for _ in range(8 - len(half)))])
    if len(costs) < each // 3:
        return None
    points = list(costs)
    print(f"{name[:90]}: {len(points)} of {len(tried)}, size {space.size}", flush=True)
    return MeasuredTable(
        name,
        features(space, points),
        np.array([costs[p] for p in points]),
        tuple(map(point_text, points)),
    )


def saved(tables: Sequence[MeasuredTable], path: Path) -> None:
    """Write tables as one file."""
    arrays: dict[str, Any] = {"names": np.array(json.dumps([each.name for each in tables]))}
    for at, each in enumerate(tables):
        arrays[f"rows{at}"] = each.packs.rows.astype(np.float16)
        arrays[f"owner{at}"] = each.packs.owner.astype(np.int16)
        arrays[f"costs{at}"] = each.costs.astype(np.float32)
        arrays[f"points{at}"] = np.array(json.dumps(each.points))
    np.savez_compressed(path, **arrays)


def read(paths: Sequence[Path]) -> list[MeasuredTable]:
    """The tables of some files."""
    found = []
    for path in paths:
        with np.load(path) as data:
            for at, name in enumerate(json.loads(str(data["names"]))):
                costs = data[f"costs{at}"].astype(np.float64)
                rows = np.nan_to_num(
                    data[f"rows{at}"].astype(np.float64), posinf=65504.0, neginf=-65504.0
                )
                packs = Packs(rows, data[f"owner{at}"].astype(np.int64), len(costs))
                points = tuple(json.loads(str(data[f"points{at}"])))
                found.append(MeasuredTable(name, packs, costs, points))
    return found


def fitted(tables: Sequence[MeasuredTable]) -> SummedTime:
    """What is learned from tables; costs of one piece of work compare."""
    whole = tables[0].packs
    for each in tables[1:]:
        whole = whole + each.packs
    costs = np.concatenate([each.costs for each in tables])
    groups = np.repeat(np.arange(len(tables)), [len(each.costs) for each in tables])
    return SummedTime(rounds=400, depth=6, rate=0.06).fitted(whole, costs, groups)


def family(of: MeasuredTable) -> str:
    """Candidates of one operator are never parted."""
    return of.name.split(" ", 1)[0]


def parted(
    tables: Sequence[MeasuredTable], part: float, split: int
) -> tuple[list[MeasuredTable], list[MeasuredTable]]:
    """What is learned from, and what is held out, by operator."""
    names = sorted({family(each) for each in tables})
    order = np.random.default_rng(split).permutation(len(names))
    out = {names[at] for at in order[: round(part * len(names))]}
    return [e for e in tables if family(e) not in out], [e for e in tables if family(e) in out]


def report(tables: Sequence[MeasuredTable], part: float, split: int) -> None:
    """How well the model orders candidates of work it has not seen."""
    known, unknown = parted(tables, part, split)
    model = fitted(known)
    rows = []
    for each in unknown:
        order = np.random.default_rng(split).permutation(len(each.costs))
        seen, asked = order[:SEEN], order[SEEN:]
        tuned = model.standing.fitted(each.packs[seen], each.costs[seen])
        alone = SummedTime().fitted(each.packs[seen], each.costs[seen])
        everything: list[tuple[Model, Any]] = [
            (model, order),
            (Analytical(), order),
            (tuned, asked),
            (alone, asked),
        ]
        line: list[float] = []
        for judge, which in everything:
            scores, costs = judge.scores(each.packs[which]), each.costs[which]
            line += [
                pairwise_accuracy(scores, costs, NOISE),
                recall(scores, costs, min(30, len(costs) // 3)),
            ]
        rows.append(line)
    print(
        f"{len(known)} tables learned from, {len(unknown)} held out, "
        f"{sum(len(e.costs) for e in tables)} candidates"
    )
    words = ("other work", "reckoned", f"other work + {SEEN} seen", f"{SEEN} seen alone")
    print(f"{'':22} pairs: mean median least   recall: mean median")
    for at, word in enumerate(words):
        pairs, found = [row[2 * at] for row in rows], [row[2 * at + 1] for row in rows]
        print(
            f"{word:22} {mean(pairs):11.3f} {median(pairs):6.3f} {min(pairs):5.2f}   "
            f"{mean(found):12.3f} {median(found):6.3f}"
        )


Order = Callable[[MeasuredTable, list[int], list[int]], list[int]]
"""What is measured next, the first of them, of a table: what was measured, and what was not."""


def trials(of: MeasuredTable, order: Order) -> int:
    """How many candidates are measured until one is nearly the best."""
    enough = of.costs.min() * (1 + NOISE)
    seen: list[int] = []
    left = list(range(len(of.costs)))
    while left:
        for each in order(of, seen, left)[:BATCH]:
            seen.append(each)
            left.remove(each)
            if of.costs[each] <= enough:
                return len(seen)
    return len(seen)


def drawn_order(of: MeasuredTable, seen: list[int], left: list[int]) -> list[int]:
    random = np.random.default_rng((len(of.costs), len(seen)))
    return [left[each] for each in random.permutation(len(left))]


def judged(start: Model, before: bool) -> Order:
    """The order of a model, which is asked before anything is measured or after the defaults."""

    def order(of: MeasuredTable, seen: list[int], left: list[int]) -> list[int]:
        if not seen and not before:
            return left
        model = start.fitted(of.packs[np.array(seen)], of.costs[np.array(seen)]) if seen else start
        scores = model.scores(of.packs[np.array(left)])
        return [left[each] for each in np.argsort(-scores, kind="stable")]

    return order


def replayed(tables: Sequence[MeasuredTable], part: float, split: int) -> None:
    """The trials of several orders over work that the model has not seen."""
    known, unknown = parted(tables, part, split)
    orders = {
        "drawn": drawn_order,
        "reckoned": judged(Analytical(), before=True),
        "defaults, seen here alone": judged(SummedTime(rounds=40), before=False),
        "other work + seen here": judged(fitted(known).standing, before=True),
    }
    print(f"{len(known)} tables learned from, {len(unknown)} replayed; trials to within 5 %")
    for word, order in orders.items():
        found = sorted(trials(each, order) for each in unknown)
        print(
            f"{word:26} mean {mean(found):5.1f}, median {median(found):5.1f}, "
            f"nine in ten {found[9 * len(found) // 10]}"
        )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    kinds = parser.add_subparsers(dest="do", required=True)
    collect = kinds.add_parser("collect")
    collect.add_argument("file", type=Path)
    collect.add_argument("--seed", type=int, required=True)
    collect.add_argument("--first", type=int, default=0)
    collect.add_argument("--step", type=int, default=1)
    collect.add_argument("--each", type=int, default=120)
    collect.add_argument("--seconds", type=float, default=600.0)
    for word in ("learn", "replay", "ship"):
        more = kinds.add_parser(word)
        more.add_argument("files", type=Path, nargs="+")
        more.add_argument("--hold", type=float, default=0.25)
        more.add_argument("--split", type=int, default=0)
    asked = parser.parse_args()
    if asked.do == "collect":
        numbers = iter(range(asked.first, 10**6, asked.step))
        tables: list[MeasuredTable] = []
        for each in collected(asked.seed, numbers, asked.each, asked.seconds):
            tables.append(each)
            saved(tables, asked.file)
        return 0
    known = read(asked.files)
    if asked.do == "replay":
        replayed(known, asked.hold, asked.split)
        return 0
    report(known, asked.hold, asked.split)
    if asked.do == "ship":
        path = Path(shipped_model.__file__).with_name(shipped_model.NAME)
        path.write_bytes(gzip.compress(fitted(known).saved(), 9, mtime=0))
        print(f"{path}: {path.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
