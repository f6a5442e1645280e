"""Data-dependent indices: the indices of non-zero elements, with their number."""

from __future__ import annotations

from plica.frontend.measured import Measures, amount, prefix
from plica.frontend.word import rank, shape
from plica.ir.graph.expression import Expr, Project
from plica.ir.op.namespace import op
from plica.ir.op.order import unravelled
from plica.ir.type.dim import product


def places_of(node: Measures, x: Expr, hint: object = "") -> Expr:
    """The indices of non-zero elements, one row each.

    They are flat numbers first, and an index per axis once their number is known.
    """
    if rank(x) < 2:
        found = op.argwhere(x)
        return prefix(Project(found, 0), node.measured(Project(found, 1), hint))
    flat = flat_places_of(node, x, hint)
    return op.stack(tuple(unravelled(flat, [amount(size) for size in shape(x)])), axis=1)


def flat_places_of(node: Measures, x: Expr, hint: object = "") -> Expr:
    """The flat indices of non-zero elements."""
    rows = places_of(node, op.reshape(x, (product(shape(x)),)), hint)
    return op.reshape(rows, (shape(rows)[0],))
