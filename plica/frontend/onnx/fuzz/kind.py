# ruff: noqa: E501  # rows of a table
"""Kinds of nodes: how a random node on a tensor is made.

A row draws an operator's inputs: attributes, constants, another tensor. Invalid draws are allowed:
nodes refused by the peer are left out. `exact` kinds are discontinuous (a comparison, a rounding):
they are only applied to tensors with equal bits on both sides.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Final

import attrs
import numpy as np

Array = np.ndarray[Any, Any]


@attrs.frozen(eq=False)
class KnownTensor:
    """A tensor of the model: its name, its elements, and whether both sides have its very bits."""

    name: str
    array: Array
    exact: bool


@attrs.frozen(eq=False)
class Drawn:
    """A node without the name of its output."""

    kind: str
    inputs: tuple[KnownTensor | Array, ...]  # an array is a new constant
    attrs: dict[str, Any] = attrs.Factory(dict)
    outputs: int = 1
    reads: tuple[KnownTensor, ...] = ()  # what graphs inside of it take from outside


@attrs.frozen(eq=False)
class RowChoice:
    """What rows draw from."""

    random: Random
    opset: int
    known: tuple[KnownTensor, ...]

    def array(self, *shape: int) -> Array:
        """Small numbers; sums and products of a few of them are exact."""
        seed = self.random.randrange(1 << 32)
        found = np.random.default_rng(seed).integers(-16, 17, shape) / 8
        return np.asarray(found, np.float32)

    def axis(self, x: KnownTensor) -> int:
        """An axis, counted from either end."""
        return self.random.randrange(-x.array.ndim, x.array.ndim)

    def other(self, x: KnownTensor) -> KnownTensor:
        """A tensor of the same element type."""
        return self.random.choice([e for e in self.known if e.array.dtype == x.array.dtype])

    def divisor(self, number: int) -> int:
        """A number that divides another."""
        return self.random.choice([each for each in range(1, number + 1) if number % each == 0])

    def pick(self, *options: Any) -> Any:
        """One of several."""
        return self.random.choice(options)

    def number(self, low: int, end: int) -> int:
        """A number below the end."""
        return self.random.randrange(low, end)

    def maybe(self, chance: float = 0.5) -> bool:
        """Whether something happens that has a chance."""
        return self.random.random() < chance


Row = Callable[[RowChoice, KnownTensor], Drawn]


def i64(*values: int) -> Array:
    """A vector of integers."""
    return np.asarray(values, np.int64)


def node(kind: str, *inputs: KnownTensor | Array, outputs: int = 1, **settings: Any) -> Drawn:
    """A node as onnx's helper writes it."""
    return Drawn(kind, inputs, settings, outputs)


def _plain(*kinds: str) -> Row:
    return lambda c, x: node(c.pick(*kinds), x)


def _pair(*kinds: str) -> Row:
    def row(c: RowChoice, x: KnownTensor) -> Drawn:
        other = c.other(x) if c.maybe() else _like(c, x)
        pair = (x, other) if c.maybe(0.7) else (other, x)
        return Drawn(c.random.choice(kinds), pair)

    return row


def _like(c: RowChoice, x: KnownTensor) -> Array:
    """A constant that broadcasts with x."""
    shape = [size if c.maybe(0.6) else 1 for size in x.array.shape]
    array = c.array(*shape[c.random.randrange(len(shape) + 1) :])
    if x.array.dtype.kind in "iu":
        return (np.abs(array) * 4 + 1).astype(x.array.dtype)
    return array > 0 if x.array.dtype.kind == "b" else array.astype(x.array.dtype)


def _reduce(c: RowChoice, x: KnownTensor) -> Drawn:
    kinds = ("Sum", "Mean", "Max", "Min", "L1", "L2", "SumSquare", "LogSumExp", "Prod")
    kind = "Reduce" + c.random.choice(kinds)
    count = c.number(1, x.array.ndim + 1)
    axes = c.random.sample(range(x.array.ndim), count)
    said: dict[str, Any] = {"keepdims": c.number(0, 2)}
    if c.opset >= 18 or kind == "ReduceSum":
        return Drawn(kind, (x, i64(*axes)), said)
    return Drawn(kind, (x,), {"axes": axes, **said})


def _window(c: RowChoice, rank: int, kernel: list[int]) -> dict[str, Any]:
    said: dict[str, Any] = {"strides": [c.number(1, 3) for _ in range(rank)]}
    if c.maybe(0.2):
        said["auto_pad"] = c.pick("SAME_UPPER", "SAME_LOWER", "VALID")
    else:
        said["pads"] = [c.random.randrange((kernel[at % rank] + 1) // 2) for at in range(2 * rank)]
    return said


def _conv(c: RowChoice, x: KnownTensor) -> Drawn:
    rank, channels = x.array.ndim - 2, x.array.shape[1]
    groups = c.divisor(channels)
    kernel = [c.number(1, min(3, size) + 1) for size in x.array.shape[2:]]
    transposed = c.maybe(0.25)
    out = groups * c.number(1, 4)
    sides = (channels, out // groups) if transposed else (out, channels // groups)
    weight = c.array(*sides, *kernel)
    said = {"group": groups, "kernel_shape": kernel, **_window(c, rank, kernel)}
    if c.maybe(0.3) and "auto_pad" not in said:
        said["dilations"] = [c.number(1, 3) for _ in range(rank)]
    bias = [c.array(out)] if c.maybe() else []
    return node("ConvTranspose" if transposed else "Conv", x, weight, *bias, **said)


def _pool(c: RowChoice, x: KnownTensor) -> Drawn:
    rank = x.array.ndim - 2
    kind = c.pick("MaxPool", "AveragePool", "LpPool")
    kernel = [c.random.randrange(1, min(3, size) + 1) for size in x.array.shape[2:]]
    said = {"kernel_shape": kernel, **_window(c, rank, kernel)}
    if kind == "AveragePool" and c.maybe():
        said["count_include_pad"] = 1
    if kind == "MaxPool" and c.maybe(0.3):
        said["ceil_mode"] = 1
    return Drawn(kind, (x,), said)


def _matmul(c: RowChoice, x: KnownTensor) -> Drawn:
    inner = x.array.shape[-1]
    if c.maybe(0.3) and x.array.ndim == 2:
        turned = c.number(0, 2)
        out = c.number(1, 6)
        weight = c.array(out, inner) if turned else c.array(inner, out)
        return Drawn("Gemm", (x, weight, c.array(out)), {"transB": turned, "alpha": 0.5})
    lead = x.array.shape[:-2] if c.maybe(0.3) else ()
    return Drawn("MatMul", (x, c.array(*lead, inner, c.number(1, 6))))


def _norm(c: RowChoice, x: KnownTensor) -> Drawn:
    channels = x.array.shape[1]
    kinds = ["BatchNormalization", "InstanceNormalization", "LRN"]
    kinds += ["LayerNormalization"] * (c.opset >= 17) + ["GroupNormalization"] * (c.opset >= 21)
    kind = c.pick(*kinds)
    one, two = c.array(channels), c.array(channels)
    match kind:
        case "BatchNormalization":
            return node(kind, x, one, two, c.array(channels), np.abs(c.array(channels)) + 0.5)
        case "LRN":
            return node(kind, x, size=3)
        case "LayerNormalization":
            return node(kind, x, c.array(x.array.shape[-1]), axis=-1, epsilon=0.1)
        case "GroupNormalization":
            return node(kind, x, one, two, num_groups=c.divisor(channels), epsilon=0.1)
        case _:
            return node(kind, x, one, two, epsilon=0.1)


def _slice(c: RowChoice, x: KnownTensor) -> Drawn:
    start, stop = c.number(-5, 6), c.number(-6, 7)
    step = c.pick(-2, -1, 1, 1, 2)
    return Drawn("Slice", (x, i64(start), i64(stop), i64(c.axis(x)), i64(step)))


def _pad(c: RowChoice, x: KnownTensor) -> Drawn:
    mode = c.pick("constant", "constant", "reflect", "edge")
    widths = [c.number(0, 2) for _ in range(2 * x.array.ndim)]
    value = (np.asarray(0.5, x.array.dtype),) if mode == "constant" else ()
    return Drawn("Pad", (x, i64(*widths), *value), {"mode": mode})


def _split(c: RowChoice, x: KnownTensor) -> Drawn:
    axis = c.axis(x)
    count = min(c.number(1, 4), x.array.shape[axis])
    said = {"axis": axis, "num_outputs": count} if c.opset >= 18 else {"axis": axis}
    return Drawn("Split", (x,), said, max(1, count))


def _gather(c: RowChoice, x: KnownTensor) -> Drawn:
    axis = c.axis(x)
    if not (size := x.array.shape[axis]):
        return node("Identity", x)
    if c.maybe():
        return node("Gather", x, i64(*(c.number(-size, size) for _ in range(3))), axis=axis)
    picked = np.mod(np.abs(c.array(*x.array.shape)) * 8, size).astype(np.int64)
    if c.maybe():
        return node("GatherElements", x, picked, axis=axis)
    unique = np.indices(x.array.shape)[axis].astype(np.int64)
    return node(
        "ScatterElements", x, unique, c.array(*x.array.shape).astype(x.array.dtype), axis=axis
    )


def _reshape(c: RowChoice, x: KnownTensor) -> Drawn:
    rank = x.array.ndim
    match c.number(0, 5):
        case 0:
            return node("Reshape", x, i64(0, -1))
        case 1:
            return node("Unsqueeze", x, i64(c.number(-rank - 1, rank + 1)))
        case 2:
            return node("Squeeze", x, i64(c.axis(x)))
        case 3:
            return node("Flatten", x, axis=c.number(0, rank + 1))
        case _:
            return node("Transpose", x, perm=c.random.sample(range(rank), rank))


def _repeat(c: RowChoice, x: KnownTensor) -> Drawn:
    if c.maybe():
        return Drawn("Tile", (x, i64(*(c.number(1, 3) for _ in x.array.shape))))
    lead = c.number(1, 3)
    return Drawn("Expand", (x, i64(lead, *([1] * x.array.ndim))))


def _resize(c: RowChoice, x: KnownTensor) -> Drawn:
    mode = c.pick("nearest", "linear")
    scales = np.asarray(
        [1, 1, *(c.pick(1.0, 2.0, 0.5) for _ in range(x.array.ndim - 2))], np.float32
    )
    place = "asymmetric" if mode == "nearest" else "half_pixel"
    said = {"mode": mode, "coordinate_transformation_mode": place, "nearest_mode": "floor"}
    return node("Resize", x, np.zeros(0, np.float32), scales, **said)


def _einsum(c: RowChoice, x: KnownTensor) -> Drawn:
    letters = "abcde"[: x.array.ndim]
    out = "".join(c.random.sample(letters, c.random.randrange(1, len(letters) + 1)))
    return Drawn("Einsum", (x, c.array(x.array.shape[-1])), {"equation": f"{letters},{letters[-1]}->{out}"})  # fmt: skip


def _leading(c: RowChoice, x: KnownTensor) -> Drawn:
    kind = c.pick("ArgMax", "ArgMin", "TopK", "Hardmax")
    if kind == "TopK":
        axis, largest = c.axis(x), c.number(0, 2)
        k = c.number(1, x.array.shape[axis] + 1)
        return Drawn(kind, (x, i64(k)), {"axis": axis, "largest": largest}, 2)
    return Drawn(kind, (x,), {"axis": c.axis(x)})


def _scan(c: RowChoice, x: KnownTensor) -> Drawn:
    if c.opset < 14 or c.maybe():
        return node("CumSum", x, i64(c.axis(x)), reverse=c.number(0, 2))
    return node("Trilu", x, np.asarray(c.number(-1, 2)), upper=c.number(0, 2))


def _scatter(c: RowChoice, x: KnownTensor) -> Drawn:
    """Each place once: which of several values replaces is the standard's own choice."""
    axis, (first, *rest) = c.axis(x), x.array.shape
    size = x.array.shape[axis]
    if c.maybe():
        rows = c.random.sample(range(-first, 0), c.number(1, first + 1))
        return node(
            "ScatterND", x, i64(*rows)[:, None], c.array(len(rows), *rest).astype(x.array.dtype)
        )
    count = c.number(1, size + 1)
    seed = np.random.default_rng(c.number(0, 1 << 32))
    places = np.argsort(seed.random(x.array.shape), axis=axis).take(range(count), axis=axis)
    return node(
        "ScatterElements", x, places, c.array(*places.shape).astype(x.array.dtype), axis=axis
    )


def _accumulate(c: RowChoice, x: KnownTensor) -> Drawn:
    axis, shape = c.axis(x), list(x.array.shape)
    shape[axis] = c.number(1, 5)
    places = i64(*[c.number(0, x.array.shape[axis]) for _ in range(int(np.prod(shape)))])
    kinds = ("add", "mul", "max", "min") if c.opset >= 18 else ("add", "mul")
    said = {"axis": axis, "reduction": c.pick(*kinds)} if c.opset >= 16 else {"axis": axis}
    if c.opset < 16:
        return _scatter(c, x)
    update = c.array(*shape).astype(x.array.dtype)
    return node("ScatterElements", x, places.reshape(shape), update, **said)


def _sequence(c: RowChoice, x: KnownTensor) -> Drawn:
    time = c.number(0, 2)
    steps, batch = x.array.shape[time], x.array.shape[1 - time]
    lengths = i64(*(c.number(1, steps + 1) for _ in range(batch)))
    return node("ReverseSequence", x, lengths, time_axis=time, batch_axis=1 - time)


def _region(c: RowChoice, x: KnownTensor) -> Drawn:
    boxes = c.number(1, 3)
    batch = i64(*(c.number(0, x.array.shape[0]) for _ in range(boxes)))
    said = {"sampling_ratio": c.number(1, 3), "output_height": c.number(1, 3), "output_width": 2}
    return node("RoiAlign", x, (np.abs(c.array(boxes, 4)) * 2).astype(x.array.dtype), batch, **said)


def _loss(c: RowChoice, x: KnownTensor) -> Drawn:
    n, classes, *rest = x.array.shape
    target = i64(*[c.number(0, classes) for _ in range(int(np.prod([n, *rest])))])
    kind = c.pick("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
    reduction = c.pick("mean", "sum", "none")
    return node(kind, x, target.reshape(n, *rest), reduction=reduction)


@attrs.frozen
class NodeKind:
    """A kind of node: its operands, whether it preserves bits, and whether it is discontinuous."""

    weight: int
    types: str  # numpy's letters for kinds of element types
    ranks: range
    row: Row
    keeps: bool = False
    jumps: bool = False


_ANY: Final = range(6)
_SOME: Final = range(1, 5)
_IMAGE: Final = range(3, 5)
# fmt: off
KINDS: Final[dict[str, NodeKind]] = {
    "smooth":   NodeKind(6, "f",   _ANY,   _plain("Sigmoid", "Tanh", "Exp", "Erf", "Softplus", "Softsign", "Sin", "Cos", "Elu", "Selu", "Sqrt", "Atan", "HardSigmoid", "Reciprocal", "Log")),
    "piecewise":NodeKind(4, "f",   _ANY,   _plain("Relu", "Abs", "Neg", "Identity", "LeakyRelu", "Dropout"), keeps=True),
    "jump":     NodeKind(2, "f",   _ANY,   _plain("Floor", "Ceil", "Round", "Sign"), keeps=True, jumps=True),
    "gated":    NodeKind(2, "f",   _ANY,   lambda c, x: Drawn(c.random.choice(["HardSwish"] * (c.opset >= 14) + ["Mish"] * (c.opset >= 18) + ["Gelu"] * (c.opset >= 20) + ["Celu"]), (x,))),
    "binary":   NodeKind(6, "f",   _ANY,   _pair("Add", "Sub", "Mul", "Div", "Pow")),
    "extremum": NodeKind(3, "f",   _ANY,   _pair("Max", "Min"), keeps=True),
    "integer":  NodeKind(3, "i",   _ANY,   _pair("Add", "Sub", "Mul", "Div", "Max", "Min", "Mod"), keeps=True),
    "logic":    NodeKind(2, "b",   _ANY,   _pair("And", "Or", "Xor", "Equal"), keeps=True),
    "compare":  NodeKind(2, "fi",  _ANY,   _pair("Greater", "Less", "Equal", "GreaterOrEqual"), keeps=True, jumps=True),
    "clip":     NodeKind(2, "f",   _ANY,   lambda c, x: Drawn("Clip", (x, np.asarray(-0.75, x.array.dtype), np.asarray(1.25, x.array.dtype))), keeps=True),
    "choose":   NodeKind(3, "f",   _ANY,   lambda c, x: node("Where", c.pick(*flags), x, c.array()) if (flags := [e for e in c.known if e.array.dtype == bool]) else node(c.pick("Greater", "LessOrEqual"), x, c.array()), keeps=True, jumps=True),
    "cast":     NodeKind(3, "fib", _ANY,   lambda c, x: node("Cast", x, to=c.pick(1, 6, 7, 9, 10, 11)), keeps=True, jumps=True),
    "quantise": NodeKind(1, "f",   _ANY,   lambda c, x: node("QuantizeLinear", x, np.asarray(c.pick(0.25, 0.5), np.float32), np.asarray(c.number(0, 9), np.uint8)), keeps=True, jumps=True),
    "matmul":   NodeKind(4, "f",   _SOME,  _matmul),
    "conv":     NodeKind(6, "f",   _IMAGE, _conv),
    "pool":     NodeKind(4, "f",   _IMAGE, _pool),
    "global":   NodeKind(1, "f",   _IMAGE, _plain("GlobalAveragePool", "GlobalMaxPool")),
    "norm":     NodeKind(4, "f",   _IMAGE, _norm),
    "softmax":  NodeKind(2, "f",   _SOME,  lambda c, x: Drawn(c.pick("Softmax", "LogSoftmax"), (x,), {"axis": c.axis(x)})),
    "reduce":   NodeKind(4, "f",   _SOME,  _reduce),
    "leading":  NodeKind(2, "f",   _SOME,  _leading, keeps=True, jumps=True),
    "scan":     NodeKind(1, "f",   range(2, 5), _scan),
    "reshape":  NodeKind(5, "fib", _SOME,  _reshape, keeps=True),
    "slice":    NodeKind(3, "fib", _SOME,  _slice, keeps=True),
    "pad":      NodeKind(3, "fi",  _SOME,  _pad, keeps=True),
    "concat":   NodeKind(3, "fib", _SOME,  lambda c, x: node("Concat", x, *[c.other(x) for _ in range(c.number(1, 3))], axis=c.axis(x)), keeps=True),
    "split":    NodeKind(2, "fib", _SOME,  _split, keeps=True),
    "gather":   NodeKind(3, "f",   _SOME,  _gather, keeps=True),
    "scatter":  NodeKind(2, "f",   _SOME,  _scatter, keeps=True),
    "accumulate": NodeKind(1, "f", _SOME,  _accumulate),
    "sequence": NodeKind(1, "fib", range(2, 5), _sequence, keeps=True),
    "region":   NodeKind(1, "f",   range(4, 5), _region),
    "loss":     NodeKind(1, "f",   range(2, 5), _loss),
    "repeat":   NodeKind(2, "fib", _SOME,  _repeat, keeps=True),
    "resize":   NodeKind(2, "f",   _IMAGE, _resize),
    "pixel":    NodeKind(1, "f",   range(4, 5), lambda c, x: node(c.pick("DepthToSpace", "SpaceToDepth"), x, blocksize=2), keeps=True),
    "einsum":   NodeKind(1, "f",   range(2, 5), _einsum),
    "prelu":    NodeKind(1, "f",   _SOME,  lambda c, x: Drawn("PRelu", (x, c.array(1)))),
}
"""Every kind, with how often it is drawn."""
# fmt: on
