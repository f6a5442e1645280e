"""Rows of normalisations."""

from __future__ import annotations

from typing import Final

from plica.frontend.onnx.node import OnnxNode
from plica.frontend.onnx.row import word
from plica.frontend.word import standardised
from plica.ir.graph.expression import Expr
from plica.ir.loop.scalar import index
from plica.ir.op.namespace import op
from plica.ir.type.dim import known, product, quotient


def _batch_norm(node: OnnxNode) -> Expr:
    if node.opset < 7 and not node.flag("is_test"):
        node.unsupported("BatchNormalization in training is not supported.", "is_test=1")
    if not node.flag("spatial", True):
        node.unsupported("BatchNormalization with spatial=0 is not supported.")
    if node.flag("training_mode"):
        node.unsupported("BatchNormalization in training is not supported.", "inference")
    node.ignore("momentum")
    x = node.x(0)
    vectors = [node.x(at) for at in range(1, 5)]
    of = word.dtype(x)
    epsilon = node.real("epsilon", 1e-5)
    if all(word.dtype(vector) is of for vector in vectors):
        return op.nn.batch_norm(x, *vectors, axis=1, epsilon=epsilon)
    widest = max((word.dtype(expr) for expr in (x, *vectors)), key=lambda each: each.bits)
    wide = widest if widest.bits > 16 else word.dtype(word.in_f32(x))
    inner = [word.to(expr, wide) for expr in (x, *vectors)]
    return word.to(op.nn.batch_norm(*inner, axis=1, epsilon=epsilon), of)


def _instance_norm(node: OnnxNode) -> Expr:
    epsilon = node.real("epsilon", 1e-5)
    return op.nn.instance_norm(node.x(0), node.x(1), node.x(2), epsilon=epsilon)


def _layer_norm(node: OnnxNode) -> word.Made:
    x, gamma, beta = node.x(0), node.x(1), node.maybe(2)
    axis = word.axis_in(node, node.integer("axis", -1), word.rank(x))
    epsilon = node.real("epsilon", 1e-5)
    if node.integer("stash_type", 1) != 1:
        node.unsupported("LayerNormalization works in f32.", "stash_type=1")
    tail = word.shape(x)[axis:]
    fits = len(word.shape(gamma)) == len(tail) and word.shape(gamma) == tail
    fits = fits and (beta is None or word.shape(beta) == tail)
    wanted = [name for name in node.proto.output if name]
    if fits and len(wanted) == 1:
        return op.nn.layer_norm(
            x, gamma, op.zeros_like(gamma) if beta is None else beta, axis=axis, epsilon=epsilon
        )
    axes = tuple(range(axis, word.rank(x)))
    standard, middle, inverse = standardised(word.in_f32(x), axes, epsilon)
    scaled = word.to(standard, word.dtype(x)) * gamma
    scaled = scaled if beta is None else scaled + beta
    return [scaled, middle, inverse][: max(1, len(node.proto.output))]


def _rms_norm(node: OnnxNode) -> Expr:
    x, gamma = node.x(0), node.x(1)
    axis = word.axis_in(node, node.integer("axis", -1), word.rank(x))
    if node.integer("stash_type", 1) != 1:
        node.unsupported("RMSNormalization works in f32.", "stash_type=1")
    epsilon = node.real("epsilon", 1e-5)
    if word.shape(gamma) == word.shape(x)[axis:] and word.dtype(gamma) is word.dtype(x):
        return op.nn.rms_norm(x, gamma, axis=axis, epsilon=epsilon)
    axes = tuple(range(axis, word.rank(x)))
    inner = word.in_f32(x)
    power = op.mean(op.square(inner), axis=axes, keepdims=True)
    scaled = inner * op.rsqrt(power + word.like(epsilon, power))
    return word.to(scaled, word.dtype(gamma)) * gamma


def _group_norm(node: OnnxNode) -> Expr:
    x, gamma, beta = node.x(0), node.x(1), node.x(2)
    groups, epsilon = node.integer("num_groups"), node.real("epsilon", 1e-5)
    if node.integer("stash_type", 1) != 1:
        node.unsupported("GroupNormalization works in f32.", "stash_type=1")
    sizes = word.shape(x)
    part = quotient(sizes[1], index(groups)) if word.rank(x) > 1 and groups > 0 else None
    if part is None and groups > 0 and word.rank(x) > 1 and known(sizes[1]) is None:
        message = "The channels of GroupNormalization must be a multiple of its groups."
        node.unsupported(message, f"a multiple of {groups}", str(node.type()))
    if part is None:
        node.malformed("The groups do not divide the channels.", str(groups), str(node.type()))
    grouped = (sizes[0], index(groups), product((part, *sizes[2:])))
    scaled, _, _ = standardised(op.reshape(word.in_f32(x), grouped), (2,), epsilon)
    # Before version 21 there is a scale per group, since then one per channel.
    scaled = scaled if node.opset < 21 else op.reshape(scaled, sizes)
    factor, shift = (
        word.along(word.to(expr, word.dtype(scaled)), 1, word.rank(scaled))
        for expr in (gamma, beta)
    )
    return word.to(op.reshape(scaled * factor + shift, sizes), word.dtype(x))


def _lp_norm(node: OnnxNode) -> Expr:
    x, p = node.x(), node.integer("p", 2)
    axis = word.axis_in(node, node.integer("axis", -1), word.rank(x))
    inner = word.in_f32(x)
    if p == 1:
        total = op.sum(op.absolute(inner), axis=(axis,), keepdims=True)
    elif p == 2:
        total = op.sqrt(op.sum(op.square(inner), axis=(axis,), keepdims=True))
    else:
        node.malformed("LpNormalization has p of 1 or 2.", "1 or 2", str(p))
    zero = word.like(0, total)
    scaled = op.where(op.equal(total, zero), zero, inner / total)
    return word.to(scaled, word.dtype(x))


def _lrn(node: OnnxNode) -> Expr:
    return op.nn.lrn(
        node.x(),
        size=node.integer("size"),
        alpha=node.real("alpha", 1e-4),
        beta=node.real("beta", 0.75),
        bias=node.real("bias", 1.0),
    )


def _mean_variance(node: OnnxNode) -> Expr:
    x = node.x()
    axes = word.axes_in(node, node.integers("axes") or (0, 2, 3), word.rank(x))
    inner = word.in_f32(x)
    away = inner - op.mean(inner, axis=axes, keepdims=True)
    spread = op.mean(op.square(away), axis=axes, keepdims=True)
    below = op.sqrt(spread) + word.like(1e-9, spread)
    return word.to(away / below, word.dtype(x))


# fmt: off
TABLE: Final[dict[str, word.Row]] = {
    "BatchNormalization":        _batch_norm,
    "InstanceNormalization":     _instance_norm,
    "LayerNormalization":        _layer_norm,
    "RMSNormalization":          _rms_norm,
    "SimplifiedLayerNormalization": _rms_norm,  # onnxruntime's word for it
    "GroupNormalization":        _group_norm,
    "LpNormalization":           _lp_norm,
    "LRN":                       _lrn,
    "MeanVarianceNormalization": _mean_variance,
}
# fmt: on
