"""Drawn operators: the families that most networks are made of."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from onnx import TensorProto

from benchmarks.drawn_bytes import quantised
from benchmarks.drawn_model import Model, size, sizes

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


OPERATORS: tuple[Callable[[Model], str], ...] = (
    convolution, transposed, product, gemm, pool, reduction, normalised, elementwise, moved,
    resized, recurrent, attention, scanned, ordered, indexed, spectral, quantised, einsum, heads,
    block,
)  # fmt: skip
