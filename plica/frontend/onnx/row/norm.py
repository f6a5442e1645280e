"""Rows of normalisations."""

from __future__ import annotations

from typing import Final

from plica.frontend.onnx.node import OnnxNode
from plica.frontend.onnx.row.word import (
    Made,
    Row,
    along,
    axes_in,
    axis_in,
    dtype,
    in_f32,
    like,
    rank,
    shape,
    to,
)
from plica.ir.graph.expression import Expr
from plica.ir.loop.scalar import index
from plica.ir.op import elementwise as ew
from plica.ir.op.comparison import equal
from plica.ir.op.create import zeros_like
from plica.ir.op.index import where
from plica.ir.op.normalize import batch_norm, instance_norm, layer_norm, lrn, rms_norm
from plica.ir.op.reduction import mean, sum_
from plica.ir.op.shape import reshape
from plica.ir.type.dim import known, product, quotient


def _batch_norm(node: OnnxNode) -> Expr:
    if node.opset < 7 and not node.flag("is_test"):
        node.unsupported("BatchNormalization in training is not supported.", "is_test=1")
    if node.opset < 9 and not node.flag("spatial", True):
        node.unsupported("BatchNormalization with spatial=0 is not supported.")
    if node.opset >= 14 and node.flag("training_mode"):
        node.unsupported("BatchNormalization in training is not supported.", "inference")
    node.ignore("momentum")
    x = node.x(0)
    vectors = [node.x(at) for at in range(1, 5)]
    of = dtype(x)
    epsilon = node.real("epsilon", 1e-5)
    if all(dtype(each) is of for each in vectors):
        return batch_norm(x, *vectors, axis=1, epsilon=epsilon)
    widest = max((dtype(each) for each in (x, *vectors)), key=lambda each: each.bits)
    wide = widest if widest.bits > 16 else dtype(in_f32(x))
    inner = [to(each, wide) for each in (x, *vectors)]
    return to(batch_norm(*inner, axis=1, epsilon=epsilon), of)


def _instance_norm(node: OnnxNode) -> Expr:
    epsilon = node.real("epsilon", 1e-5)
    return instance_norm(node.x(0), node.x(1), node.x(2), epsilon=epsilon)


def _layer_norm(node: OnnxNode) -> Made:
    x, gamma, beta = node.x(0), node.x(1), node.maybe(2)
    axis = axis_in(node, node.integer("axis", -1), rank(x))
    epsilon = node.real("epsilon", 1e-5)
    if node.integer("stash_type", 1) != 1:
        node.unsupported("LayerNormalization works in f32.", "stash_type=1")
    tail = shape(x)[axis:]
    fits = len(shape(gamma)) == len(tail) and shape(gamma) == tail
    fits = fits and (beta is None or shape(beta) == tail)
    wanted = [name for name in node.proto.output if name]
    if fits and len(wanted) == 1:
        return layer_norm(
            x, gamma, zeros_like(gamma) if beta is None else beta, axis=axis, epsilon=epsilon
        )
    axes = tuple(range(axis, rank(x)))
    inner = in_f32(x)
    middle = mean(inner, axis=axes, keepdims=True)
    away = ew.subtract(inner, middle)
    spread = mean(ew.square(away), axis=axes, keepdims=True)
    inverse = ew.rsqrt(ew.add(spread, like(epsilon, spread)))
    scaled = to(ew.multiply(away, inverse), dtype(x))
    scaled = ew.multiply(scaled, gamma)
    scaled = scaled if beta is None else ew.add(scaled, beta)
    return [scaled, middle, inverse][: max(1, len(node.proto.output))]


def _rms_norm(node: OnnxNode) -> Expr:
    x, gamma = node.x(0), node.x(1)
    axis = axis_in(node, node.integer("axis", -1), rank(x))
    if node.integer("stash_type", 1) != 1:
        node.unsupported("RMSNormalization works in f32.", "stash_type=1")
    epsilon = node.real("epsilon", 1e-5)
    if shape(gamma) == shape(x)[axis:] and dtype(gamma) is dtype(x):
        return rms_norm(x, gamma, axis=axis, epsilon=epsilon)
    axes = tuple(range(axis, rank(x)))
    inner = in_f32(x)
    power = mean(ew.square(inner), axis=axes, keepdims=True)
    scaled = ew.multiply(inner, ew.rsqrt(ew.add(power, like(epsilon, power))))
    return ew.multiply(to(scaled, dtype(gamma)), gamma)


def _group_norm(node: OnnxNode) -> Expr:
    x, gamma, beta = node.x(0), node.x(1), node.x(2)
    groups, epsilon = node.integer("num_groups"), node.real("epsilon", 1e-5)
    if node.opset >= 21 and node.integer("stash_type", 1) != 1:
        node.unsupported("GroupNormalization works in f32.", "stash_type=1")
    sizes = shape(x)
    part = quotient(sizes[1], index(groups)) if rank(x) > 1 and groups > 0 else None
    if part is None and groups > 0 and rank(x) > 1 and known(sizes[1]) is None:
        message = "The channels of GroupNormalization must be a multiple of its groups."
        node.unsupported(message, f"a multiple of {groups}", str(node.type()))
    if part is None:
        node.malformed("The groups do not divide the channels.", str(groups), str(node.type()))
    grouped = (sizes[0], index(groups), product((part, *sizes[2:])))
    inner = reshape(in_f32(x), grouped)
    middle = mean(inner, axis=(2,), keepdims=True)
    away = ew.subtract(inner, middle)
    spread = mean(ew.square(away), axis=(2,), keepdims=True)
    scaled = ew.multiply(away, ew.rsqrt(ew.add(spread, like(epsilon, spread))))
    if node.opset < 21:  # a scale for each group
        scaled = ew.add(ew.multiply(scaled, along(to(gamma, dtype(scaled)), 1, 3)),
                     along(to(beta, dtype(scaled)), 1, 3))  # fmt: skip
        return to(reshape(scaled, sizes), dtype(x))
    whole = reshape(scaled, sizes)
    whole = ew.multiply(whole, along(to(gamma, dtype(whole)), 1, rank(x)))
    return to(ew.add(whole, along(to(beta, dtype(whole)), 1, rank(x))), dtype(x))


def _lp_norm(node: OnnxNode) -> Expr:
    x, p = node.x(), node.integer("p", 2)
    axis = axis_in(node, node.integer("axis", -1), rank(x))
    inner = in_f32(x)
    if p == 1:
        total = sum_(ew.absolute(inner), axis=(axis,), keepdims=True)
    elif p == 2:
        total = ew.sqrt(sum_(ew.square(inner), axis=(axis,), keepdims=True))
    else:
        node.malformed("LpNormalization has p of 1 or 2.", "1 or 2", str(p))
    zero = like(0, total)
    scaled = where(equal(total, zero), zero, ew.divide(inner, total))
    return to(scaled, dtype(x))


def _lrn(node: OnnxNode) -> Expr:
    return lrn(
        node.x(),
        size=node.integer("size"),
        alpha=node.real("alpha", 1e-4),
        beta=node.real("beta", 0.75),
        bias=node.real("bias", 1.0),
    )


def _mean_variance(node: OnnxNode) -> Expr:
    x = node.x()
    axes = axes_in(node, node.integers("axes") or (0, 2, 3), rank(x))
    inner = in_f32(x)
    away = ew.subtract(inner, mean(inner, axis=axes, keepdims=True))
    spread = mean(ew.square(away), axis=axes, keepdims=True)
    below = ew.add(ew.sqrt(spread), like(1e-9, spread))
    return to(ew.divide(away, below), dtype(x))


# fmt: off
TABLE: Final[dict[str, Row]] = {
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
