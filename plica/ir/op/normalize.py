"""Normalisation: values scaled by what their neighbours sum up to.

Most are made of other operators.  16-bit floats are worked on in f32 and rounded at the end.

>>> from plica.ir.type.term import tensor
>>> x = tensor((2, 3), "f32")
>>> softmax.relation({"axis": -1}, x) is x
True
"""

from __future__ import annotations

from collections.abc import Callable

from plica.ir.graph.expression import Expr
from plica.ir.graph.operator import Gradient, Operator, Through, Values
from plica.ir.loop.scalar import Add, Buffer, Div, Le, Lit, Lt, Mul, Pow, Scalar, index
from plica.ir.loop.tensor import Compute, compute, reduce
from plica.ir.op import elementwise as ew, relation as rel
from plica.ir.op.attribute import AXIS, attribute, axis, integers, positive, real
from plica.ir.op.cotangent import slice_
from plica.ir.op.pad import guarded, pad
from plica.ir.op.record import as_dtype, composite, plus, primitive, scalar, tensor_of
from plica.ir.op.reduction import average, max_, narrow, spread, sum_, supremum, widen
from plica.ir.op.shape import along_axis, reshape
from plica.ir.type import DType, TensorType, known, product, quotient

_EPSILON = attribute("epsilon", real, 1e-5)


# --- softmax -------------------------------------------------------------------------------------


def _along(
    name: str, build: Callable[[Expr, tuple[int]], Expr], doc: str, onnx: str, gradient: Gradient
) -> Operator:
    def rule(attrs: Values, x: TensorType) -> TensorType:
        rel.axis_of(name, attrs["axis"], len(x.shape))
        return x  # along an empty axis there is nothing to compute

    def decomposed(attrs: Values, x: Expr) -> Expr:
        of = tensor_of(x)
        at = rel.axis_of(name, attrs["axis"], len(of.shape))
        if known(of.shape[at]) == 0:
            return x
        return narrow(build(widen(x), (at,)), of.dtype)

    return composite(
        name,
        ("x",),
        rule,
        decomposed,
        doc,
        attributes=(AXIS,),
        admits=rel.FLOAT,
        onnx=(onnx,),
        gradient=gradient,
    )


def _top(x: Expr, at: tuple[int]) -> Expr:
    """The greatest along an axis, which may have no elements where its size is open."""
    greatest = max_ if known(tensor_of(x).shape[at[0]]) else supremum
    return greatest(x, axis=at, keepdims=True)


def _softmax(x: Expr, at: tuple[int]) -> Expr:
    powers = ew.exp(ew.subtract(x, _top(x, at)))
    return ew.divide(powers, sum_(powers, axis=at, keepdims=True))


def _log_softmax(x: Expr, at: tuple[int]) -> Expr:
    moved = ew.subtract(x, _top(x, at))
    return ew.subtract(moved, ew.log(sum_(ew.exp(moved), axis=at, keepdims=True)))


def _softmax_pullback(attrs: Values, d: Expr, y: Expr, x: Expr) -> list[Expr | None]:
    expr = d * y
    return [expr - y * sum_(expr, axis=(attrs["axis"],), keepdims=True)]


def _log_softmax_pullback(attrs: Values, d: Expr, y: Expr, x: Expr) -> list[Expr | None]:
    return [d - ew.exp(y) * sum_(d, axis=(attrs["axis"],), keepdims=True)]


softmax = _along(
    "nn.softmax", _softmax, "exp(x) / sum(exp(x)) along an axis.", "Softmax", _softmax_pullback
)
log_softmax = _along(
    "nn.log_softmax", _log_softmax, "log(softmax(x)) along an axis.", "LogSoftmax",
    _log_softmax_pullback,
)  # fmt: skip

# --- norms ---------------------------------------------------------------------------------------


def _vector(name: str, what: str, of: TensorType, size: Scalar) -> None:
    rel.rank_is(name, what, of, 1)
    rel.same(name, f"{what} and the channels", size, of.shape[0])


def _scaled(x: Expr, axes: tuple[int, ...], epsilon: float) -> Expr:
    """(x - mean) / sqrt(variance + epsilon) over axes."""
    dtype = tensor_of(x).dtype
    away = ew.subtract(x, average(x, axes, True))
    return ew.multiply(away, ew.rsqrt(ew.add(spread(x, axes, True), scalar(epsilon, dtype))))


def _batch_norm_rule(attrs: Values, x: TensorType, *vectors: TensorType) -> TensorType:
    at = rel.axis_of("nn.batch_norm", attrs["axis"], len(x.shape))
    for what, vector in zip(("gamma", "beta", "mean", "variance"), vectors, strict=True):
        _vector("nn.batch_norm", what, vector, x.shape[at])
    return x


def _batch_norm(attrs: Values, x: Expr, *vectors: Expr) -> Expr:
    of = tensor_of(x)
    at = rel.axis_of("nn.batch_norm", attrs["axis"], len(of.shape))
    gamma, beta, mean, variance = (widen(vector) for vector in vectors)
    inner = tensor_of(gamma).dtype
    scale = ew.multiply(gamma, ew.rsqrt(ew.add(variance, scalar(attrs["epsilon"], inner))))
    moved = ew.subtract(widen(x), along_axis(mean, at, len(of.shape)))
    scaled = ew.multiply(moved, along_axis(scale, at, len(of.shape)))
    return narrow(ew.add(scaled, along_axis(beta, at, len(of.shape))), of.dtype)


batch_norm = composite(
    "nn.batch_norm", ("x", "gamma", "beta", "mean", "variance"), _batch_norm_rule, _batch_norm,
    "(x - mean) / sqrt(variance + epsilon) * gamma + beta, with given statistics.",
    attributes=(attribute("axis", axis, 1), _EPSILON), admits=rel.FLOAT,
    onnx=("BatchNormalization",),
)  # fmt: skip


def _tail(name: str, attrs: Values, x: TensorType, *weights: TensorType) -> TensorType:
    at = rel.axis_of(name, attrs["axis"], len(x.shape))
    for weight in weights:
        rel.rank_is(name, "a weight", weight, len(x.shape) - at)
        for mine, other in zip(x.shape[at:], weight.shape, strict=True):
            rel.same(name, "a weight and the normalised axes", mine, other)
    return x


def _layer_norm(attrs: Values, x: Expr, gamma: Expr, beta: Expr) -> Expr:
    of = tensor_of(x)
    first = rel.axis_of("nn.layer_norm", attrs["axis"], len(of.shape))
    axes = tuple(range(first, len(of.shape)))
    scaled = ew.multiply(_scaled(widen(x), axes, attrs["epsilon"]), widen(gamma))
    return narrow(ew.add(scaled, widen(beta)), of.dtype)


def _rms_norm(attrs: Values, x: Expr, gamma: Expr) -> Expr:
    of = tensor_of(x)
    first = rel.axis_of("nn.rms_norm", attrs["axis"], len(of.shape))
    axes = tuple(range(first, len(of.shape)))
    inner = widen(x)
    epsilon = scalar(attrs["epsilon"], tensor_of(inner).dtype)
    factor = ew.rsqrt(ew.add(average(ew.square(inner), axes, True), epsilon))
    return narrow(ew.multiply(ew.multiply(inner, factor), widen(gamma)), of.dtype)


layer_norm = composite(
    "nn.layer_norm", ("x", "gamma", "beta"),
    lambda attrs, *types: _tail("nn.layer_norm", attrs, *types), _layer_norm,
    "x normalised over the axes from `axis` on, times gamma plus beta.",
    attributes=(AXIS, _EPSILON), admits=rel.FLOAT, onnx=("LayerNormalization",),
)  # fmt: skip
rms_norm = composite(
    "nn.rms_norm", ("x", "gamma"), lambda attrs, *types: _tail("nn.rms_norm", attrs, *types),
    _rms_norm, "x divided by its root mean square over the axes from `axis` on, times gamma.",
    attributes=(AXIS, _EPSILON), admits=rel.FLOAT, onnx=("RMSNormalization",),
)  # fmt: skip


def _channels(name: str, x: TensorType, weights: tuple[TensorType, ...]) -> None:
    rel.rank_at_least(name, x, 3)
    for what, weight in zip(("gamma", "beta"), weights, strict=True):
        _vector(name, what, weight, x.shape[1])


def _instance_rule(attrs: Values, x: TensorType, *weights: TensorType) -> TensorType:
    _channels("nn.instance_norm", x, weights)
    return x


def _instance_norm(attrs: Values, x: Expr, gamma: Expr, beta: Expr) -> Expr:
    of = tensor_of(x)
    rank = len(of.shape)
    scaled = _scaled(widen(x), tuple(range(2, rank)), attrs["epsilon"])
    scaled = ew.multiply(scaled, along_axis(widen(gamma), 1, rank))
    return narrow(ew.add(scaled, along_axis(widen(beta), 1, rank)), of.dtype)


def _grouped(x: TensorType, groups: int) -> rel.Shape:
    """Batch, groups, channels per group, and elements per channel."""
    n, c, *rest = x.shape
    if (own := quotient(c, index(groups))) is None:
        message = "nn.group_norm shares out channels evenly among groups."
        rel.refuse("shape-conflict", message, f"a multiple of {groups}", rel.shown((c,)))
    return n, index(groups), own, product(rest)


def _group_rule(attrs: Values, x: TensorType, *weights: TensorType) -> TensorType:
    _channels("nn.group_norm", x, weights)
    _grouped(x, attrs["groups"])
    return x


def _group_norm(attrs: Values, x: Expr, gamma: Expr, beta: Expr) -> Expr:
    of = tensor_of(x)
    shape = _grouped(of, attrs["groups"])
    own = (*shape[1:3], index(1))
    scaled = _scaled(reshape(widen(x), shape), (2, 3), attrs["epsilon"])
    scaled = ew.multiply(scaled, reshape(widen(gamma), own))
    return reshape(narrow(ew.add(scaled, reshape(widen(beta), own)), of.dtype), of.shape)


instance_norm = composite(
    "nn.instance_norm", ("x", "gamma", "beta"), _instance_rule, _instance_norm,
    "Instance normalisation, times gamma plus beta.",
    attributes=(_EPSILON,), admits=rel.FLOAT, onnx=("InstanceNormalization",),
)  # fmt: skip
group_norm = composite(
    "nn.group_norm", ("x", "gamma", "beta"), _group_rule, _group_norm,
    "Group normalisation, times gamma plus beta.",
    attributes=(attribute("groups", positive), _EPSILON), admits=rel.FLOAT,
    onnx=("GroupNormalization",),
)  # fmt: skip


def _l2_rule(attrs: Values, x: TensorType) -> TensorType:
    rel.axes_of("nn.l2_normalize", attrs["axis"], len(x.shape))
    return x


def _l2_normalize(attrs: Values, x: Expr) -> Expr:
    of = tensor_of(x)
    axes = rel.axes_of("nn.l2_normalize", attrs["axis"], len(of.shape))
    inner = widen(x)
    least = scalar(attrs["epsilon"], tensor_of(inner).dtype)
    total = sum_(ew.square(inner), axis=axes, keepdims=True)
    return narrow(ew.divide(inner, ew.sqrt(ew.maximum(total, least))), of.dtype)


l2_normalize = composite(
    "nn.l2_normalize", ("x",), _l2_rule, _l2_normalize,
    "x / sqrt(max(sum(x²), epsilon)) over axes.",
    attributes=(attribute("axis", integers, (-1,)), attribute("epsilon", real, 1e-12)),
    admits=rel.FLOAT,
)  # fmt: skip


def _lrn_rule(attrs: Values, x: TensorType) -> TensorType:
    rel.rank_at_least("nn.lrn", x, 2)
    return x


def _lrn_reach(size: int, channels: Scalar) -> tuple[int, int]:
    """The number of channels summed before and after each, at most those that exist."""
    before = (size - 1) // 2
    most = max(0, size - 1 if (count := known(channels)) is None else count - 1)
    return min(before, most), min(size - 1 - before, most)


def _lrn_body(attrs: Values, out: TensorType, x: Buffer) -> Compute:
    inner: DType = rel.wide(x.dtype)
    size = attrs["size"]
    before, after = _lrn_reach(size, x.shape[1])

    def number(value: float) -> Lit:
        return Lit(value, inner)

    def element(n: Scalar, c: Scalar, *at: Scalar) -> Scalar:
        def load(k: Scalar) -> Scalar:
            channel = plus(c + k, -before)
            inside = [Le(index(0), channel), Lt(channel, x.shape[1])]
            value = as_dtype(guarded(inside, x[(n, channel, *at)], Lit(0, x.dtype)), inner)
            return Mul(value, value)

        total = Mul(number(attrs["alpha"] / size), reduce("sum", (before + after + 1,), load))
        below = Pow(Add(number(attrs["bias"]), total), number(attrs["beta"]))
        return as_dtype(Div(as_dtype(x[(n, c, *at)], inner), below), x.dtype)

    return compute((x,), out.shape, element)


def _lrn(attrs: Values, x: Expr) -> Expr:
    """The sum over near channels as a difference of running sums would lose digits: add them up."""
    of, size = tensor_of(x), attrs["size"]
    inner = widen(x)
    before, after = _lrn_reach(size, of.shape[1])
    sides = [(0, 0)] * len(of.shape)
    sides[1] = (before, after)
    around = pad(ew.square(inner), tuple(sides))
    parts = [slice_(around, (k,), (plus(of.shape[1], k),), axes=(1,))
             for k in range(before + after + 1)]  # fmt: skip
    total = parts[0]
    for part in parts[1:]:
        total = ew.add(total, part)
    below = ew.power(
        ew.add(ew.multiply(total, attrs["alpha"] / size), attrs["bias"]), attrs["beta"]
    )
    return narrow(ew.divide(inner, below), of.dtype)


lrn = primitive(
    "nn.lrn", ("x",), _lrn_rule, _lrn_body,
    "x / (bias + alpha / size * sum of squares over near channels) ** beta.",
    attributes=(
        attribute("size", positive),
        attribute("alpha", real, 1e-4),
        attribute("beta", real, 0.75),
        attribute("bias", real, 1.0),
    ),
    admits=rel.FLOAT, onnx=("LRN",), gradient=Through(_lrn),
)  # fmt: skip
