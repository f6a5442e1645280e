"""Cliffs: operators that nobody named, drawn by a seed, checked and timed beside onnxruntime.

    python benchmarks/cliffs.py --seed SEED [--n 200] [--threads 1] [--shrink] [--json FILE]
    python benchmarks/cliffs.py --seed SEED --refusals      # schedules that are refused, untimed

Each is an ONNX model of one operator, or of a short chain; every family is as likely as any other,
and sizes are drawn so that small ones are as likely as large ones.  Both take turns in bursts; what
counts is the least time of a call: of the processor for one thread.  The table is sorted by the
ratio, the slowest first; below it are quantiles and the geometric mean.  A refusal counts as 0.  A
number is wrong that differs from onnxruntime's and from those of onnx's own reference; with one the
command ends with 1.  With --shrink those below 0.7 come with the smallest sizes that still are so.
Schedules that promised more but were refused are told with their cases, and counted.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

ROUNDS, BURST, TOLERANCE = 7, 0.02, 1e-3

CLIFF = 0.7
"""Cases with a smaller ratio are made smaller, as long as they stay so."""

SMALLER = 5
"""How often sizes are halved."""

REDUCTIONS = (
    "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL2", "ReduceSumSquare", "ReduceLogSumExp",
)  # fmt: skip
NORMS = ("Softmax", "Softmax", "LogSoftmax", "LayerNormalization", "InstanceNormalization")
UNARY = (
    "Exp", "Log", "Sqrt", "Tanh", "Sigmoid", "Erf", "Neg", "Softplus", "Abs", "Reciprocal", "Sin",
)  # fmt: skip
MOVES = (
    "Transpose", "Transpose", "Slice", "Pad", "Concat", "Gather", "Tile", "Expand", "DepthToSpace",
)  # fmt: skip

Drawn = tuple[str, onnx.ModelProto, list[np.ndarray[Any, Any]]]


class Random(np.random.Generator):
    """Random numbers, and the part of each size that is kept: less, to make a case smaller."""

    def __init__(self, seed: tuple[int, int], kept: float = 1.0) -> None:
        super().__init__(np.random.PCG64(seed))
        self.kept = kept


def size(random: Random, low: int, high: int) -> int:
    """A size between two, small ones as likely as large ones."""
    return max(low, round(_about(random, low, high) * random.kept))


def _about(random: Random, low: int, high: int) -> float:
    return math.exp(random.uniform(math.log(low), math.log(high)))


def sizes(random: Random, rank: int, least: int, most: int) -> tuple[int, ...]:
    """The sizes of a tensor with about so many elements."""
    total = math.log(max(1.0, _about(random, least, most) * random.kept))
    cuts = np.sort(random.uniform(0, total, rank - 1))
    parts = np.diff(np.concatenate([[0], cuts, [total]]))
    return tuple(max(1, round(math.exp(part))) for part in random.permutation(parts))


class Model:
    """A model under construction: nodes, weights and inputs."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.inputs: list[tuple[str, np.ndarray[Any, Any]]] = []

    def input(self, *shape: int, positive: bool = False) -> str:
        """An input of random numbers."""
        values = self.random.standard_normal(shape).astype(np.float32)
        return self.given(np.abs(values) + 0.1 if positive else values)

    def given(self, values: np.ndarray[Any, Any]) -> str:
        """An input of certain numbers."""
        name = f"x{len(self.inputs)}"
        self.inputs.append((name, values))
        return name

    def weight(self, values: Any) -> str:  # anything that numpy makes an array of
        """A constant."""
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(values), name))
        return name

    def normal(self, *shape: int) -> str:
        """A constant of random numbers."""
        return self.weight((self.random.standard_normal(shape) * 0.1).astype(np.float32))

    def node(self, kind: str, *inputs: str, outputs: int = 1, **attributes: Any) -> str:
        """One operator; the name of its first output."""
        names = [f"n{len(self.nodes)}_{at}" for at in range(outputs)]
        self.nodes.append(helper.make_node(kind, list(inputs), names, **attributes))
        return names[0]

    def made(self, result: str) -> onnx.ModelProto:
        """The model whose result is a value."""
        given = [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(values.dtype), values.shape
            )
            for name, values in self.inputs
        ]
        out = helper.make_empty_tensor_value_info(result)
        graph = helper.make_graph(self.nodes, "drawn", given, [out], self.weights)
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        return onnx.shape_inference.infer_shapes(made)


def activated(m: Model, value: str) -> str:
    """A value, or something simple made of it."""
    kind = m.random.choice(["", "Relu", "Sigmoid", "Tanh", "HardSwish", "LeakyRelu"])
    return m.node(str(kind), value) if kind else value


def convolution(m: Model) -> str:
    """A convolution of 1 to 3 axes, with groups, strides and dilation."""
    r = m.random
    rank = int(r.choice([1, 2, 2, 2, 3]))
    groups = int(r.choice([1, 1, 1, 2, 4]))
    c, o = groups * size(r, 1, 128 // groups), groups * size(r, 1, 128 // groups)
    if r.random() < 0.2:
        groups = o = c
    side = [size(r, 6, (4000, 90, 18)[rank - 1]) for _ in range(rank)]
    window = [int(r.choice([1, 2, 3, 3, 5, 7])) for _ in range(rank)]
    window = [min(a, b) for a, b in zip(window, side, strict=True)]
    dilation = [int(r.choice([1, 1, 2])) if (w - 1) * 2 < s else 1
                for w, s in zip(window, side, strict=True)]  # fmt: skip
    pads = [int(r.integers(0, (w - 1) * d + 1)) for w, d in zip(window, dilation, strict=True)] * 2
    x = m.input(int(r.choice([1, 1, 2, 4])), c, *side)
    made = m.node(
        "Conv", x, m.normal(o, c // groups, *window), m.normal(o), group=groups, pads=pads,
        strides=[int(r.choice([1, 1, 2])) for _ in range(rank)], dilations=dilation,
    )  # fmt: skip
    return activated(m, made)


def transposed(m: Model) -> str:
    """A transposed convolution."""
    r = m.random
    c, o, k, s = size(r, 2, 96), size(r, 2, 96), int(r.integers(2, 5)), int(r.integers(1, 3))
    x = m.input(1, c, size(r, 4, 40), size(r, 4, 40))
    return m.node("ConvTranspose", x, m.normal(c, o, k, k), strides=[s, s], pads=[k // 2] * 4)


def product(m: Model) -> str:
    """A matrix product, with a constant or two inputs, with or without batches."""
    r = m.random
    i, k, j = size(r, 1, 700), size(r, 4, 1500), size(r, 1, 1500)
    batch = [int(r.integers(2, 13))] if r.random() < 0.4 else []
    x = m.input(*batch, i, k)
    if r.random() < 0.3:
        rank = len(batch)
        y = m.node("Transpose", m.input(*batch, j, k), perm=[*range(rank), rank + 1, rank])
    else:
        y = m.input(*batch, k, j) if batch and r.random() < 0.7 else m.normal(k, j)
    made = m.node("MatMul", x, y)
    return activated(m, m.node("Add", made, m.normal(j)) if r.random() < 0.5 else made)


def gemm(m: Model) -> str:
    """Gemm with its flags."""
    r = m.random
    i, k, j = size(r, 1, 500), size(r, 4, 1000), size(r, 1, 1000)
    a, b = int(r.integers(0, 2)), int(r.integers(0, 2))
    x = m.input(*((k, i) if a else (i, k)))
    return m.node("Gemm", x, m.normal(*((j, k) if b else (k, j))), m.normal(j), transA=a, transB=b)


def pool(m: Model) -> str:
    """A pool over windows, or over everything."""
    r = m.random
    x = m.input(int(r.choice([1, 2])), size(r, 1, 256), size(r, 6, 100), size(r, 6, 100))
    kind = str(r.choice(["MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool"]))
    if kind.startswith("Global"):
        return m.node(kind, x)
    k = int(r.integers(2, 6))
    stride = int(r.integers(1, 4))
    return m.node(kind, x, kernel_shape=[k, k], strides=[stride] * 2, pads=[k // 2] * 4)


def reduction(m: Model) -> str:
    """A reduction over some axes."""
    r = m.random
    rank = int(r.integers(1, 5))
    x = m.input(*sizes(r, rank, 1 << 10, 1 << 21), positive=True)
    axes = sorted(r.choice(rank, int(r.integers(1, rank + 1)), replace=False).tolist())
    kind = str(r.choice(REDUCTIONS))
    return m.node(kind, x, axes=axes, keepdims=int(r.integers(0, 2)))


def normalised(m: Model) -> str:
    """Softmax and norms along an axis."""
    r = m.random
    shape = sizes(r, int(r.integers(2, 5)), 1 << 10, 1 << 20)
    kind = str(r.choice(NORMS))
    x = m.input(*shape)
    if kind == "LayerNormalization":
        return m.node(kind, x, m.normal(shape[-1]), m.normal(shape[-1]), axis=-1)
    if kind == "InstanceNormalization":
        if len(shape) < 3:
            return m.node("Softmax", x, axis=-1)
        return m.node(kind, x, m.normal(shape[1]), m.normal(shape[1]))
    return m.node(kind, x, axis=int(r.integers(-len(shape), len(shape))))


def elementwise(m: Model) -> str:
    """Chains of elementwise operators, with broadcasting."""
    r = m.random
    shape = sizes(r, int(r.integers(1, 5)), 1 << 10, 1 << 21)
    value = m.input(*shape, positive=True)
    for _ in range(int(r.integers(1, 4))):
        if r.random() < 0.5:
            kind = str(r.choice(UNARY))
            value = m.node(kind, m.node("Abs", value) if kind in ("Log", "Sqrt") else value)
        else:
            other = [each if r.random() < 0.6 else 1 for each in shape]
            kind = str(r.choice(["Add", "Mul", "Max", "Div", "Sub"]))
            value = m.node(kind, value, m.input(*other, positive=True))
    return value


def moved(m: Model) -> str:
    """Transposes, slices, pads, concatenations, gathers, repeats."""
    r = m.random
    rank = int(r.integers(2, 5))
    shape = sizes(r, rank, 1 << 10, 1 << 20)
    x = m.input(*shape)
    kind = str(r.choice(MOVES))
    axis = int(r.integers(0, rank))
    match kind:
        case "Transpose":
            return m.node(kind, x, perm=r.permutation(rank).tolist())
        case "Slice":
            ends = [max(1, each - int(r.integers(0, 3))) for each in shape]
            steps = [int(r.choice([1, 1, 2])) for _ in shape]
            given = [[0] * rank, ends, list(range(rank)), steps]
            return m.node(kind, x, *[m.weight(each) for each in given])
        case "Pad":
            mode = str(r.choice(["constant", "edge"]))
            return m.node(kind, x, m.weight(r.integers(0, 4, 2 * rank)), mode=mode)
        case "Concat":
            others = [m.input(*shape) for _ in range(int(r.integers(1, 5)))]
            return m.node(kind, x, *others, axis=axis)
        case "Gather":
            return m.node(kind, x, m.weight(r.integers(0, shape[axis], size(r, 2, 400))), axis=axis)
        case "Tile":
            return m.node(kind, x, m.weight(r.integers(1, 3, rank)))
        case "Expand":
            return m.node(kind, m.input(*shape[:-1], 1), m.weight(list(shape)))
        case _:
            b = int(r.integers(2, 4))
            y = m.input(1, b * b * size(r, 1, 32), size(r, 4, 60), size(r, 4, 60))
            return m.node(kind, y, blocksize=b)


def resized(m: Model) -> str:
    """A picture of another size."""
    r = m.random
    x = m.input(1, size(r, 1, 96), size(r, 6, 64), size(r, 6, 64))
    scale = float(r.choice([0.5, 2.0, 1.5, 3.0]))
    scales = m.weight(np.array([1, 1, scale, scale], np.float32))
    mode = str(r.choice(["nearest", "linear"]))
    where = str(r.choice(["asymmetric", "half_pixel", "align_corners"]))
    return m.node("Resize", x, "", scales, mode=mode, coordinate_transformation_mode=where)


def recurrent(m: Model) -> str:
    """LSTM and GRU."""
    r = m.random
    steps, batch = size(r, 2, 60), int(r.choice([1, 1, 4, 16]))
    width, hidden = size(r, 8, 300), size(r, 8, 256)
    kind, gates = (("LSTM", 4), ("GRU", 3), ("RNN", 1))[int(r.integers(0, 3))]
    sides = int(r.integers(1, 3))
    x = m.input(steps, batch, width)
    return m.node(
        kind, x, m.normal(sides, gates * hidden, width), m.normal(sides, gates * hidden, hidden),
        hidden_size=hidden, direction="bidirectional" if sides == 2 else "forward",
    )  # fmt: skip


def attention(m: Model) -> str:
    """Softmax between two products."""
    r = m.random
    heads, length, depth = int(r.integers(1, 13)), size(r, 8, 300), int(r.choice([16, 32, 48, 64]))
    q, k, v = (m.input(heads, length, depth) for _ in range(3))
    scores = m.node("MatMul", q, m.node("Transpose", k, perm=[0, 2, 1]))
    scaled = m.node("Mul", scores, m.weight(np.float32(depth**-0.5)))
    return m.node("MatMul", m.node("Softmax", scaled, axis=-1), v)


def scanned(m: Model) -> str:
    """A running sum along an axis."""
    r = m.random
    shape = sizes(r, int(r.integers(1, 5)), 1 << 10, 1 << 20)
    axis = m.weight(np.int64(r.integers(0, len(shape))))
    how = {"exclusive": int(r.integers(0, 2)), "reverse": int(r.integers(0, 2))}
    return m.node("CumSum", m.input(*shape), axis, **how)


def ordered(m: Model) -> str:
    """The greatest elements along an axis, or where they are."""
    r = m.random
    shape = sizes(r, int(r.integers(1, 4)), 1 << 10, 1 << 17)
    axis = int(r.integers(0, len(shape)))
    kind = str(r.choice(["TopK", "ArgMax", "ArgMin"]))
    x = m.input(*shape)
    if kind != "TopK":
        return m.node("Cast", m.node(kind, x, axis=axis, keepdims=0), to=TensorProto.FLOAT)
    count = size(r, 1, min(shape[axis], 50))
    return m.node(kind, x, m.weight(np.array([count])), outputs=2, axis=axis)


def indexed(m: Model) -> str:
    """Rows and elements that are read or written at places known at run time."""
    r = m.random
    rank = int(r.integers(1, 4))
    shape = sizes(r, rank, 1 << 10, 1 << 19)
    axis = int(r.integers(0, rank))
    x = m.input(*shape)
    kind = str(r.choice(["Gather", "GatherElements", "GatherND", "ScatterElements", "ScatterND"]))
    count = size(r, 1, 2000)
    if kind == "Gather":
        return m.node(kind, x, m.given(r.integers(0, shape[axis], count)), axis=axis)
    if kind.endswith("ND"):
        columns = [r.integers(0, each, count) for each in shape[: axis + 1]]
        places = m.given(np.stack(columns, axis=-1))
        if kind == "GatherND":
            return m.node(kind, x, places)
        return m.node(kind, x, places, m.input(count, *shape[axis + 1 :]), reduction="add")
    some = [each if at != axis else max(1, each // 2) for at, each in enumerate(shape)]
    if kind == "GatherElements":
        return m.node(kind, x, m.given(r.integers(0, shape[axis], some)), axis=axis)
    order = [r.permutation(shape[axis])[: some[axis]] for _ in range(math.prod(some) // some[axis])]
    along = np.moveaxis(
        np.array(order).reshape([n for at, n in enumerate(some) if at != axis] + [some[axis]]),
        -1, axis,
    )  # fmt: skip
    return m.node(kind, x, m.given(np.ascontiguousarray(along)), m.input(*some), axis=axis)


def spectral(m: Model) -> str:
    """A discrete Fourier transform of rows, or of windows of a signal."""
    r = m.random
    length = int(r.choice([16, 30, 60, 64, 100, 128, 200, 256, 320, 400, 512]))
    if r.random() < 0.5:
        x = m.input(size(r, 1, 200), length, 1)
        return m.node("DFT", x, axis=1, onesided=int(r.integers(0, 2)))
    step = max(1, length // int(r.integers(2, 5)))
    x = m.input(1, length + step * size(r, 1, 200), 1)
    window = m.weight(np.hanning(length).astype(np.float32))
    given = [m.weight(np.int64(step)), window, m.weight(np.int64(length))]
    return m.node("STFT", x, *given, onesided=1)


def quantised(m: Model) -> str:
    """A product or a convolution of bytes, by floats that are quantised before."""
    r = m.random
    one = m.weight(np.float32(0.05))
    zero, signed = m.weight(np.uint8(128)), m.weight(np.int8(0))

    def bytes_(value: str, point: str) -> str:
        quantised_ = m.node("QuantizeLinear", value, one, point)
        return m.node("DequantizeLinear", quantised_, one, point)

    def weight(*shape: int) -> str:
        kept = m.weight(r.integers(-127, 128, shape).astype(np.int8))
        return m.node("DequantizeLinear", kept, m.weight(np.float32(0.01)), signed)

    if r.random() < 0.5:
        i, k, j = size(r, 1, 400), size(r, 4, 800), size(r, 2, 800)
        return m.node("Relu", m.node("MatMul", bytes_(m.input(i, k), zero), weight(k, j)))
    c, o, side, k = size(r, 1, 128), size(r, 2, 128), size(r, 6, 60), int(r.choice([1, 3, 5]))
    x = bytes_(m.input(1, c, side, side), zero)
    return m.node("Relu", m.node("Conv", x, weight(o, c, k, k), pads=[k // 2] * 4))


def einsum(m: Model) -> str:
    """Sums of products over axes in any order."""
    r = m.random
    letters = {each: size(r, 1, 40) for each in "abcde"}
    left = r.permutation(list("abcde"))[: int(r.integers(2, 5))].tolist()
    right = r.permutation(list("abcde"))[: int(r.integers(2, 5))].tolist()
    both = [each for each in "abcde" if each in left or each in right]
    out = [each for each in r.permutation(both).tolist() if r.random() < 0.7] or both[:1]
    x, y = (m.input(*[letters[each] for each in side]) for side in (left, right))
    return m.node("Einsum", x, y, equation=f"{''.join(left)},{''.join(right)}->{''.join(out)}")


def heads(m: Model) -> str:
    """Products of matrices of heads, which lie between each other."""
    r = m.random
    batch, length, count, depth = int(r.integers(1, 3)), size(r, 4, 256), int(r.integers(1, 9)), 32
    q, k = (m.input(batch, length, count, depth) for _ in range(2))
    rows = m.node("Transpose", q, perm=[0, 2, 1, 3])
    columns = m.node("Transpose", k, perm=[0, 2, 3, 1])
    return m.node("Softmax", m.node("MatMul", rows, columns), axis=-1)


def block(m: Model) -> str:
    """Parts of networks: a residual block, squeeze and excitation, an MLP with a norm, GELU."""
    r = m.random
    kind = int(r.integers(0, 4))
    if kind < 2:
        c, side = size(r, 4, 96), size(r, 5, 40)
        x = m.input(1, c, side, side)
        if kind == 0:
            inner = m.node("Relu", m.node("Conv", x, m.normal(c, c, 3, 3), pads=[1] * 4))
            deep = m.node("Conv", inner, m.normal(c, 1, 3, 3), pads=[1] * 4, group=c)
            return m.node("Relu", m.node("Add", deep, x))
        few = max(1, c // 4)
        mean = m.node("GlobalAveragePool", x)
        inner = m.node("Relu", m.node("Conv", mean, m.normal(few, c, 1, 1)))
        return m.node("Mul", x, m.node("Sigmoid", m.node("Conv", inner, m.normal(c, few, 1, 1))))
    rows, width = size(r, 1, 200), size(r, 16, 400)
    x = m.input(1, rows, width)
    if kind == 2:
        x = m.node("LayerNormalization", x, m.normal(width), m.normal(width), axis=-1)
    else:
        mean = m.node("ReduceMean", m.node("Mul", x, x), axes=[-1], keepdims=1)
        root = m.node("Sqrt", m.node("Add", mean, m.weight(np.float32(1e-5))))
        x = m.node("Mul", m.node("Div", x, root), m.normal(width))
    inner = m.node("MatMul", x, m.normal(width, 2 * width))
    error = m.node("Erf", m.node("Mul", inner, m.weight(np.float32(0.7071))))
    half = m.node("Mul", inner, m.node("Add", error, m.weight(np.float32(1))))
    return m.node("MatMul", half, m.normal(2 * width, width))


FAMILIES: tuple[Callable[[Model], str], ...] = (
    convolution, transposed, product, gemm, pool, reduction, normalised, elementwise, moved,
    resized, recurrent, attention, scanned, ordered, indexed, spectral, quantised, einsum, heads,
    block,
)  # fmt: skip


def drawn(seed: int, number: int, kept: float = 1.0) -> Drawn:
    """One operator; with less `kept` the same with smaller sizes."""
    random = Random((seed, number), kept)
    family = FAMILIES[int(random.integers(len(FAMILIES)))]
    model = Model(random)
    result = family(model)
    made = model.made(result)
    words = [f"{node.op_type}{_attributes(node)}" for node in made.graph.node]
    words += ["x".join(map(str, values.shape)) for _, values in model.inputs]
    words += ["x".join(map(str, each.dims)) for each in model.weights if len(each.dims) > 1]
    arrays = [values for _, values in model.inputs]
    return f"{family.__name__}: {' '.join(words)}", made, arrays


def _attributes(node: onnx.NodeProto) -> str:
    kept = {"axis", "axes", "perm", "group", "strides", "dilations", "kernel_shape", "hidden_size"}
    words = [
        f"{each.name}={helper.get_attribute_value(each)}"
        for each in node.attribute
        if each.name in kept
    ]
    return f"({', '.join(words)})".replace(" ", "") if words else ""


def timed(
    calls: list[Callable[[], object]], clock: Callable[[], float] = time.thread_time
) -> list[float]:
    """The least time of a call of each, in turns."""
    best = [math.inf] * len(calls)
    for _ in range(ROUNDS):
        for at, call in enumerate(calls):
            call()
            end = time.perf_counter() + BURST
            while True:
                begin = clock()
                call()
                best[at] = min(best[at], clock() - begin)
                if time.perf_counter() >= end:
                    break
    return best


def measured(made: onnx.ModelProto, arrays: list[Any], threads: int) -> dict[str, Any]:
    """The ratio of one operator, or why there is none."""
    import onnxruntime  # a peer

    import plica  # after the number of threads is known

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    try:
        peer = onnxruntime.InferenceSession(made.SerializeToString(), options)
    except Exception as error:  # noqa: BLE001  # whatever the peer refuses is not compared
        return {"peer": str(error).splitlines()[0][:100]}
    feed = {each.name: value for each, value in zip(peer.get_inputs(), arrays, strict=True)}
    (wanted, *_) = peer.run(None, feed)
    begin = time.process_time()
    try:
        ours = plica.compile(made, cache=False, threads=threads)
    except plica.PlicaError as error:
        return {"refused": str(error).splitlines()[0][:140]}
    compiling = time.process_time() - begin
    found = ours(*arrays)
    found = found[0] if isinstance(found, tuple) else found
    scale = float(np.max(np.abs(wanted), initial=0.0)) or 1.0
    error_ = float(np.max(np.abs(found.astype(np.float64) - wanted), initial=0.0)) / scale
    if error_ > TOLERANCE:
        (meant, *_) = ReferenceEvaluator(made).run(None, feed)
        error_ = float(np.max(np.abs(found - meant), initial=0.0)) / scale
    clock = time.thread_time if threads == 1 else time.perf_counter
    theirs, mine = timed([lambda: peer.run(None, feed), lambda: ours(*arrays)], clock)
    return {
        "ratio": theirs / mine, "us": mine * 1e6, "peer_us": theirs * 1e6, "error": error_,
        "compile": compiling, "passed_over": ours.source("passed-over").splitlines(),
    }  # fmt: skip


def refusals(seed: int, numbers: Iterable[int], threads: int) -> int:
    """Print the schedules of drawn operators that were refused, and count them."""
    import plica
    from plica.codegen.backend import backend_of
    from plica.pipeline import lower, target_of
    from plica.rewrite.optimise import DEFAULT_CONTRACT

    count = cases = 0
    target = backend_of(target_of("cpu")).with_threads(target_of("cpu"), threads)
    for number in numbers:
        text, made, _ = drawn(seed, number)
        try:
            passed = lower(plica.from_onnx(made), DEFAULT_CONTRACT, (), target).program.passed_over
        except plica.PlicaError as error:
            passed = (str(error).splitlines()[0],)
        cases, count = cases + 1, count + len(passed)
        for each in passed:
            print(f"{number:4d} {text}: {each}", flush=True)
    print(f"seed {seed}, {cases} operators, {threads} threads: {count} schedules were refused")
    return int(count > 0)


def smallest(seed: int, row: dict[str, Any], threads: int) -> dict[str, Any]:
    """The smallest case like one below the cliff that is below it, too."""
    found = row
    for step in range(1, SMALLER + 1):
        text, made, arrays = drawn(seed, row["number"], kept=0.5**step)
        now = {"number": row["number"], "what": text, **measured(made, arrays, threads)}
        if now.get("ratio", math.inf) < CLIFF:
            found = now
    return found


def main() -> int:
    """Draw, check, time, print; 1 where a number was wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--n", type=int, default=200)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--family", help="those of one family alone")
    parser.add_argument("--only", type=int, nargs="*", help="these numbers alone")
    parser.add_argument("--refusals", action="store_true", help="say which schedules are refused")
    parser.add_argument("--shrink", action="store_true", help="make the slowest smaller")
    parser.add_argument("--json")
    asked = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, set(cores[-asked.threads :]))
    if asked.refusals:
        return refusals(asked.seed, asked.only or range(asked.n), asked.threads)
    rows: list[dict[str, Any]] = []
    for number in asked.only or range(asked.n):
        text, made, arrays = drawn(asked.seed, number)
        if asked.family not in (None, text.partition(":")[0]):
            continue
        rows.append({"number": number, "what": text, **measured(made, arrays, asked.threads)})
    compared = sorted([row for row in rows if "ratio" in row], key=lambda row: row["ratio"])
    for row in compared:
        wrong = " WRONG" if row["error"] > TOLERANCE else ""
        head = f"{row['ratio']:6.2f}x {row['us']:9.1f} us  {row['compile']:5.2f} s"
        print(f"{head}  {row['number']:4d} {row['what']}{wrong}")
    for row in compared if asked.shrink else ():
        if row["ratio"] < CLIFF:
            least = smallest(asked.seed, row, asked.threads)
            print(f"smallest {row['number']}: {least['ratio']:.2f}x {least['what']}")
    for row in compared:
        for each in row["passed_over"]:
            print(f"passed over {row['number']}: {each}")
    for row in rows:
        if "refused" in row:
            print(f"refused {row['number']} {row['what']}: {row['refused']}")
    ratios = np.array([row.get("ratio", 0.0) for row in rows if "peer" not in row])
    low, p5, p10, middle = (float(np.percentile(ratios, at)) for at in (0, 5, 10, 50))
    mean = float(np.exp(np.log(np.maximum(ratios, 1e-3)).mean()))
    wrong = sum(row["error"] > TOLERANCE for row in compared)
    refused = sum("refused" in row for row in rows)
    head = f"seed {asked.seed}, {len(ratios)} operators, {asked.threads} threads:"
    passed = sum(len(row["passed_over"]) for row in compared)
    tail = f"median {middle:.2f}, mean {mean:.2f}; refused {refused}, wrong {wrong}"
    tail += f", schedules passed over {passed}"
    print(f"{head} least {low:.2f}, p5 {p5:.2f}, p10 {p10:.2f}, {tail}")
    if asked.json:
        with open(asked.json, "w") as file:
            json.dump(rows, file)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
