"""Axes that are known at run time: which are named, and what operators do along them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

from plica.frontend.measured import ONE, ZERO, Piece, amount, places, reshaped
from plica.frontend.onnx.node import OnnxNode
from plica.frontend.onnx.row.word import axes_in, rank, shape, to
from plica.ir.graph.expression import Expr, const
from plica.ir.op.namespace import op
from plica.ir.type import i64, product
from plica.runtime.late import lazy_imports

with lazy_imports(__name__):  # few models compute axes
    from plica.frontend.onnx.run_time import lawful, numbers_of, wrapped_index


def chosen_axes(node: OnnxNode, x: Expr, axes: Sequence[Piece]) -> tuple[Sequence[int], Expr]:
    """The axes of x that some may name, and whether these are different axes of x."""
    numbers = axes_in(node, [axis for axis in axes if isinstance(axis, int)], rank(x))
    if numbers_of(axes) is not None:
        return numbers, const(True)
    if len(axes) > rank(x):
        node.malformed("More axes are named than there are.", str(rank(x)), str(len(axes)))
    named = [by_axis(axes, [1] * len(axes), at, rank(x), ZERO) for at in range(rank(x))]
    return range(rank(x)), are_axes(named, const(len(axes), i64))


def by_axis(
    axes: Sequence[Piece], given: Sequence[Piece], at: int, rank_: int, other: Expr
) -> Expr:
    """A value for one axis of `rank_`, or `other` if the axes do not include it."""
    expr = other
    for axis, value in zip(axes, given, strict=True):
        if isinstance(axis, int):
            expr = amount(value) if axis % rank_ == at else expr
            continue
        here = op.equal(wrapped_index(amount(axis), const(rank_, i64)), const(at, i64))
        expr = op.where(here, amount(value), expr)
    return expr


def are_axes(named: Sequence[Expr], count: Expr) -> Expr:
    """Whether a given number of axes are different ones, all there: which of them are named says
    so."""
    return op.equal(reduce(op.add, [ZERO, *(to(expr, i64) for expr in named)]), count)


def named_axes(axes: Expr, width: int) -> list[Expr]:
    """For each of `width` axes, whether a vector of axes includes it."""
    named = wrapped_index(to(axes, i64), const(width, i64))
    return [op.any(op.equal(named, const(at, i64))) for at in range(width)]


def numbered(named: Sequence[Expr]) -> list[Expr]:
    """For each axis, how many axes before it are not named."""
    counts: list[Expr] = [ZERO]
    for expr in named[:-1]:
        counts.append(counts[-1] + op.where(expr, ZERO, ONE))
    return counts


def remaining_sizes(x: Expr, named: Sequence[Expr], count: int) -> list[Expr]:
    """The sizes of the first axes of x that are not named."""
    exprs: list[Expr] = []
    for number in range(count):
        chosen: Expr = ONE
        for size, flag, before in zip(shape(x), named, numbered(named), strict=True):
            here = op.logical_and(op.equal(before, const(number, i64)), op.logical_not(flag))
            chosen = op.where(here, amount(size), chosen)
        exprs.append(chosen)
    return exprs


class AxisMatrix:
    """x as a matrix: remaining axes, then the named ones."""

    def __init__(self, node: OnnxNode, x: Expr, axes: Expr, all_if_none: bool = False) -> None:
        self.node, self.x = node, x
        self.named = named_axes(axes, rank(x))
        count = amount(product(shape(axes)))
        fits = are_axes(self.named, count)
        if all_if_none:
            self.named = [op.logical_or(expr, op.equal(count, ZERO)) for expr in self.named]
        self.sizes = [amount(dim) for dim in shape(x)]
        pairs = list(zip(self.named, self.sizes, strict=True))
        self.kept = [op.where(flag, ONE, size) for flag, size in pairs]
        self.gone = [op.where(flag, size, ONE) for flag, size in pairs]
        rows = lawful(reduce(op.multiply, [ONE, *self.kept]), fits, "axis")
        self.rows = node.measured(rows, "rows")
        self.columns = node.measured(reduce(op.multiply, [ONE, *self.gone]), "columns")

    def matrix(self) -> Expr:
        """The matrix itself."""
        sides = ((self.rows, self.kept, 1), (self.columns, self.gone, 0))
        rows, columns = (
            op.expand_dims(self._offsets(places(count), parts), (axis,))
            for count, parts, axis in sides
        )
        return op.take(op.reshape(self.x, (product(shape(self.x)),)), rows + columns)

    def _offsets(self, at: Expr, parts: Sequence[Expr]) -> Expr:
        """Where places counted through some axes lie in x."""
        expr: Expr = at * ZERO
        for axis in reversed(range(rank(self.x))):
            part = op.maximum(parts[axis], ONE)
            expr = expr + at % part * amount(product(shape(self.x)[axis + 1 :]))
            at = at // part
        return expr

    def folded(self, of: Expr, keep: bool, count: int | None) -> Expr:
        """A vector with one element for each row, in the shape that is left of x."""
        sizes = self.kept
        if not keep and count is not None:
            sizes = remaining_sizes(self.x, self.named, rank(self.x) - count)
        return reshaped(of, [self.node.measured(size, at) for at, size in enumerate(sizes)])

    def back(self, matrix: Expr) -> Expr:
        """A matrix of the same sizes with its elements where those of x are."""
        at = places(product(shape(self.x)))
        row: Expr = at * ZERO
        column: Expr = row
        for axis, flag in enumerate(self.named):
            stride = op.maximum(amount(product(shape(self.x)[axis + 1 :])), ONE)
            here = at // stride % op.maximum(self.sizes[axis], ONE)
            row = row * self.kept[axis] + op.where(flag, ZERO, here)
            column = column * self.gone[axis] + op.where(flag, here, ZERO)
        flat = op.reshape(matrix, (product(shape(matrix)),))
        return op.reshape(op.take(flat, row * amount(self.columns) + column), shape(self.x))


def along_axis(node: OnnxNode, x: Expr, axis: Expr, fold: Callable[[Expr, int], Expr]) -> Expr:
    """The result of an operator along an axis given at run time."""
    whole = AxisMatrix(node, x, op.reshape(axis, (1,)))
    return whole.back(fold(whole.matrix(), 1))
