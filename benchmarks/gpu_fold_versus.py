"""Folds on a GPU of two source trees, in turns: the time of the old code over that of the new.

    python benchmarks/gpu_fold_versus.py OLD [--new TREE] [--families gates,kept] [--only WORD …]
        [--seconds 170] [--workers 12] [--json FILE]

`OLD` is a checkout of another commit.  Sums and extremes along rows and columns, softmax, layer
norms, argmax, prefix sums, maps of odd rows, steps of LSTM and GRU layers (`gates`) and rows and
columns that a block keeps (`kept`) are compiled by both trees, each in processes of its own; both
artefacts of a case are loaded by this one and timed in turns (`device_time.py`): medians
of CUDA graphs, each run queued behind a kernel that keeps the device busy.  Results are compared,
too.  `old` is timed twice as a control: a case in which it differs from itself by more than 3 %
says nothing.  What is not there after a given number of seconds is left out and named.  A wrong
number ends the command with 1.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

import plica
from benchmarks.device_time import in_turns, of_executable

ROUNDS, RUNS = 3, 15
NOISE = 0.03
MAX_ELEMENTS: Final = 1 << 27

ROWS: Final = ((100000, 7), (100000, 33), (100000, 57), (20000, 128), (8192, 1000), (8192, 1023),
               (8192, 1024), (1280, 4099), (4096, 4096), (1000, 50257), (16, 50257), (1, 1000003),
               (140, 5001))  # fmt: skip
COLUMNS: Final = ((8192, 1024), (8192, 256), (100000, 64), (1000, 77), (300, 1000), (50257, 10),
                  (1023, 12), (64, 100003))  # fmt: skip

# fmt: off
BODIES: Final = {
    "sum":     "op.sum(x, axis=({axis},))",
    "max":     "op.max(x, axis=({axis},))",
    "softmax": "nn.softmax(x, axis={axis})",
    "norm":    "nn.layer_norm(x, g, b, axis=-1)",
    "argmax":  "op.argmax(x, axis={axis})",
    "flat":    "x * g + b",
    "cumsum":  "op.cumsum(x, axis={axis})",
}
# fmt: on
FAMILIES: Final = (*BODIES, "gates", "kept")

KEPT_ROWS: Final = ((12544, 96), (2364, 197), (3000, 400), (8192, 1000), (8192, 1023), (512, 1500),
                    (1280, 4099), (140, 5001))  # fmt: skip
KEPT_COLUMNS: Final = ((1000, 77), (300, 1000), (1023, 12), (256, 4096), (21, 65536))
HIDDEN: Final = (100, 256, 512, 1024)
BATCHES: Final = (1, 2, 8)

CELLS: Final = {
    "lstm": """
    i, f, g, o = op.split(x + nn.dense(h, w), 4, axis=1)
    return op.sigmoid(o) * op.tanh(op.sigmoid(f) * c + op.sigmoid(i) * op.tanh(g))
""",
    "gru": """
    i, f, g = op.split(x, 3, axis=1)
    a, d, e = op.split(nn.dense(h, w) + b, 3, axis=1)
    z = op.sigmoid(f + d)
    return (1.0 - z) * op.tanh(g + op.sigmoid(i + a) * e) + z * h
""",
}


@dataclass(frozen=True)
class Case:
    """A function of one dtype, as a script, by its family and in a few words."""

    family: str
    name: str
    dtype: str
    text: str
    elements: int


COMPILED: Final = """
import json, sys
import plica
text, path = json.loads(sys.argv[1]), sys.argv[2]
exe = plica.compile(plica.from_text(text), target="cuda", cache=False)
exe.save(path)
"""


def cases() -> Iterator[Case]:
    """Those of f32 first."""
    for dtype in ("f32", "f16"):
        for word in BODIES:
            for shape in ROWS:
                yield of_matrix(word, word, dtype, shape, 1)
            if word not in {"norm", "flat"}:
                for shape in COLUMNS:
                    yield of_matrix(word, word, dtype, shape, 0)
        for shape in KEPT_ROWS:
            for word in ("softmax", "norm"):
                yield of_matrix("kept", word, dtype, shape, 1)
        for shape in KEPT_COLUMNS:
            yield of_matrix("kept", "softmax", dtype, shape, 0)
        for hidden in HIDDEN:
            for batch in BATCHES:
                for cell in CELLS:
                    yield of_cell(cell, dtype, hidden, batch)


def script(body: str, dtype: str, **shapes: tuple[int, ...]) -> str:
    """A function of tensors of one dtype."""
    params = ", ".join(f"{name}: Tensor[{shape}, {dtype}]" for name, shape in shapes.items())
    return f"import plica\n\n@plica.function\ndef main({params}):{body}"


def of_matrix(family: str, word: str, dtype: str, shape: tuple[int, int], axis: int) -> Case:
    """What is computed along an axis of a matrix."""
    rows, columns = shape
    vectors = {each: (columns,) for each in "gb" if word in {"norm", "flat"}}
    text = script(f"\n    return {BODIES[word].format(axis=axis)}\n", dtype, x=shape, **vectors)
    prefix = word if family == word else f"{family} {word}"
    return Case(family, f"{prefix} {dtype} {rows}x{columns} axis {axis}", dtype, text,
                rows * columns)  # fmt: skip


def of_cell(cell: str, dtype: str, hidden: int, batch: int) -> Case:
    """A step of a recurrent layer."""
    wide, own = {"lstm": 4, "gru": 3}[cell] * hidden, (batch, hidden)
    last: dict[str, tuple[int, ...]] = {"c": own} if cell == "lstm" else {"b": (wide,)}
    text = script(CELLS[cell], dtype, x=(batch, wide), h=own, w=(wide, hidden), **last)
    return Case("gates", f"gates {cell} {dtype} {hidden} batch {batch}", dtype, text, wide * hidden)


def compiled(case: Case, tree: Path, path: Path) -> str:
    """Compile a case by a tree and save it; why not, where that failed."""
    paths = os.pathsep.join([str(tree), os.environ.get("PYTHONPATH", "")])
    env = {**os.environ, "PYTHONPATH": paths, "PLICA_JOBS": "1"}
    command = [sys.executable, "-c", COMPILED, json.dumps(case.text), str(path)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tree, env=env)
    return "" if ran.returncode == 0 else (ran.stderr.strip().splitlines() or ["?"])[-1]


def both(case: Case, trees: tuple[Path, Path], folder: Path) -> str:
    """The same by both trees."""
    found = [compiled(case, tree, folder / f"{word}.plica")
             for word, tree in zip(("old", "new"), trees, strict=True)]  # fmt: skip
    return "; ".join(filter(None, found))


def measured(case: Case, folder: Path) -> dict[str, Any]:
    """The times of both, and whether their results agree."""
    random = np.random.default_rng(0)
    kind = np.float16 if case.dtype == "f16" else np.float32
    old, again, new = (plica.load(str(folder / f"{word}.plica")) for word in ("old", "old", "new"))
    given = [random.standard_normal(each.shape, np.float32).astype(kind) for each in old.inputs]
    one, two = old(*given), new(*given)
    wrong = not np.allclose(np.asarray(one, np.float64), np.asarray(two, np.float64),
                            rtol=2e-2 if case.dtype == "f16" else 1e-4, atol=1e-3)  # fmt: skip
    timers = {word: of_executable(exe, *given)
              for word, exe in (("old", old), ("new", new), ("again", again))}  # fmt: skip
    times = in_turns(timers, ROUNDS, RUNS)
    before, after = times["old"].median, times["new"].median
    control = times["again"].median / before
    ratio = statistics.geometric_mean([before, times["again"].median]) / after
    noisy = abs(control - 1) > NOISE
    print(f"{case.name:38} old {before * 1e6:9.1f} us | new {after * 1e6:9.1f} us | "
          f"{ratio:5.2f}x | control {control:5.2f}{' noisy' * noisy}{'  WRONG' * wrong}",
          flush=True)  # fmt: skip
    return {"case": case.name, "old": before, "new": after, "ratio": ratio,
            "control": control, "wrong": wrong}  # fmt: skip


def main() -> None:
    """Each case as soon as both trees have compiled it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("old", type=Path)
    parser.add_argument("--new", type=Path, default=Path(__file__).parents[1])
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--families", type=lambda text: text.split(","), default=[*FAMILIES])
    parser.add_argument("--seconds", type=float, default=170.0)
    parser.add_argument("--workers", type=int, default=12)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    begin, trees = time.perf_counter(), (asked.old.resolve(), asked.new.resolve())
    chosen = [each for each in cases() if each.elements <= MAX_ELEMENTS
              and each.family in asked.families
              and all(word in each.name for word in asked.only)]  # fmt: skip
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as root, ThreadPoolExecutor(asked.workers) as pool:
        pending: dict[Future[str], tuple[Case, Path]] = {}
        for number, case in enumerate(chosen):
            folder = Path(root) / str(number)
            folder.mkdir()
            pending[pool.submit(both, case, trees, folder)] = case, folder
        try:
            for each in as_completed(pending, asked.seconds):
                case, folder = pending[each]
                if refusal := each.result():
                    print(f"{case.name:38} FAILED: {refusal[:160]}", flush=True)
                else:
                    rows.append(measured(case, folder))
                if time.perf_counter() - begin > asked.seconds:
                    break
        except TimeoutError:
            pass
        pool.shutdown(wait=True, cancel_futures=True)
    done = {row["case"] for row in rows}
    print(
        "no time:", ", ".join(n for n in [each.name for each in chosen] if n not in done) or "none"
    )
    for word in FAMILIES:
        ratios = [row["ratio"] for row in rows if row["case"].startswith(word)]
        if ratios:
            print(f"{word}: {len(ratios)}, least {min(ratios):.2f}x, "
                  f"geometric mean {statistics.geometric_mean(ratios):.2f}x")  # fmt: skip
    if asked.json:
        asked.json.write_text(json.dumps(rows))
    sys.exit(any(row["wrong"] for row in rows))


if __name__ == "__main__":
    main()
