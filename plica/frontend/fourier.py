"""Fourier transforms that rows of signals ask for, of a known or an open length."""

from __future__ import annotations

from typing import Any, Final, NoReturn, Protocol

import numpy as np

from plica.frontend.measured import ONE, ZERO, amount, places
from plica.frontend.word import dtype, select, shape, to
from plica.ir.graph.expression import Expr, const
from plica.ir.loop.scalar import Scalar
from plica.ir.op.fourier import LARGEST_MATRIX
from plica.ir.op.namespace import op
from plica.ir.type import f64, i64, known, product

Array = np.ndarray[Any, Any]

LONGEST: Final = 1 << 20
"""The maximum length: twiddle factors of longer transforms would be too many constants."""

TWO = const(2, i64)


def has_transform(length: int) -> bool:
    """Whether a length factors into lengths with matrices."""
    rest, factor = length, 2
    while factor * factor <= rest and factor <= LARGEST_MATRIX:
        rest, factor = (rest // factor, factor) if rest % factor == 0 else (rest, factor + 1)
    return 0 < length <= LONGEST and rest <= LARGEST_MATRIX


def mirrored(length: int) -> Array:
    """How often each bin of half a spectrum counts: bins that are their own mirror image count
    once."""
    times = np.full(length // 2 + 1, 2.0)
    times[0] = 1.0
    if length % 2 == 0:
        times[-1] = 1.0
    return times


class Refuses(Protocol):
    """A node that reports unsupported features."""

    def unsupported(
        self, message: str, expected: str | None = None, found: str | None = None
    ) -> NoReturn:
        """Refuse it."""


def transformed(
    node: Refuses, x: Expr, length: Scalar, bins: Scalar, *, inverse: bool, halved: bool
) -> Expr:
    """The bins of (…, parts, places, columns), with at most as many places as the transform length;
    `halved` denotes the inverse of a real signal's half spectrum."""
    number, wanted, there = known(length), known(bins), known(shape(x)[-2])
    if number is None or there is None:
        return _by_matrix(x, length, bins, inverse, halved)
    assert wanted is not None
    if not has_transform(number):
        expected = f"1 to {LONGEST}, of prime factors up to {LARGEST_MATRIX}"
        node.unsupported("A transform is too long.", expected, str(number))
    if not halved:
        return op.dft(x, number, wanted, 2, inverse)
    times = const(mirrored(number)[:there, None], dtype(x))
    return op.dft(x * times, number, number, 1, inverse=True)


def _by_matrix(x: Expr, length: Scalar, bins: Scalar, inverse: bool, halved: bool) -> Expr:
    *rows, parts, there, columns = shape(x)
    axis, whole, at = len(rows), to(amount(length), f64), places(there)
    angle = to(places(length), f64) / whole * const(2 * np.pi if inverse else -2 * np.pi, f64)
    factor = const(1.0, f64) / whole if inverse else const(1.0, f64)
    # The remainder of a division, in floats: exact below 2^26, beyond any matrix in memory.
    steps = op.multiply(
        *(op.expand_dims(to(e, f64), (o,)) for e, o in ((places(bins), 1), (at, 0)))
    )
    rest = steps - op.floor(steps / whole) * whole
    cosine, sine = (
        op.take(to(wave(angle) * factor, dtype(x)), to(rest, i64), mode="clip")
        for wave in (op.cos, op.sin)
    )
    planes = [select(x, part, axis) for part in range(known(parts) or 0)]
    if halved:
        once = op.logical_or(op.equal(at, ZERO), op.equal(at * TWO, amount(length)))
        times = op.expand_dims(to(op.where(once, ONE, TWO), dtype(x)), (1,))
        planes = [expr * times for expr in planes]

    def product_with(matrix: Expr, plane: Expr) -> Expr:
        if known(columns) != 1:
            return op.matmul(matrix, plane)
        flat = op.matmul(op.reshape(plane, (product(rows), there)), op.transpose(matrix, (1, 0)))
        return op.reshape(flat, (*rows, bins, columns))

    real = product_with(cosine, planes[0])
    if len(planes) == 2:
        real = real - product_with(sine, planes[1])
    if halved:
        return op.expand_dims(real, (axis,))
    imaginary = product_with(sine, planes[0])
    if len(planes) == 2:
        imaginary = imaginary + product_with(cosine, planes[1])
    return op.stack((real, imaginary), axis=axis)
