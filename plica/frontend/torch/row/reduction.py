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
from plica.ir.op.comparison import equal, less_equal, logical_and, logical_or, not_equal
from plica.ir.op.create import full, iota, iota_like
from plica.ir.op.cut import slice_
from plica.ir.op.elementwise import (
    absolute,
    divide,
    floor_divide,
    isnan,
    logaddexp,
    maximum,
    multiply,
    power,
    sqrt,
    square,
    subtract,
)
from plica.ir.op.index import take_along_axis, where
from plica.ir.op.mark import stop_gradient
from plica.ir.op.order import argsort, searchsorted
from plica.ir.op.pad import pad
from plica.ir.op.reduction import (
    all_,
    any_,
    argmax,
    argmin,
    cummax,
    cummin,
    cumprod,
    cumsum,
    logsumexp,
    max_,
    mean,
    min_,
    prod,
    sum_,
    var,
)
from plica.ir.op.reduction import reduced as reduced_shape
from plica.ir.op.repeat import broadcast_to
from plica.ir.op.shape import expand_dims, reshape, squeeze, swapaxes
from plica.ir.type.dim import known, product
from plica.ir.type.dtype import bool_, i64, u8


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
    return casted(_folded(mean, x, _axes(node, x), _keeps(node)), node.dtype())


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
            return [x, full(shape=(), value=0, dtype=i64)]
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
            return full(shape=(), value=0, dtype=i64)
        if not node.has("dim"):
            return reshape(_position(place, reshape(x, (-1,)), 0, False), node.shape())
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
            return [x, full(shape=(), value=0, dtype=i64)]
        ranked = casted(x, u8) if dtype(x).name == "bool" else x
        reached = equal(ranked, record(ranked, axis=axis))
        if dtype(x).is_float:
            reached = logical_or(reached, isnan(x))
        places = iota_like(x, axis=axis)
        where_ = cummax(where(reached, places, like(-1, places)), axis=axis)
        return [take_along_axis(x, where_, axis=axis), where_]

    return row


def _log_running(node: TorchNode) -> Expr:
    """Logarithms of running sums: of blocks twice as long each time, or of all rows of a matrix
    where it is open how many there are."""
    x = casted(node.x(), opmath(node.dtype()))
    axis = node.axis("dim", rank(x))
    if not rank(x):
        return casted(x, node.dtype())
    size = shape(x)[axis]
    number = known(size)
    if number is None:
        square_ = (*shape(x)[: axis + 1], *shape(x)[axis:])
        rows, columns = (iota(shape=square_, dtype=i64, axis=axis + at) for at in (0, 1))
        repeated = broadcast_to(expand_dims(x, axis=(axis,)), square_)
        counted = where(less_equal(columns, rows), repeated, like(-math.inf, x))
        return casted(logsumexp(counted, axis=(axis + 1,)), node.dtype())
    step = 1
    while step < number:
        kept = slice_(x, (0,), (number - step,), None, (axis,))
        widths = tuple((step, 0) if at == axis else (0, 0) for at in range(rank(x)))
        x = logaddexp(x, pad(kept, widths, constant_values=-math.inf))
        step *= 2
    return casted(x, node.dtype())


def _middle(numbers_only: bool) -> Row:
    """The lower of the middle elements along an axis, or of all: nan if there is one, or of those
    that are none."""

    def row(node: TorchNode) -> Expr | list[Expr | None]:
        x = node.x()
        if not node.has("dim"):
            flat = reshape(x, (product(shape(x)),))
            middle = _middle_of(flat, 0, numbers_only)[0]
            return reshape(_shared(flat, middle) if dtype(x).is_float else middle, ())
        if not rank(x):
            node.integer("dim"), _keeps(node)
            return [x, full(shape=(), value=0, dtype=i64)]
        axis, keep = node.axis("dim", rank(x)), _keeps(node)
        found = _middle_of(x, axis, numbers_only)
        return [each if keep else squeeze(each, (axis,)) for each in found]

    return row


def _shared(x: Expr, one: Expr) -> Expr:
    """One of the elements, with a gradient of which all equal ones have an equal part."""
    one = stop_gradient(one)
    alike = logical_or(equal(x, one), logical_and(isnan(x), isnan(one)))
    return max_(where(alike, x, like(-math.inf, x)), axis=(0,), keepdims=True)


def _middle_of(x: Expr, axis: int, numbers_only: bool) -> tuple[Expr, Expr]:
    order = argsort(x, axis=axis)
    count = amount(shape(x)[axis])
    one = const(1, i64)
    if dtype(x).is_float:
        missing = sum_(casted(isnan(x), i64), axis=(axis,), keepdims=True)
        there = subtract(count, missing)
        last = maximum(subtract(there, one), like(0, one))
        # Where one is nan, and that counts, it is behind all others.
        middle = floor_divide(last, const(2, i64))
        if not numbers_only:
            middle = where(equal(missing, like(0, missing)), middle, subtract(count, one))
    else:
        sizes = [index(1) if at == axis else size for at, size in enumerate(shape(x))]
        middle = broadcast_to(floor_divide(subtract(count, one), const(2, i64)), sizes)
    place = take_along_axis(order, middle, axis=axis)
    return take_along_axis(x, place, axis=axis), place


def _mode(node: TorchNode) -> list[Expr | None]:
    """What is most often along an axis, the least of them, and the last of its places."""
    x = node.x()
    axis, keep = node.axis("dim", rank(x)), _keeps(node)
    if not rank(x):
        return [x, full(shape=(), value=0, dtype=i64)]
    last = rank(x) - 1
    moved = swapaxes(x, axis, last)
    keys = casted(moved, u8) if dtype(x).name == "bool" else moved
    order = argsort(keys, axis=last)
    ordered = take_along_axis(keys, order, axis=last)
    first, behind = (searchsorted(ordered, ordered, side=side) for side in ("left", "right"))
    most = argmax(subtract(behind, first), axis=last, keepdims=True)
    end = subtract(take_along_axis(behind, most, axis=last), const(1, i64))
    place = take_along_axis(order, end, axis=last)
    found = [take_along_axis(moved, place, axis=last), place]
    found = [swapaxes(each, axis, last) for each in found]
    return [each if keep else squeeze(each, (axis,)) for each in found]


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
    middle = _folded(mean, x, axes, True)
    if (count := _count(x, axes)) is None:
        if less_ != int(less_):
            node.unsupported("A correction by a fraction needs known sizes.", "a whole number")
        spread = var(x, axis=axes, keepdims=keep, ddof=int(less_))
    else:
        total = _folded(sum_, square(subtract(x, middle)), axes, keep)
        below = max(0.0, count - less_)
        spread = divide(total, like(below, total))
    low = reshape(middle, reduced_shape(shape(x), axes, keep)) if axes else middle
    return spread, low


def _count(x: Expr, axes: tuple[int, ...]) -> int | None:
    sizes = [known(shape(x)[at]) for at in axes]
    return None if None in sizes else math.prod(each or 0 for each in sizes)


def _var(finish: Callable[[Expr], Expr], with_mean: bool) -> Row:
    def row(node: TorchNode) -> Expr | list[Expr | None]:
        spread, middle = _spread(node)
        if with_mean:
            return [casted(finish(spread), node.dtype()), casted(middle, node.dtype(1))]
        return casted(finish(spread), node.dtype())

    return row


def _logsumexp(node: TorchNode) -> Expr:
    x = casted(node.x(), opmath(node.dtype()))
    return casted(_folded(logsumexp, x, _axes(node, x), _keeps(node)), node.dtype())


def _norm(node: TorchNode) -> Expr:
    node.has("dtype")
    x = absolute(casted(node.x(), opmath(node.dtype())))
    order = float(node.number("ord"))
    axes, keep = _axes(node, x), _keeps(node)
    if math.isinf(order):
        made = _folded(max_ if order > 0 else min_, x, axes, keep)
    elif order == 0.0:
        made = _folded(sum_, casted(not_equal(x, like(0, x)), dtype(x)), axes, keep)
    elif order == 1.0:
        made = _folded(sum_, x, axes, keep)
    elif order == 2.0:
        made = root_of_sum(_folded(sum_, multiply(x, x), axes, keep), sqrt)
    else:
        made = order_norm(x, order, axes, keep)
    return casted(made, node.dtype())


def order_norm(x: Expr, order: float, axes: tuple[int, ...], keep: bool = False) -> Expr:
    """The norm of some order of magnitudes along axes; its gradient is 0 where that of torch is."""

    def raised(each: Expr) -> Expr:
        return power(each, like(order, each))

    def root(total: Expr) -> Expr:
        return power(total, like(1.0 / order, total))

    if order < 0:  # a zero counts for more than all others
        return root(_folded(sum_, raised(x), axes, keep))
    steep = order < 1
    terms = where_defined(equal(x, like(0, x)), x, raised, x) if steep else raised(x)
    return root_of_sum(_folded(sum_, terms, axes, keep), root)


def _root(spread: Expr) -> Expr:
    return root_of_sum(spread, sqrt)


def _as_is(x: Expr) -> Expr:
    return x


# fmt: off
TABLE: Final[dict[str, Row]] = {
    "sum.default":         _total(sum_),
    "sum.dim_IntList":     _total(sum_),
    "prod.default":        _total(prod),
    "prod.dim_int":        _total(prod),
    "mean.default":        _mean,
    "mean.dim":            _mean,
    "amax.default":        _extreme(max_, any_),
    "amin.default":        _extreme(min_, all_),
    "max.default":         _extreme(max_, any_),
    "min.default":         _extreme(min_, all_),
    "max.dim":             _with_place(max_, any_, argmax),
    "min.dim":             _with_place(min_, all_, argmin),
    "argmax.default":      _place(argmax),
    "argmin.default":      _place(argmin),
    "any.default":         _truth(any_),
    "any.dim":             _truth(any_),
    "any.dims":            _truth(any_),
    "all.default":         _truth(all_),
    "all.dim":             _truth(all_),
    "all.dims":            _truth(all_),
    "cumsum.default":      _running(cumsum),
    "cumprod.default":     _running(cumprod),
    "cummax.default":      _running_extreme(cummax),
    "cummin.default":      _running_extreme(cummin),
    "logcumsumexp.default": _log_running,
    "median.default":      _middle(False),
    "median.dim":          _middle(False),
    "nanmedian.default":   _middle(True),
    "nanmedian.dim":       _middle(True),
    "mode.default":        _mode,
    "var.correction":      _var(_as_is, False),
    "var.dim":             _var(_as_is, False),
    "std.correction":      _var(_root, False),
    "var_mean.correction": _var(_as_is, True),
    "std_mean.correction": _var(_root, True),
    "logsumexp.default":   _logsumexp,
    "linalg_vector_norm.default": _norm,
}
# fmt: on
