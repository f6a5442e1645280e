"""Fourier transforms: sums of products with the roots of unity.

    dft(x)[…, 0, k, c] + i dft(x)[…, 1, k, c]  =  Σ_t (x[…, 0, t, c] + i x[…, 1, t, c]) w^(t k)

with w = exp(-2πi / length), or its inverse and a factor of 1 / length. The operator is defined as
one product with a constant matrix, which takes length² steps (long transforms: two products); the
pack `fourier` rewrites composite lengths to shorter transforms. Missing elements of x are zeros.

>>> from plica.ir.type.term import tensor
>>> settings = {"length": 8, "bins": 5, "parts": 2, "inverse": False}
>>> [each.value for each in dft.relation(settings, tensor((3, 1, 6, 1), "f32")).shape]
[3, 2, 5, 1]
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from plica.ir.graph.expression import Expr, const
from plica.ir.graph.operator import Values
from plica.ir.loop.scalar import index
from plica.ir.op import relation as rel
from plica.ir.op.attribute import attribute, flag, optional, positive
from plica.ir.op.cut import slice_
from plica.ir.op.elementwise import add, multiply, subtract
from plica.ir.op.join import stack
from plica.ir.op.linear import matmul
from plica.ir.op.pad import pad
from plica.ir.op.record import composite, tensor_of, times
from plica.ir.op.shape import reshape, transpose
from plica.ir.type import TensorType, f32, f64, known

Array = np.ndarray[Any, Any]

LARGEST_MATRIX: Final = 1 << 11  # the length of a transform by one product, where it has a factor
MIN_VECTOR_COLUMNS: Final = 16
"""The number of columns below which they do not fill a vector and become rows of the product."""


def roots(rows: int, columns: int, length: int, inverse: bool) -> Array:
    """The powers w^(r c) of a root of unity, with angles below a whole turn."""
    turns = np.outer(np.arange(rows), np.arange(columns)) % length
    made = np.exp((2j if inverse else -2j) * np.pi * turns / length)
    # Quarter turns are exact: bins that are real for real signals stay real.
    quarters = np.array([1, 1j, -1, -1j] if inverse else [1, -1j, -1, 1j])
    exact = 4 * turns % length == 0
    made[exact] = quarters[4 * turns[exact] // length]
    return np.asarray(made)


def on_parts(matrix: Array, given: int, wanted: int) -> Array:
    """A complex matrix as a real one, on vectors whose parts follow each other."""
    blocks = [[matrix.real, -matrix.imag], [matrix.imag, matrix.real]]
    return np.block([row[:given] for row in blocks[:wanted]])


def applied(matrix: Array, x: Expr, wanted: int = 2) -> Expr:
    """A complex matrix times the columns of x, (…, parts, t, columns).

    Few columns become rows, together with all others, and the matrix is the right operand of one
    product.
    """
    *rows, parts, length, columns = tensor_of(x).shape
    given, inner, count = known(parts), known(length), known(columns)
    assert given is not None
    assert inner is not None
    real = on_parts(matrix, given, wanted).astype(tensor_of(x).dtype.numpy)
    size, rank = len(matrix), len(rows)
    flat = reshape(x, (*rows, given * inner, columns))
    if count is None or count >= MIN_VECTOR_COLUMNS:
        return reshape(matmul(const(real), flat), (*rows, wanted, size, columns))
    across = (*range(rank), rank + 1, rank)
    turned = matmul(transpose(flat, across), const(np.ascontiguousarray(real.T)))
    return reshape(transpose(turned, across), (*rows, wanted, size, columns))


def _dft_rule(attrs: Values, x: TensorType) -> TensorType:
    rel.rank_at_least("dft", x, 3)
    *rows, parts, size, columns = x.shape
    there = known(size)
    if known(parts) not in (1, 2):
        message = "dft takes a real part, or two parts, on the third axis from behind."
        rel.refuse("shape-conflict", message, "1 or 2", rel.shown_dim(parts))
    if there is None:
        message = "dft takes signals whose length is a number."
        rel.refuse("shape-conflict", message, "a number", rel.shown_dim(size))
    length, bins = extents(attrs, there)
    if not there <= length or not 0 < bins <= length or attrs["parts"] > 2:
        message = "dft gives at most as many bins as there are places, and at most two parts."
        wanted = f"length >= {there}, bins <= length, parts <= 2"
        rel.refuse("bad-attribute", message, wanted, f"{length}, {bins}, {attrs['parts']}")
    return TensorType((*rows, index(attrs["parts"]), index(bins), columns), x.dtype)


def extents(attrs: Values, there: int) -> tuple[int, int]:
    """The length of a transform of a given number of places, and how many bins it has."""
    length = attrs["length"] or there
    return length, attrs["bins"] or length


def by_factor(x: Expr, factor: int, length: int, bins: int, *, parts: int, inverse: bool) -> Expr:
    """The same transform, by a factor of its length and the cofactor.

    Element t (length / factor) + s of the signal is in row t of a matrix. The columns are
    transformed first; bin k of column s is multiplied by w^(k s); then the rows are transformed
    (Cooley-Tukey). Bins of the first transform become columns of the second, so no final
    permutation is needed.
    """
    *rows, planes, places, columns = tensor_of(x).shape
    rest, rank, there = length // factor, len(rows), known(places)
    assert there is not None
    if there < length:
        x = pad(x, (*[(0, 0)] * (rank + 1), (0, length - there), (0, 0)))
    matrix = roots(factor, factor, factor, inverse)
    apart = reshape(x, (*rows, planes, factor, times(columns, rest)))
    short = applied(matrix / factor if inverse else matrix, apart)
    short = reshape(short, (*rows, 2, factor, rest, columns))

    def plane(at: int) -> Expr:
        one = reshape(slice_(short, (at,), (at + 1,), axes=(rank,)), (*rows, factor, rest, columns))
        return transpose(one, (*range(rank), rank + 1, rank, rank + 2))

    turns = roots(rest, factor, length, inverse)[..., None]
    dtype = tensor_of(x).dtype.numpy
    cosine, sine = (const(array.astype(dtype)) for array in (turns.real, turns.imag))
    real, imaginary = plane(0), plane(1)
    turned = stack(
        (
            subtract(multiply(real, cosine), multiply(imaginary, sine)),
            add(multiply(real, sine), multiply(imaginary, cosine)),
        ),
        axis=rank,
    )
    kept = -(-bins // factor)
    last = dft(
        reshape(turned, (*rows, 2, rest, times(columns, factor))), rest, kept, parts, inverse
    )
    joined = reshape(last, (*rows, parts, kept * factor, columns))
    return joined if kept * factor == bins else slice_(joined, (0,), (bins,), axes=(rank + 1,))


def _defined(attrs: Values, x: Expr) -> Expr:
    """One product with a matrix, of the largest factor that has one."""
    there = known(tensor_of(x).shape[-2])
    assert there is not None
    length, bins = extents(attrs, there)
    parts, inverse = attrs["parts"], attrs["inverse"]
    if length > LARGEST_MATRIX:
        factors = [each for each in range(2, LARGEST_MATRIX + 1) if length % each == 0]
        if factors:
            return by_factor(x, factors[-1], length, bins, parts=parts, inverse=inverse)
    matrix = roots(bins, there, length, inverse)
    return applied(matrix / length if inverse else matrix, x, parts)


dft = composite(
    "dft", ("x",), _dft_rule, _defined,
    "The discrete Fourier transform along the second-last axis of (…, parts, length, columns).",
    attributes=(
        attribute("length", optional(positive), None),
        attribute("bins", optional(positive), None),
        attribute("parts", positive, 2),
        attribute("inverse", flag, False),
    ),
    admits=(f32, f64),
)  # fmt: skip
