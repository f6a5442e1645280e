"""Tables of measured candidates, and the model of cost that is learned from them.

    python benchmarks/tables.py pack FILE.npz FILE.gz … [--most 1000]
    python benchmarks/tables.py store GROUP FILE.npz …
    python benchmarks/tables.py fetch FOLDER
    python benchmarks/tables.py learn TABLES … [--hold 0.25] [--split 0]
    python benchmarks/tables.py replay TABLES … [--hold 0.25] [--split 0]
    python benchmarks/tables.py ship TABLES …
    python benchmarks/tables.py judge TABLES …

Tables are files (`.npz`), or groups of the archive `benchmarks/tables.xz` (`table_archive.py`):
judge, judge-neon, unseen, unseen-neon and replayed, of which no model was learned.  `store` puts
files into the archive as a group.  The tables that the shipped model was learned from (18 MB) are
in the history of this repository; `fetch` writes them to a folder.

`pack` makes a file of what `collecting.py` has measured: features, costs and points of candidates.

`learn` parts the work, never the candidates of one piece of it, into what is learned from and what
is held out, fits a model, and says how well it orders the candidates of work it has never seen:
pairs that differ by more than 5 %, and how many of the best 30 are among its first 30; then the
same once it has also seen 32 candidates of that work.  Tables that are given as `--later` are
parted by themselves, and those of them that are held out are reported apart.

`replay` says how many candidates of such work are measured until one is within 5 % of the best, in
batches of 8 after the default, or after a point that is drawn: drawn, by changes of the fastest
without a model, as reckoned, by a model of what was seen here, and as the guided search does with
such a model and with one that stands on other work, which is the shipped one with `--shipped`; and
on how many pieces of work that halves the trials; `replayed --hold 1 --least 100 --shipped` replays
ten pieces that no model was made of.  `ship` writes the model that was reported as the one that
comes with the package: what is held out is not in it.  It was made by

    python benchmarks/tables.py fetch T
    python benchmarks/tables.py ship T/large_tables.npz --later T/later_tables.npz --also \
        T/tables.npz T/newer_tables.npz T/wider_tables.npz T/neon_tables.npz

`judge` says how well that model orders the candidates of other tables.
"""

from __future__ import annotations

import argparse
import gzip
import json
import lzma
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np
from attrs import frozen

from benchmarks import table_archive
from benchmarks.collecting import MeasuredWork
from benchmarks.table_archive import StoredTable
from plica.codegen.backend import backend_of, find_target
from plica.codegen.lower.processor import machine_of
from plica.codegen.target import Target
from plica.schedule.default.machine import Machine
from plica.search.feature.code import conditions_of
from plica.search.feature.featuriser import NO_ROWS
from plica.search.feature.layout import Floats, Nests, aligned
from plica.search.feature.packs import Packs
from plica.search.feature.store import WIDTH, rows
from plica.search.model import (
    Analytical,
    Blended,
    Model,
    SummedTime,
    pairwise_accuracy,
    recall,
    shipped as shipped_model,
)

NOISE = 0.05
"""Pairs that differ by less say nothing."""

BATCH = 8
"""This many are measured at once."""

STORES = SummedTime(rounds=300, depth=6, rate=0.08)
WHOLES = SummedTime(rounds=300, depth=6, rate=0.07, seed=1, whole=1)
"""How the trees that are shipped are grown: of stores, and of whole candidates."""

LARGE = 900
"""Candidates of a table over which searches are replayed."""

SEEDS = 3
"""How often each replay is done."""

SKETCHES = 5
"""Of this many sketches the best is measured first, after a single candidate."""

NEAR = 2
"""This many of a batch lie next to the fastest."""

DOUBTED = 2
"""Of this many of a batch the model knows little, ..."""

HOPED = 200
"""... of those that it thinks best."""

BELOW = 0.9
"""A default below this part of the best known leaves something to be found."""

SEEN = 32
"""After this many candidates of the work at hand a search has a model of its own."""

OTHERS = 6
"""This many more a table must have to say how well it orders them."""


LEARNED_FROM = (
    "large_tables.npz", "later_tables.npz", "tables.npz", "newer_tables.npz", "wider_tables.npz",
    "neon_tables.npz",
)  # fmt: skip
"""The files that the shipped model was learned from, in the folder of benchmarks of a commit."""

LEARNED_AT = "cd7615d9"
"""That commit."""


@frozen(eq=False)
class MeasuredTable:
    """The candidates of one piece of work: their features, seconds, and points as text."""

    name: str
    packs: Packs
    costs: Floats
    points: tuple[str, ...]


def packed(files: Sequence[Path], most: int) -> Iterator[MeasuredTable]:
    """Tables of measured work, with features of a given number of candidates of each at most."""
    here = find_target("cpu")
    target = backend_of(here).with_threads(here, 1)
    assert isinstance(target, Target)
    machine = machine_of(target)
    for path in files:
        work: MeasuredWork = pickle.loads(gzip.decompress(path.read_bytes()))
        order = np.random.default_rng(0).permutation(len(work.costs))
        kept = sorted([0, *order[order > 0][: most - 1].tolist()])
        nests = [work.nests_of(each) for each in kept]
        sketches = [json.loads(work.points[each])[0] for each in kept]
        yield MeasuredTable(
            work.name,
            Packs.of(rows_of(nests, sketches, machine)),
            np.array([work.costs[each] for each in kept]),
            tuple([work.points[each] for each in kept]),
        )


def rows_of(candidates: Sequence[Nests], sketches: Sequence[int], machine: Machine) -> list[Floats]:
    """The rows of features of some candidates, given which sketch each is of; those that have one
    layout at once.  Defaults of sketches come before their other points."""
    conditions: dict[int, tuple[float, ...]] = {}
    for nests, sketch in zip(candidates, sketches, strict=True):
        conditions.setdefault(sketch, conditions_of(nests))
    found: list[Floats] = [NO_ROWS] * len(candidates)
    left = [[at for at in range(len(candidates)) if candidates[at]]]
    for kind in (_outline, _loops):
        groups: dict[object, list[int]] = {}
        for mine in left:
            for at in mine:
                groups.setdefault((sketches[at], kind(candidates[at])), []).append(at)
        left = []
        for mine in groups.values():
            layout = aligned([candidates[at] for at in mine])
            if layout is None:
                left.append(mine)
                continue
            numbers = np.stack([layout.numbers(candidates[at]) for at in mine])
            about = conditions[sketches[mine[0]]]
            for at, each in zip(mine, rows(layout, numbers, machine, about), strict=True):
                found[at] = each
    assert not left  # those with the same loops are alike
    return found


def _outline(nests: Nests) -> object:
    """What candidates of one layout have in common."""
    return tuple(
        [
            (of.operations, *[(e.buffer, e.written, e.bytes, len(e.shape)) for e in of.accesses])
            for of in nests
        ]
    )


def _loops(nests: Nests) -> object:
    """What tells candidates apart that have no layout in common."""
    return _outline(nests), tuple([(e.key, e.kind) for of in nests for e in of.loops])


def saved(tables: Sequence[MeasuredTable], path: Path) -> None:
    """Write tables as one file."""
    arrays: dict[str, Any] = {"names": np.array(json.dumps([each.name for each in tables]))}
    for at, each in enumerate(tables):
        arrays[f"rows{at}"] = each.packs.rows.astype(np.float16)
        arrays[f"owner{at}"] = each.packs.owner.astype(np.int16)
        arrays[f"costs{at}"] = each.costs.astype(np.float32)
        arrays[f"points{at}"] = np.array(json.dumps(each.points))
    np.savez_compressed(path, **arrays)


def read(sources: Sequence[str]) -> list[MeasuredTable]:
    """The tables of some files and groups of the archive."""
    groups = table_archive.read() if any(not each.endswith(".npz") for each in sources) else {}
    found: list[MeasuredTable] = []
    for source in sources:
        if not source.endswith(".npz") and source not in groups:
            sys.exit(f"There is no group {source!r} in the archive; there are {', '.join(groups)}.")
        stored = in_file(Path(source)) if source.endswith(".npz") else groups[source]
        found += map(measured, stored)
    return found


def in_file(path: Path) -> list[StoredTable]:
    """The tables of a file that `pack` made."""
    with np.load(path) as data:
        return [
            StoredTable(
                name, data[f"rows{at}"], data[f"owner{at}"], data[f"costs{at}"],
                tuple(json.loads(str(data[f"points{at}"]))),
            )
            for at, name in enumerate(json.loads(str(data["names"])))
        ]  # fmt: skip


def measured(of: StoredTable) -> MeasuredTable:
    """A table as models take it."""
    rows = np.clip(of.rows.astype(np.float64), -65504.0, 65504.0)
    # Columns that features had not when a table was measured are not known.
    rows = np.pad(rows, ((0, 0), (0, WIDTH - rows.shape[1])), constant_values=np.nan)
    packs = Packs(rows, of.owner.astype(np.int64), len(of.costs))
    return MeasuredTable(of.name, packs, of.costs.astype(np.float64), of.points)


def fetch(folder: Path) -> None:
    """Write the files that the shipped model was learned from, as a commit of the past has them."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in LEARNED_FROM:
        line = ["git", "show", f"{LEARNED_AT}:benchmarks/{name}"]
        done = subprocess.run(line, cwd=Path(__file__).parent, capture_output=True, check=False)
        if done.returncode:
            why = done.stderr.decode().strip()
            sys.exit(f"This clone has no commit {LEARNED_AT} (git fetch --unshallow): {why}")
        (folder / name).write_bytes(done.stdout)


def fitted(tables: Sequence[MeasuredTable]) -> Blended:
    """What is learned from tables; costs of one piece of work compare."""
    rows = np.concatenate([each.packs.rows for each in tables])
    firsts = np.cumsum([0, *[len(each.costs) for each in tables]])
    owners = [at + each.packs.owner for at, each in zip(firsts, tables, strict=False)]
    whole = Packs(rows, np.concatenate(owners), int(firsts[-1]))
    costs = np.concatenate([each.costs for each in tables])
    groups = np.repeat(np.arange(len(tables)), [len(each.costs) for each in tables])
    return Blended(STORES, WHOLES).fitted(whole, costs, groups)


def family(of: MeasuredTable) -> str:
    """Candidates of one operator are never parted, nor the kernels of one network."""
    word = of.name.split(" ", 1)[0]
    first = word.split("/")[0]
    return word if first.isdigit() else first


def parted(
    tables: Sequence[MeasuredTable], part: float, split: int
) -> tuple[list[MeasuredTable], list[MeasuredTable]]:
    """What is learned from, and what is held out, by operator and network: a part of all, and
    everything of which there is a large table."""
    names = sorted({family(each) for each in tables})
    order = np.random.default_rng(split).permutation(len(names))
    out = {names[at] for at in order[: round(part * len(names))]}
    out |= {family(each) for each in tables if len(each.costs) >= LARGE}
    return [e for e in tables if family(e) not in out], [e for e in tables if family(e) in out]


def report(model: Blended, unknown: Sequence[MeasuredTable], split: int) -> None:
    """How well a model orders candidates of work it has not seen."""
    rows = []
    for each in unknown:
        order = np.random.default_rng(split).permutation(len(each.costs))
        seen, asked = order[:SEEN], order[SEEN:]
        tuned = model.standing.fitted(each.packs[seen], each.costs[seen])
        alone = Blended().fitted(each.packs[seen], each.costs[seen])
        everything: list[tuple[Model, Any]] = [
            (model, order),
            (Analytical(), order),
            (tuned, asked),
            (alone, asked),
        ]
        line: list[float] = []
        for judge, which in everything:
            if len(which) < OTHERS:
                line += [float("nan"), float("nan")]
                continue
            scores, costs = judge.scores(each.packs[which]), each.costs[which]
            line += [
                pairwise_accuracy(scores, costs, NOISE),
                recall(scores, costs, min(30, len(costs) // 3)),
            ]
        rows.append(line)
    print(f"{len(unknown)} tables held out, {sum(len(e.costs) for e in unknown)} candidates")
    words = ("other work", "reckoned", f"other work + {SEEN} seen", f"{SEEN} seen alone")
    print(f"{'':22} pairs: mean median least   recall: mean median")
    for at, word in enumerate(words):
        known = [row for row in rows if row[2 * at] == row[2 * at]]
        if not known:
            continue
        pairs, found = [row[2 * at] for row in known], [row[2 * at + 1] for row in known]
        print(
            f"{word:22} {mean(pairs):11.3f} {median(pairs):6.3f} {min(pairs):5.2f}   "
            f"{mean(found):12.3f} {median(found):6.3f}",
            flush=True,
        )


Order = Callable[[MeasuredTable, list[int], list[int], np.random.Generator], list[int]]
"""What is measured next, the first of them, of a table: what was measured, and what was not."""


def trials(of: MeasuredTable, order: Order, start: str, seed: int) -> int:
    """How many candidates are measured until one is nearly the best, from the default on or from
    one that is drawn."""
    random = np.random.default_rng((seed, len(of.costs)))
    enough = of.costs.min() * (1 + NOISE)
    first = 0 if start == "default" else int(random.integers(len(of.costs)))
    seen: list[int] = []
    left = list(range(len(of.costs)))
    batch = [first]
    while left:
        for each in batch:
            seen.append(each)
            left.remove(each)
            if of.costs[each] <= enough:
                return len(seen)
        batch = order(of, seen, left, random)[: BATCH - (len(seen) == 1)]
    return len(seen)


def drawn_order(
    of: MeasuredTable, seen: list[int], left: list[int], random: np.random.Generator
) -> list[int]:
    """Any."""
    return [left[each] for each in random.permutation(len(left))]


def evolved(
    of: MeasuredTable, seen: list[int], left: list[int], random: np.random.Generator
) -> list[int]:
    """Changes of the fastest: what differs from one of them in the fewest decisions, without a
    model; one in eight is drawn."""
    best = sorted(seen, key=lambda each: of.costs[each])[:BATCH]
    points = _points(of.points)
    found: list[int] = []
    rest = [left[each] for each in random.permutation(len(left))]
    for _ in range(BATCH - 1):
        parent = points[best[int(len(best) * random.random() ** 2)]]
        alike = [each for each in rest if points[each][0] == parent[0]]
        if not alike:
            continue
        child = min(alike, key=lambda each: _differences(points[each][1], parent[1]))
        found.append(child)
        rest.remove(child)
    return [*found, *rest]


@lru_cache(maxsize=64)
def _points(texts: tuple[str, ...]) -> list[Any]:  # a sketch and its decisions
    return [json.loads(each) for each in texts]


def _differences(one: list[list[int]], other: list[list[int]]) -> int:
    return sum(a != b for a, b in zip(one, other, strict=True))


def judged(start: Model) -> Order:
    """The order of a model that learns from what was measured."""

    def order(
        of: MeasuredTable, seen: list[int], left: list[int], random: np.random.Generator
    ) -> list[int]:
        model = start.fitted(of.packs[np.array(seen)], of.costs[np.array(seen)])
        scores = model.scores(of.packs[np.array(left)])
        return [left[each] for each in np.argsort(-scores, kind="stable")]

    return order


def guided(start: Blended) -> Order:
    """The order of the guided search: a sketch of which nothing was seen, what differs least from
    the fastest, what the model knows little of, then what it thinks is fast.  First of all the best
    of several sketches."""

    def order(
        of: MeasuredTable, seen: list[int], left: list[int], random: np.random.Generator
    ) -> list[int]:
        model = start.fitted(of.packs[np.array(seen)], of.costs[np.array(seen)])
        scores = model.scores(of.packs[np.array(left)])
        ranked = [left[each] for each in np.argsort(-scores, kind="stable")]
        points = _points(of.points)
        new: dict[int, int] = {}
        tried = {points[each][0] for each in seen}
        for each in [each for each in ranked if points[each][0] not in tried]:
            new.setdefault(points[each][0], each)
        if len(seen) == 1:
            found = list(new.values())[:SKETCHES]
        else:
            found = list(new.values())[:1]
            found += _near(of, seen, [each for each in ranked if each not in found])
            first = [*found, *[each for each in ranked if each not in found]][: HOPED + len(found)]
            taken = range(len(found))
            found += [first[n] for n in model.hopeful(of.packs[np.array(first)], taken, DOUBTED)]
        return [*found, *[each for each in ranked if each not in found]]

    return order


def _near(of: MeasuredTable, seen: list[int], ranked: list[int]) -> list[int]:
    """What differs least from the fastest, in turns, of those in the order of a model."""
    points = _points(of.points)
    found: dict[int, None] = {}
    for best in sorted(seen, key=lambda each: of.costs[each])[:NEAR]:
        mine = [e for e in ranked if points[e][0] == points[best][0] and e not in found]
        mine.sort(key=lambda each: _differences(points[each][1], points[best][1]))
        found.update(dict.fromkeys(mine[:1]))
    return list(found)


def replayed(
    tables: Sequence[MeasuredTable],
    also: Sequence[MeasuredTable],
    part: float,
    split: int,
    *,
    least: int,
    standing: Blended | None = None,
) -> None:
    """The trials of several orders over work that the model has not seen, of `least` candidates at
    least; the model is learned from other tables if none is given."""
    known, unknown = parted(tables, part, split)
    unknown = [each for each in unknown if len(each.costs) >= least]
    orders = {
        "drawn": drawn_order,
        "evolution, no model": evolved,
        "reckoned": judged(Analytical()),
        "seen here alone": judged(Blended()),
        "guided, seen here alone": guided(Blended()),
        "guided: other work + seen": guided(standing or fitted([*known, *also]).standing),
    }
    print(f"{len(known)} tables learned from, {len(unknown)} replayed; trials to within 5 %")
    found = {
        (start, word): [
            mean(trials(each, order, start, seed) for seed in range(SEEDS)) for each in unknown
        ]
        for start in ("default", "drawn")
        for word, order in orders.items()
    }
    for (start, word), counts in found.items():
        ordered = sorted(counts)
        print(
            f"from {'the default' if start == 'default' else 'a drawn point':13} {word:26} mean "
            f"{mean(counts):6.1f}, median {median(counts):6.1f}, "
            f"nine in ten {ordered[9 * len(ordered) // 10]:.0f}"
        )
    for at, each in enumerate(unknown):
        cold, warm = (found["default", word][at] for word in list(orders)[-2:])
        share = each.costs.min() / each.costs[0]
        print(f"{share:5.0%} of the best by default, {cold:5.1f} -> {warm:5.1f}  {each.name[:70]}")
    _halved(
        unknown, found["default", "guided, seen here alone"], found["default", list(orders)[-1]]
    )


def _halved(tables: Sequence[MeasuredTable], alone: list[float], taught: list[float]) -> None:
    """On how many pieces of work, of those whose default is below 90 % of the best known, the
    trials are half of what they are without what other work has taught."""
    pairs = [
        (one, two)
        for each, one, two in zip(tables, alone, taught, strict=True)
        if each.costs[0] * BELOW > each.costs.min()
    ]
    halved = sum(two <= one / 2 for one, two in pairs)
    less = sum(two < one for one, two in pairs)
    print(
        f"of {len(pairs)} whose default is below 90 % of the best, trials halve on {halved}, "
        f"are fewer on {less}; in all {sum(one for one, _ in pairs):.0f} -> "
        f"{sum(two for _, two in pairs):.0f}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    kinds = parser.add_subparsers(dest="do", required=True)
    pack = kinds.add_parser("pack")
    pack.add_argument("file", type=Path)
    pack.add_argument("parts", type=Path, nargs="+")
    pack.add_argument("--most", type=int, default=1000, help="candidates of one piece of work")
    store = kinds.add_parser("store")
    store.add_argument("group")
    store.add_argument("parts", type=Path, nargs="+")
    kinds.add_parser("fetch").add_argument("folder", type=Path)
    for word in ("learn", "replay", "ship", "judge"):
        more = kinds.add_parser(word)
        more.add_argument("files", nargs="+", help="files, or groups of the archive")
        more.add_argument("--hold", type=float, default=0.25)
        more.add_argument("--split", type=int, default=0)
        more.add_argument("--also", nargs="*", default=[], help="learned from as a whole")
        more.add_argument("--later", nargs="*", default=[], help="parted by themselves")
        more.add_argument("--least", type=int, default=LARGE, help="candidates of what is replayed")
        more.add_argument("--shipped", action="store_true", help="replay with the shipped model")
    asked = parser.parse_args()
    if asked.do == "pack":
        saved(list(packed(asked.parts, asked.most)), asked.file)
        return 0
    if asked.do == "store":
        groups = table_archive.read() if table_archive.PATH.exists() else {}
        groups[asked.group] = [table for path in asked.parts for table in in_file(path)]
        table_archive.write(groups)
        return 0
    if asked.do == "fetch":
        fetch(asked.folder)
        return 0
    tables, also = read(asked.files), read(asked.also)
    if asked.do == "replay":
        standing = shipped_model.shipped().standing if asked.shipped else None
        replayed(tables, also, asked.hold, asked.split, least=asked.least, standing=standing)
        return 0
    if asked.do == "judge":
        report(shipped_model.shipped(), tables, asked.split)
        return 0
    known, unknown = parted(tables, asked.hold, asked.split)
    later = parted(read(asked.later), asked.hold, asked.split)
    model = fitted([*known, *also, *later[0]])
    print(f"{len(known) + len(also) + len(later[0])} tables learned from", flush=True)
    for held_out in (unknown, later[1]):
        if held_out:
            report(model, held_out, asked.split)
    if asked.do == "ship":
        path = Path(shipped_model.__file__).with_name(shipped_model.NAME)
        path.write_bytes(lzma.compress(model.saved(), preset=9))
        print(f"{path}: {path.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
