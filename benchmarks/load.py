"""Many Python threads on one executable: right results, and memory that does not grow.

    python benchmarks/load.py [--threads 8] [--calls 10000] [--inner 2] [--network mlp]

Each thread calls the same executable with inputs of its own choice out of a few dozen; every result
is compared bit by bit with that of a call made alone, and these with the interpreter.  The memory
of the process is read all the while.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import plica
from plica.frontend import zoo
from plica.ir.graph.module import Module

NETWORKS: dict[str, Callable[[], Module]] = {
    "mlp": zoo.mlp,
    "resnet18-small": lambda: zoo.resnet(18, image=32, width=0.25, classes=10),
}
INPUTS = 48
PAGE = 4096
SAMPLE = 0.05  # seconds


def resident() -> float:
    """MB of this process that are in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE / 1e6


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--threads", type=int, default=8, help="Python threads")
    parser.add_argument("--calls", type=int, default=10_000, help="calls of each")
    parser.add_argument("--inner", type=int, default=2, help="threads of the executable")
    parser.add_argument("--network", choices=sorted(NETWORKS), default="mlp")
    given = parser.parse_args()
    module = NETWORKS[given.network]()
    exe = plica.compile(module, threads=given.inner)
    random = np.random.default_rng(0)
    shape = exe.inputs[0].shape
    inputs = [random.standard_normal(shape).astype(np.float32) for _ in range(INPUTS)]
    expected: list[Any] = [exe(x) for x in inputs]
    for x, ours in zip(inputs[:2], expected, strict=False):
        meant = plica.interpret(module, x)
        assert np.abs(ours - meant).max() <= 1e-4 * np.abs(meant).max()
    wrong: list[str] = []
    samples: list[tuple[float, float]] = []
    done = [0] * given.threads
    stop = threading.Event()
    begun = time.perf_counter()

    def work(number: int) -> None:
        for call in range(given.calls):
            at = (number * 31 + call * 7) % INPUTS
            if not np.array_equal(exe(inputs[at]), expected[at]):
                wrong.append(f"thread {number}, call {call}")
            done[number] += 1

    def watch() -> None:
        while not stop.wait(SAMPLE):
            samples.append((sum(done), resident()))

    watcher = threading.Thread(target=watch)
    watcher.start()
    workers = [threading.Thread(target=work, args=(n,)) for n in range(given.threads)]
    for each in workers:
        each.start()
    for each in workers:
        each.join()
    seconds = time.perf_counter() - begun
    stop.set()
    watcher.join()
    total = given.threads * given.calls
    early = [size for count, size in samples if 0.1 * total <= count <= 0.2 * total]
    late = [size for count, size in samples if count >= 0.9 * total]
    growth = (max(late) - max(early)) if early and late else float("nan")
    print(
        f"{given.network}: {given.threads} threads x {given.calls} calls, executable on "
        f"{given.inner}: {seconds:.1f} s, {total / seconds:.0f} calls/s, {len(wrong)} wrong"
    )
    print(
        f"memory: {min(s for _, s in samples):.1f} to {max(s for _, s in samples):.1f} MB in "
        f"{len(samples)} samples; the last tenth is {growth:+.2f} MB over the second tenth"
    )
    for place in wrong[:5]:
        print(f"  wrong: {place}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
