"""Rows of normalisations and softmax."""

from __future__ import annotations

from typing import Final

import numpy as np

from plica.frontend.measured import reshaped
from plica.frontend.torch.node import TorchNode
from plica.frontend.torch.row.word import Row, casted, opmath
from plica.frontend.word import along, dtype, like, rank, shape, standardised
from plica.ir.graph.expression import Expr
from plica.ir.graph.operator import Operator
from plica.ir.loop.scalar import index
from plica.ir.op.namespace import op
from plica.ir.type.dim import known, normal_dim, product


def _softmax(record: Operator) -> Row:
    def row(node: TorchNode) -> Expr:
        node.has("half_to_float"), node.has("dtype")
        x = casted(node.x(), opmath(node.dtype()))
        axis = node.axis("dim", rank(x))
        if any(known(size) == 0 for size in shape(x)):
            return casted(x, node.dtype())  # nothing to normalise
        if not rank(x):
            return casted(op.reshape(record(op.reshape(x, (1,)), axis=0), ()), node.dtype())
        return casted(record(x, axis=axis), node.dtype())

    return row


def _batch_norm(node: TorchNode) -> list[Expr | None]:
    x = node.x("input")
    node.has("momentum"), node.has("running_mean"), node.has("running_var")
    inner = opmath(dtype(x))
    middle, spread = (casted(node.x(n), inner) for n in ("running_mean", "running_var"))
    weight, bias = node.maybe("weight"), node.maybe("bias")
    gamma = op.ones_like(middle) if weight is None else casted(weight, inner)
    beta = op.zeros_like(middle) if bias is None else casted(bias, inner)
    y = op.nn.batch_norm(
        casted(x, inner), gamma, beta, middle, spread, axis=1, epsilon=float(node.number("eps"))
    )
    # Nothing is saved; on a GPU torch returns unused tensors there.
    empty = tuple(node.result[1].shape) == (0,)
    none = op.full(shape=(0,), value=0.0, dtype=node.dtype(1)) if empty else None
    return [casted(y, node.dtype()), none, none]


def _batch_norm_stats(node: TorchNode) -> list[Expr | None]:
    """Normalisation by the batch's own statistics, which are not saved."""
    x = node.x("input")
    node.has("momentum")
    if not node.flag("training"):
        node.unsupported("Batch normalisation without statistics needs those of the batch.")
    inner = opmath(dtype(x))
    wide = casted(x, inner)
    axes = tuple(at for at in range(rank(x)) if at != 1)
    y, middle, inverse = standardised(wide, axes, float(node.number("eps")))
    for name, join in (("weight", op.multiply), ("bias", op.add)):
        vector = node.maybe(name)
        y = y if vector is None else join(y, along(casted(vector, inner), 1, rank(x)))
    channels = (shape(x)[1],)
    kept = [op.reshape(expr, channels) for expr in (middle, inverse)]
    return [casted(y, node.dtype()), casted(kept[0], node.dtype(1)), casted(kept[1], node.dtype(2))]


def _layer_norm(node: TorchNode) -> list[Expr | None]:
    x = node.x("input")
    axis = rank(x) - len(node.sizes("normalized_shape"))
    inner = opmath(dtype(x))
    epsilon = float(node.number("eps"))
    weight, bias = node.maybe("weight"), node.maybe("bias")
    wide = casted(x, inner)
    axes = tuple(range(axis, rank(x)))
    _, middle, inverse = standardised(wide, axes, epsilon)
    tail = shape(x)[axis:]
    gamma = op.full(shape=tail, value=1.0, dtype=inner) if weight is None else casted(weight, inner)
    beta = op.full(shape=tail, value=0.0, dtype=inner) if bias is None else casted(bias, inner)
    y = op.nn.layer_norm(wide, gamma, beta, axis=axis, epsilon=epsilon)
    return [casted(y, node.dtype()), casted(middle, node.dtype(1)), casted(inverse, node.dtype(2))]


def _rms_norm(node: TorchNode) -> list[Expr | None]:
    """The form of `rms_norm` exported on GPUs, which torch leaves; the default epsilon is the
    dtype's."""
    x = node.x("input")
    axes = tuple(range(rank(x) - len(node.sizes("normalized_shape")), rank(x)))
    inner = opmath(dtype(x))
    epsilon = node.number("eps") if node.has("eps") else np.finfo(inner.numpy).eps
    wide = casted(x, inner)
    power = op.mean(op.square(wide), axis=axes, keepdims=True)
    inverse = op.rsqrt(power + like(float(epsilon), power))
    y, weight = wide * inverse, node.maybe("weight")
    y = y if weight is None else y * casted(weight, inner)
    return [casted(y, node.dtype()), casted(inverse, node.dtype(1))]


def _group_norm(node: TorchNode) -> list[Expr | None]:
    x = node.x("input")
    for name in ("N", "C", "HxW"):
        node.size(name)
    groups = node.integer("group")
    inner = opmath(dtype(x))
    sizes = shape(x)
    size = normal_dim(sizes[1] // groups)
    lead = (sizes[0], index(groups))
    wide = reshaped(casted(x, inner), (*lead, size, product(sizes[2:])))
    y, middle, inverse = standardised(wide, (2, 3), float(node.number("eps")))
    for name, join in (("weight", op.multiply), ("bias", op.add)):
        vector = node.maybe(name)
        own = (index(groups), size, index(1))
        y = y if vector is None else join(y, reshaped(casted(vector, inner), own))
    rest = [casted(op.reshape(e, lead), node.dtype(n)) for n, e in ((1, middle), (2, inverse))]
    return [reshaped(casted(y, node.dtype()), sizes), *rest]


def _dropout(node: TorchNode) -> list[Expr | None]:
    node.has("p")
    if node.argument("train") is not False:
        node.unsupported("Dropout in training draws random numbers.", "train=False")
    return [node.x("input"), op.full_like(node.x("input"), value=True, dtype=node.dtype(1))]


# fmt: off
TABLE: Final[dict[str, Row]] = {
    "_softmax.default":                             _softmax(op.nn.softmax),
    "_log_softmax.default":                         _softmax(op.nn.log_softmax),
    "_native_batch_norm_legit_no_training.default": _batch_norm,
    "_native_batch_norm_legit.no_stats":            _batch_norm_stats,
    "native_layer_norm.default":                    _layer_norm,
    "_fused_rms_norm.default":                      _rms_norm,
    "native_group_norm.default":                    _group_norm,
    "native_dropout.default":                       _dropout,
}
# fmt: on
