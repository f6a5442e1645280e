"""What the techniques give, each with and without it in one run.

    python benchmarks/techniques.py [--seconds S] [names …]

Fusion: the same layers with neither rules nor fusion, with rules alone (a batch norm becomes part
of the weights before it), and with both; all take turns, on one core, results compared.  The
memory plan: what a call needs, against all intermediate values side by side.  Tensorize: products
of bytes by instructions that do many of them, against loops, and beside onnxruntime if it is there.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from importlib.util import find_spec
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
from attrs import evolve
from rich.console import Console
from rich.table import Table

import plica
from plica.codegen.dot_product import dot_of
from plica.codegen.llvm import toolchain
from plica.codegen.lower.shared_passes import GROUP
from plica.core.name import Name
from plica.frontend import zoo
from plica.ir.graph.expression import Apply, Expr, Function, Var, const
from plica.ir.graph.module import Module, module
from plica.ir.type.infer import infer
from plica.ir.type.term import tensor
from plica.pipeline import Lowered, arranged, build
from plica.rewrite.history import begun
from plica.rewrite.optimise import DEFAULT_CONTRACT, optimise
from plica.runtime.executable import Executable

Array = np.ndarray[Any, Any]


def normed(channels: int, outputs: int, size: int, window: int, groups: int) -> Module:
    """A convolution, batch normalisation and relu."""
    random = np.random.default_rng(0)

    def drawn(*shape: int) -> Expr:
        return const(random.standard_normal(shape).astype(np.float32) / np.float32(window))

    x = Var(Name("x"), tensor((1, channels, size, size), "f32"))
    weight = drawn(outputs, channels // groups, window, window)
    attrs = (("dilation", 1), ("groups", groups), ("padding", window // 2), ("strides", 1))
    y = Apply("nn.conv", (x, weight), attrs)
    spread = const(np.linspace(0.5, 2, outputs, dtype=np.float32))
    parts = (y, drawn(outputs), drawn(outputs), drawn(outputs), spread)
    norm = Apply("nn.batch_norm", parts, (("axis", 1), ("epsilon", 1e-5)))
    main = Var(Name("main"), None)
    return module({main: Function((), (), (x,), None, Apply("nn.relu", (norm,)))}, main)


# fmt: off
FUSION: dict[str, Callable[[], Module]] = {
    "conv+bn+relu 64x56x56 3x3":       lambda: normed(64, 64, 56, 3, 1),
    "conv+bn+relu 256x56x56 1x1":      lambda: normed(256, 64, 56, 1, 1),
    "depthwise+bn+relu 128x56x56 3x3": lambda: normed(128, 128, 56, 3, 128),
    "depthwise+bn+relu 512x14x14 3x3": lambda: normed(512, 512, 14, 3, 512),
    "LSTM, 1 layer of 650, 4 steps":   lambda: zoo.lstm_lm(words=16, hidden=650, layers=1, steps=4),
}
MEMORY: dict[str, Callable[[], Module]] = {
    "resnet50":     lambda: zoo.resnet(50),
    "mobilenet_v2": zoo.mobilenet,
    "lstm_lm":      zoo.lstm_lm,
}
# fmt: on


def lowered(of: Module, *, rules: bool = True, fusing: bool = True) -> Lowered:
    """A module for this machine and one core, with or without rules and fusion."""
    target = evolve(toolchain.host(), cores=1)
    start = infer(of)
    history = optimise(start) if rules else begun(start)
    for each in GROUP:
        if fusing or each.name != "fuse":
            history = history.through(each)
    return evolve(arranged(history, target, DEFAULT_CONTRACT), fused=True)


def fusion(names: list[str], seconds: float) -> Table:
    table = Table(title="fusion, one core: best ms (median); launches")
    for column in ("layer", "neither", "rules", "rules + fusion", "fusion gives", "both give"):
        table.add_column(column, justify="left" if column == "layer" else "right")
    for name in names:
        of = FUSION[name]()
        made = [
            lowered(of, rules=rules, fusing=fusing)
            for rules, fusing in ((False, False), (True, False), (True, True))
        ]
        ready = [build(each, toolchain.host()) for each in made]
        times = contest(ready, seconds)
        best = [min(each) for each in times]
        cells = [
            f"{min(each) * 1e3:.3f} ({median(each) * 1e3:.3f}); {len(exe.artefact.launches)}"
            for each, exe in zip(times, ready, strict=True)
        ]
        table.add_row(name, *cells, f"{best[1] / best[2]:.2f}x", f"{best[0] / best[2]:.2f}x")
    return table


def contest(ready: list[Executable], seconds: float) -> list[list[float]]:
    """The times of some executables of one model, in turns."""
    random = np.random.default_rng(1)
    inputs = [_drawn(random, port.shape, port.numpy) for port in ready[0].inputs]
    return turns([*ready], inputs, seconds)


def turns(
    ready: Sequence[Callable[..., Any]], inputs: list[Array], seconds: float
) -> list[list[float]]:
    """The times of functions of the same inputs, which must agree, in turns."""
    results: list[Any] = [exe(*inputs) for exe in ready]
    for each in results[1:]:
        far = np.abs(each.astype(np.float64) - results[0]).max()
        assert far <= 1e-3 * np.abs(results[0]).max()
    times: list[list[float]] = [[] for _ in ready]
    end = perf_counter() + seconds
    while perf_counter() < end:
        for exe, into in zip(ready, times, strict=True):
            exe(*inputs)  # the caches are its own again
            for _ in range(3):
                start = perf_counter()
                exe(*inputs)
                into.append(perf_counter() - start)
    return times


def _drawn(random: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    if dtype.kind in "iu":
        return random.integers(0, 8, shape).astype(dtype)
    return random.standard_normal(shape).astype(dtype)


def dense(size: int) -> Any:
    """An ONNX model: a matrix product of bytes."""
    weight = _bytes((size, size))
    return _quantised("MatMulInteger", (size, size), weight, (size, size))


def window(channels: int, outputs: int, size: int, wide: int) -> Any:
    """An ONNX model: a convolution of bytes."""
    weight = _bytes((outputs, channels, wide, wide))
    pads = [wide // 2] * 4
    shape = (1, channels, size, size)
    return _quantised("ConvInteger", shape, weight, (1, outputs, size, size), pads=pads)


def _bytes(shape: tuple[int, ...]) -> Array:
    return np.random.default_rng(0).integers(-128, 128, shape).astype(np.int8)


def _quantised(
    word: str, shape: tuple[int, ...], weight: Array, result: tuple[int, ...], **attrs: Any
) -> Any:
    from onnx import TensorProto, helper, numpy_helper

    node = helper.make_node(word, ["x", "w", "zero"], ["y"], **attrs)
    known = [
        numpy_helper.from_array(weight, "w"),
        numpy_helper.from_array(np.array(7, np.uint8), "zero"),
    ]
    given = helper.make_tensor_value_info("x", TensorProto.UINT8, shape)
    made = helper.make_tensor_value_info("y", TensorProto.INT32, result)
    graph = helper.make_graph([node], "layer", [given], [made], known)
    opset = [helper.make_opsetid("", 10)]
    return helper.make_model(graph, opset_imports=opset, ir_version=8)


# fmt: off
TENSORIZE: dict[str, tuple[Callable[[], Any], int]] = {
    "u8 x i8 GEMM 512":           (lambda: dense(512),              512**3),
    "u8 x i8 GEMM 1024":          (lambda: dense(1024),             1024**3),
    "u8 x i8 conv 64x56x56 3x3":  (lambda: window(64, 64, 56, 3),   64 * 64 * 9 * 56**2),
    "u8 x i8 conv 256x14x14 3x3": (lambda: window(256, 256, 14, 3), 256 * 256 * 9 * 14**2),
    "u8 x i8 conv 256x56x56 1x1": (lambda: window(256, 64, 56, 1),  256 * 64 * 56**2),
}
# fmt: on


def tensorize(names: list[str], seconds: float) -> Table:
    """Dot products of bytes, with the instructions for them and without."""
    here = toolchain.host()
    dot = dot_of(here)
    word = "no such instruction here" if dot is None else dot.intrinsic
    table = Table(title=f"tensorize ({word}), one core: best ms (median); GMAC/s")
    for column in ("layer", "loops", "tensorized", "gives", "onnxruntime", "beside it"):
        table.add_column(column, justify="left" if column == "layer" else "right")
    lacking = [each for each in here.features if "vnni" not in each and "dotprod" not in each]
    plain = evolve(here, features=tuple(lacking))
    for name in names:
        make, products = TENSORIZE[name]
        model = make()
        ready: list[Callable[..., Any]] = [
            plica.compile(model, target=each, threads=1, cache=False) for each in (plain, here)
        ]
        peer = _peer(model)
        shape = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
        x = np.random.default_rng(1).integers(0, 256, shape).astype(np.uint8)
        times = turns([*ready, *([] if peer is None else [peer])], [x], seconds)
        best = [min(each) for each in times]
        cells = [
            f"{min(each) * 1e3:.3f} ({median(each) * 1e3:.3f}); {products / min(each) / 1e9:.0f}"
            for each in times
        ]
        more = ["not here", ""] if peer is None else [cells[2], f"{best[2] / best[1]:.2f}x"]
        table.add_row(name, *cells[:2], f"{best[0] / best[1]:.1f}x", *more)
    return table


def _peer(model: Any) -> Callable[..., Any] | None:
    """The same model in onnxruntime, None where that is not installed or refuses it."""
    if find_spec("onnxruntime") is None:
        return None
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    return lambda x: session.run(None, {"x": x})[0]


def memory() -> Table:
    table = Table(title="the memory plan: MB a call needs beside inputs, outputs and constants")
    for column in ("model", "values", "side by side", "planned", "less by", "without fusion"):
        table.add_column(column, justify="left" if column == "model" else "right")
    for name, make in MEMORY.items():
        of = make()
        whole = lowered(of)
        apart = lowered(of, fusing=False)
        values = whole.program.space("temporary")
        total = sum(each.bytes for each in values)
        unfused = sum(each.bytes for each in apart.program.space("temporary"))
        table.add_row(
            name,
            str(len(values)),
            f"{total / 1e6:.2f}",
            f"{whole.plan.size / 1e6:.2f}",
            f"{total / whole.plan.size:.1f}x",
            f"{unfused / 1e6:.2f}, {unfused / whole.plan.size:.1f}x",
        )
    return table


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("names", nargs="*", help="beginnings of names of layers; all")
    parser.add_argument("--seconds", type=float, default=3.0, help="for each layer")
    given = parser.parse_args()

    def chosen(names: Iterable[str]) -> list[str]:
        return [each for each in names if not given.names or any(map(each.startswith, given.names))]

    console = Console()
    if layers := chosen(FUSION):
        console.print(fusion(layers, given.seconds))
    if layers := chosen(TENSORIZE):
        console.print(tensorize(layers, given.seconds))
    if not given.names:
        console.print(memory())
    return 0


if __name__ == "__main__":
    sys.exit(main())
