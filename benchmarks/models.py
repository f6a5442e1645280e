"""Whole networks beside onnxruntime: the zoo as ONNX models, compiled and run in turns.

    python benchmarks/models.py [resnet18 mobilenet_v2 resnet50] [--threads 1] [--turns 15]

Both get the same bytes and the same image; times are the minimum and the median of all turns, the
ratio is onnxruntime's over Plica's (above 1: Plica is faster).
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parent.parent))  # the writer of ONNX files is a test's

import plica
from plica.frontend import zoo
from plica.ir.module import Module
from tests.frontend.onnx.export import export

NETWORKS: dict[str, Callable[[], Module]] = {
    "resnet18": lambda: zoo.resnet(18),
    "mobilenet_v2": zoo.mobilenet,
    "resnet50": lambda: zoo.resnet(50),
}


def seconds(run: Callable[[], Any]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def main() -> int:
    import onnxruntime

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("names", nargs="*", default=list(NETWORKS))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--turns", type=int, default=15)
    given = parser.parse_args()
    table = Table(title=f"{given.threads} threads, ms; error relative to the largest output")
    for column in ("network", "compile s", "Plica", "median", "onnxruntime", "median", "error"):
        table.add_column(column, justify="left" if column == "network" else "right")
    table.add_column("ratio", justify="right")
    table.add_column("median", justify="right")
    image = np.random.default_rng(0).standard_normal((1, 3, 224, 224)).astype(np.float32)
    for name in given.names:
        model = export(NETWORKS[name]())
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = given.threads
        options.log_severity_level = 3
        peer = onnxruntime.InferenceSession(model.SerializeToString(), options)
        start = time.perf_counter()
        ours = plica.compile(plica.from_onnx(model), threads=given.threads, cache=False)
        took = time.perf_counter() - start
        feed = {peer.get_inputs()[0].name: image}
        expected, found = peer.run(None, feed)[0], ours(image)
        error = float(np.abs(found - expected).max() / np.abs(expected).max())
        mine: list[float] = []
        other: list[float] = []
        runs: list[tuple[list[float], Callable[[], Any]]] = [
            (mine, partial(ours, image)),
            (other, partial(peer.run, None, feed)),
        ]
        for _ in range(given.turns):
            for times, run in runs:
                run()  # the caches are its own again
                times += [seconds(run) for _ in range(3)]
        cells = [min(mine), statistics.median(mine), min(other), statistics.median(other)]
        table.add_row(
            name,
            f"{took:.1f}",
            *(f"{each * 1e3:.2f}" for each in cells),
            f"{error:.0e}",
            f"{cells[2] / cells[0]:.2f}",
            f"{cells[3] / cells[1]:.2f}",
        )
    Console().print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
