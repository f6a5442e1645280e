"""Elimination: the pivots of small square matrices, whose product is the determinant."""

from __future__ import annotations

from typing import Final

import numpy as np

from plica.frontend.word import like, shape
from plica.ir.graph.expression import Expr, const
from plica.ir.op.comparison import equal
from plica.ir.op.cut import slice_
from plica.ir.op.elementwise import absolute, divide, multiply, negative, subtract
from plica.ir.op.index import take_along_axis, where
from plica.ir.op.reduction import argmax
from plica.ir.op.repeat import broadcast_to
from plica.ir.op.shape import reshape
from plica.ir.type.dim import product
from plica.ir.type.dtype import i64

LARGEST: Final = 32
"""Larger matrices are not written out."""


def pivots(x: Expr, n: int) -> list[Expr]:
    """For each of many matrices of a size the pivots, negative where a row was exchanged.

    Rows are taken off one by one, each time that with the greatest first element.
    """
    count = product(shape(x)[:-2])
    rows = reshape(x, (count, n, n))
    found: list[Expr] = []
    for size in range(n, 0, -1):
        first, rest = (slice_(rows, (a,), (b,), axes=(1,)) for a, b in ((0, 1), (1, size)))
        largest = argmax(absolute(slice_(rows, (0,), (1,), axes=(2,))), axis=1, keepdims=True)
        chosen = take_along_axis(rows, broadcast_to(largest, (count, 1, size)), axis=1)
        pivot = slice_(chosen, (0,), (1,), axes=(2,))
        is_first = equal(largest, const(0, i64))
        found.append(reshape(where(is_first, pivot, negative(pivot)), (count,)))
        if size == 1:
            break
        # The first row stands where the chosen one stood.
        places = const(np.arange(1, size).reshape(1, size - 1, 1))
        rest = where(equal(places, largest), first, rest)
        divisor = where(equal(pivot, like(0.0, x)), like(1.0, x), pivot)
        column, others = (slice_(rest, (a,), (b,), axes=(2,)) for a, b in ((0, 1), (1, size)))
        right = slice_(chosen, (1,), (size,), axes=(2,))
        rows = subtract(others, multiply(divide(column, divisor), right))
    return found
