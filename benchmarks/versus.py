"""Another commit versus this one: speed of kernels and compile time, interleaved.

    git worktree add ../old COMMIT
    python benchmarks/versus.py ../old [--cases KIND] [--only TEXT] [--seed N] [--count N]
                                       [--threads 1] [--seconds 0.9] [--again 2] [--json FILE]
                                       [--target cpu:x86-64-v3]

Cases are operators (drawn), models, folds, winograd, contractions, scans, transposes, places, open
(sizes that come with the call) or all.

Three long-lived processes compile the same ONNX files: the old tree, this tree, and the old tree a
second time as the control.  In turns of a few milliseconds each calls its native entry in batches,
on the same pages of memory; the least CPU time of a call in a turn counts (for several threads the
clock on the wall).  Ratios are of turns that follow each other, and the median of them is shown: a
core changes its clock, and other work comes and goes, for all three.  A line for each case:

    us           the old code, median of turns
    new/old      how many times as fast the new code is (above 1: faster), old being both old sides
    control      the same of the control against the other old side: 1 if nothing disturbed
    compile      CPU seconds of compiling old -> new without a store, and new/old: below 1 is better

A row whose control is off by more than 3 %, or whose new code is more than 4 % faster or slower
than the old, is compiled and measured again at the end (--again times), and the turns of all
attempts count.  Rows whose control stays off are marked `?` and left out of the mean.  Results must
agree: integers bit by bit (`=`: all are identical), floats within 1e-3 of the largest value; a row
in which they do not is marked WRONG, and the command ends with 1.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np
import onnx

from benchmarks.versus_cases import KINDS, Case, cases

HERE: Final = Path(__file__).resolve().parents[1]
TURN_SECONDS: Final = 0.004
MIN_TURNS: Final = 7
MAX_CONTROL: Final = 0.03
"""A row says nothing if the old code differs from itself by more."""
DOUBTFUL_CHANGE: Final = 0.04
"""A row whose new code differs by more is measured again, too: it was disturbed, or it matters."""
MAX_DIFFERENCE: Final = 1e-3
PAGE_BYTES: Final = 4096


@dataclass(frozen=True)
class Row:
    """One case: seconds of a call in each turn and CPU seconds of compiling: old, new, control."""

    name: str
    turns: tuple[tuple[float, float, float], ...]
    compiles: tuple[float, float, float]
    difference: float
    """The largest difference of results, relative to the largest value."""
    identical: bool
    native: bool
    """Whether native entries were timed, not whole calls through Python."""

    @property
    def old(self) -> float:
        """Seconds of a call of the old code."""
        return median(math.sqrt(old * control) for old, _, control in self.turns)

    @property
    def speed(self) -> float:
        """How many times as fast the new code is."""
        return median(math.sqrt(old * control) / new for old, new, control in self.turns)

    @property
    def control(self) -> float:
        """How many times as fast the control is as the same code."""
        return median(old / control for old, _, control in self.turns)

    @property
    def compile_ratio(self) -> float:
        """Seconds of compiling, new over old."""
        return self.compiles[1] / math.sqrt(self.compiles[0] * self.compiles[2])

    @property
    def disturbed(self) -> bool:
        """Whether the old code differs from itself by too much."""
        return abs(math.log(self.control)) > MAX_CONTROL

    @property
    def doubtful(self) -> bool:
        """Whether it should be measured again."""
        return self.disturbed or abs(math.log(self.speed)) > DOUBTFUL_CHANGE

    def joined(self, again: Row) -> Row:
        """The row of both attempts."""
        old, new, control = map(min, self.compiles, again.compiles)
        return replace(self, turns=self.turns + again.turns, compiles=(old, new, control))

    @property
    def wrong(self) -> bool:
        """Whether old and new results differ."""
        return not self.difference <= MAX_DIFFERENCE

    def __str__(self) -> str:
        marks = "?" * self.disturbed + " WRONG" * self.wrong + " (Python)" * (not self.native)
        old, new = math.sqrt(self.compiles[0] * self.compiles[2]), self.compiles[1]
        return (
            f"{self.old * 1e6:10.2f} us  new/old {self.speed:5.3f}  control {self.control:5.3f}  "
            f"compile {old:5.2f} -> {new:5.2f} s ({self.compile_ratio:4.2f})  "
            f"{'=' if self.identical else '~'} {self.name[:90]} {marks}"
        )


class Refused(Exception):
    """A side cannot compile a case, or it died."""


class SideProcess:
    """A process that imports the package of one source tree."""

    def __init__(self, tree: Path) -> None:
        self.tree = tree
        self.start()

    def start(self) -> None:
        """Start it and check where it imports from."""
        given = {
            **os.environ,
            "PYTHONPATH": str(self.tree),
            "PLICA_CACHE": "off",
            "PLICA_JOBS": "1",
        }
        script = Path(__file__).with_name("versus_side.py")
        self.process = subprocess.Popen(
            [sys.executable, "-P", str(script)], cwd=self.tree, env=given, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        imported = Path(self.ask("tree")["file"]).resolve()
        if self.tree not in imported.parents:
            sys.exit(f"The process for {self.tree} imports {imported}.")

    def ask(self, do: str, **words: Any) -> dict[str, Any]:
        """The answer to a request."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps({"do": do, **words}) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            code = self.process.wait()
            self.start()
            raise Refused(f"the process of {self.tree.name} ended with {code}")
        answer: dict[str, Any] = json.loads(line)
        if "refused" in answer:
            raise Refused(f"{self.tree.name}: {answer['refused']}")
        return answer


class Versus:
    """Old, new and control, with a folder for models and memory that all three map."""

    def __init__(
        self, old: Path, folder: Path, threads: int, seconds: float, target: str | None = None
    ) -> None:
        self.folder, self.threads, self.seconds = folder, threads, seconds
        self.target = target
        self.sides = [SideProcess(old), SideProcess(HERE), SideProcess(old)]
        graph = onnx.parser.parse_graph("g (float[4] x) => (float[4] y) { y = Relu(x) }")
        self.compile(Case("imports", onnx.helper.make_model(graph), [np.zeros(4, np.float32)]))

    def compile(self, case: Case) -> list[dict[str, Any]]:
        """Compile a case on all sides."""
        model, inputs = self.folder / "model.onnx", self.folder / "inputs.npz"
        onnx.save(case.model, model)
        np.savez(inputs, *case.inputs)
        words = {"model": str(model), "inputs": str(inputs), "threads": self.threads}
        words["target"] = self.target
        return [side.ask("compile", **words) for side in self.sides]

    def measure(self, case: Case) -> Row:
        """Compile a case, compare its results, time it."""
        compiled = self.compile(case)
        specs = compiled[0]["outputs"]
        if compiled[1]["outputs"] != specs:
            raise Refused(f"outputs are {specs}, and {compiled[1]['outputs']} in the new tree")
        outputs = [np.empty(shape, _dtype(name)) for shape, name in specs]
        offsets, end = [], 0
        for array in (*case.inputs, *outputs):
            offsets.append(end)
            end += -(-max(1, array.nbytes) // PAGE_BYTES) * PAGE_BYTES
        memory = self.folder / "memory"
        content = np.full(end, 0xA5, np.uint8)
        for at, array in zip(offsets, case.inputs, strict=False):
            content[at : at + array.nbytes] = np.ascontiguousarray(array).view(np.uint8).reshape(-1)
        memory.write_bytes(content.tobytes())
        native, results = True, []
        for side in self.sides:
            answer = side.ask("lay", memory=str(memory), offsets=offsets)
            native &= answer["native"]
            written = np.fromfile(memory, np.uint8)
            results.append([
                written[at : at + each.nbytes].view(each.dtype).reshape(each.shape)
                for at, each in zip(offsets[len(case.inputs) :], outputs, strict=True)
            ])  # fmt: skip
        identical = all(a.tobytes() == b.tobytes() for a, b in zip(*results[:2], strict=True))
        apart = max([difference(a, b) for a, b in zip(*results[:2], strict=True)], default=0.0)
        old, new, control = (each["seconds"] for each in compiled)
        turns = self.turns()
        return Row(case.name, turns, (old, new, control), apart, identical, native)

    def turns(self) -> tuple[tuple[float, float, float], ...]:
        """The least seconds of a call of each, turn by turn; who begins changes."""
        found: list[tuple[float, float, float]] = []
        end = time.monotonic() + self.seconds
        while len(found) < MIN_TURNS or time.monotonic() < end:
            taken = [0.0] * 3
            for number in ((len(found) + step) % 3 for step in range(3)):
                taken[number] = self.sides[number].ask("time", seconds=TURN_SECONDS)["least"]
            found.append((taken[0], taken[1], taken[2]))
        return tuple(found)


def _dtype(name: str) -> np.dtype[Any]:
    import ml_dtypes  # names of bfloat16 and its like  # noqa: F401

    return np.dtype(name)


def difference(found: np.ndarray[Any, Any], wanted: np.ndarray[Any, Any]) -> float:
    """The largest difference, relative to the largest finite value; inf where only one is nan.

    >>> difference(np.array([1.0, 2.0]), np.array([1.0, 2.5]))
    0.2
    """
    if found.dtype.kind in "biuSUO":
        return 0.0 if np.array_equal(found, wanted) else math.inf
    one, other = found.astype(np.float64), wanted.astype(np.float64)
    finite = np.isfinite(other)
    if not np.array_equal(one[~finite], other[~finite], equal_nan=True):
        return math.inf
    scale = float(np.max(np.abs(other[finite]), initial=0.0)) or 1.0
    return float(np.max(np.abs(one[finite] - other[finite]), initial=0.0)) / scale


def measured(versus: Versus, chosen: Sequence[Case], again: int) -> Iterator[Row]:
    """A row for each case that both trees compile, printed as it is measured."""
    doubtful: list[tuple[Case, Row]] = []
    for case in chosen:
        try:
            row = versus.measure(case)
        except Refused as reason:
            print(f"   refused  {case.name[:60]}: {reason}", flush=True)
            continue
        print(row, flush=True)
        if row.doubtful:
            doubtful.append((case, row))
        else:
            yield row
    for attempt in range(again):
        still: list[tuple[Case, Row]] = []
        for case, before in doubtful:
            row = before.joined(versus.measure(case))
            print(f"{attempt + 2}:{str(row)[2:]}", flush=True)
            if row.doubtful:
                still.append((case, row))
            else:
                yield row
        doubtful = still
    yield from [row for _, row in doubtful]


def mean(values: Sequence[float]) -> float:
    """The geometric mean, nan of nothing."""
    return math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan


def summary(rows: Sequence[Row]) -> str:
    """Means, the slowest rows, and how many say nothing."""
    calm = sorted([row for row in rows if not row.disturbed], key=lambda row: row.speed)
    lines = [f"slowest: {row.speed:5.3f} (control {row.control:5.3f}) {row.name[:90]}"
             for row in calm[:5] if row.speed < 0.97]  # fmt: skip
    slow = sorted(rows, key=lambda row: -row.compile_ratio)[:3]
    lines += [f"compile: {row.compile_ratio:5.2f} {row.name[:90]}"
              for row in slow if row.compile_ratio > 1.1]  # fmt: skip
    speeds, compiles = [row.speed for row in calm], [row.compile_ratio for row in rows]
    lines.append(
        f"{len(calm)} rows: new/old geometric mean {mean(speeds):.3f}, "
        f"least {min(speeds, default=math.nan):.3f}, "
        f"below 0.95: {sum(speed < 0.95 for speed in speeds)}; "
        f"control mean {mean([row.control for row in calm]):.3f}; "
        f"compile time new/old {mean(compiles):.3f}, most {max(compiles, default=math.nan):.2f}; "
        f"disturbed and left out {len(rows) - len(calm)}; wrong {sum(row.wrong for row in rows)}"
    )
    return "\n".join(lines)


def main() -> int:
    """Measure and print; 1 where results differ."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("old", type=Path, help="source tree of the old commit")
    parser.add_argument("--cases", choices=[*KINDS, "all"], default="operators")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, help="how many cases are drawn")
    parser.add_argument("--only", default="", help="cases with this text in their name")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--target", help="a lesser processor, such as cpu:x86-64-v3")
    parser.add_argument("--seconds", type=float, default=0.9, help="of timing a case")
    parser.add_argument("--again", type=int, default=2, help="attempts at disturbed rows")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    chosen = [
        case for case in cases(asked.cases, asked.seed, asked.count) if asked.only in case.name
    ]
    if not chosen:
        parser.error(f"no case of {asked.cases} has {asked.only!r} in its name")
    shared = Path("/dev/shm")  # memory that three processes map
    with TemporaryDirectory(dir=shared if shared.is_dir() else None) as folder:
        versus = Versus(
            asked.old.resolve(), Path(folder), asked.threads, asked.seconds, asked.target
        )
        rows = list(measured(versus, chosen, asked.again))
    print(summary(rows))
    if asked.json:
        told = [
            {**asdict(row), "old": row.old, "speed": row.speed, "control": row.control}
            for row in rows
        ]
        asked.json.write_text(json.dumps(told, indent=1), encoding="utf-8")
    return int(any(row.wrong for row in rows))


if __name__ == "__main__":
    sys.exit(main())
