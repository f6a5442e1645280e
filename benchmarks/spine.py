"""What compiling costs and what it brings, operator by operator.

    python benchmarks/spine.py [--runs N] [--only NAME]

For each case: the time to lower it and to make native code, then the time of one run of the native
code, of the interpreter, of numpy where numpy has the operation, and of onnxruntime on one thread
where it is installed.  The contenders take turns in one process, each figure is the least of its
runs, and the last columns are ratios: how many times longer the other took.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from plica.codegen.llvm.processor import find_target
from plica.core.name import Name
from plica.ir.graph.expression import Expr, Function, Var
from plica.ir.graph.module import Module, module
from plica.ir.interpret.interpreter import interpret
from plica.ir.op import find
from plica.ir.type.infer import infer
from plica.ir.type.term import tensor
from plica.pipeline import build, lower

Array = np.ndarray[Any, Any]
Run = Callable[[], Any]


@dataclass(frozen=True)
class Case:
    """An operator at some shapes, the same in numpy, and its name and attributes in ONNX."""

    name: str
    shapes: tuple[tuple[int, ...], ...]
    body: Callable[..., Expr]
    numpy: Callable[..., Any] | None = None
    onnx: tuple[str, dict[str, Any]] | None = None
    transposed: bool = False  # ONNX's Gemm takes the weight as it is, with transB


def op(name: str, **attributes: Any) -> Callable[..., Expr]:
    """An operator of the registry with its attributes set."""
    record = find(name)
    assert record is not None, name
    return lambda *args: record(*args, **attributes)


def softmax(x: Array) -> Array:
    shifted = np.exp(x - x.max(-1, keepdims=True))
    return shifted / shifted.sum(-1, keepdims=True)  # type: ignore[no-any-return]


CASES = (
    Case("add 1M", ((1024, 1024), (1024, 1024)), op("add"), np.add, ("Add", {})),
    Case("exp 64k", ((256, 256),), op("exp"), np.exp, ("Exp", {})),
    Case("relu 1M", ((1024, 1024),), op("nn.relu"), lambda x: np.maximum(x, 0), ("Relu", {})),
    Case("softmax 256x256", ((256, 256),), op("nn.softmax", axis=-1), softmax, ("Softmax", {})),
    Case("sum rows 1M", ((1024, 1024),), op("sum", axis=(0,)), lambda x: x.sum(0)),
    Case("sum columns 1M", ((1024, 1024),), op("sum", axis=(1,)), lambda x: x.sum(1)),
    Case("transpose 1M", ((1024, 1024),), op("transpose"), lambda x: x.T.copy(), ("Transpose", {})),
    Case("matmul 256", ((256, 256), (256, 256)), op("matmul"), np.matmul, ("MatMul", {})),
    Case(
        "dense 256",
        ((256, 256), (256, 256)),
        op("nn.dense"),
        lambda x, w: x @ w.T,
        ("Gemm", {"transB": 1}),
    ),
    Case(
        "conv 64x56x56 3x3",
        ((1, 64, 56, 56), (64, 64, 3, 3)),
        op("nn.conv", padding=1),
        None,
        ("Conv", {"pads": [1, 1, 1, 1]}),
    ),
    Case(
        "depthwise 64x56x56 3x3",
        ((1, 64, 56, 56), (64, 1, 3, 3)),
        op("nn.conv", padding=1, groups=64),
        None,
        ("Conv", {"pads": [1, 1, 1, 1], "group": 64}),
    ),
    Case(
        "max pool 64x56x56 2x2",
        ((1, 64, 56, 56),),
        op("nn.max_pool", kernel=2, strides=2),
        lambda x: x.reshape(1, 64, 28, 2, 28, 2).max((3, 5)),
        ("MaxPool", {"kernel_shape": [2, 2], "strides": [2, 2]}),
    ),
)


def module_of(case: Case) -> Module:
    """A module that applies the operator to its parameters."""
    params = tuple(Var(Name("x", i), tensor(s, "f32")) for i, s in enumerate(case.shapes))
    main = Var(Name("main"), None)
    return infer(module({main: Function((), (), params, None, case.body(*params))}, main))


def onnx_run(case: Case, arrays: Sequence[Array]) -> Run | None:
    """The same operator in onnxruntime on one thread, None where it cannot be had."""
    if case.onnx is None:
        return None
    try:
        import onnx
        import onnxruntime
    except ImportError:
        return None
    kind, attributes = case.onnx
    names = [f"x{i}" for i in range(len(arrays))]
    float_ = onnx.TensorProto.FLOAT
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node(kind, names, ["y"], **attributes)],
        "case",
        [
            onnx.helper.make_tensor_value_info(name, float_, array.shape)
            for name, array in zip(names, arrays, strict=True)
        ],
        [onnx.helper.make_tensor_value_info("y", float_, None)],
    )
    opset = onnx.helper.make_opsetid("", 17)
    model = onnx.helper.make_model(graph, opset_imports=[opset], ir_version=9)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    feed = dict(zip(names, arrays, strict=True))
    return lambda: session.run(None, feed)[0]


def contest(runs: dict[str, Run], rounds: int) -> dict[str, float]:
    """The least time of each contender over rounds in which they take turns."""
    best = dict.fromkeys(runs, math.inf)
    for call in runs.values():
        call()
    for _ in range(rounds):
        for name, call in runs.items():
            start = perf_counter()
            call()
            best[name] = min(best[name], perf_counter() - start)
    return best


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description="The spine beside its references.")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    target = find_target("cpu")
    table = Table(
        "case", "lower ms", "build ms", "run µs",
        "interpreter", "numpy", "onnxruntime", "max diff",
        title=f"Native code on one thread, {target}",
    )  # fmt: skip
    random = np.random.default_rng(0)
    for case in CASES:
        if arguments.only not in case.name:
            continue
        of = module_of(case)
        start = perf_counter()
        lowered = lower(of, target=target)
        middle = perf_counter()
        exe = build(lowered, target)
        end = perf_counter()
        arrays = [random.standard_normal(shape).astype(np.float32) for shape in case.shapes]
        runs: dict[str, Run] = {"plica": lambda exe=exe, a=arrays: exe(*a)}  # type: ignore[misc]
        if case.numpy is not None:
            runs["numpy"] = lambda f=case.numpy, a=arrays: f(*a)  # type: ignore[misc]
        other = onnx_run(case, arrays)
        if other is not None:
            runs["onnxruntime"] = other
        best = contest(runs, arguments.runs)
        meaning = lambda: interpret(of, *arrays)  # noqa: B023, E731  # used at once
        slow = contest({"interpreter": meaning}, 2)
        best |= slow
        difference = float(np.abs(np.asarray(exe(*arrays)) - np.asarray(meaning())).max())

        def ratio(name: str, best: dict[str, float] = best) -> str:
            return f"{best[name] / best['plica']:.2f}x" if name in best else "-"

        table.add_row(
            case.name,
            f"{(middle - start) * 1e3:.1f}",
            f"{(end - middle) * 1e3:.1f}",
            f"{best['plica'] * 1e6:,.0f}",
            ratio("interpreter"),
            ratio("numpy"),
            ratio("onnxruntime"),
            f"{difference:.1e}",
        )
    Console().print(table)


if __name__ == "__main__":
    main()
