"""Sizes that are measured: dims that are numbers once something is computed.

The indices of non-zero elements are one such: how many there are is measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeAlias

from plica.core.binding import free_vars
from plica.ir.graph.expression import Expr, LetDim, Project, const
from plica.ir.loop.scalar import Scalar, ScalarVar
from plica.ir.op.namespace import op
from plica.ir.type import i64, known, product, same_dim
from plica.runtime.late import lazy_imports

with lazy_imports(__name__):
    from plica.frontend.word import as_scalar, rank, shape, to
    from plica.ir.op.order import unravelled


Region: TypeAlias = dict[Expr, ScalarVar]
"""The measured sizes of a part of a model, in order, with their dims."""

Piece: TypeAlias = "int | Scalar | Expr"

ZERO, ONE, MINUS = const(0, i64), const(1, i64), const(-1, i64)


class Measures(Protocol):
    """A node that may say that a size is known when the model runs."""

    def measured(self, value: Expr, hint: object = "") -> Scalar:
        """The dim that is a number of rank 0 once that is computed."""


def measuring(region: Region, body: Expr) -> Expr:
    """A body in which the sizes of a region are known."""
    for value, dim in reversed(region.items()):
        if dim in free_vars(body):
            body = LetDim(dim, value, body)
    return body


def amount(of: Piece) -> Expr:
    """A number, a dim or a scalar, as a value."""
    if isinstance(of, Expr):
        return to(as_scalar(of), i64)
    if isinstance(of, Scalar):
        number = known(of)
        return op.dim_value(of) if number is None else const(number, i64)
    return const(of, i64)


def places(size: Scalar) -> Expr:
    """0, 1, … as long as a dim is."""
    return op.iota(shape=(size,), dtype=i64)


def matched(x: Expr, sizes: Sequence[Scalar]) -> Expr:
    """x, of which it is asserted that it has a shape."""
    same = len(sizes) == rank(x) and all(map(same_dim, shape(x), sizes))
    return x if same else op.match_shape(x, tuple(sizes))


def reshaped(x: Expr, sizes: Sequence[Scalar]) -> Expr:
    """x in another shape; that it has as many elements is asserted where it cannot be shown."""
    total, wanted = product(shape(x)), product(sizes)
    numbers = known(total) is not None and known(wanted) is not None
    if numbers or same_dim(total, wanted):
        return op.reshape(x, tuple(sizes))
    return op.reshape(op.match_shape(op.reshape(x, (total,)), (wanted,)), tuple(sizes))


def prefix(x: Expr, size: Scalar, axis: int = 0) -> Expr:
    """The first places along an axis, as many as a dim is; there must be this many."""
    cut = op.slice(x, (0,), (size,), None, (axis,))
    return matched(cut, (*shape(x)[:axis], size, *shape(x)[axis + 1 :]))


def places_of(node: Measures, x: Expr, hint: object = "") -> Expr:
    """The indices of non-zero elements, one row each.

    They are flat numbers first, and an index per axis once their number is known.
    """
    if rank(x) < 2:
        expr = op.argwhere(x)
        return prefix(Project(expr, 0), node.measured(Project(expr, 1), hint))
    flat = flat_places_of(node, x, hint)
    return op.stack(tuple(unravelled(flat, [amount(size) for size in shape(x)])), axis=1)


def flat_places_of(node: Measures, x: Expr, hint: object = "") -> Expr:
    """The flat indices of non-zero elements."""
    rows = places_of(node, op.reshape(x, (product(shape(x)),)), hint)
    return op.reshape(rows, (shape(rows)[0],))
