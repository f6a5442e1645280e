"""Several threads against one, launch by launch: what scales, and what waits.

    python benchmarks/threads.py [NETWORK …] [--threads 2] [--runs 30] [--most 12]
                                 [--contract exact]

The networks are those of `benchmarks/models.py`.  Both builds are profiled in turns; times are the
least of all runs, in microseconds.  Above the launches stands how a network scales as a whole,
beside a loop of multiply-adds that waits for nothing (`peak`) and copies out of caches (`copy`),
one in each of a given number of threads at once against one alone, and which part that is of
either.

With a contract, the network is compiled within it and within the default, for one thread and for
several: how long the stricter code takes, in turns, and whether the number of threads changes bits.
"""

from __future__ import annotations

import argparse
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import numpy as np

import plica
from benchmarks.models import names, write

TURNS = 1_000_000
"""Of the loop of multiply-adds: some milliseconds, long beside what it takes threads to begin."""

COPIED = 1 << 23
"""Numbers of eight bytes that are copied."""

TRIES = 9


def least(exe: Any, inputs: list[Any], runs: int) -> dict[str, float]:
    """Microseconds of each launch, by its number and what it computes."""
    profile = exe.profile(*inputs, runs=runs, peak=1.0, bandwidth=1.0)
    found: dict[str, float] = {}
    for number, row in enumerate(profile.rows):
        found[f"{number:3d} {row.kernel.rpartition('_')[0]}"] = row.least * 1e6
    return found


def at_once(works: Sequence[Callable[[], object]]) -> float:
    """The least seconds in which threads, one for each, have done their work."""
    best = float("inf")
    for _ in range(TRIES):
        gate = threading.Barrier(len(works))

        def run(work: Callable[[], object], gate: threading.Barrier = gate) -> tuple[float, float]:
            gate.wait()
            start = perf_counter()
            work()
            return start, perf_counter()

        with ThreadPoolExecutor(len(works)) as pool:
            spans = [*pool.map(run, works)]
        best = min(best, max(end for _, end in spans) - min(start for start, _ in spans))
    return best


def scaling(works: Sequence[Callable[[], object]]) -> float:
    """How many times as much is done at once as by one alone."""
    return len(works) * at_once(works[:1]) / at_once(works)


def copy() -> Callable[[], object]:
    """A copy of more than caches hold, in memory of its own."""
    given, target = np.ones(COPIED), np.ones(COPIED)
    return lambda: np.copyto(target, given)


def cost(path: Path, inputs: list[Any], given: argparse.Namespace) -> str:
    """What a contract costs for each number of threads, and whether bits depend on that number."""
    words = []
    bits: dict[str | None, set[bytes]] = {given.contract: set(), None: set()}
    for threads in (1, given.threads):
        exes = {each: plica.compile(path, threads=threads, contract=each) for each in bits}
        times = dict.fromkeys(exes, float("inf"))
        for _ in range(given.runs):
            for each, exe in exes.items():
                start = perf_counter()
                found = exe(*inputs)
                times[each] = min(times[each], perf_counter() - start)
                results = found if isinstance(found, tuple) else (found,)
                bits[each].add(b"".join(np.asarray(one).tobytes() for one in results))
        ratio = times[given.contract] / times[None]
        words.append(f"{threads} threads {times[given.contract] * 1e3:.2f} ms, {ratio:.2f}x")
    strict, default = ("same" if len(each) == 1 else "other" for each in bits.values())
    ends = f"bits: {strict} within {given.contract}, {default} within the default"
    return f"{', '.join(words)} | {ends}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--most", type=int, default=12)
    parser.add_argument("--contract", help="compare this contract with the default instead")
    given = parser.parse_args()
    with TemporaryDirectory() as folder:
        for name in given.names or names(1):
            path = Path(folder) / f"{name}.onnx"
            inputs = write(name, 1, path)
            if given.contract is not None:
                print(f"{name}: {cost(path, inputs, given)}", flush=True)
                continue
            exes: list[Any] = [plica.compile(path, threads=each) for each in (1, given.threads)]
            alone: dict[str, float] = {}
            together: dict[str, float] = {}
            for _ in range(3):
                for exe, into in zip(exes, (alone, together), strict=True):
                    for kernel, time in least(exe, inputs, given.runs).items():
                        into[kernel] = min(time, into.get(kernel, time))
            whole = sum(alone.values()) / sum(together.values())
            peak = scaling([partial(exes[0]._peak, TURNS)] * given.threads)
            copied = scaling([copy() for _ in range(given.threads)])
            print(
                f"{name}: {sum(alone.values()):.0f} -> {sum(together.values()):.0f} us,"
                f" {whole:.2f}x | peak {peak:.2f}x copy {copied:.2f}x"
                f" | {whole / peak:.0%} of peak, {whole / copied:.0%} of copy",
                flush=True,
            )
            rows = sorted(together, key=lambda each: -together[each])[: given.most]
            for kernel in rows:
                before = alone.get(kernel)
                ratio = "   -" if before is None else f"{before / together[kernel]:.2f}"
                print(f"    {together[kernel]:9.1f} us  {ratio}x  {kernel}")


if __name__ == "__main__":
    main()
