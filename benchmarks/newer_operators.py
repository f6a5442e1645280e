"""Newer operators: other element types, functions, losses, and what later opsets made one operator.

Families that neither of the other two files draws: a fair share of any network of the last years,
and of what people export without knowing it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from onnx import TensorProto, helper

from benchmarks.drawn_model import Model, size, sizes

FUNCTIONS: Final = (
    "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Cos", "Cosh", "IsInf", "IsNaN",
    "Mish", "Shrink", "Sin", "Sinh", "Tan",
)  # fmt: skip
TYPES: Final = (np.float16, np.float64, np.int64, np.int32, np.uint8, np.bool_)
OPSET: Final = 21
"""The first of the default domain with every operator here but those of `later`."""


def _values(m: Model, shape: tuple[int, ...], dtype: Any) -> np.ndarray[Any, Any]:
    if np.issubdtype(dtype, np.floating):
        return m.random.standard_normal(shape).astype(dtype)
    return m.random.integers(0, 2 if dtype is np.bool_ else 100, shape).astype(dtype)


def functions(m: Model) -> str:
    """Functions of one number."""
    r = m.random
    m.opsets[""] = OPSET
    kind = str(r.choice(FUNCTIONS))
    x = r.uniform(-0.99, 0.99, sizes(r, int(r.integers(1, 4)), 1 << 10, 1 << 19)).astype(np.float32)
    return m.node(kind, m.given(x + np.float32(2) if kind == "Acosh" else x))


def other_types(m: Model) -> str:
    """Numbers that are no floats of 32 bits, moved, compared, chosen and added up."""
    r = m.random
    dtype = TYPES[int(r.integers(0, len(TYPES)))]
    rank = int(r.integers(2, 4))
    shape = sizes(r, rank, 1 << 10, 1 << 19)
    axis = int(r.integers(0, rank))
    x, y = (m.given(_values(m, shape, dtype)) for _ in range(2))
    match int(r.integers(0, 6)):
        case 0:
            return m.node("Transpose", x, perm=r.permutation(rank).tolist())
        case 1:
            return m.node("Concat", x, y, x, axis=axis)
        case 2:
            places = r.integers(0, shape[axis], size(r, 2, 400))
            return m.node("Gather", x, m.given(places), axis=axis)
        case 3:
            return m.node("Where", m.node("Equal", x, y), y, x)
        case 4 if dtype in (np.float64, np.int64, np.int32):
            return m.node("ReduceSum", x, m.weight([axis]), keepdims=int(r.integers(0, 2)))
        case 4 | 5 if dtype is np.bool_:
            return m.node("Xor", m.node("Or", x, y), m.node("Not", y))
        case _:
            return m.node("Mul", m.node("Add", x, y), x)


def halves(m: Model) -> str:
    """Products, convolutions and norms of floats of 16 bits, with casts at their ends."""
    r = m.random
    match int(r.integers(0, 3)):
        case 0:
            i, k, j = size(r, 1, 300), size(r, 4, 600), size(r, 2, 600)
            x = m.node("Cast", m.input(i, k), to=TensorProto.FLOAT16)
            weight = m.weight((r.standard_normal((k, j)) * 0.1).astype(np.float16))
            return m.node("Cast", m.node("MatMul", x, weight), to=TensorProto.FLOAT)
        case 1:
            c, o, s, w = size(r, 1, 64), size(r, 2, 64), size(r, 6, 40), int(r.choice([1, 3]))
            x = m.node("Cast", m.input(1, c, s, s), to=TensorProto.FLOAT16)
            weight = m.weight((r.standard_normal((o, c, w, w)) * 0.1).astype(np.float16))
            return m.node("Cast", m.node("Conv", x, weight, pads=[w // 2] * 4), to=1)
        case _:
            x = m.node("Cast", m.input(*sizes(r, 3, 1 << 10, 1 << 18)), to=TensorProto.FLOAT16)
            return m.node("Cast", m.node("Softmax", x, axis=-1), to=TensorProto.FLOAT)


def bits(m: Model) -> str:
    """Words of bits, joined and moved."""
    r = m.random
    m.opsets[""] = OPSET
    shape = sizes(r, int(r.integers(1, 4)), 1 << 10, 1 << 19)
    dtype = (np.uint8, np.uint32, np.uint64)[int(r.integers(0, 3))]
    x = m.given(r.integers(0, 200, shape).astype(dtype))
    y = m.given(r.integers(0, 8, shape).astype(dtype))
    if r.random() < 0.4:
        return m.node("BitShift", x, y, direction=str(r.choice(["LEFT", "RIGHT"])))
    return m.node(str(r.choice(["BitwiseAnd", "BitwiseOr", "BitwiseXor"])), x, y)


def many(m: Model) -> str:
    """The least, the greatest, the sum and the mean of several, which are spread."""
    r = m.random
    shape = sizes(r, int(r.integers(1, 4)), 1 << 10, 1 << 19)
    others = [
        m.input(*[each if r.random() < 0.7 else 1 for each in shape])
        for _ in range(int(r.integers(1, 5)))
    ]
    return m.node(str(r.choice(["Min", "Max", "Sum", "Mean"])), m.input(*shape), *others)


def losses(m: Model) -> str:
    """Losses over classes."""
    r = m.random
    batch, classes = size(r, 1, 500), size(r, 2, 1000)
    places = () if r.random() < 0.5 else (size(r, 2, 30),)
    scores = m.input(batch, classes, *places)
    labels = m.given(r.integers(0, classes, (batch, *places)))
    how = str(r.choice(["mean", "sum", "none"]))
    if r.random() < 0.5:
        return m.node("SoftmaxCrossEntropyLoss", scores, labels, reduction=how)
    logs = m.node("LogSoftmax", scores, axis=1)
    return m.node("NegativeLogLikelihoodLoss", logs, labels, reduction=how)


def later(m: Model) -> str:
    """What later opsets made one operator: norms, rotations, attention, gates."""
    r = m.random
    m.opsets[""] = 23
    b, n, d = size(r, 1, 4), size(r, 2, 300), 2 * size(r, 4, 48)
    match int(r.integers(0, 5)):
        case 0:
            groups = int(r.choice([1, 2, 4, 8]))
            c = groups * size(r, 1, 24)
            x = m.input(b, c, size(r, 4, 40), size(r, 4, 40))
            return m.node("GroupNormalization", x, m.normal(c), m.normal(c), num_groups=groups)
        case 1:
            return m.node("RMSNormalization", m.input(b, n, 4 * d), m.normal(4 * d))
        case 2:
            h = size(r, 1, 12)
            angles = r.uniform(-3, 3, (1, n, d // 2))
            cos, sin = (
                m.weight(np.repeat(f(angles), b, 0).astype(np.float32)) for f in (np.cos, np.sin)
            )
            return m.node("RotaryEmbedding", m.input(b, h, n, d), cos, sin)
        case 3:
            h = size(r, 1, 8)
            q, k, v = (m.input(b, h, n, d) for _ in range(3))
            return m.node("Attention", q, k, v, is_causal=int(r.integers(0, 2)))
        case _:
            return m.node("Gelu", m.input(b, n, d), approximate=str(r.choice(["none", "tanh"])))


def pictures(m: Model) -> str:
    """Columns of windows put back, pools undone, middles of pictures, windows that move."""
    r = m.random
    m.opsets[""] = OPSET
    c, h, w = size(r, 1, 48), 2 * size(r, 3, 24), 2 * size(r, 3, 24)
    match int(r.integers(0, 4)):
        case 0:
            columns = m.input(1, c * 9, h * w)
            return m.node("Col2Im", columns, m.weight([h, w]), m.weight([3, 3]), pads=[1] * 4)
        case 1:
            x = m.input(1, c, h, w)
            how: dict[str, Any] = {"kernel_shape": [2, 2], "strides": [2, 2]}
            kept, places = m.several("MaxPool", x, outputs=2, **how)
            return m.node("MaxUnpool", kept, places, **how)
        case 2:
            return m.node(
                "CenterCropPad", m.input(1, c, h, w), m.weight([h // 2, w + 3]), axes=[2, 3]
            )
        case _:
            x = m.input(1, c, h, w)
            offset = m.given((r.standard_normal((1, 18, h, w)) * 0.5).astype(np.float32))
            return m.node("DeformConv", x, m.normal(size(r, 1, 32), c, 3, 3), offset, pads=[1] * 4)


def boxes(m: Model) -> str:
    """Boxes of which the best are kept, and numbers of which one of each is."""
    r = m.random
    if r.random() < 0.5:
        n, classes = size(r, 4, 1000), size(r, 1, 8)
        low = r.uniform(0, 100, (1, n, 2))
        corners = np.concatenate([low, low + r.uniform(5, 40, (1, n, 2))], axis=2)
        return m.node(
            "NonMaxSuppression", m.given(corners.astype(np.float32)),
            m.given(r.random((1, classes, n)).astype(np.float32)), m.weight(np.array([50])),
            m.weight(np.array([0.5], np.float32)), m.weight(np.array([0.3], np.float32)),
        )  # fmt: skip
    values = r.integers(0, size(r, 2, 5000), size(r, 100, 50000))
    return m.node("Unique", m.given(values.astype(np.float32)), sorted=1)


def whole_convolutions(m: Model) -> str:
    """Convolutions of bytes to whole numbers, along one to three axes."""
    r = m.random
    rank = int(r.integers(1, 4))
    shape = [size(r, 6, (600, 32, 10)[rank - 1]) for _ in range(rank)]
    c, o = size(r, 1, 48), size(r, 2, 48)
    x = m.given(r.integers(0, 256, (1, c, *shape)).astype(np.uint8))
    weight = m.weight(r.integers(0, 256, (o, c, *[3] * rank)).astype(np.uint8))
    return m.node("ConvInteger", x, weight, m.weight(np.uint8(120)), m.weight(np.uint8(131)))


def walks(m: Model) -> str:
    """A scan: a state that each row of a matrix changes."""
    r = m.random
    count, width = size(r, 3, 100), size(r, 4, 200)
    state, row = (helper.make_tensor_value_info(e, TensorProto.FLOAT, [width]) for e in ("s", "r"))
    nodes = [
        helper.make_node("Constant", [], ["h"], value_float=0.5),
        helper.make_node("Mul", ["s", "h"], ["a"]),
        helper.make_node("Add", ["a", "r"], ["b"]),
        helper.make_node("Tanh", ["b"], ["t"]),
        helper.make_node("Identity", ["t"], ["u"]),
    ]
    outs = [helper.make_tensor_value_info(e, TensorProto.FLOAT, [width]) for e in ("t", "u")]
    body = helper.make_graph(nodes, "step", [state, row], outs)
    found = m.several("Scan", m.input(width), m.input(count, width), outputs=2, body=body,
                      num_scan_inputs=1)  # fmt: skip
    return found[1]


NEWER: tuple[Callable[[Model], str], ...] = (
    functions, other_types, halves, bits, many, losses, later, pictures, boxes, whole_convolutions,
    walks,
)  # fmt: skip
