"""Rows of reductions: axes as an attribute or as an input, by version; losses, determinants."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Final

from plica.frontend.elimination import LARGEST, pivots
from plica.frontend.measured import amount
from plica.frontend.onnx.node import OnnxNode
from plica.frontend.onnx.row.axis import AxisMatrix, along_axis
from plica.frontend.onnx.row.word import Made, Row, axes_in, dtype, in_f32, rank, shape, to
from plica.frontend.onnx.run_time import listed, numbers_of
from plica.ir.graph.expression import Expr
from plica.ir.graph.operator import Operator
from plica.ir.op.namespace import op
from plica.ir.op.reduction import reduced
from plica.ir.type.dim import known, product
from plica.ir.type.dtype import i64

Fold = Callable[[OnnxNode, Expr, tuple[int, ...], bool], Expr]

_INPUT_FROM: Final = {"ReduceSum": 13}
"""From which version on the axes are an input, where that is not 18."""


def _filled(whole: AxisMatrix, lowest: bool | None) -> Expr:
    """A matrix, with a neutral column if the fold of nothing is undefined."""
    x = whole.matrix()
    of = dtype(x)
    if lowest is None or of.name == "bool":
        return x
    least: float = (-1 if lowest else 1) * float("inf") if of.is_float else of.bounds[not lowest]
    column = op.full(shape=(whole.rows, 1), value=least, dtype=of)
    return op.concat((x, column), axis=1)


def _reduction(
    fold: Fold, noop: Callable[[Expr], Expr] = lambda x: x, lowest: bool | None = None
) -> Row:
    def row(node: OnnxNode) -> Expr:
        x, keep = node.x(), node.flag("keepdims", True)
        since = _INPUT_FROM.get(node.proto.op_type, 18)
        value = node.value(1)
        none_is_none = node.flag("noop_with_empty_axes")
        if value is not None and known(product(value.type.shape)) != 0 and value.numbers() is None:
            count = known(product(value.type.shape))
            if count is None and not keep:
                node.undecided("How many axes there are", value)
            whole = AxisMatrix(node, x, value.expr, not none_is_none)
            return whole.folded(fold(node, _filled(whole, lowest), (1,), False), keep, count)
        given = listed(node, "axes", 1, since)
        if not given:
            return noop(x) if none_is_none else fold(node, x, tuple(range(rank(x))), keep)
        numbers = numbers_of(given)
        assert numbers is not None, "Axes that are no numbers were seen to above."
        return fold(node, x, axes_in(node, numbers, rank(x)), keep)

    return row


def _plain(record: Operator) -> Fold:
    return lambda node, x, axes, keep: record(x, axis=axes, keepdims=keep)


def _after(first: Operator) -> Fold:
    """The sum of another operator's results."""
    return lambda node, x, axes, keep: op.sum(first(x), axis=axes, keepdims=keep)


def _extreme(record: Operator, of_any: Operator, logical: Operator, lowest: bool) -> Fold:
    """The extreme by `record`, or where axes may be empty by `of_any`, which has one of nothing."""

    def fold(node: OnnxNode, x: Expr, axes: tuple[int, ...], keep: bool) -> Expr:
        of = dtype(x)
        if of.name == "bool":
            return logical(x, axis=axes, keepdims=keep)
        if any(known(shape(x)[at]) == 0 for at in axes):
            sign = -1 if lowest else 1
            value = sign * float("inf") if of.is_float else of.bounds[0 if lowest else 1]
            return op.full(shape=reduced(shape(x), axes, keep), value=value, dtype=of)
        sure = all(known(shape(x)[at]) for at in axes)
        return (record if sure else of_any)(x, axis=axes, keepdims=keep)

    return fold


def _mean(node: OnnxNode, x: Expr, axes: tuple[int, ...], keep: bool) -> Expr:
    if dtype(x).is_float:
        return op.mean(x, axis=axes, keepdims=keep)
    total = op.sum(x, axis=axes, keepdims=keep)
    count = to(amount(product(shape(x)[at] for at in axes)), dtype(total))
    return op.trunc_divide(total, count)


def _norm2(node: OnnxNode, x: Expr, axes: tuple[int, ...], keep: bool) -> Expr:
    inner = _float(x)
    return to(op.sqrt(op.sum(op.square(inner), axis=axes, keepdims=keep)), dtype(x))


def _log_sum(node: OnnxNode, x: Expr, axes: tuple[int, ...], keep: bool) -> Expr:
    inner = _float(x)
    return to(op.log(op.sum(inner, axis=axes, keepdims=keep)), dtype(x))


def _log_sum_exp(node: OnnxNode, x: Expr, axes: tuple[int, ...], keep: bool) -> Expr:
    inner = _float(x)
    if not dtype(x).is_float and any(known(shape(x)[at]) == 0 for at in axes):
        out = reduced(shape(x), axes, keep)
        return op.full(shape=out, value=dtype(x).bounds[0], dtype=dtype(x))
    return to(op.logsumexp(inner, axis=axes, keepdims=keep), dtype(x))


def _float(x: Expr) -> Expr:
    """The operand of roots and logarithms: integers as f64, 16-bit floats as f32."""
    return in_f32(x) if dtype(x).is_float else op.cast(x, "f64")


def _position(record: Operator) -> Row:
    def row(node: OnnxNode) -> Expr:
        keep, last = node.flag("keepdims", True), node.flag("select_last_index")
        return record(node.x(), axis=node.integer("axis", 0), keepdims=keep, last=last)

    return row


def _running(record: Operator) -> Row:
    def row(node: OnnxNode) -> Expr:
        exclusive, reverse = node.flag("exclusive"), node.flag("reverse")
        if node.need(1).numbers() is None:
            late = amount(node.x(1))
            return along_axis(
                node, node.x(0), late,
                lambda x, at: record(x, axis=at, exclusive=exclusive, reverse=reverse),
            )  # fmt: skip
        axis = int(node.scalar(1))
        return record(node.x(0), axis=axis, exclusive=exclusive, reverse=reverse)

    return row


def _loss(node: OnnxNode, of: Operator) -> Expr:
    x, target, weight = node.x(0), node.x(1), node.maybe(2)
    if weight is None:
        weight = op.ones(shape(x)[1:2], dtype(x))
    ignored = node.integer("ignore_index", i64.bounds[0])  # no class has that number
    how = node.text("reduction", "mean")
    if how not in ("mean", "sum", "none"):
        node.malformed("There is no such reduction.", "mean, sum or none", repr(how))
    return of(x, target, weight, reduction=how, ignore_index=ignored)


def _softmax_cross_entropy(node: OnnxNode) -> Made:
    return [_loss(node, op.nn.cross_entropy), op.nn.log_softmax(node.x(0), axis=1)]


def _det(node: OnnxNode) -> Expr:
    x, n = node.x(), known(shape(node.x())[-1])
    if rank(x) < 2 or n is None or n != known(shape(x)[-2]) or not 0 < n <= LARGEST:
        node.unsupported("Det takes square matrices.", f"of 1 to {LARGEST}", str(node.type(0)))
    return op.reshape(reduce(op.multiply, pivots(x, n)), shape(x)[:-2])


# fmt: off
TABLE: Final[dict[str, Row]] = {
    "ReduceSum":       _reduction(_plain(op.sum)),
    "ReduceProd":      _reduction(_plain(op.prod)),
    "ReduceMean":      _reduction(_mean),
    "ReduceMax":       _reduction(_extreme(op.max, op.supremum, op.any, True), lowest=True),
    "ReduceMin":       _reduction(_extreme(op.min, op.infimum, op.all, False), lowest=False),
    "ReduceL1":        _reduction(_after(op.absolute), op.absolute),
    "ReduceL2":        _reduction(_norm2, op.absolute),
    "ReduceSumSquare": _reduction(_after(op.square), op.square),
    "ReduceLogSum":    _reduction(_log_sum, op.log),
    "ReduceLogSumExp": _reduction(_log_sum_exp, lowest=True),
    "ArgMax":          _position(op.argmax),
    "ArgMin":          _position(op.argmin),
    "CumSum":          _running(op.cumsum),
    "CumProd":         _running(op.cumprod),
    "NegativeLogLikelihoodLoss": lambda node: _loss(node, op.nn.nll_loss),
    "SoftmaxCrossEntropyLoss":   _softmax_cross_entropy,
    "Det":             _det,
}
# fmt: on
