"""Elimination: the pivots of small square matrices, whose product is the determinant."""

from __future__ import annotations

from typing import Final

import numpy as np

from plica.frontend.word import like, shape
from plica.ir.graph.expression import Expr, const
from plica.ir.op.namespace import op
from plica.ir.type import i64, product

LARGEST: Final = 32  # larger matrices are not written out


def pivots(x: Expr, n: int) -> list[Expr]:
    """The pivots of each matrix in a batch, negative where rows were exchanged.

    Rows are eliminated one by one, each time with the largest first element.
    """
    count = product(shape(x)[:-2])
    rows = op.reshape(x, (count, n, n))
    exprs: list[Expr] = []
    for size in range(n, 0, -1):
        first, rest = (op.slice(rows, (a,), (b,), axes=(1,)) for a, b in ((0, 1), (1, size)))
        largest = op.argmax(
            op.absolute(op.slice(rows, (0,), (1,), axes=(2,))), axis=1, keepdims=True
        )
        chosen = op.take_along_axis(rows, op.broadcast_to(largest, (count, 1, size)), axis=1)
        pivot = op.slice(chosen, (0,), (1,), axes=(2,))
        is_first = op.equal(largest, const(0, i64))
        exprs.append(op.reshape(op.where(is_first, pivot, -pivot), (count,)))
        if size == 1:
            break
        # The first row takes the place of the pivot row.
        places = const(np.arange(1, size).reshape(1, size - 1, 1))
        rest = op.where(op.equal(places, largest), first, rest)
        divisor = op.where(op.equal(pivot, like(0.0, x)), like(1.0, x), pivot)
        column, others = (op.slice(rest, (a,), (b,), axes=(2,)) for a, b in ((0, 1), (1, size)))
        right = op.slice(chosen, (1,), (size,), axes=(2,))
        rows = others - column / divisor * right
    return exprs
