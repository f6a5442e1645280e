"""Rows of activations: functions of floats, computed in f32 where these have 16 bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from plica.frontend.torch.node import TorchNode
from plica.frontend.torch.row.word import Row, casted, opmath
from plica.frontend.word import dtype, like
from plica.ir.graph.expression import Expr
from plica.ir.op.namespace import op


def _wide(node: TorchNode, record: Callable[[Expr], Expr]) -> Expr:
    """A function of floats, computed as torch does."""
    x = node.x()
    return casted(record(casted(x, opmath(dtype(x)))), node.dtype())


def _activation(record: Callable[[Expr], Expr]) -> Row:
    return lambda node: _wide(node, record)


def _elu(node: TorchNode) -> Expr:
    alpha, scale, before = (float(node.number(n)) for n in ("alpha", "scale", "input_scale"))

    def value(x: Expr) -> Expr:
        inner = op.expm1(x * like(before, x)) * like(alpha, x)
        bent = op.nn.elu(x, alpha=alpha) if before == 1.0 else op.where(x < like(0, x), inner, x)
        return bent if scale == 1.0 else bent * like(scale, x)

    return _wide(node, value)


def _celu(node: TorchNode) -> Expr:
    alpha = float(node.number("alpha"))
    return _wide(node, lambda x: op.nn.celu(x, alpha=alpha))


def _softplus(node: TorchNode) -> Expr:
    beta, threshold = float(node.number("beta")), float(node.number("threshold"))

    def value(x: Expr) -> Expr:
        scaled = x * like(beta, x)
        soft = op.log1p(op.exp(scaled)) / like(beta, x)
        return op.where(scaled > like(threshold, x), x, soft)

    return _wide(node, value)


def _hard_sigmoid(x: Expr) -> Expr:
    return op.nn.relu6(x + like(3, x)) / like(6, x)


def _leaky(node: TorchNode) -> Expr:
    slope = float(node.number("negative_slope"))
    if slope == 0.0:  # then an infinite input gives nan, which a plain factor shows
        return _wide(node, lambda x: op.where(x > like(0, x), x, x * like(0, x)))
    return _wide(node, lambda x: op.nn.leaky_relu(x, alpha=slope))


def _gelu(node: TorchNode) -> Expr:
    approximate = node.text("approximate")
    return _wide(node, lambda x: op.nn.gelu(x, approximate=approximate))


def _relu(node: TorchNode) -> Expr:
    return op.nn.relu(node.x()) if dtype(node.x()).name != "bool" else node.x()


# fmt: off
TABLE: Final[dict[str, Row]] = {
    "relu.default":                _relu,
    "relu6.default":               _activation(op.nn.relu6),
    "silu.default":                _activation(op.nn.silu),
    "mish.default":                _activation(op.nn.mish),
    "selu.default":                _activation(op.nn.selu),
    "hardswish.default":           _activation(op.nn.hard_swish),
    "hardsigmoid.default":         _activation(_hard_sigmoid),
    "log_sigmoid.default":         _activation(op.nn.log_sigmoid),
    "celu.default":                _celu,
    "elu.default":                 _elu,
    "gelu.default":                _gelu,
    "leaky_relu.default":          _leaky,
    "softplus.default":            _softplus,
}
# fmt: on
