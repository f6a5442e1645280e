"""Roofline: the share of what the machine can do that the kernels of drawn networks reach.

    python benchmarks/roof.py --measure [--target cuda]     measure the ceilings, keep the higher
    python benchmarks/roof.py [--target cpu] [--seed N] [--n 30] [--rounds 5] [--json FILE]

Networks are drawn by a seed (`drawn_networks.py`), by default the commit's hash: after the code.
Of each, the kernels that take at least 5 % of its time count; one kernel's launches are one row.
The least time of a kernel is

    max(operations / peak, compulsory bytes / bandwidth of the level that holds them)

where compulsory bytes are those of its inputs and outputs, and operations are those of its
definition: a Winograd convolution and a product in 3xTF32 do fewer or other ones and may come to
100 %.  A table that is gathered from counts as a whole.  The time is the least of all rounds.
Kernels shorter than 5 us (CPU, one thread) or 10 us (GPU) are listed apart: what launches and
measures them is as long.

Ceilings are of `benchmarks/ceilings.json`, by the name of the machine.  The peak is multiply-adds
that wait for nothing, bandwidths are those of copies, each size by itself; they are measured by CPU
time and the higher of old and new is kept, so that a busy moment never lowers the roof.  Results
are compared with onnxruntime's where it is installed.
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
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np

import plica
from benchmarks.drawn_networks import network
from plica.bench import Roof

CEILINGS: Final = Path(__file__).with_name("ceilings.json")
MIN_PART: Final = 0.05
"""Kernels that take less of their network's time do not count."""
MIN_MICROSECONDS: Final = {"cpu": 5.0, "cuda": 10.0}
NETWORKS: Final = {"cpu": 30, "cuda": 20}
TARGET_LEAST, TARGET_LOW, TARGET_MEDIAN = 0.10, 0.25, 0.60
"""No kernel below the first, at most 5 % below the second, the median above the third."""
MAX_BELOW_LOW: Final = 0.05
RUNS: Final = 8
"""Calls of a round."""
MEASURING_ROUNDS: Final = 12
COPIED_BYTES: Final = (24 << 10, 256 << 10, 768 << 10, 4 << 20, 16 << 20, 96 << 20)
"""Bytes that a copy touches, on both sides together; work that touches no more is held to it."""
MAX_ERROR: Final = 1e-3


@dataclass(frozen=True)
class RoofRow:
    """A kernel of a network: all its launches in one call."""

    network: str
    kernel: str
    source: str
    """The operators of its first launch."""
    launches: int
    microseconds: float
    part: float
    """Of its network's time."""
    share: float
    """Of the roof."""
    bound: str
    """What is the roof here: peak, or the bytes."""

    def __str__(self) -> str:
        return (
            f"{self.share:6.1%} {self.bound:5} {self.microseconds:9.1f} us {self.part:4.0%} "
            f"{self.network:18} {self.launches:3}x {self.kernel} ({self.source[:60]})"
        )


# --- ceilings -------------------------------------------------------------------------------------


def machine_name(target: str) -> str:
    """What the processor or the device calls itself."""
    if target == "cuda":
        told = subprocess.run(
            ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        return told.stdout.splitlines()[0].strip() if told.returncode == 0 else "no GPU"
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    from plica.codegen.llvm.toolchain import host

    return f"{names[0] if names else host().cpu}, {host().cpu}, one thread"


def stored() -> dict[str, dict[str, Any]]:
    """All ceilings that were measured."""
    found: dict[str, dict[str, Any]] = json.loads(CEILINGS.read_text(encoding="utf-8"))
    return found


def roof_here(target: str) -> Roof:
    """The ceilings of this machine: those that are stored, or measured now and not stored."""
    name, known = machine_name(target), stored()
    if name in known:
        levels, peak = known[name]["gbytes"], known[name]["gflops"]
    else:
        levels, peak = _on_device() if target == "cuda" else _on_core()
        hint = f"python benchmarks/roof.py --measure --target {target}"
        print(f"No ceilings are stored for {name!r}: they were measured now, at a load of "
              f"{os.getloadavg()[0]:.1f}. On a quiet machine: {hint}", file=sys.stderr)  # fmt: skip
    return Roof(peak, tuple([(size, speed) for size, speed in levels]))


def measure(target: str) -> dict[str, Any]:
    """The ceilings of this machine, the higher of what was stored and what is measured now."""
    levels, peak = _on_device() if target == "cuda" else _on_core()
    name, known = machine_name(target), stored()
    before = known.get(name, {"gflops": 0.0, "gbytes": []})
    old = dict(before["gbytes"])
    known[name] = {
        "gflops": round(max(peak, before["gflops"]), 1),
        "gbytes": [[size, round(max(speed, old.get(size, 0.0)), 1)] for size, speed in levels],
    }
    CEILINGS.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
    return {name: known[name]}


Levels = list[tuple[int | None, float]]


def _on_core() -> tuple[Levels, float]:
    """Copies and multiply-adds of one core: the probes of `benchmarks/shares.py`, the best of
    several rounds."""
    from benchmarks.shares import Roofs

    roofs = Roofs()
    best = dict.fromkeys(COPIED_BYTES, math.inf)
    peak = math.inf
    for _ in range(MEASURING_ROUNDS):
        peak = min(peak, roofs.peak())
        for size in COPIED_BYTES:
            target, given = roofs.sides(size)
            taken = min(roofs.looped(roofs.copy, target, given), roofs.copied(target, given))
            best[size] = min(best[size], taken)
    *near, (_, far) = [(size, 1 / nanoseconds) for size, nanoseconds in best.items()]
    return [*near, (None, far)], 2 / peak


def _on_device() -> tuple[Levels, float]:
    """Copies and products in f32 of a GPU, by torch: what the vendor's library reaches."""
    import torch

    from benchmarks.device_time import in_turns, of_graph

    torch.backends.cuda.matmul.allow_tf32 = False
    levels: Levels = []
    for size in (1 << 22, 1 << 24, 1 << 30):
        given = torch.ones(size // 8, device="cuda")
        target = torch.empty_like(given)
        taken = in_turns({"copy": of_graph(lambda t=target, g=given: t.copy_(g))}, 4, 20)  # type: ignore[misc]  # a default binds the turn of the loop
        levels.append((None if size == 1 << 30 else size, size / taken["copy"].least / 1e9))
    side = 8192
    left, right = (torch.randn(side, side, device="cuda") for _ in range(2))
    taken = in_turns({"product": of_graph(lambda: left @ right)}, 3, 5)
    return levels, 2 * side**3 / taken["product"].least / 1e9


# --- networks -------------------------------------------------------------------------------------


def commit_seed() -> int:
    """A seed that nobody chose: the first digits of the commit's hash."""
    here = Path(__file__).parent
    line = ["git", "rev-parse", "HEAD"]
    done = subprocess.run(line, cwd=here, capture_output=True, text=True, check=True)
    return int(done.stdout[:8], 16)


def wrong(model: Any, inputs: Sequence[Any], found: Any) -> bool:
    """Whether results differ from onnxruntime's; False where that is not installed."""
    if find_spec("onnxruntime") is None:
        return False
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    names = [each.name for each in session.get_inputs()]
    (wanted, *_) = session.run(None, dict(zip(names, inputs, strict=True)))
    result = np.asarray(found[0] if isinstance(found, tuple) else found)
    scale = float(np.max(np.abs(wanted), initial=0.0)) or 1.0
    error = float(np.max(np.abs(result - wanted), initial=0.0)) / scale
    return not error <= MAX_ERROR


def rows_of(name: str, exe: Any, inputs: Sequence[Any], roof: Roof, rounds: int) -> list[RoofRow]:
    """The kernels of a network, by the least time of each launch."""
    least: list[float] = []
    for _ in range(rounds):
        shown = exe.profile(*inputs, runs=RUNS, peak=1.0, bandwidth=1.0)  # the roof is known
        times = [row.least * row.each for row in shown.rows]
        least = times if not least else [min(pair) for pair in zip(least, times, strict=True)]
    sources = list(getattr(exe, "_sources", ())) or [""] * len(least)
    total = sum(least)
    kernels: dict[str, list[int]] = {}
    for number, row in enumerate(shown.rows):
        kernels.setdefault(row.kernel, []).append(number)
    found = []
    for kernel, numbers in kernels.items():
        seconds = sum(least[number] for number in numbers)
        first = shown.rows[numbers[0]]
        if not seconds or not first.counted:
            continue
        bound = sum(
            roof.least(shown.rows[number].operations, shown.rows[number].bytes)
            for number in numbers
        )
        by_peak = first.operations / roof.gflops > first.bytes / roof.gbytes(first.bytes)
        found.append(RoofRow(
            name, kernel, sources[numbers[0]], len(numbers), seconds / len(numbers) * 1e6,
            seconds / total, min(1.0, bound / seconds), "peak" if by_peak else "bytes",
        ))  # fmt: skip
    return [row for row in found if row.part >= MIN_PART]


def measured(
    target: str, seed: int, numbers: Sequence[int], roof: Roof, rounds: int
) -> Iterator[RoofRow]:
    """The kernels of all networks, network by network; what goes wrong is told on stderr."""
    for number in numbers:
        name, model, inputs = network(seed, number)
        begin = time.process_time()
        threads = 1 if target == "cpu" else None
        try:
            exe = plica.compile(model, target=target, threads=threads, cache=False)
        except plica.PlicaError as reason:
            print(f"refused {name}: {str(reason).splitlines()[0]}", file=sys.stderr, flush=True)
            continue
        compiling = time.process_time() - begin
        verdict = "WRONG" if wrong(model, inputs, exe(*inputs)) else "right"
        rows = rows_of(name, exe, inputs, roof, rounds)
        print(f"{name}: {len(rows)} kernels, compiled in {compiling:.1f} s, {verdict}",
              file=sys.stderr, flush=True)  # fmt: skip
        yield from rows


def summary(rows: Sequence[RoofRow], least_microseconds: float) -> tuple[str, dict[str, Any]]:
    """The table, the kernels too short for one, and the counts as text and as data."""
    long = sorted([row for row in rows if row.microseconds >= least_microseconds],
                  key=lambda row: row.share)  # fmt: skip
    short = sorted([row for row in rows if row.microseconds < least_microseconds],
                   key=lambda row: row.share)  # fmt: skip
    lines = ["share  bound        time part network            launches kernel (operators)"]
    lines += [str(row) for row in long]
    if short:
        lines += [f"-- shorter than {least_microseconds:g} us: not counted", *map(str, short)]
    shares = [row.share for row in long]
    counts = {
        "kernels": len(long), "short": len(short),
        "below 10 %": sum(share < TARGET_LEAST for share in shares),
        "below 25 %": sum(share < TARGET_LOW for share in shares),
        "median": median(shares) if shares else math.nan,
    }  # fmt: skip
    part = counts["below 25 %"] / max(1, len(long))
    lines.append(
        f"{len(long)} kernels ({len(short)} shorter ones apart): {counts['below 10 %']} below 10 % "
        f"of the roof (asked: none), {counts['below 25 %']} below 25 % ({part:.0%}; asked: at most "
        f"{MAX_BELOW_LOW:.0%}), median {counts['median']:.0%} (asked: {TARGET_MEDIAN:.0%})"
    )
    return "\n".join(lines), counts


def main() -> int:
    """Measure the ceilings, or the networks."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--measure", action="store_true", help="measure the ceilings and store them"
    )
    parser.add_argument("--target", choices=[*NETWORKS], default="cpu")
    parser.add_argument("--seed", type=int, help="that of the commit, unless given")
    parser.add_argument("--n", type=int, help="how many networks are drawn")
    parser.add_argument("--only", type=int, nargs="*", help="these numbers alone")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    if asked.measure:
        print(json.dumps(measure(asked.target), indent=1))
        return 0
    roof = roof_here(asked.target)
    seed = commit_seed() if asked.seed is None else asked.seed
    numbers = asked.only or range(asked.n or NETWORKS[asked.target])
    rows = list(measured(asked.target, seed, numbers, roof, asked.rounds))
    text, counts = summary(rows, MIN_MICROSECONDS[asked.target])
    load = os.getloadavg()[0]
    print(f"seed {seed}, {len(numbers)} networks, {asked.target}, load of the machine {load:.1f}")
    print(text)
    if asked.json:
        data = {
            "seed": seed, "target": asked.target, "machine": machine_name(asked.target),
            "roof": asdict(roof), "load": load, "counts": counts,
            "rows": [asdict(row) for row in rows],
        }  # fmt: skip
        asked.json.write_text(json.dumps(data, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
