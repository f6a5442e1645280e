"""How long compiling takes, and how much memory: each model cold, then warm, on one core.

    python benchmarks/compile_time.py [networks …] [--distinct 8 16 32]

Every row is a process of its own, bound to one core.  `cold` uses no store, `warm` one that an
earlier process filled; both are `plica.compile` alone, after imports and making the model.  With
`--distinct` follow models of so many different kernels: time for each should not depend on how many
there are.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from itertools import pairwise
from time import perf_counter
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import plica
from plica.core.name import Name
from plica.frontend import zoo
from plica.ir.graph.expression import Apply, Expr, Function, Var, const
from plica.ir.graph.module import Module, module
from plica.ir.type.term import tensor

NETWORKS: dict[str, Callable[[], Module]] = {
    "resnet18": lambda: zoo.resnet(18),
    "mobilenet_v2": zoo.mobilenet,
    "resnet50": lambda: zoo.resnet(50),
}


def chain(length: int) -> Module:
    """Dense layers and activations, no two of which have the same sizes."""
    random = np.random.default_rng(0)
    widths = [64 + 16 * number for number in range(length + 1)]
    x = Var(Name("x"), tensor((16, widths[0]), "f32"))
    y: Expr = x
    for rows, columns in pairwise(widths):
        weight = const(random.standard_normal((rows, columns)).astype(np.float32))
        y = Apply("nn.relu", (Apply("matmul", (y, weight)),))
    main = Var(Name("main"), None)
    return module({main: Function((), (), (x,), None, y)}, main)


def measure(name: str) -> dict[str, Any]:
    """What compiling one model takes in this process."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    made = NETWORKS[name]() if name in NETWORKS else chain(int(name.removeprefix("chain")))
    plica.compile(chain(1), cache=False, threads=1)  # what is imported and prepared once
    before = resource.getrusage(resource.RUSAGE_SELF)
    start = perf_counter()
    exe = plica.compile(made, threads=1)
    wall = perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "wall": wall,
        "cpu": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        "kernels": len({each.kernel for each in exe.artefact.launches}),
        "launches": len(exe.artefact.launches),
        "peak": after.ru_maxrss / 1e3,
        "before": before.ru_maxrss / 1e3,
    }


def elsewhere(name: str, store: str) -> dict[str, Any]:
    """The same in a new process, with another store."""
    done = subprocess.run(
        [sys.executable, __file__, "--measure", name],
        env={**os.environ, "PLICA_CACHE": store},
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("names", nargs="*", default=list(NETWORKS))
    parser.add_argument("--distinct", type=int, nargs="*", default=[8, 16, 32])
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure is not None:
        print(json.dumps(measure(given.measure)))
        return 0
    table = Table(title="compiling on one core; seconds of the processor, memory in MB")
    for column in ("model", "kernels", "launches", "cold s", "wall s", "ms/kernel", "warm s",
                   "peak MB", "grown by"):  # fmt: skip
        table.add_column(column, justify="left" if column == "model" else "right")
    for name in [*given.names, *(f"chain{length}" for length in given.distinct)]:
        cold = elsewhere(name, "off")
        with tempfile.TemporaryDirectory() as store:
            elsewhere(name, store)
            warm = elsewhere(name, store)
        table.add_row(
            name,
            str(cold["kernels"]),
            str(cold["launches"]),
            f"{cold['cpu']:.2f}",
            f"{cold['wall']:.2f}",
            f"{cold['cpu'] / cold['kernels'] * 1e3:.0f}",
            f"{warm['cpu']:.2f}",
            f"{cold['peak']:.0f}",
            f"{cold['peak'] - cold['before']:.0f}",
        )
    Console().print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
