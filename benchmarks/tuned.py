"""What tuning is worth on whole networks: minutes of search, then tuned and untuned code in turns.

    python benchmarks/tuned.py M.onnx … [--minutes 10] [--threads 2] [--db FOLDER] [--lines FILE]
    python benchmarks/tuned.py resnet18 unet …          networks of `benchmarks/models.py` by name
    python benchmarks/tuned.py --merge LINES …          what several such runs wrote, as one table
    python benchmarks/tuned.py --ship --db FOLDER       what they found, as the package used here

Every network is compiled as it comes, tuned for a given number of minutes (`plica tune`), compiled
again with what was found, and both are called in turns in this process; what counts is the least of
all rounds, and how far results are apart.  Each takes its turn twice, as two programs with memory
of their own: how far the two untuned ones are apart is the noise.  Where no kernel is clearly
faster in its network, tuned and untuned code are the same text; then the gain is 1 and what was
measured is noise.  Launches are compared one by one, in the network (profiles, least of runs), with
which part of its roof the untuned one reaches: mean gains of those below 70 %, and of the others,
by time. onnxruntime takes its turn where it is installed.  With `--graph` the passes over the graph
are chosen first.

A network needs two cores, so a larger machine takes several at once, each kept to cores of its own
(`taskset -c 0,1 python benchmarks/tuned.py resnet18 --lines 0.jsonl &` and so on); every network
is one line of JSON in the file.

`--ship` packs what won over its default, and that default, of all databases of the folder that are
of this machine, with a given number of threads, as the default package of it, which compilations
take where no database is given; it is left out while networks are tuned here.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

import numpy as np
import onnx

import plica
from plica.codegen.backend import backend_of, find_target
from plica.pipeline.option import PACKAGES, package_name
from plica.runtime.error import PlicaError
from plica.search.record import Database, Record, fingerprint
from plica.search.record.package import described, packed, winning_records

Array = np.ndarray[Any, Any]

ROUNDS = 60
SECONDS = 0.03
"""How long one turn takes, about."""
BELOW = 0.7
"""Launches below this part of their roof should gain most."""


def inputs(model: onnx.ModelProto) -> list[Array]:
    """Numbers for a network of known sizes."""
    random = np.random.default_rng(0)
    weights = {each.name for each in model.graph.initializer}
    found: list[Array] = []
    for each in model.graph.input:
        if each.name in weights:
            continue
        of = each.type.tensor_type
        shape = [axis.dim_value for axis in of.shape.dim]
        kind = onnx.helper.tensor_dtype_to_np_dtype(of.elem_type)
        values = random.standard_normal(shape) if kind.kind == "f" else random.integers(0, 9, shape)
        found.append(values.astype(kind))
    return found


def in_turns(calls: dict[str, Any], threads: int, rounds: int = ROUNDS) -> dict[str, list[float]]:
    """Seconds of a call of each, round by round, there and back again; of the processor where there
    is one thread, so that others on the machine matter less."""
    clock = time.thread_time if threads == 1 else time.perf_counter
    counts: dict[str, int] = {}
    for name, call in calls.items():
        call()
        start = clock()
        call()
        counts[name] = max(1, round(SECONDS / (clock() - start + 1e-9)))
    found: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(rounds):
        for name in list(calls) if number % 2 == 0 else list(calls)[::-1]:
            start = clock()
            for _ in range(counts[name]):
                calls[name]()
            found[name].append((clock() - start) / counts[name])
    return found


def launches(before: Any, after: Any, values: list[Array]) -> list[dict[str, Any]]:
    """The launches of both executables side by side; none where they are not the same number."""
    shown = [before.profile(*values, runs=8), after.profile(*values, runs=8)]
    more = [[each.profile(*values, runs=8, peak=1.0, bandwidth=1.0) for _ in range(3)]
            for each in (before, after)]  # fmt: skip
    if len(shown[0].rows) != len(shown[1].rows):
        return []
    found = []
    for at, row in enumerate(shown[0].rows):
        least = [
            min([shown[n].rows[at].least, *[each.rows[at].least for each in more[n]]])
            for n in (0, 1)
        ]
        roof = shown[0].roofline(row)
        found.append({"kernel": row.kernel, "before": least[0], "after": least[1], "roof": roof})
    return found


def course_of(of: Any) -> dict[str, Any]:
    """How the search for one kernel went: trials, seconds of the default and of the best, and of
    each stage."""
    return {
        "name": of.subject.task.name,
        "weight": of.subject.task.weight,
        "trials": of.trials,
        "first": of.first,
        "least": of.least,
        "changed": of.best is not None and of.best.point != of.subject.space.default,
        "errors": of.errors,
        "stages": of.stages,
    }


def apart_by(one: list[float], other: list[float]) -> list[float]:
    """How far two programs of the same code are apart: by the least, and by the median."""
    return [max(a / b, b / a) - 1 for a, b in ((min(one), min(other)),
                                               (median(one), median(other)))]  # fmt: skip


def gained(rows: list[dict[str, Any]]) -> float | None:
    """How many times faster some launches are together."""
    after = sum(each["after"] for each in rows)
    return sum(each["before"] for each in rows) / after if after else None


def network(path: Path, asked: argparse.Namespace) -> dict[str, Any]:
    """One network tuned and compared."""
    model = onnx.load(str(path))
    values = inputs(model)
    module = plica.from_onnx(model)
    asked.db.mkdir(parents=True, exist_ok=True)
    database = asked.db / f"{path.stem}.db"
    untuned = plica.compile(module, threads=asked.threads)
    start = time.perf_counter()
    found = plica.tune(
        module, "cpu", 1 << 20, database, 0, False,
        threads=asked.threads, seconds=60.0 * asked.minutes, graph=asked.graph,
    )  # fmt: skip
    took = time.perf_counter() - start
    tuned = plica.compile(module, threads=asked.threads, database=database)
    again = plica.compile(module, threads=asked.threads)
    anew = plica.compile(module, threads=asked.threads, database=database)
    calls: dict[str, Any] = {
        "untuned": lambda: untuned(*values),
        "again": lambda: again(*values),
        "tuned": lambda: tuned(*values),
        "anew": lambda: anew(*values),
    }
    if find_spec("onnxruntime") is not None:
        import onnxruntime as ort

        options = ort.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = asked.threads, 1
        session = ort.InferenceSession(model.SerializeToString(), options)
        feed = {each.name: v for each, v in zip(session.get_inputs(), values, strict=True)}
        calls["onnxruntime"] = lambda: session.run(None, feed)
    times = in_turns(calls, asked.threads)
    same = untuned.source("llvm") == tuned.source("llvm")
    both = {
        "untuned": [*times["untuned"], *times["again"]],
        "tuned": [*times["tuned"], *times["anew"]],
    }
    one, two = (np.asarray(each(*values)[0] if isinstance(each(*values), tuple) else each(*values))
                for each in (untuned, tuned))  # fmt: skip
    apart = float(np.abs(one - two).max() / max(1e-30, np.abs(one).max()))
    rows = launches(untuned, tuned, values)
    low = [each for each in rows if each["roof"] is not None and each["roof"] < BELOW]
    alone = [
        (each.subject.task.weight, each.first, each.least)
        for each in found.courses
        if each.first and each.least
    ]
    return {
        "network": path.stem,
        "seconds": took,
        "trials": found.trials,
        "least": {name: min(each) for name, each in times.items()},
        "median": {name: median(each) for name, each in times.items()},
        "same": same,
        "gain": 1.0 if same else min(both["untuned"]) / min(both["tuned"]),
        "gain_median": 1.0 if same else median(both["untuned"]) / median(both["tuned"]),
        "noise": apart_by(times["untuned"], times["again"]),
        "kernels": len(found.courses),
        "graph": found.graph,
        "in_place": str(found.in_place) if found.in_place is not None else "",
        "courses": [course_of(each) for each in found.courses],
        "alone": sum(w * a for w, a, _ in alone) / max(1e-30, sum(w * b for w, _, b in alone)),
        "below": gained(low),
        "share_below": sum(e["before"] for e in low) / max(1e-30, sum(e["before"] for e in rows)),
        "apart": apart,
        "launches": rows,
    }


def shown(row: dict[str, Any]) -> str:
    """One network on one line."""
    least = {name: f"{1e3 * each:.3f}" for name, each in row["least"].items()}
    below = "-" if row["below"] is None else f"{row['below']:.3f}x"
    same = " (the same code)" if row["same"] else ""
    return (
        f"{row['network']}{same}: {row['gain']:.3f}x by the least, {row['gain_median']:.3f}x by "
        f"the median (noise {row['noise'][0]:.1%}, {row['noise'][1]:.1%}; kernels alone "
        f"{row['alone']:.3f}x; below 70 % of the roof {below}, {row['share_below']:.0%} of the "
        f"time); {row['trials']} trials of {row['kernels']} kernels in {row['seconds']:.0f} s; "
        f"ms {least}; {row['apart']:.1e} apart; {row['in_place']} {row.get('graph', '')}"
    )


def summed_up(rows: list[dict[str, Any]]) -> str:
    """The means of several networks."""
    found = [f"gain {geometric_mean([each['gain'] for each in rows]):.3f}x"]
    found.append(f"by the median {geometric_mean([each['gain_median'] for each in rows]):.3f}x")
    if below := [each["below"] for each in rows if each["below"]]:
        found.append(f"launches below 70 % of their roof {geometric_mean(below):.3f}x")
    peers = [each["least"] for each in rows if "onnxruntime" in each["least"]]
    for name, more in (("untuned", "again"), ("tuned", "anew")) if peers else ():
        ratios = [each["onnxruntime"] / min(each[name], each[more]) for each in peers]
        found.append(f"{name} {geometric_mean(ratios):.3f}x onnxruntime")
    return f"mean of {len(rows)}: " + ", ".join(found)


def merged(paths: list[Path]) -> list[dict[str, Any]]:
    """What several runs wrote, the last line of each network."""
    found: dict[str, dict[str, Any]] = {}
    for each in paths:
        for line in each.read_text().splitlines():
            row = json.loads(line)
            found[row["network"]] = row
    return list(found.values())


def file_of(name: str, folder: Path) -> Path:
    """The file of a network: the one that is named, or one that is made."""
    if Path(name).suffix == ".onnx":
        return Path(name)
    from benchmarks.models import write

    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.onnx"
    write(name, 1, path)
    return path


def shipped(folder: Path, threads: int) -> str:
    """Write the default package of this machine, and say what it holds."""
    here = find_target("cpu")
    target = backend_of(here).with_threads(here, threads)
    name = fingerprint(target)
    records: list[Record] = []
    for path in sorted(folder.glob("*.db")):
        with Database(path) as database:
            records += database.all(target=name)
    text = packed(winning_records(records), keep=2)
    PACKAGES.mkdir(exist_ok=True)
    path = PACKAGES / package_name(target)
    path.write_text(text, encoding="utf-8")
    return f"{path}: {described(text).count // 2} works of {name}"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*")
    parser.add_argument("--merge", type=Path, nargs="+", default=[])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--db", type=Path, default=Path("tuned"))
    parser.add_argument("--lines", type=Path)
    parser.add_argument("--graph", action="store_true", help="choose the passes over the graph")
    parser.add_argument("--ship", action="store_true", help="write the package of this machine")
    asked = parser.parse_args()
    if asked.ship:
        print(shipped(asked.db, asked.threads))
        return 0
    os.environ["PLICA_RECORDS"] = "off"  # untuned is what nobody tuned
    found = merged(asked.merge)
    for row in found:
        print(shown(row))
    for name in asked.models:
        try:
            row = network(file_of(name, asked.db), asked)
        except PlicaError as error:
            print(f"{name}: {error.diagnostics[0].message}", flush=True)
            continue
        found.append(row)
        if asked.lines is not None:
            with asked.lines.open("a") as file:
                file.write(json.dumps(row) + "\n")
        print(shown(row), flush=True)
    if found:
        print(summed_up(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
