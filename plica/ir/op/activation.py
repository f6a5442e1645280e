"""Activations: elementwise functions of neural networks.

16-bit floats are worked on in f32 and rounded once.

>>> from plica.ir.type.term import tensor
>>> x = tensor((2, 3), "f32")
>>> relu.relation({}, x) is x
True
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from typing import Unpack

from plica.ir.graph.expression import Expr
from plica.ir.graph.operator import Attribute, Operator, Through, Values
from plica.ir.loop import scalar as sc
from plica.ir.loop.tensor import Compute, compute
from plica.ir.op import record
from plica.ir.op.attribute import attribute, axis, choice, real
from plica.ir.op.cotangent import sum_, where
from plica.ir.op.elementwise import absolute, add, call, erf, exp, square, tanh
from plica.ir.op.relation import FLOAT, NUMBER, axis_of, rank_is, refuse, same
from plica.ir.op.shape import along_axis
from plica.ir.type import DType, TensorType


def _activation(
    name: str,
    value: Callable[..., sc.Scalar],
    doc: str,
    *attributes: Attribute,
    admits: Collection[DType] = FLOAT,
    slope: record.Derivative | None = None,
    **named: Unpack[record.Named],
) -> Operator:
    return record.pointwise(
        name, ("x",), record.widened(value), doc,
        attributes=attributes, admits=admits, slope=slope, **named,
    )  # fmt: skip


def _alpha(default: float) -> Attribute:
    return attribute("alpha", real, default)


def _zero(x: sc.Scalar) -> sc.Scalar:
    return sc.like(0, x)


def logistic(x: sc.Scalar) -> sc.Scalar:
    """1 / (1 + exp(-x))."""
    return sc.Div(sc.like(1, x), sc.Add(sc.like(1, x), call("exp", sc.Sub(_zero(x), x))))


def soft_plus(x: sc.Scalar) -> sc.Scalar:
    """log(1 + exp(x)) without overflow."""
    small = call("log1p", call("exp", sc.Sub(_zero(x), call("abs", x))))
    return sc.Add(sc.Max(x, _zero(x)), small)


def _clamped(x: sc.Scalar, low: float, high: float) -> sc.Scalar:
    return sc.Min(sc.Max(x, sc.like(low, x)), sc.like(high, x))


def _leaky(attrs: Values, x: sc.Scalar) -> sc.Scalar:
    return sc.Select(sc.Lt(x, _zero(x)), sc.Mul(x, sc.like(attrs["alpha"], x)), x)


def _elu(x: sc.Scalar, alpha: float, scale: float = 1.0, stretch: float = 1.0) -> sc.Scalar:
    """`scale * (x or alpha * (exp(x / stretch) - 1) below zero)`."""
    inner = x if stretch == 1.0 else sc.Div(x, sc.like(stretch, x))
    below = sc.Mul(call("expm1", inner), sc.like(alpha, x))
    bent = sc.Select(sc.Lt(x, _zero(x)), below, x)
    return bent if scale == 1.0 else sc.Mul(bent, sc.like(scale, x))


def _gelu(attrs: Values, x: sc.Scalar) -> sc.Scalar:
    half, one = sc.like(0.5, x), sc.like(1, x)
    if attrs["approximate"] == "tanh":
        cube = sc.Mul(sc.Mul(sc.Mul(x, x), x), sc.like(0.044715, x))
        bent = call("tanh", sc.Mul(sc.Add(x, cube), sc.like(math.sqrt(2 / math.pi), x)))
    else:
        bent = call("erf", sc.Mul(x, sc.like(1 / math.sqrt(2), x)))
    return sc.Mul(sc.Mul(x, half), sc.Add(one, bent))


def _hard_sigmoid(attrs: Values, x: sc.Scalar) -> sc.Scalar:
    return _clamped(sc.Add(sc.Mul(x, sc.like(attrs["alpha"], x)), sc.like(attrs["beta"], x)), 0, 1)


def _hard_swish(x: sc.Scalar) -> sc.Scalar:
    return sc.Mul(x, _clamped(sc.Add(sc.Mul(x, sc.like(1 / 6, x)), sc.like(0.5, x)), 0, 1))


def _gelu_slope(attrs: Values, d: Expr, y: Expr, x: Expr) -> Expr:
    if attrs["approximate"] == "tanh":
        scale, cubic = math.sqrt(2 / math.pi), 0.044715
        bent = tanh((x + square(x) * x * cubic) * scale)
        steep = (1 - square(bent)) * (square(x) * (3 * cubic) + 1) * scale
    else:
        bent = erf(x * (1 / math.sqrt(2)))
        steep = exp(square(x) * -0.5) * math.sqrt(2 / math.pi)
    return d * ((bent + 1) * 0.5 + x * steep * 0.5)


def _silu_slope(d: Expr, y: Expr, x: Expr) -> Expr:
    s = sigmoid(x)
    return d * (s + y * (1 - s))


def _mish_slope(d: Expr, y: Expr, x: Expr) -> Expr:
    t = tanh(softplus(x))
    return d * (t + x * (1 - square(t)) * sigmoid(x))


def _within(d: Expr, x: Expr, low: float, high: float) -> Expr:
    """The cotangent strictly inside of bounds."""
    return where(x > low, where(x < high, d, 0), 0)


relu = _activation(
    "nn.relu", lambda x: sc.Max(x, _zero(x)), "max(x, 0).", onnx=("Relu",), admits=NUMBER,
    aliases=("relu",), slope=lambda d, y, x: where(y > 0, d, 0))  # fmt: skip
relu6 = _activation(
    "nn.relu6", lambda x: _clamped(x, 0, 6), "x clipped to 0 and 6.", admits=NUMBER,
    slope=lambda d, y, x: _within(d, x, 0, 6),
)  # fmt: skip
leaky_relu = _activation(
    "nn.leaky_relu", _leaky, "x, or alpha * x below 0.", _alpha(0.01), onnx=("LeakyRelu",),
    slope=lambda attrs, d, y, x: where(x > 0, d, d * attrs["alpha"]),
)  # fmt: skip
elu = _activation(
    "nn.elu", lambda attrs, x: _elu(x, attrs["alpha"]), "x, or alpha * (exp(x) - 1) below 0.",
    _alpha(1.0), onnx=("Elu",),
    slope=lambda attrs, d, y, x: where(x > 0, d, d * (y + attrs["alpha"])),
)  # fmt: skip
celu = _activation(
    "nn.celu", lambda attrs, x: _elu(x, attrs["alpha"], stretch=attrs["alpha"]),
    "x, or alpha * (exp(x / alpha) - 1) below 0.", _alpha(1.0), onnx=("Celu",),
    slope=lambda attrs, d, y, x: where(x > 0, d, d * exp(x / attrs["alpha"])),
)  # fmt: skip
SELU_ALPHA, SELU_SCALE = 1.6732632423543772, 1.0507009873554805
selu = _activation(
    "nn.selu", lambda x: _elu(x, SELU_ALPHA, SELU_SCALE), "The scaled exponential linear unit.",
    onnx=("Selu",),
    slope=lambda d, y, x: where(x > 0, d * SELU_SCALE, d * (y + SELU_ALPHA * SELU_SCALE)),
)  # fmt: skip
gelu = _activation(
    "nn.gelu", _gelu,
    "Gaussian error linear unit, exact or by the tanh approximation.",
    attribute("approximate", choice("none", "tanh"), "none"), onnx=("Gelu",), slope=_gelu_slope,
)  # fmt: skip
sigmoid = _activation(
    "nn.sigmoid", logistic, "1 / (1 + exp(-x)).", onnx=("Sigmoid",), aliases=("sigmoid",),
    slope=lambda d, y, x: d * (y * (1 - y)),
)  # fmt: skip
log_sigmoid = _activation(
    "nn.log_sigmoid", lambda x: sc.Sub(_zero(x), soft_plus(sc.Sub(_zero(x), x))),
    "log(sigmoid(x)).", slope=lambda d, y, x: d * sigmoid(-x),
)  # fmt: skip
silu = _activation(
    "nn.silu", lambda x: sc.Div(x, sc.Add(sc.like(1, x), call("exp", sc.Sub(_zero(x), x)))),
    "x * sigmoid(x).", onnx=("Swish",), aliases=("nn.swish",), slope=_silu_slope,
)  # fmt: skip
softplus = _activation(
    "nn.softplus", soft_plus, "log(1 + exp(x)).", onnx=("Softplus",),
    slope=lambda d, y, x: d * sigmoid(x),
)  # fmt: skip
softsign = _activation(
    "nn.softsign", lambda x: sc.Div(x, sc.Add(sc.like(1, x), call("abs", x))), "x / (1 + |x|).",
    onnx=("Softsign",), slope=lambda d, y, x: d / square(absolute(x) + 1),
)  # fmt: skip
hard_sigmoid = _activation(
    "nn.hard_sigmoid", _hard_sigmoid, "alpha * x + beta, clipped to 0 and 1.", _alpha(0.2),
    attribute("beta", real, 0.5), onnx=("HardSigmoid",),
    slope=lambda attrs, d, y, x: _within(d * attrs["alpha"], y, 0, 1),
)  # fmt: skip
hard_swish = _activation(
    "nn.hard_swish", _hard_swish, "x * hard_sigmoid(x, 1/6, 1/2).", onnx=("HardSwish",),
    slope=lambda d, y, x: where(x <= -3, 0, where(x >= 3, d, d * (x / 3 + 0.5))),
)  # fmt: skip
hard_tanh = _activation(
    "nn.hard_tanh", lambda x: _clamped(x, -1, 1), "x clipped to -1 and 1.",
    slope=lambda d, y, x: _within(d, x, -1, 1),
)  # fmt: skip
mish = _activation(
    "nn.mish", lambda x: sc.Mul(x, call("tanh", soft_plus(x))), "x * tanh(softplus(x)).",
    onnx=("Mish",), slope=_mish_slope,
)  # fmt: skip
thresholded_relu = _activation(
    "nn.thresholded_relu",
    lambda attrs, x: sc.Select(sc.Lt(sc.like(attrs["alpha"], x), x), x, _zero(x)),
    "x where it is above alpha, else 0.", _alpha(1.0), onnx=("ThresholdedRelu",),
    slope=lambda attrs, d, y, x: where(x > attrs["alpha"], d, 0),
)  # fmt: skip

# --- with a vector of weights --------------------------------------------------------------------


def _channel_rule(name: str, attrs: Values, x: TensorType, vector: TensorType) -> TensorType:
    at = axis_of(name, attrs["axis"], len(x.shape))
    rank_is(name, "the vector", vector, 1)
    same(name, "the vector and the channels", x.shape[at], vector.shape[0])
    return x


def _prelu_body(attrs: Values, out: TensorType, x: sc.Buffer, slope: sc.Buffer) -> Compute:
    at = axis_of("nn.prelu", attrs["axis"], len(out.shape))

    def element(*i: sc.Scalar) -> sc.Scalar:
        value = x[i]
        return sc.Select(sc.Lt(value, _zero(value)), sc.Mul(value, slope[i[at]]), value)

    return compute((x, slope), out.shape, element)


def _prelu(attrs: Values, x: Expr, slope: Expr) -> Expr:
    rank = len(record.tensor_of(x).shape)
    return where(x < 0, x * along_axis(slope, axis_of("nn.prelu", attrs["axis"], rank), rank), x)


prelu = record.primitive(
    "nn.prelu", ("x", "slope"), lambda attrs, *types: _channel_rule("nn.prelu", attrs, *types),
    _prelu_body, "x, or slope * x below 0, with a slope per channel.",
    attributes=(attribute("axis", axis, 1),), admits=FLOAT, onnx=("PRelu",),
    gradient=Through(_prelu),
)  # fmt: skip


def _bias_pullback(attrs: Values, d: Expr, y: Expr, x: Expr, bias: Expr) -> list[Expr | None]:
    rank = len(record.tensor_of(x).shape)
    at = axis_of("nn.bias_add", attrs["axis"], rank)
    others = tuple(each for each in range(rank) if each != at)
    return [d, sum_(d, axis=others) if others else d]


bias_add = record.composite(
    "nn.bias_add", ("x", "bias"), lambda attrs, *types: _channel_rule("nn.bias_add", attrs, *types),
    lambda attrs, x, bias: add(
        x,
        along_axis(
            bias,
            axis_of("nn.bias_add", attrs["axis"], len(record.tensor_of(x).shape)),
            len(record.tensor_of(x).shape),
        ),
    ),
    "Add a bias per channel.", attributes=(attribute("axis", axis, 1),), admits=NUMBER,
    gradient=_bias_pullback,
)  # fmt: skip


def _dropout_rule(attrs: Values, x: TensorType) -> TensorType:
    if not 0 <= attrs["rate"] < 1:
        message = "nn.dropout takes a rate from 0 up to 1."
        refuse("bad-attribute", message, "0 <= rate < 1", repr(attrs["rate"]))
    return x


dropout = record.primitive(
    "nn.dropout", ("x",), _dropout_rule,
    lambda attrs, out, x: compute((x,), out.shape, lambda *i: x[i]),
    "x: dropout is the identity in inference.",
    attributes=(attribute("rate", real, 0.5),), admits=FLOAT, onnx=("Dropout",),
    gradient=lambda attrs, d, y, x: [d],
)  # fmt: skip
