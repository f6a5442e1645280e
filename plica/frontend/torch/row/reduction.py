"""Rows of reductions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from plica.frontend.measured import amount
from plica.frontend.torch.node import TorchNode
from plica.frontend.torch.row.word import Row, casted, opmath, root_of_sum, where_defined
from plica.frontend.word import dtype, like, rank, shape
from plica.ir.graph.expression import Expr, const
from plica.ir.graph.operator import Operator
from plica.ir.loop.scalar import index
from plica.ir.op.namespace import op
from plica.ir.op.reduction import reduced as reduced_shape
from plica.ir.type import bool_, i64, known, product, u8


def _axes(node: TorchNode, x: Expr) -> tuple[int, ...]:
    return node.axes("dim", rank(x)) if node.has("dim") else tuple(range(rank(x)))


def _keeps(node: TorchNode) -> bool:
    return node.has("keepdim") and node.flag("keepdim")


def _folded(record: Operator, x: Expr, axes: tuple[int, ...], keep: bool) -> Expr:
    return record(x, axis=axes, keepdims=keep) if axes else x


def _total(record: Operator) -> Row:
    """A sum or a product, in the type that torch gives the result."""

    def row(node: TorchNode) -> Expr:
        node.has("dtype")
        x = casted(casted(node.x(), node.dtype()), opmath(node.dtype()))
        return casted(_folded(record, x, _axes(node, x), _keeps(node)), node.dtype())

    return row


def _mean(node: TorchNode) -> Expr:
    node.has("dtype")
    x = casted(node.x(), opmath(node.dtype()))
    return casted(_folded(op.mean, x, _axes(node, x), _keeps(node)), node.dtype())


def _extreme(record: Operator, logical: Operator) -> Row:
    def row(node: TorchNode) -> Expr:
        x = node.x()
        fold = logical if dtype(x).name == "bool" else record
        return _folded(fold, x, _axes(node, x), _keeps(node))

    return row


def _with_place(record: Operator, logical: Operator, place: Operator) -> Row:
    """The greatest or least along an axis, and where it is first."""

    def row(node: TorchNode) -> list[Expr | None]:
        x = node.x()
        keep = _keeps(node)
        if not rank(x):
            node.integer("dim")
            return [x, op.full(shape=(), value=0, dtype=i64)]
        axis = node.axis("dim", rank(x))
        fold = logical if dtype(x).name == "bool" else record
        return [fold(x, axis=(axis,), keepdims=keep), _position(place, x, axis, keep)]

    return row


def _position(place: Operator, x: Expr, axis: int, keep: bool) -> Expr:
    ranked = casted(x, u8) if dtype(x).name == "bool" else x
    return casted(place(ranked, axis=axis, keepdims=keep), i64)


def _place(place: Operator) -> Row:
    def row(node: TorchNode) -> Expr:
        x, keep = node.x(), _keeps(node)
        if not rank(x):
            node.has("dim")
            return op.full(shape=(), value=0, dtype=i64)
        if not node.has("dim"):
            return op.reshape(_position(place, op.reshape(x, (-1,)), 0, False), node.shape())
        return _position(place, x, node.axis("dim", rank(x)), keep)

    return row


def _truth(record: Operator) -> Row:
    """Any or all; unlike in sums, an empty list of axes means none of them."""

    def row(node: TorchNode) -> Expr:
        x = casted(node.x(), bool_)
        axes = () if node.has("dim") and node.argument("dim") == [] else _axes(node, x)
        return casted(_folded(record, x, axes, _keeps(node)), node.dtype())

    return row


def _running(record: Operator) -> Row:
    def row(node: TorchNode) -> Expr:
        node.has("dtype")
        x = casted(casted(node.x(), node.dtype()), opmath(node.dtype()))
        axis = node.axis("dim", rank(x))
        return casted(record(x, axis=axis) if rank(x) else x, node.dtype())

    return row


def _running_extreme(record: Operator) -> Row:
    """The greatest or least so far, and where it was last; nan is both."""

    def row(node: TorchNode) -> list[Expr | None]:
        x = node.x()
        axis = node.axis("dim", rank(x))
        if not rank(x):
            return [x, op.full(shape=(), value=0, dtype=i64)]
        ranked = casted(x, u8) if dtype(x).name == "bool" else x
        reached = op.equal(ranked, record(ranked, axis=axis))
        if dtype(x).is_float:
            reached = op.logical_or(reached, op.isnan(x))
        places = op.iota_like(x, axis=axis)
        where_ = op.cummax(op.where(reached, places, like(-1, places)), axis=axis)
        return [op.take_along_axis(x, where_, axis=axis), where_]

    return row


def _log_running(node: TorchNode) -> Expr:
    """Logarithms of running sums: by doubling blocks, or by rows of a matrix for open lengths."""
    x = casted(node.x(), opmath(node.dtype()))
    axis = node.axis("dim", rank(x))
    if not rank(x):
        return casted(x, node.dtype())
    size = shape(x)[axis]
    number = known(size)
    if number is None:
        square_ = (*shape(x)[: axis + 1], *shape(x)[axis:])
        rows, columns = (op.iota(shape=square_, dtype=i64, axis=axis + at) for at in (0, 1))
        repeated = op.broadcast_to(op.expand_dims(x, axis=(axis,)), square_)
        counted = op.where(columns <= rows, repeated, like(-math.inf, x))
        return casted(op.logsumexp(counted, axis=(axis + 1,)), node.dtype())
    step = 1
    while step < number:
        kept = op.slice(x, (0,), (number - step,), None, (axis,))
        widths = tuple((step, 0) if at == axis else (0, 0) for at in range(rank(x)))
        x = op.logaddexp(x, op.pad(kept, widths, constant_values=-math.inf))
        step *= 2
    return casted(x, node.dtype())


def _middle(numbers_only: bool) -> Row:
    """The lower median along an axis, or of all: NaN if there is one, or ignoring NaN."""

    def row(node: TorchNode) -> Expr | list[Expr | None]:
        x = node.x()
        if not node.has("dim"):
            flat = op.reshape(x, (product(shape(x)),))
            middle = _middle_of(flat, 0, numbers_only)[0]
            return op.reshape(_shared(flat, middle) if dtype(x).is_float else middle, ())
        if not rank(x):
            node.integer("dim"), _keeps(node)
            return [x, op.full(shape=(), value=0, dtype=i64)]
        axis, keep = node.axis("dim", rank(x)), _keeps(node)
        found = _middle_of(x, axis, numbers_only)
        return [expr if keep else op.squeeze(expr, (axis,)) for expr in found]

    return row


def _shared(x: Expr, one: Expr) -> Expr:
    """One of the elements, with a gradient of which all equal ones have an equal part."""
    one = op.stop_gradient(one)
    alike = op.logical_or(op.equal(x, one), op.logical_and(op.isnan(x), op.isnan(one)))
    return op.max(op.where(alike, x, like(-math.inf, x)), axis=(0,), keepdims=True)


def _middle_of(x: Expr, axis: int, numbers_only: bool) -> tuple[Expr, Expr]:
    order = op.argsort(x, axis=axis)
    count = amount(shape(x)[axis])
    one = const(1, i64)
    if dtype(x).is_float:
        missing = op.sum(casted(op.isnan(x), i64), axis=(axis,), keepdims=True)
        there = count - missing
        last = op.maximum(there - one, like(0, one))
        # Where one is nan, and that counts, it is behind all others.
        middle = last // const(2, i64)
        if not numbers_only:
            middle = op.where(op.equal(missing, like(0, missing)), middle, count - one)
    else:
        sizes = [index(1) if at == axis else size for at, size in enumerate(shape(x))]
        middle = op.broadcast_to((count - one) // const(2, i64), sizes)
    place = op.take_along_axis(order, middle, axis=axis)
    return op.take_along_axis(x, place, axis=axis), place


def _mode(node: TorchNode) -> list[Expr | None]:
    """The most frequent element along an axis, the smallest on ties, and its last index."""
    x = node.x()
    axis, keep = node.axis("dim", rank(x)), _keeps(node)
    if not rank(x):
        return [x, op.full(shape=(), value=0, dtype=i64)]
    last = rank(x) - 1
    moved = op.swapaxes(x, axis, last)
    keys = casted(moved, u8) if dtype(x).name == "bool" else moved
    order = op.argsort(keys, axis=last)
    ordered = op.take_along_axis(keys, order, axis=last)
    first, behind = (op.searchsorted(ordered, ordered, side=side) for side in ("left", "right"))
    most = op.argmax(behind - first, axis=last, keepdims=True)
    end = op.take_along_axis(behind, most, axis=last) - const(1, i64)
    place = op.take_along_axis(order, end, axis=last)
    exprs = [op.take_along_axis(moved, place, axis=last), place]
    exprs = [op.swapaxes(expr, axis, last) for expr in exprs]
    return [expr if keep else op.squeeze(expr, (axis,)) for expr in exprs]


def _spread(node: TorchNode) -> tuple[Expr, Expr]:
    """The variance and the mean over the same axes."""
    of = opmath(dtype(node.x()))
    x = casted(node.x(), of)
    keep = _keeps(node)
    axes = _axes(node, x)
    if node.has("unbiased"):
        less_ = float(node.flag("unbiased"))
    else:
        less_ = float(node.number("correction")) if node.has("correction") else 1.0
    middle = _folded(op.mean, x, axes, True)
    if (count := _count(x, axes)) is None:
        if less_ != int(less_):
            node.unsupported("A correction by a fraction needs known sizes.", "a whole number")
        spread = op.var(x, axis=axes, keepdims=keep, ddof=int(less_))
    else:
        total = _folded(op.sum, op.square(x - middle), axes, keep)
        below = max(0.0, count - less_)
        spread = total / like(below, total)
    low = op.reshape(middle, reduced_shape(shape(x), axes, keep)) if axes else middle
    return spread, low


def _count(x: Expr, axes: tuple[int, ...]) -> int | None:
    sizes = [known(shape(x)[at]) for at in axes]
    return None if None in sizes else math.prod(size or 0 for size in sizes)


def _var(finish: Callable[[Expr], Expr], with_mean: bool) -> Row:
    def row(node: TorchNode) -> Expr | list[Expr | None]:
        spread, middle = _spread(node)
        if with_mean:
            return [casted(finish(spread), node.dtype()), casted(middle, node.dtype(1))]
        return casted(finish(spread), node.dtype())

    return row


def _logsumexp(node: TorchNode) -> Expr:
    x = casted(node.x(), opmath(node.dtype()))
    return casted(_folded(op.logsumexp, x, _axes(node, x), _keeps(node)), node.dtype())


def _norm(node: TorchNode) -> Expr:
    node.has("dtype")
    x = op.absolute(casted(node.x(), opmath(node.dtype())))
    order = float(node.number("ord"))
    axes, keep = _axes(node, x), _keeps(node)
    if math.isinf(order):
        expr = _folded(op.max if order > 0 else op.min, x, axes, keep)
    elif order == 0.0:
        expr = _folded(op.sum, casted(op.not_equal(x, like(0, x)), dtype(x)), axes, keep)
    elif order == 1.0:
        expr = _folded(op.sum, x, axes, keep)
    elif order == 2.0:
        expr = root_of_sum(_folded(op.sum, x * x, axes, keep), op.sqrt)
    else:
        expr = order_norm(x, order, axes, keep)
    return casted(expr, node.dtype())


def order_norm(x: Expr, order: float, axes: tuple[int, ...], keep: bool = False) -> Expr:
    """The norm of some order of magnitudes along axes; its gradient is 0 where that of torch is."""

    def raised(each: Expr) -> Expr:
        return each ** like(order, each)

    def root(total: Expr) -> Expr:
        return total ** like(1.0 / order, total)

    if order < 0:  # a zero counts for more than all others
        return root(_folded(op.sum, raised(x), axes, keep))
    steep = order < 1
    terms = where_defined(op.equal(x, like(0, x)), x, raised, x) if steep else raised(x)
    return root_of_sum(_folded(op.sum, terms, axes, keep), root)


def _root(spread: Expr) -> Expr:
    return root_of_sum(spread, op.sqrt)


def _as_is(x: Expr) -> Expr:
    return x


# fmt: off
TABLE: Final[dict[str, Row]] = {
    "sum.dim_IntList":     _total(op.sum),
    "prod.default":        _total(op.prod),
    "prod.dim_int":        _total(op.prod),
    "mean.default":        _mean,
    "mean.dim":            _mean,
    "amax.default":        _extreme(op.max, op.any),
    "amin.default":        _extreme(op.min, op.all),
    "max.default":         _extreme(op.max, op.any),
    "min.default":         _extreme(op.min, op.all),
    "max.dim":             _with_place(op.max, op.any, op.argmax),
    "min.dim":             _with_place(op.min, op.all, op.argmin),
    "argmax.default":      _place(op.argmax),
    "argmin.default":      _place(op.argmin),
    "any.default":         _truth(op.any),
    "any.dim":             _truth(op.any),
    "any.dims":            _truth(op.any),
    "all.dim":             _truth(op.all),
    "cumsum.default":      _running(op.cumsum),
    "cumprod.default":     _running(op.cumprod),
    "cummax.default":      _running_extreme(op.cummax),
    "cummin.default":      _running_extreme(op.cummin),
    "logcumsumexp.default": _log_running,
    "median.default":      _middle(False),
    "median.dim":          _middle(False),
    "nanmedian.default":   _middle(True),
    "nanmedian.dim":       _middle(True),
    "mode.default":        _mode,
    "var.correction":      _var(_as_is, False),
    "std.correction":      _var(_root, False),
    "var_mean.correction": _var(_as_is, True),
    "std_mean.correction": _var(_root, True),
    "logsumexp.default":   _logsumexp,
    "linalg_vector_norm.default": _norm,
}
# fmt: on
