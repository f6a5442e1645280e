"""Recurrent layers of open length beside builds for one length, and beside onnxruntime.

    python benchmarks/recurrent_open.py [--kinds LSTM GRU RNN] [--hidden 16 128 512]
                                        [--lengths 1 5 37 160 700] [--batch 1] [--both]

One code for every length, compiled once; each length is also built by itself.  All three take turns
on one core; what counts is the least processor time of a call.  Results are held against
onnxruntime's, and no call may compile.
"""

# mypy: ignore-errors
from __future__ import annotations

import argparse
from statistics import geometric_mean
from time import perf_counter, process_time

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper
from rich.console import Console
from rich.table import Table

import plica

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
LEAST = 0.002
"""Seconds that calls are timed together for."""


def model(kind, hidden, length, batch, both):
    """A layer as wide as its inputs; `length` is a number, or the name of an open size."""
    random, ways = np.random.default_rng(0), 2 if both else 1
    shapes = {
        "w": (ways, GATES[kind] * hidden, hidden),
        "r": (ways, GATES[kind] * hidden, hidden),
        "b": (ways, 2 * GATES[kind] * hidden),
    }
    stored = [
        numpy_helper.from_array((random.standard_normal(s) / hidden**0.5).astype(np.float32), name)
        for name, s in shapes.items()
    ]
    outputs = ["y", "h", "c"] if kind == "LSTM" else ["y", "h"]
    direction = "bidirectional" if both else "forward"
    node = helper.make_node(
        kind, ["x", "w", "r", "b"], outputs, hidden_size=hidden, direction=direction
    )
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [length, batch, hidden])
    given = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    graph = helper.make_graph([node], "layer", [x], given, stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def session(of):
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return ort.InferenceSession(of.SerializeToString(), options, ["CPUExecutionProvider"])


def times(calls, seconds):
    """The least processor time of each call, in turns."""
    often = []
    for call in calls:
        call()
        start = perf_counter()
        call()
        often.append(max(1, int(LEAST / (perf_counter() - start))))
    best, end, rounds = [float("inf")] * len(calls), perf_counter() + seconds, 0
    while perf_counter() < end or rounds < 7:
        rounds += 1
        for at, call in enumerate(calls):
            start = process_time()
            for _ in range(often[at]):
                call()
            best[at] = min(best[at], (process_time() - start) / often[at])
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kinds", nargs="*", choices=GATES, default=list(GATES))
    parser.add_argument("--hidden", nargs="*", type=int, default=[16, 128, 512])
    parser.add_argument("--lengths", nargs="*", type=int, default=[1, 5, 37, 160, 700])
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--both", action="store_true", help="both directions")
    parser.add_argument("--seconds", type=float, default=0.4)
    given = parser.parse_args()
    table = Table("Layer", "Length", "Open, us", "One length", "onnxruntime", "of one", "of ORT")
    ratios = []
    for kind in given.kinds:
        for hidden in given.hidden:
            whole = model(kind, hidden, "n", given.batch, given.both)
            exe, peer = plica.compile(whole, threads=1), session(whole)
            for length in given.lengths:
                one = plica.compile(model(kind, hidden, length, given.batch, given.both), threads=1)
                x = np.random.default_rng(length).standard_normal((length, given.batch, hidden))
                x = x.astype(np.float32)
                for a, b in zip(exe(x), peer.run(None, {"x": x}), strict=True):
                    np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)
                calls = [
                    lambda exe=exe, x=x: exe(x),
                    lambda one=one, x=x: one(x),
                    lambda peer=peer, x=x: peer.run(None, {"x": x}),
                ]
                took = times(calls, given.seconds)
                ratios.append((took[1] / took[0], took[2] / took[0]))
                table.add_row(
                    f"{kind} {hidden}", str(length), *[f"{1e6 * each:.1f}" for each in took],
                    *[f"{each:.2f}" for each in ratios[-1]],
                )  # fmt: skip
            assert exe.stats.at_call == 0, exe.stats
    Console().print(table)
    of_one, of_peer = zip(*ratios, strict=True)
    print(f"of one length {geometric_mean(of_one):.2f} (least {min(of_one):.2f}), "
          f"of onnxruntime {geometric_mean(of_peer):.2f} (least {min(of_peer):.2f})")  # fmt: skip


if __name__ == "__main__":
    main()
