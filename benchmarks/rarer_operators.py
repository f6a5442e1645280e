"""Rarer operators: families that some networks need, and that a compiler easily forgets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from benchmarks.drawn_model import Model, size, sizes

ACTIVATIONS: Final = (
    "Elu", "Selu", "Celu", "HardSigmoid", "ThresholdedRelu", "Softsign", "PRelu", "Clip", "Gelu",
    "Mish", "Floor", "Round", "Sign", "Pow", "Mod", "Where",
)  # fmt: skip
FOLDS: Final = ("ReduceSum", "ReduceProd", "ReduceL1", "ReduceLogSum", "ReduceMean", "ReduceMax")
MASKS: Final = ("Trilu", "OneHot", "NonZero", "Hardmax", "ReverseSequence", "Compress")


def interpolated(m: Model) -> str:
    """Pictures, rows and volumes of another size, in every mode."""
    r = m.random
    rank = int(r.choice([1, 2, 2, 3]))
    shape = [size(r, 6, (2000, 64, 16)[rank - 1]) for _ in range(rank)]
    x = m.input(1, size(r, 1, 64), *shape)
    mode = str(r.choice(["nearest", "linear", "cubic"] if rank == 2 else ["nearest", "linear"]))
    where = str(r.choice(["asymmetric", "half_pixel", "align_corners", "pytorch_half_pixel"]))
    how: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": where}
    if mode == "nearest":
        how["nearest_mode"] = str(r.choice(["floor", "ceil", "round_prefer_floor"]))
    scales = [1, 1] + [float(r.choice([0.5, 2.0, 1.25, 3.0])) for _ in shape]
    return m.node("Resize", x, "", m.weight(np.array(scales, np.float32)), **how)


def padded(m: Model) -> str:
    """Borders of each kind."""
    r = m.random
    rank = int(r.integers(2, 5))
    shape = [max(each, 4) for each in sizes(r, rank, 1 << 10, 1 << 19)]
    mode = str(r.choice(["constant", "edge", "reflect"]))
    return m.node("Pad", m.input(*shape), m.weight(r.integers(0, 4, 2 * rank)), mode=mode)


def rescaled(m: Model) -> str:
    """Norms of groups, across channels, of batches, of rows."""
    r = m.random
    groups, each = int(r.choice([1, 2, 4, 8])), size(r, 1, 32)
    c, h, w = groups * each, size(r, 4, 48), size(r, 4, 48)
    x = m.input(int(r.choice([1, 2])), c, h, w)
    match int(r.integers(0, 5)):
        case 0:
            rows = m.node("Reshape", x, m.weight([0, groups, -1]))
            ones, zeros = np.ones(groups, np.float32), np.zeros(groups, np.float32)
            inner = m.node("InstanceNormalization", rows, m.weight(ones), m.weight(zeros))
            back = m.node("Reshape", inner, m.weight([-1, c, h, w]))
            return m.node("Add", m.node("Mul", back, m.normal(c, 1, 1)), m.normal(c, 1, 1))
        case 1:
            return m.node("LRN", x, size=int(r.choice([3, 5])))
        case 2:
            spread = m.weight(np.abs(r.standard_normal(c)).astype(np.float32) + 0.5)
            return m.node("BatchNormalization", x, m.normal(c), m.normal(c), m.normal(c), spread)
        case 3:
            return m.node("LpNormalization", x, axis=int(r.integers(0, 4)), p=int(r.choice([1, 2])))
        case _:
            return m.node("MeanVarianceNormalization", x)


def widened(m: Model) -> str:
    """Transposed convolutions of 1 to 3 axes, with groups and dilation."""
    r = m.random
    rank, groups = int(r.integers(1, 4)), int(r.choice([1, 1, 2, 4]))
    c, o = groups * size(r, 1, 64 // groups), groups * size(r, 1, 64 // groups)
    shape = [size(r, 4, (1000, 40, 10)[rank - 1]) for _ in range(rank)]
    window = [int(r.integers(1, 5)) for _ in range(rank)]
    strides = [int(r.integers(1, 4)) for _ in range(rank)]
    more = [int(r.integers(0, each)) for each in strides]
    return m.node(
        "ConvTranspose", m.input(1, c, *shape), m.normal(c, o // groups, *window), m.normal(o),
        strides=strides, group=groups, output_padding=more,
    )  # fmt: skip


def windows(m: Model) -> str:
    """Pools of 1 to 3 axes, of each kind."""
    r = m.random
    rank = int(r.integers(1, 4))
    shape = [size(r, 8, (4000, 80, 16)[rank - 1]) for _ in range(rank)]
    x = m.input(1, size(r, 1, 128), *shape)
    kind = str(r.choice(["MaxPool", "AveragePool", "LpPool"]))
    window = [int(r.integers(1, 5)) for _ in range(rank)]
    how: dict[str, Any] = {"kernel_shape": window}
    how["strides"] = [int(r.integers(1, 4)) for _ in range(rank)]
    how["pads"] = [
        int(r.integers(0, (each + 1) // 2 + 1) if each > 1 else 0) for each in window
    ] * 2
    if kind == "AveragePool":
        how["count_include_pad"] = int(r.integers(0, 2))
    if kind == "MaxPool":
        how["ceil_mode"] = int(r.integers(0, 2))
    return m.node(kind, x, **how)


def folded(m: Model) -> str:
    """Reductions over axes in the middle, of floats and integers."""
    r = m.random
    rank = int(r.integers(3, 5))
    shape = sizes(r, rank, 1 << 10, 1 << 20)
    axes = sorted(
        r.choice(range(1, rank - 1), int(r.integers(1, rank - 1)), replace=False).tolist()
    )
    kind = str(r.choice(FOLDS))
    if kind in ("ReduceSum", "ReduceMax") and r.random() < 0.4:
        dtype = (np.int32, np.int64)[int(r.integers(0, 2))]
        x = m.given(r.integers(-100, 100, shape).astype(dtype))
    else:
        x = m.input(*shape, positive=True)
    if kind == "ReduceSum":
        return m.node(kind, x, m.weight(axes), keepdims=0)
    return m.node(kind, x, axes=axes, keepdims=0)


def masked(m: Model) -> str:
    """Triangles, one-hot rows, places of what is not zero, rows turned round."""
    r = m.random
    kind = str(r.choice(MASKS))
    rank = int(r.integers(2, 4))
    shape = sizes(r, rank, 1 << 10, 1 << 19)
    match kind:
        case "Trilu":
            return m.node(kind, m.input(*shape), upper=int(r.integers(0, 2)))
        case "OneHot":
            depth = size(r, 2, 1000)
            places = m.given(r.integers(0, depth, size(r, 1, 1000)))
            values = m.weight(np.array([0, 1], np.float32))
            return m.node(kind, places, m.weight(np.array([depth])), values, axis=-1)
        case "NonZero":
            return m.node(kind, m.given((r.random(shape) < 0.3).astype(np.float32)))
        case "Hardmax":
            return m.node(kind, m.input(*shape), axis=int(r.integers(0, rank)))
        case "ReverseSequence":
            lengths = m.given(r.integers(1, shape[0] + 1, shape[1]))
            return m.node(kind, m.input(*shape), lengths, time_axis=0, batch_axis=1)
        case _:
            axis = int(r.integers(0, rank))
            kept = m.given(r.random(shape[axis]) < 0.6)
            return m.node(kind, m.input(*shape), kept, axis=axis)


def scattered(m: Model) -> str:
    """Elements that are put, added or multiplied at places, and batches of places."""
    r = m.random
    rank = int(r.integers(2, 4))
    shape = sizes(r, rank, 1 << 10, 1 << 18)
    axis = int(r.integers(0, rank))
    x = m.input(*shape)
    how = str(r.choice(["add", "mul"]))
    match int(r.integers(0, 4)):
        case 0:
            return m.node("ScatterElements", x, m.given(r.integers(0, shape[axis], shape)),
                          m.input(*shape), axis=axis, reduction=how)  # fmt: skip
        case 1:
            rows = r.permutation(shape[0])[: max(1, shape[0] // 2), None]
            return m.node("ScatterND", x, m.given(rows), m.input(len(rows), *shape[1:]))
        case 2:
            places = m.given(r.integers(0, shape[1], (shape[0], size(r, 1, 300), 1)))
            return m.node("GatherND", x, places, batch_dims=1)
        case _:
            table = m.normal(size(r, 10, 5000), size(r, 1, 200))
            most = int(m.weights[-1].dims[0])
            return m.node("Gather", table, m.given(r.integers(0, most, (size(r, 1, 8), 50))))


def rearranged(m: Model) -> str:
    """Blocks and channels in another order, parts, rows backwards."""
    r = m.random
    n, b = size(r, 1, 16), int(r.choice([2, 2, 3]))
    h, w = b * size(r, 2, 24), b * size(r, 2, 24)
    match int(r.integers(0, 6)):
        case 0:
            return m.node("SpaceToDepth", m.input(1, n, h, w), blocksize=b)
        case 1:
            return m.node("DepthToSpace", m.input(1, n * b * b, h, w), blocksize=b, mode="CRD")
        case 2:
            parts = m.several("Split", m.input(1, 3 * n, h, w), outputs=3, axis=1)
            return m.node("Mul", m.node("Sigmoid", parts[0]), m.node("Add", parts[1], parts[2]))
        case 3:
            axis = int(r.integers(0, 4))
            given = [[-1], [np.iinfo(np.int64).min], [axis], [-1]]
            return m.node("Slice", m.input(1, n, h, w), *[m.weight(each) for each in given])
        case 4:
            cut = m.node("Reshape", m.input(1, h, w, n), m.weight([1, h // b, b, w // b, b, n]))
            turned = m.node("Transpose", cut, perm=[0, 1, 3, 2, 4, 5])
            return m.node("Reshape", turned, m.weight([-1, b * b, n]))
        case _:
            cut = m.node("Reshape", m.input(1, b * n, h, w), m.weight([1, b, n, h, w]))
            turned = m.node("Transpose", cut, perm=[0, 2, 1, 3, 4])
            return m.node("Reshape", turned, m.weight([1, b * n, h, w]))


def activations(m: Model) -> str:
    """Elementwise operators of other kinds."""
    r = m.random
    shape = sizes(r, int(r.integers(1, 4)), 1 << 10, 1 << 20)
    x = m.input(*shape)
    kind = str(r.choice(ACTIVATIONS))
    one = m.weight(np.float32(1))
    match kind:
        case "PRelu":
            return m.node(kind, x, m.normal(shape[-1]))
        case "Clip":
            return m.node(kind, x, m.weight(np.float32(-0.5)), one)
        case "Gelu":
            inner = m.node("Mul", x, m.node("Add", one, m.node("Mul", x, x)))
            return m.node("Mul", x, m.node("Add", one, m.node("Tanh", inner)))
        case "Mish":
            return m.node("Mul", x, m.node("Tanh", m.node("Softplus", x)))
        case "Pow":
            power = float(r.choice([0.5, 2, 3, 1.7]))
            return m.node(kind, m.node("Abs", x), m.weight(np.float32(power)))
        case "Mod":
            return m.node(kind, x, m.weight(np.float32(0.7)), fmod=1)
        case "Where":
            other = m.input(*shape)
            return m.node(kind, m.node("Greater", x, other), m.node("Neg", other), x)
        case _:
            return m.node(kind, x)


def whole_numbers(m: Model) -> str:
    """Arithmetic of integers, casts and logic."""
    r = m.random
    shape = sizes(r, int(r.integers(1, 4)), 1 << 10, 1 << 19)
    dtype = (np.int32, np.int64, np.uint8, np.int8)[int(r.integers(0, 4))]
    x = m.given(r.integers(1, 100, shape).astype(dtype))
    y = m.given(r.integers(1, 100, shape).astype(dtype))
    match int(r.integers(0, 5)):
        case 0:
            kind = "Add" if dtype in (np.int8, np.uint8) else str(r.choice(["Add", "Mul", "Div"]))
            return m.node(kind, x, y)
        case 1:
            return m.node("Cast", x, to=1)
        case 2:
            return m.node("Cast", m.input(*shape), to=int(r.choice([6, 7, 3, 10])))
        case 3:
            if dtype in (np.int8, np.uint8):
                return m.node("Cast", x, to=6)
            return m.node("And", m.node("Greater", x, y), m.node("Less", x, m.weight(dtype(50))))
        case _:
            return m.node("Mod", x, y)


def byte_products(m: Model) -> str:
    """Products and convolutions of bytes, as operators of their own."""
    r = m.random
    scale, more = m.weight(np.float32(0.05)), m.weight(np.float32(3.0))
    zero, signed = m.weight(np.uint8(128)), m.weight(np.int8(0))
    i, k, j = size(r, 1, 300), size(r, 4, 600), size(r, 2, 600)
    match int(r.integers(0, 4)):
        case 0:
            x = m.given(r.integers(0, 256, (i, k)).astype(np.uint8))
            y = m.weight(r.integers(-127, 128, (k, j)).astype(np.int8))
            return m.node("QLinearMatMul", x, scale, zero, y, scale, signed, more, zero)
        case 1:
            x, by, shift = m.several("DynamicQuantizeLinear", m.input(i, k), outputs=3)
            y = m.weight(r.integers(-127, 128, (k, j)).astype(np.int8))
            whole = m.node("Cast", m.node("MatMulInteger", x, y, shift, signed), to=1)
            return m.node("Mul", whole, m.node("Mul", by, scale))
        case 2:
            c, o, s, w = size(r, 1, 96), size(r, 2, 96), size(r, 6, 48), int(r.choice([1, 3]))
            x = m.given(r.integers(0, 256, (1, c, s, s)).astype(np.uint8))
            y = m.weight(r.integers(-127, 128, (o, c, w, w)).astype(np.int8))
            scales = m.weight(np.full(o, 0.01, np.float32))
            zeros = m.weight(np.zeros(o, np.int8))
            return m.node("QLinearConv", x, scale, zero, y, scales, zeros, more, zero,
                          pads=[w // 2] * 4)  # fmt: skip
        case _:
            x = m.input(*sizes(r, 3, 1 << 10, 1 << 19))
            return m.node("DequantizeLinear", m.node("QuantizeLinear", x, scale, zero), scale, zero)


def steps(m: Model) -> str:
    """Recurrent cells with states, and a GRU whose product comes before its reset."""
    r = m.random
    count, batch = size(r, 2, 40), int(r.choice([1, 2, 8]))
    width, hidden = size(r, 4, 200), size(r, 4, 200)
    kind, gates = (("LSTM", 4), ("GRU", 3))[int(r.integers(0, 2))]
    given = [m.input(count, batch, width), m.normal(1, gates * hidden, width),
             m.normal(1, gates * hidden, hidden), m.normal(1, 2 * gates * hidden), "",
             m.input(1, batch, hidden)]  # fmt: skip
    how: dict[str, Any] = {"hidden_size": hidden}
    if kind == "GRU":
        how["linear_before_reset"] = 1
    else:
        given.append(m.input(1, batch, hidden))
    return m.node(kind, *given, **how)


def grids(m: Model) -> str:
    """Pictures that are read at places, and boxes of them."""
    r = m.random
    c, h, w = size(r, 1, 64), size(r, 6, 64), size(r, 6, 64)
    x = m.input(1, c, h, w)
    if r.random() < 0.6:
        grid = m.given(r.uniform(-1, 1, (1, size(r, 4, 48), size(r, 4, 48), 2)).astype(np.float32))
        mode = str(r.choice(["bilinear", "nearest"]))
        return m.node(
            "GridSample", x, grid, mode=mode, padding_mode=str(r.choice(["zeros", "border"]))
        )
    count = size(r, 1, 20)
    low = r.uniform(0, 3, (count, 2))
    boxes = np.concatenate([low, low + r.uniform(1, 3, (count, 2))], axis=1).astype(np.float32)
    return m.node("RoiAlign", x, m.given(boxes), m.weight(np.zeros(count, np.int64)),
                  output_height=5, output_width=5, sampling_ratio=2)  # fmt: skip


def four_bits(m: Model) -> str:
    """A product by a weight of 4 bits with a scale for each group."""
    r = m.random
    group = int(r.choice([32, 64]))
    i, k, j = size(r, 1, 64), group * size(r, 1, 24), size(r, 8, 1000)
    m.opsets["com.microsoft"] = 1
    weight = m.weight(r.integers(0, 256, (j, k // group, group // 2)).astype(np.uint8))
    scales = m.weight((r.random(j * (k // group)) * 0.1).astype(np.float32))
    return m.node("MatMulNBits", m.input(i, k), weight, scales, domain="com.microsoft",
                  K=k, N=j, bits=4, block_size=group)  # fmt: skip


def sums_of_products(m: Model) -> str:
    """Einsum as networks write it."""
    r = m.random
    equations = (
        "bhqd,bhkd->bhqk", "bhqk,bhkd->bqhd", "bij,bjk->bik", "bij,kj->bik", "bqhd,bkhd->bhqk",
        "i,j->ij", "bi,bi->b", "bchw,bc->bhw", "bnd,hde->bhne", "bhwc,hkc->bhwk",
    )  # fmt: skip
    equation = str(r.choice(equations))
    left, right = equation.partition("->")[0].split(",")
    letters = {each: size(r, 1, 8 if each in "bh" else 100) for each in sorted({*left, *right})}
    x, y = (m.input(*[letters[each] for each in side]) for side in (left, right))
    return m.node("Einsum", x, y, equation=equation)


RARER: tuple[Callable[[Model], str], ...] = (
    interpolated, padded, rescaled, widened, windows, folded, masked, scattered, rearranged,
    activations, whole_numbers, byte_products, steps, grids, four_bits, sums_of_products,
)  # fmt: skip
