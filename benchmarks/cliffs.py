"""Cliffs: operators that nobody named, drawn by a seed, checked and timed beside onnxruntime.

    python benchmarks/cliffs.py --seed SEED [--n 200] [--threads 1] [--shrink] [--json FILE]
    python benchmarks/cliffs.py --seed SEED --refusals      # schedules that are refused, untimed

Each is an ONNX model of one operator, or of a short chain; every family is as likely as any other,
and sizes are drawn so that small ones are as likely as large ones.  Both take turns in bursts; what
counts is the least time of a call: of the processor for one thread.  The table is sorted by the
ratio, the slowest first; below it are quantiles and the geometric mean.  A refusal counts as 0.  A
number is wrong that differs from onnxruntime's and from those of onnx's own reference; with one the
command ends with 1.  With --shrink those below 0.7 come with the smallest sizes that still are so.
Schedules that promised more but were refused are told with their cases, and counted.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import onnx
from onnx import helper
from onnx.reference import ReferenceEvaluator

from benchmarks.drawn_model import Model, Random
from benchmarks.drawn_operators import OPERATORS
from benchmarks.newer_operators import NEWER
from benchmarks.rarer_operators import RARER

FAMILIES = (*OPERATORS, *RARER, *NEWER)

ROUNDS, BURST, TOLERANCE = 7, 0.02, 1e-3

CLIFF = 0.7
"""Cases with a smaller ratio are made smaller, as long as they stay so."""

SMALLER = 5
"""How often sizes are halved."""

Drawn = tuple[str, onnx.ModelProto, list[np.ndarray[Any, Any]]]


def drawn(seed: int, number: int, kept: float = 1.0) -> Drawn:
    """One operator; with less `kept` the same with smaller sizes."""
    random = Random((seed, number), kept)
    family = FAMILIES[int(random.integers(len(FAMILIES)))]
    model = Model(random)
    result = family(model)
    made = model.made(result)
    named = [(name, values.shape) for name, values in model.inputs]
    words = [f"{node.op_type}{_attributes(node)}" for node in made.graph.node]
    words += ["x".join(map(str, model.shape(*each))) for each in named]
    words += [
        "x".join(map(str, sizes)) for name, sizes in named if model.shape(name, sizes) != [*sizes]
    ]
    words += ["x".join(map(str, each.dims)) for each in model.weights if len(each.dims) > 1]
    arrays = [values for _, values in model.inputs]
    return f"{family.__name__}: {' '.join(words)}", made, arrays


def _attributes(node: onnx.NodeProto) -> str:
    kept = {"axis", "axes", "perm", "group", "strides", "dilations", "kernel_shape", "hidden_size"}
    words = [
        f"{each.name}={helper.get_attribute_value(each)}"
        for each in node.attribute
        if each.name in kept
    ]
    return f"({', '.join(words)})".replace(" ", "") if words else ""


def timed(
    calls: list[Callable[[], object]], clock: Callable[[], float] = time.thread_time
) -> list[float]:
    """The least time of a call of each, in turns."""
    best = [math.inf] * len(calls)
    for _ in range(ROUNDS):
        for at, call in enumerate(calls):
            call()
            end = time.perf_counter() + BURST
            while True:
                begin = clock()
                call()
                spent = clock() - begin
                best[at] = min(best[at], spent if spent > 0 else math.inf)
                if time.perf_counter() >= end:
                    break
    return best


def apart(found: np.ndarray[Any, Any], wanted: np.ndarray[Any, Any]) -> float:
    """How far two results are from each other, beside the largest number of one."""
    meant = wanted.astype(np.float64)
    scale = float(np.max(np.abs(meant), initial=0.0)) or 1.0
    return float(np.max(np.abs(found.astype(np.float64) - meant), initial=0.0)) / scale


def measured(made: onnx.ModelProto, arrays: list[Any], threads: int) -> dict[str, Any]:
    """The ratio of one operator, or why there is none."""
    import onnxruntime  # a peer

    import plica  # after the number of threads is known

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    try:
        peer = onnxruntime.InferenceSession(made.SerializeToString(), options)
    except Exception as error:  # noqa: BLE001  # whatever the peer refuses is not compared
        return {"peer": str(error).splitlines()[0][:100]}
    feed = {each.name: value for each, value in zip(peer.get_inputs(), arrays, strict=True)}
    (wanted, *_) = peer.run(None, feed)
    begin = time.process_time()
    try:
        ours = plica.compile(made, cache=False, threads=threads)
    except plica.PlicaError as error:
        return {"refused": str(error).splitlines()[0][:140]}
    compiling = time.process_time() - begin
    found = ours(*arrays)
    found = found[0] if isinstance(found, tuple) else found
    error_ = apart(found, wanted)
    if error_ > TOLERANCE:
        try:
            (meant, *_) = ReferenceEvaluator(made).run(None, feed)
        except RuntimeError:  # it has no such operator: onnxruntime's own kernels, one by one
            meant = _as_written(made, feed)
        error_ = apart(found, np.asarray(meant))
    clock = time.thread_time if threads == 1 else time.perf_counter
    theirs, mine = timed([lambda: peer.run(None, feed), lambda: ours(*arrays)], clock)
    refused = [*filter(None, ours.source("passed-over").splitlines())]
    return {
        "ratio": theirs / mine, "us": mine * 1e6, "peer_us": theirs * 1e6, "error": error_,
        "compile": compiling, "passed_over": refused,
    }  # fmt: skip


def _as_written(made: onnx.ModelProto, feed: dict[str, Any]) -> Any:
    """What onnxruntime gives without rewriting a model: its products of bytes saturate on machines
    that have no dot product of bytes, and it puts them in the place of those of floats."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    peer = onnxruntime.InferenceSession(made.SerializeToString(), options)
    return peer.run(None, feed)[0]


def refusals(seed: int, numbers: Iterable[int], threads: int) -> int:
    """Print the schedules of drawn operators that were refused, and count them."""
    import plica
    from plica.codegen.backend import backend_of
    from plica.pipeline import lower, target_of
    from plica.rewrite.optimise import DEFAULT_CONTRACT

    count = cases = 0
    target = backend_of(target_of("cpu")).with_threads(target_of("cpu"), threads)
    for number in numbers:
        text, made, _ = drawn(seed, number)
        try:
            passed = lower(plica.from_onnx(made), DEFAULT_CONTRACT, (), target).program.passed_over
        except plica.UnsupportedError:  # as where sizes become known while it runs
            continue
        cases, count = cases + 1, count + len(passed)
        for each in passed:
            print(f"{number:4d} {text}: {each}", flush=True)
    print(f"seed {seed}, {cases} operators, {threads} threads: {count} schedules were refused")
    return int(count > 0)


def smallest(seed: int, row: dict[str, Any], threads: int) -> dict[str, Any]:
    """The smallest case like one below the cliff that is below it, too."""
    found = row
    for step in range(1, SMALLER + 1):
        text, made, arrays = drawn(seed, row["number"], kept=0.5**step)
        now = {"number": row["number"], "what": text, **measured(made, arrays, threads)}
        if now.get("ratio", math.inf) < CLIFF:
            found = now
    return found


def main() -> int:
    """Draw, check, time, print; 1 where a number was wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--n", type=int, default=200)
    parser.add_argument("--threads", type=int, default=1)
    names = [each.__name__ for each in FAMILIES]
    parser.add_argument("--family", choices=names, help="those of one family alone")
    parser.add_argument("--only", type=int, nargs="*", help="these numbers alone")
    parser.add_argument("--refusals", action="store_true", help="say which schedules are refused")
    parser.add_argument("--shrink", action="store_true", help="make the slowest smaller")
    parser.add_argument("--seconds", type=float, default=math.inf, help="no more begin after")
    parser.add_argument("--json")
    asked = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, set(cores[-asked.threads :]))
    if asked.refusals:
        return refusals(asked.seed, asked.only or range(asked.n), asked.threads)
    rows: list[dict[str, Any]] = []
    end = time.monotonic() + asked.seconds
    for number in asked.only or range(asked.n):
        if time.monotonic() > end:
            break
        text, made, arrays = drawn(asked.seed, number)
        if asked.family not in (None, text.partition(":")[0]):
            continue
        rows.append({"number": number, "what": text, **measured(made, arrays, asked.threads)})
        print(f"{rows[-1].get('ratio', 0.0):6.2f} {number:4d} {text}", file=sys.stderr, flush=True)
    compared = sorted([row for row in rows if "ratio" in row], key=lambda row: row["ratio"])
    for row in compared:
        wrong = " WRONG" if row["error"] > TOLERANCE else ""
        head = f"{row['ratio']:6.2f}x {row['us']:9.1f} us  {row['compile']:5.2f} s"
        print(f"{head}  {row['number']:4d} {row['what']}{wrong}")
    for row in compared if asked.shrink else ():
        if row["ratio"] < CLIFF:
            least = smallest(asked.seed, row, asked.threads)
            print(f"smallest {row['number']}: {least['ratio']:.2f}x {least['what']}")
    for row in compared:
        for each in row["passed_over"]:
            print(f"passed over {row['number']}: {each}")
    for row in rows:
        if "refused" in row:
            print(f"refused {row['number']} {row['what']}: {row['refused']}")
        if "peer" in row:
            print(f"onnxruntime has no {row['number']} {row['what']}: {row['peer']}")
    ratios = np.array([row.get("ratio", 0.0) for row in rows if "peer" not in row])
    if not ratios.size:
        print(f"seed {asked.seed}: there is nothing to compare")
        return 0
    low, p5, p10, middle = (float(np.percentile(ratios, at)) for at in (0, 5, 10, 50))
    mean = float(np.exp(np.log(np.maximum(ratios, 1e-3)).mean()))
    wrong = sum(row["error"] > TOLERANCE for row in compared)
    refused = sum("refused" in row for row in rows)
    head = f"seed {asked.seed}, {len(ratios)} operators, {asked.threads} threads:"
    passed = sum(len(row["passed_over"]) for row in compared)
    tail = f"median {middle:.2f}, mean {mean:.2f}; refused {refused}, wrong {wrong}"
    tail += f", schedules passed over {passed}"
    print(f"{head} least {low:.2f}, p5 {p5:.2f}, p10 {p10:.2f}, {tail}")
    if asked.json:
        with open(asked.json, "w") as file:
            json.dump(rows, file)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
