"""The weights of Winograd convolutions by whole arrays: `G w Gᵀ`, many pairs of channels at once.

Bit-equal to the products of `nn.winograd_weight`'s decomposition, each an in-order sum with one
rounding per step. Products shared by rows of G are computed once, and products by zero are omitted:
for numbers whose sums stay finite, this changes only the sign of a zero, and a sum that starts with
+0 never ends in -0.

>>> from plica.ir.op.winograd import TILES
>>> ones = np.ones((1, 1, 3, 3), np.float32)
>>> transformed("ones", ones, TILES[2].weight).whole().reshape(4, 4)[1]
array([1.5 , 2.25, 0.75, 1.5 ], dtype=float32)
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import SupportsFloat, TypeAlias

import numpy as np

from plica.ir.graph.weight_array import Array, ColumnwiseArray

Rows: TypeAlias = Sequence[Sequence[float]]
Combined: TypeAlias = Callable[[Rows, Sequence[Array], Sequence[Array]], None]


def transformed(
    origin: Hashable, weight: Array, table: Sequence[Sequence[SupportsFloat]]
) -> ColumnwiseArray:
    """A weight (out, c, 3, 3) as (products of a tile, c, out): a column is a pair of channels."""
    outputs, channels = weight.shape[:2]
    source = weight.reshape(outputs, channels, 9).transpose(2, 1, 0)
    rows = [[float(each) for each in row] for row in table]
    growth = max(1.0, *[sum(map(abs, row)) for row in rows])
    limit = float(np.finfo(weight.dtype).max) / 2 / growth**2

    def make(parts: Array, room: Array) -> None:
        # No sum overflows; false if an element is not finite.
        is_tame = parts.max(initial=0) < limit and parts.min(initial=0) > -limit
        with np.errstate(all="ignore"):
            _transform(parts, rows, room, _combined if is_tame else _combined_plainly)

    return ColumnwiseArray(origin, source, len(rows) ** 2, make, ("winograd", rows))


def _transform(weight: Array, table: Rows, room: Array, combined: Combined) -> None:
    span, rest = len(table), weight.shape[1:]
    square = weight.reshape(3, 3, *rest)
    half = np.empty((3, span, *rest), weight.dtype)
    combined(table, [square[:, at] for at in range(3)], [half[:, at] for at in range(span)])
    into = [room[span * at : span * (at + 1)] for at in range(span)]
    combined(table, list(half), into)


def _combined_plainly(table: Rows, parts: Sequence[Array], into: Sequence[Array]) -> None:
    """Each row of a table times the parts, by the letter."""
    for row, room in zip(table, into, strict=True):
        room[...] = 0
        for factor, part in zip(row, parts, strict=True):
            room += part * part.dtype.type(factor)


def _combined(table: Rows, parts: Sequence[Array], into: Sequence[Array]) -> None:
    """The same for values that stay finite."""
    first: dict[tuple[int, float], Array] = {}  # products that are no -0
    others: dict[tuple[int, float], Array] = {}
    for row, room in zip(table, into, strict=True):
        (lead, factor), *rest = [(at, each) for at, each in enumerate(row) if each]
        if (lead, factor) not in first:
            product = _times(parts[lead], factor)
            first[lead, factor] = np.add(product, 0, out=product)
        total = first[lead, factor]
        for at, factor in rest:
            if (at, -factor) in others:
                total = np.subtract(total, others[at, -factor], out=room)
                continue
            if (at, factor) not in others:
                others[at, factor] = _times(parts[at], factor)
            total = np.add(total, others[at, factor], out=room)
        if not rest:
            room[...] = total


def _times(part: Array, factor: float) -> Array:
    product: Array = part * part.dtype.type(factor)
    return product
