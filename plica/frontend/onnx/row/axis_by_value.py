"""Rows over axes that are only known when the model runs.

The axes that are named and the others become the two axes of a matrix, whose sizes are measured;
where each element of it comes from is computed from the strides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from plica.frontend.measured import ONE, ZERO, amount, places
from plica.frontend.onnx.node import OnnxNode
from plica.frontend.onnx.row.shape_by_value import are_axes, named_axes
from plica.frontend.onnx.row.word import rank, shape
from plica.frontend.onnx.run_time import lawful, reshaped, total_of
from plica.ir.graph.expression import Expr, const
from plica.ir.op.namespace import op
from plica.ir.type.dim import product
from plica.ir.type.dtype import i64


class AxisMatrix:
    """x as a matrix: the axes that stay, then those that are named."""

    def __init__(self, node: OnnxNode, x: Expr, axes: Expr, all_if_none: bool = False) -> None:
        self.node, self.x = node, x
        self.named = named_axes(axes, rank(x))
        count = amount(product(shape(axes)))
        fits = are_axes(self.named, count)
        if all_if_none:
            none = op.equal(count, ZERO)
            self.named = [op.logical_or(each, none) for each in self.named]
        self.sizes = [amount(each) for each in shape(x)]
        self.kept = [op.where(f, ONE, n) for f, n in zip(self.named, self.sizes, strict=True)]
        self.gone = [op.where(f, n, ONE) for f, n in zip(self.named, self.sizes, strict=True)]
        self.rows = node.measured(
            lawful(total_of(self.kept, op.multiply, ONE), fits, "axis"), "rows"
        )
        self.columns = node.measured(total_of(self.gone, op.multiply, ONE), "columns")

    def matrix(self) -> Expr:
        """The matrix itself."""
        rows, columns = (
            self._offsets(places(count), parts)
            for count, parts in ((self.rows, self.kept), (self.columns, self.gone))
        )
        where_ = op.expand_dims(rows, (1,)) + op.expand_dims(columns, (0,))
        return op.take(op.reshape(self.x, (product(shape(self.x)),)), where_)

    def _offsets(self, at: Expr, parts: Sequence[Expr]) -> Expr:
        """Where places counted through some axes lie in x."""
        found: Expr = at * ZERO
        for axis in reversed(range(rank(self.x))):
            part = op.maximum(parts[axis], ONE)
            stride = amount(product(shape(self.x)[axis + 1 :]))
            found = found + at % part * stride
            at = at // part
        return found

    def folded(self, of: Expr, keep: bool, count: int | None) -> Expr:
        """A vector with one element for each row, in the shape that is left of x."""
        if keep or count is None:
            return reshaped(of, [self.node.measured(e, at) for at, e in enumerate(self.kept)])
        return reshaped(of, [self.node.measured(self._left(at), at)
                             for at in range(rank(self.x) - count)])  # fmt: skip

    def _left(self, number: int) -> Expr:
        """The size of one of the axes that stay."""
        chosen: Expr = ONE
        before: Expr = ZERO
        for flag, size in zip(self.named, self.sizes, strict=True):
            here = op.logical_and(op.equal(before, const(number, i64)), op.logical_not(flag))
            chosen = op.where(here, size, chosen)
            before = before + op.where(flag, ZERO, ONE)
        return chosen

    def back(self, matrix: Expr) -> Expr:
        """A matrix of the same sizes with its elements where those of x are."""
        total = product(shape(self.x))
        at = places(total)
        row: Expr = at * ZERO
        column: Expr = row
        for axis, flag in enumerate(self.named):
            stride = op.maximum(amount(product(shape(self.x)[axis + 1 :])), ONE)
            here = at // stride % op.maximum(self.sizes[axis], ONE)
            row = row * self.kept[axis] + op.where(flag, ZERO, here)
            column = column * self.gone[axis] + op.where(flag, here, ZERO)
        flat = op.reshape(matrix, (product(shape(matrix)),))
        place = row * amount(self.columns) + column
        return op.reshape(op.take(flat, place), shape(self.x))


def along_axis(node: OnnxNode, x: Expr, axis: Expr, fold: Callable[[Expr, int], Expr]) -> Expr:
    """What an operator along an axis gives, where that axis is a number known when it runs."""
    whole = AxisMatrix(node, x, op.reshape(axis, (1,)))
    return whole.back(fold(whole.matrix(), 1))
