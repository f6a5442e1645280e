"""Losses: the distance of predictions for classes (axis 1) from their targets.

A target is the number of a class, or, for `nn.cross_entropy`, a probability for each.  Every class
has a weight; a mean is over the weights of the targets that count.

>>> from plica.ir.type.term import tensor
>>> how = {"reduction": "none", "ignore_index": -100}
>>> x, w = tensor((2, 3, 5), "f32"), tensor((3,), "f32")
>>> [size.value for size in nll_loss.relation(how, x, tensor((2, 5), "i64"), w).shape]
[2, 5]
"""

from __future__ import annotations

from plica.ir.graph.expression import Expr
from plica.ir.graph.operator import Values
from plica.ir.op.attribute import attribute, choice, integer
from plica.ir.op.comparison import equal
from plica.ir.op.elementwise import cast, divide, multiply, negative
from plica.ir.op.index import integers, length, take, take_along_axis, where
from plica.ir.op.normalize import log_softmax
from plica.ir.op.order import ZERO
from plica.ir.op.record import composite, scalar, tensor_of
from plica.ir.op.reduction import narrow, sum_, widen
from plica.ir.op.relation import FLOAT, rank_at_least, rank_is, refuse, same
from plica.ir.op.shape import expand_dims, reshape
from plica.ir.type import TensorType, i64, same_dim

_ATTRIBUTES = (
    attribute("reduction", choice("mean", "sum", "none"), "mean"),
    attribute("ignore_index", integer, -100),
)


def _rule(name: str, attrs: Values, x: TensorType, *given: TensorType) -> TensorType:
    target, weight = given
    rank_at_least(name, x, 2)
    rank_is(name, "the weights", weight, 1)
    same(name, "the classes and their weights", x.shape[1], weight.shape[0])
    wanted = x.shape if target.dtype.is_float else (x.shape[0], *x.shape[2:])
    if len(wanted) != len(target.shape) or not all(map(same_dim, wanted, target.shape)):
        message = f"{name} takes a target for each place of the predictions."
        refuse("shape-conflict", message, str(TensorType(wanted, target.dtype)), str(target))
    shape = (x.shape[0], *x.shape[2:]) if attrs["reduction"] == "none" else ()
    return TensorType(shape, x.dtype)


def _nll_rule(attrs: Values, x: TensorType, target: TensorType, weight: TensorType) -> TensorType:
    integers("nn.nll_loss", target)
    return _rule("nn.nll_loss", attrs, x, target, weight)


def _entropy_rule(attrs: Values, x: TensorType, *given: TensorType) -> TensorType:
    target = given[0]
    if target.dtype is not x.dtype:
        integers("nn.cross_entropy", target)
    return _rule("nn.cross_entropy", attrs, x, *given)


def _nll(attrs: Values, x: Expr, target: Expr, weight: Expr) -> Expr:
    dtype = tensor_of(x).dtype
    x, weight, target = widen(x), widen(weight), cast(target, i64)
    nothing = scalar(0, tensor_of(x).dtype)
    ignored = equal(target, scalar(attrs["ignore_index"], i64))
    chosen = where(ignored, ZERO, target)
    log_ = take_along_axis(x, expand_dims(chosen, (1,)), axis=1)
    weights = where(ignored, nothing, take(weight, chosen))
    losses = multiply(negative(reshape(log_, tensor_of(target).shape)), weights)
    losses = where(ignored, nothing, losses)
    if attrs["reduction"] == "none":
        return narrow(losses, dtype)
    total = sum_(losses)
    return narrow(total if attrs["reduction"] == "sum" else divide(total, sum_(weights)), dtype)


def _entropy(attrs: Values, x: Expr, target: Expr, weight: Expr) -> Expr:
    if not tensor_of(target).dtype.is_float:
        return nll_loss(log_softmax(x, axis=1), target, weight, **attrs)
    of = tensor_of(x)
    logs, target, weight = log_softmax(widen(x), axis=1), widen(target), widen(weight)
    form = tuple(size if at == 1 else 1 for at, size in enumerate(of.shape))
    parts = multiply(multiply(logs, target), reshape(weight, form))
    losses = negative(sum_(parts, axis=(1,)))
    if attrs["reduction"] == "none":
        return narrow(losses, of.dtype)
    total = sum_(losses)
    if attrs["reduction"] == "mean":
        for at in range(len(tensor_of(losses).shape)):
            total = divide(total, cast(length(losses, at), tensor_of(total).dtype))
    return narrow(total, of.dtype)


nll_loss = composite(
    "nn.nll_loss", ("x", "target", "weight"), _nll_rule, _nll,
    "Negative log-likelihood loss of log-probabilities x, weighted.",
    attributes=_ATTRIBUTES, admits=FLOAT, like=(0, 2),
)  # fmt: skip
cross_entropy = composite(
    "nn.cross_entropy", ("x", "target", "weight"), _entropy_rule, _entropy,
    "nn.nll_loss of log_softmax; float targets are class probabilities.",
    attributes=_ATTRIBUTES, admits=FLOAT, like=(0, 2),
)  # fmt: skip
