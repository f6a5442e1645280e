"""Single layers without tuning, beside onnxruntime, on one core.

    python benchmarks/cpu.py [names …] [--seconds S]

Matrix products (G512 …), the convolutions of ResNet-18 (C1–C12), pointwise ones of larger networks
(P1–P12) and the depthwise ones of MobileNet (D1–D9), batch 1, f32, weights known when compiling but
for the matrix products.  Both runtimes take turns in one run, and the results are compared; `ratio`
is onnxruntime's best time over ours.  `share` is the part of the peak, measured in the same run
(see benchmarks/gemm.py).
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import onnxruntime
from gemm import contest, peak
from onnx import TensorProto, helper, numpy_helper
from rich.console import Console
from rich.table import Table

import plica
from plica.codegen.llvm import toolchain
from plica.core.name import Name
from plica.ir.graph.expression import Apply, Expr, Function, Var, const
from plica.ir.graph.module import Module, module
from plica.ir.type.term import tensor

Array = np.ndarray[Any, Any]

# fmt: off
CONV = {  # height, width, channels, outputs, window, stride
    "C1":  (224, 224,   3,  64, 7, 2), "C2":  ( 56,  56,  64,  64, 3, 1),
    "C3":  ( 56,  56,  64,  64, 1, 1), "C4":  ( 56,  56,  64, 128, 3, 2),
    "C5":  ( 56,  56,  64, 128, 1, 2), "C6":  ( 28,  28, 128, 128, 3, 1),
    "C7":  ( 28,  28, 128, 256, 3, 2), "C8":  ( 28,  28, 128, 256, 1, 2),
    "C9":  ( 14,  14, 256, 256, 3, 1), "C10": ( 14,  14, 256, 512, 3, 2),
    "C11": ( 14,  14, 256, 512, 1, 2), "C12": (  7,   7, 512, 512, 3, 1),
}
POINTWISE = {  # those of ResNet-50 and MobileNet with a window of 1, as above
    "P1":  ( 56,  56,   64,  256, 1, 1), "P2":  ( 56,  56,  256,   64, 1, 1),
    "P3":  ( 56,  56,  256,  512, 1, 2), "P4":  ( 28,  28,  512,  128, 1, 1),
    "P5":  ( 14,  14,  256, 1024, 1, 1), "P6":  ( 14,  14, 1024,  256, 1, 1),
    "P7":  (  7,   7,  512, 2048, 1, 1), "P8":  (  7,   7, 2048,  512, 1, 1),
    "P9":  (112, 112,   32,   16, 1, 1), "P10": ( 56,  56,   24,  144, 1, 1),
    "P11": ( 14,  14,   64,  384, 1, 1), "P12": (  7,   7,  160,  960, 1, 1),
}
DEPTHWISE = {  # height, width, channels, window, stride
    "D1": (112, 112,  32, 3, 1), "D2": (112, 112,  64, 3, 2), "D3": (56, 56, 128, 3, 1),
    "D4": ( 56,  56, 128, 3, 2), "D5": ( 28,  28, 256, 3, 1), "D6": (28, 28, 256, 3, 2),
    "D7": ( 14,  14, 512, 3, 1), "D8": ( 14,  14, 512, 3, 2), "D9": ( 7,  7, 1024, 3, 1),
}
GEMM = {"G256": 256, "G512": 512, "G1024": 1024, "G2048": 2048}
# fmt: on


@dataclass(frozen=True)
class Case:
    """A layer: as a module, as an ONNX model, its inputs, its floating-point operations."""

    name: str
    module: Module
    model: Any
    inputs: dict[str, Array]
    operations: int


def whole(params: list[Var], body: Expr) -> Module:
    main = Var(Name("main"), None)
    return module({main: Function((), (), tuple(params), None, body)}, main)


def model(nodes: list[Any], inputs: dict[str, Array], kept: dict[str, Array]) -> Any:
    ports = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, x.shape)
        for name, x in inputs.items()
    ]
    end = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    stored = [numpy_helper.from_array(x, name) for name, x in kept.items()]
    graph = helper.make_graph(nodes, "layer", ports, end, stored)
    opset = [helper.make_opsetid("", 18)]
    return helper.make_model(graph, opset_imports=opset, ir_version=9)


def sides(size: int, window: int, stride: int) -> tuple[int, int]:
    """Padding that gives ceil(size / stride) results."""
    total = max((-(-size // stride) - 1) * stride + window - size, 0)
    return total // 2, total - total // 2


def convolution(name: str) -> Case:
    if name in CONV or name in POINTWISE:
        height, width, channels, outputs, window, stride = (CONV | POINTWISE)[name]
        groups = 1
    else:
        height, width, channels, window, stride = DEPTHWISE[name]
        outputs = groups = channels
    random = np.random.default_rng(0)
    x = random.standard_normal((1, channels, height, width), np.float32)
    w = random.standard_normal((outputs, channels // groups, window, window), np.float32)
    w /= math.sqrt(w[0].size)
    (top, bottom), (left, right) = (sides(size, window, stride) for size in (height, width))
    given = Var(Name("x"), tensor(x.shape, "f32"))
    attrs = (
        ("dilation", 1), ("groups", groups), ("padding", ((top, bottom), (left, right))),
        ("strides", stride),
    )  # fmt: skip
    node = helper.make_node(
        "Conv", ["x", "w"], ["y"], group=groups, pads=[top, left, bottom, right],
        strides=[stride] * 2,
    )  # fmt: skip
    results = -(-height // stride) * -(-width // stride) * outputs
    return Case(
        name,
        whole([given], Apply("nn.conv", (given, const(w)), attrs)),
        model([node], {"x": x}, {"w": w}),
        {"x": x},
        2 * results * w[0].size,
    )


def product(name: str) -> Case:
    size = GEMM[name]
    random = np.random.default_rng(0)
    inputs = {each: random.standard_normal((size, size), np.float32) for each in "ab"}
    params = [Var(Name(each), tensor((size, size), "f32")) for each in "ab"]
    node = helper.make_node("MatMul", ["a", "b"], ["y"])
    body = Apply("matmul", (params[0], params[1]))
    return Case(name, whole(params, body), model([node], inputs, {}), inputs, 2 * size**3)


def turns(calls: list[Callable[[], Any]], seconds: float) -> list[list[float]]:
    """Times of calls that take turns."""
    times: list[list[float]] = [[] for _ in calls]
    end = perf_counter() + seconds
    while perf_counter() < end or len(times[0]) < 5:
        for each, found in zip(calls, times, strict=True):
            start = perf_counter()
            each()
            found.append(perf_counter() - start)
    return times


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description="Layers beside onnxruntime.")
    parser.add_argument("names", nargs="*", default=[*GEMM, *CONV, *POINTWISE, *DEPTHWISE])
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    target = toolchain.host()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = arguments.threads
    (best,) = contest([peak(target)], 2000)
    title = f"f32, {arguments.threads} threads, {target}; peak {best / 1e9:.0f} GFLOP/s a core"
    heads = ("layer", "ours µs", "median", "peer µs", "median", "GFLOP/s", "share", "compile ms")
    table = Table(*heads, "error", "ratio", title=title)
    ratios: dict[str, list[float]] = {}
    for name in arguments.names:
        case = product(name) if name in GEMM else convolution(name)
        start = perf_counter()
        ours = plica.compile(case.module, threads=arguments.threads, cache=False)
        took = perf_counter() - start
        peer = onnxruntime.InferenceSession(
            case.model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        arrays = list(case.inputs.values())
        expected = peer.run(None, case.inputs)[0]
        error = float(abs(ours(*arrays) - expected).max() / abs(expected).max())
        mine, theirs = turns(
            [lambda: ours(*arrays), lambda: peer.run(None, case.inputs)],  # noqa: B023
            arguments.seconds,
        )
        rate = case.operations / min(mine)
        ratio = min(theirs) / min(mine)
        ratios.setdefault(name[0], []).append(ratio)
        figures = [f"{1e6 * f(t):.0f}" for t in (mine, theirs) for f in (min, median)]
        share = f"{rate / best:.0%}"
        table.add_row(
            name, *figures, f"{rate / 1e9:.0f}", share, f"{1e3 * took:.0f}", f"{error:.0e}",
            f"{ratio:.2f}",
        )  # fmt: skip
    console = Console(width=130)
    console.print(table)
    for kind, found in ratios.items():
        mean = math.exp(sum(map(math.log, found)) / len(found))
        console.print(f"{kind}: geometric mean {mean:.2f}, least {min(found):.2f}")


if __name__ == "__main__":
    main()
