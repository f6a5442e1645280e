"""Kernels that memory limits, beside onnxruntime, torch and JAX.

    python benchmarks/memory.py [names …] [--threads 1|2] [--seconds S]

Rows (softmax, norms), chains of elementwise operators, reductions, pools, copies.  Everyone takes
turns in one run, on the same arrays; a peer that is not installed is left out.  `ratio` is the best
peer's best time over ours, `error` the greatest difference to float64, over the greatest value.
Results are new arrays at every call, for everyone.
"""

from __future__ import annotations

import argparse
import importlib
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper
from rich.console import Console
from rich.table import Table

import plica
from plica import op
from plica.core.name import Name
from plica.ir.graph.expression import Expr, Function, Var, const
from plica.ir.graph.module import Module, module
from plica.ir.type.term import tensor

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Case:
    """Work as each of us is told of it: an expression, ONNX nodes, a torch and a JAX function."""

    shape: tuple[int, ...]
    ours: Callable[[Expr], Expr]
    nodes: list[tuple[Any, ...]]
    torch: Callable[[Any, Any], Any]
    """Of torch's functions (`torch`) and a tensor."""
    jax: Callable[[Any, Any], Any]
    """Of JAX and an array."""
    kept: dict[str, Array] = field(default_factory=dict)


SCALE = np.linspace(0.5, 1.5, 1024, dtype=np.float32)
SHIFT = np.linspace(-1, 1, 1024, dtype=np.float32)
CHANNEL = np.linspace(0.5, 1.5, 64, dtype=np.float32).reshape(1, 64, 1, 1)


def norm_jax(jax: Any, x: Any) -> Any:
    away = x - x.mean(-1, keepdims=True)
    return away * jax.lax.rsqrt((away * away).mean(-1, keepdims=True) + 1e-5) * SCALE + SHIFT


def rms_jax(jax: Any, x: Any) -> Any:
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5) * SCALE


def window_jax(jax: Any, x: Any, start: float, join: Any) -> Any:
    side = ((0, 0), (0, 0), (1, 1), (1, 1))
    return jax.lax.reduce_window(x, start, join, (1, 1, 3, 3), (1, 1, 2, 2), side)


def softmax(rows: int, length: int) -> Case:
    return Case(
        (rows, length),
        lambda x: op.nn.softmax(x, axis=-1),
        [("Softmax", "x", {"axis": -1})],
        lambda torch, x: torch.softmax(x, -1),
        lambda jax, x: jax.nn.softmax(x, -1),
    )


def reduction(name: str, axis: int, shape: tuple[int, ...] = (1024, 1024)) -> Case:
    ours = {"sum": op.sum, "max": op.max}[name]
    node = {"sum": "ReduceSum", "max": "ReduceMax"}[name]
    kept = {"axes": np.array([axis], np.int64)}
    torch_name = {"sum": "sum", "max": "amax"}[name]
    return Case(
        shape,
        lambda x: ours(x, axis=(axis,), keepdims=False),
        [(node, "x", "axes", {"keepdims": 0})],
        lambda torch, x: getattr(torch, torch_name)(x, axis),
        lambda jax, x: getattr(jax.numpy, name)(x, axis),
        kept,
    )


# fmt: off
CASES: dict[str, Case] = {
    "softmax": softmax(1024, 1024),
    "softmax-256": softmax(256, 256),
    "softmax-odd": softmax(1000, 1000),
    "softmax-attention": softmax(12 * 128, 128),
    "layer-norm": Case(
        (1024, 1024),
        lambda x: op.nn.layer_norm(x, const(SCALE), const(SHIFT), axis=-1),
        [("LayerNormalization", "x", "scale", "shift", {"axis": -1})],
        lambda torch, x: torch.nn.functional.layer_norm(
            x, (1024,), torch.from_numpy(SCALE), torch.from_numpy(SHIFT)),
        norm_jax,
        {"scale": SCALE, "shift": SHIFT},
    ),
    "rms-norm": Case(
        (1024, 1024),
        lambda x: op.nn.rms_norm(x, const(SCALE), axis=-1),
        [("Mul", "x", "x", {}), ("ReduceMean", "0", "axes", {}), ("Add", "1", "small", {}),
         ("Sqrt", "2", {}), ("Div", "x", "3", {}), ("Mul", "4", "scale", {})],
        lambda torch, x: torch.nn.functional.rms_norm(x, (1024,), torch.from_numpy(SCALE), 1e-5),
        rms_jax,
        {"scale": SCALE, "small": np.float32(1e-5).reshape(()), "axes": np.array([-1])},
    ),
    "log-softmax": Case(
        (1024, 1024),
        lambda x: op.nn.log_softmax(x, axis=-1),
        [("LogSoftmax", "x", {"axis": -1})],
        lambda torch, x: torch.log_softmax(x, -1),
        lambda jax, x: jax.nn.log_softmax(x, -1),
    ),
    "gelu-16M": Case(
        (1 << 24,),
        lambda x: op.nn.gelu(x * 1.5 + 0.5),
        [("Mul", "x", "a", {}), ("Add", "0", "b", {}), ("Div", "1", "root", {}), ("Erf", "2", {}),
         ("Add", "3", "one", {}), ("Mul", "1", "4", {}), ("Mul", "5", "b", {})],
        lambda torch, x: torch.nn.functional.gelu(x * 1.5 + 0.5),
        lambda jax, x: jax.nn.gelu(x * 1.5 + 0.5, approximate=False),
        {"a": np.float32(1.5).reshape(()), "b": np.float32(0.5).reshape(()),
         "root": np.float32(2**0.5).reshape(()), "one": np.float32(1).reshape(())},
    ),
    "exp": Case(
        (1024, 1024),
        op.exp,
        [("Exp", "x", {})],
        lambda torch, x: torch.exp(x),
        lambda jax, x: jax.numpy.exp(x),
    ),
    "relu": Case(
        (1024, 1024),
        op.nn.relu,
        [("Relu", "x", {})],
        lambda torch, x: torch.relu(x),
        lambda jax, x: jax.nn.relu(x),
    ),
    "chain": Case(
        (1024, 1024),
        lambda x: op.nn.relu(x * const(SCALE) + const(SHIFT)) * x,
        [("Mul", "x", "scale", {}), ("Add", "0", "shift", {}), ("Relu", "1", {}),
         ("Mul", "2", "x", {})],
        lambda torch, x: torch.relu(x * torch.from_numpy(SCALE) + torch.from_numpy(SHIFT)) * x,
        lambda jax, x: jax.nn.relu(x * SCALE + SHIFT) * x,
        {"scale": SCALE, "shift": SHIFT},
    ),
    "channels": Case(
        (1, 64, 112, 112),
        lambda x: op.nn.relu(x * const(CHANNEL) + const(CHANNEL)),
        [("Mul", "x", "scale", {}), ("Add", "0", "scale", {}), ("Relu", "1", {})],
        lambda torch, x: torch.relu(x * torch.from_numpy(CHANNEL) + torch.from_numpy(CHANNEL)),
        lambda jax, x: jax.nn.relu(x * CHANNEL + CHANNEL),
        {"scale": CHANNEL},
    ),
    "sum-last": reduction("sum", 1),
    "sum-first": reduction("sum", 0),
    "sum-middle": reduction("sum", 1, (16, 256, 256)),
    "max-last": reduction("max", 1),
    "argmax": Case(
        (1024, 1024),
        lambda x: op.argmax(x, axis=-1),
        [("ArgMax", "x", {"axis": -1, "keepdims": 0})],
        lambda torch, x: torch.argmax(x, -1),
        lambda jax, x: jax.numpy.argmax(x, -1),
    ),
    "average-all": Case(
        (1, 512, 28, 28),
        lambda x: op.mean(x, axis=(2, 3), keepdims=True),
        [("GlobalAveragePool", "x", {})],
        lambda torch, x: torch.nn.functional.adaptive_avg_pool2d(x, 1),
        lambda jax, x: x.mean((2, 3), keepdims=True),
    ),
    "max-pool": Case(
        (1, 64, 112, 112),
        lambda x: op.nn.max_pool(x, kernel=(3, 3), strides=(2, 2), padding=((1, 1), (1, 1))),
        [("MaxPool", "x", {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]})],
        lambda torch, x: torch.nn.functional.max_pool2d(x, 3, 2, 1),
        lambda jax, x: window_jax(jax, x, -np.inf, jax.lax.max),
    ),
    "average-pool": Case(
        (1, 64, 112, 112),
        lambda x: op.nn.avg_pool(x, kernel=(3, 3), strides=(2, 2), padding=((1, 1), (1, 1)),
                                 count_include_pad=True),
        [("AveragePool", "x", {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1],
                               "count_include_pad": 1})],
        lambda torch, x: torch.nn.functional.avg_pool2d(x, 3, 2, 1),
        lambda jax, x: window_jax(jax, x, 0.0, jax.lax.add) / 9,
    ),
    "transpose": Case(
        (1024, 1024),
        lambda x: op.transpose(x, axes=(1, 0)),
        [("Transpose", "x", {"perm": [1, 0]})],
        lambda torch, x: x.T.contiguous(),
        lambda jax, x: x.T,
    ),
    "heads": Case(
        (128, 12, 64),
        lambda x: op.transpose(x, axes=(1, 0, 2)),
        [("Transpose", "x", {"perm": [1, 0, 2]})],
        lambda torch, x: x.permute(1, 0, 2).contiguous(),
        lambda jax, x: x.transpose(1, 0, 2),
    ),
    "concat": Case(
        (1, 64, 56, 56),
        lambda x: op.concat((x, x), axis=1),
        [("Concat", "x", "x", {"axis": 1})],
        lambda torch, x: torch.cat([x, x], 1),
        lambda jax, x: jax.numpy.concatenate([x, x], 1),
    ),
    "pad": Case(
        (1, 64, 112, 112),
        lambda x: op.pad(x, pad_width=((0, 0), (0, 0), (1, 1), (1, 1))),
        [("Pad", "x", "widths", {})],
        lambda torch, x: torch.nn.functional.pad(x, (1, 1, 1, 1)),
        lambda jax, x: jax.numpy.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))),
        {"widths": np.array([0, 0, 1, 1, 0, 0, 1, 1])},
    ),
}
# fmt: on


def compiled(case: Case) -> Module:
    x, main = Var(Name("x"), tensor(case.shape, "f32")), Var(Name("main"), None)
    return module({main: Function((), (), (x,), None, case.ours(x))}, main)


def onnx_model(case: Case) -> bytes:
    nodes = [
        helper.make_node(kind, list(names), [str(number)], **attributes)
        for number, (kind, *names, attributes) in enumerate(case.nodes)
    ]
    start = helper.make_tensor_value_info("x", TensorProto.FLOAT, case.shape)
    whole = TensorProto.INT64 if case.nodes[-1][0] == "ArgMax" else TensorProto.FLOAT
    end = helper.make_tensor_value_info(str(len(nodes) - 1), whole, None)
    stored = [numpy_helper.from_array(each, name) for name, each in case.kept.items()]
    graph = helper.make_graph(nodes, "case", [start], [end], stored)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    found: bytes = made.SerializeToString()
    return found


def peer(name: str, case: Case, x: Array, threads: int) -> Callable[[], Any] | None:
    """A call of a peer, None where it is not installed."""
    try:
        of = importlib.import_module(name)
    except ImportError:
        return None
    if name == "onnxruntime":
        options = of.SessionOptions()
        options.intra_op_num_threads = threads
        session = of.InferenceSession(onnx_model(case), options, ["CPUExecutionProvider"])
        return lambda: session.run(None, {"x": x})[0]
    if name == "torch":
        of.set_num_threads(threads)
        of.set_grad_enabled(False)
        given = of.from_numpy(x)
        return lambda: case.torch(of, given)
    jitted = of.jit(lambda each: case.jax(of, each))
    placed = of.device_put(x)
    return lambda: jitted(placed).block_until_ready()


def exact(case: Case, x: Array) -> Array:
    """The result in float64, by torch, else by the interpreter."""
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        found: Array = plica.interpret(compiled(case), x)
        return found
    wide = torch.from_numpy(x).double()
    functional = torch.nn.functional
    if case is CASES["layer-norm"]:
        scale, shift = (torch.from_numpy(each).double() for each in (SCALE, SHIFT))
        return np.asarray(functional.layer_norm(wide, (1024,), scale, shift))
    if case is CASES["rms-norm"]:
        return np.asarray(
            functional.rms_norm(wide, (1024,), torch.from_numpy(SCALE).double(), 1e-5)
        )
    return np.asarray(case.torch(torch, wide))


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


PEERS = ("onnxruntime", "torch", "jax")


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description="What memory limits, beside the peers.")
    parser.add_argument("names", nargs="*", default=list(CASES))
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    if arguments.threads == 1:  # JAX has no option for it
        flags = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
        os.environ["XLA_FLAGS"] = flags
    title = f"f32, {arguments.threads} threads, µs"
    heads = [f"{each} {kind}" for each in ("plica", *PEERS) for kind in ("min", "median")]
    table = Table("case", *heads, "error", "ratio", title=title)
    for name in arguments.names:
        case = CASES[name]
        x = np.random.default_rng(0).standard_normal(case.shape, np.float32)
        ours = plica.compile(compiled(case), threads=arguments.threads, cache=False)
        known = exact(case, x)
        error = float(abs(np.asarray(ours(x)) - known).max() / abs(known).max())
        found = {each: peer(each, case, x, arguments.threads) for each in PEERS}
        calls = {each: call for each, call in found.items() if call is not None}
        times = turns([lambda: ours(x), *calls.values()], arguments.seconds)  # noqa: B023
        by_name = dict(zip(("plica", *calls), times, strict=True))
        figures = [
            f"{1e6 * kind(by_name[each]):.0f}" if each in by_name else "-"
            for each in ("plica", *PEERS)
            for kind in (min, median)
        ]
        best = min((min(by_name[each]) for each in calls), default=float("nan"))
        table.add_row(name, *figures, f"{error:.0e}", f"{best / min(by_name['plica']):.2f}")
    Console(width=150).print(table)


if __name__ == "__main__":
    main()
