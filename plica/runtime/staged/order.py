"""Ordering by the host: what a program of open sizes does not do in code of its own.

The meaning is that of the operators of the same names (`plica.ir.op.order`): nan is the greatest,
equal elements keep their order, and results whose length depends on values are as long as they can
become, with their number beside them.

>>> argsort(np.array([3.0, np.nan, 1.0]))[0].tolist()
[2, 0, 1]
>>> argwhere(np.array([0, 4, 5]))[0].tolist()
[[1], [2], [-1]]
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from plica.runtime.port import Array

SORTED: Final = 128
"""So many elements of a row are sorted as numbers that hold their places."""


def argsort(x: Array, axis: int = -1, descending: int = 0) -> tuple[Array, ...]:
    """The places of the elements along an axis in their order."""
    keys = _keys(x) if x.shape[axis] >= SORTED else None
    if keys is not None:
        return (_by_keys(keys, axis, descending),)
    if not descending:
        return (np.ascontiguousarray(np.argsort(x, axis=axis, kind="stable"), np.int64),)
    back = np.argsort(np.flip(x, axis), axis=axis, kind="stable")
    return (np.ascontiguousarray(np.flip(x.shape[axis] - 1 - back, axis), np.int64),)


def _keys(x: Array) -> Array | None:
    """Integers of 32 bits in i64 whose order is that of the elements, None where these have more.

    Floats but for their sign are in the order of their bits; zeros are equal, and so are nans.
    """
    if x.dtype.kind in "biu" and x.dtype.itemsize <= 4:  # bytes of 32 bits
        moved = (1 << 31) if x.dtype == np.uint32 else 0
        return x.astype(np.int64) - moved
    if x.dtype != np.float32:
        return None
    bits = (x + np.float32(0)).view(np.int32)
    bits = np.where(bits < 0, bits ^ np.int32(0x7FFFFFFF), bits)
    nans = np.isnan(x)
    if nans.any():
        bits[nans] = 0x7FFFFFFF
    return bits.astype(np.int64)


def _by_keys(keys: Array, axis: int, descending: int) -> Array:
    """The places of 32-bit keys in their order: a key and its place are one number, of which no two
    are equal, so that any way to sort them keeps the order of equal keys."""
    if descending:
        np.invert(keys, out=keys)
    keys <<= 32
    shape = [1] * keys.ndim
    shape[axis] = keys.shape[axis]
    keys |= np.arange(keys.shape[axis]).reshape(shape)
    keys.sort(axis=axis)
    keys &= 0xFFFFFFFF
    return np.ascontiguousarray(keys)


def argwhere(x: Array) -> tuple[Array, ...]:
    """The places of what is not zero, a row each, rows of -1 past them, and how many there are."""
    found = np.argwhere(x) if x.ndim != 1 else np.flatnonzero(x)[:, None]
    whole = np.empty((x.size, x.ndim), np.int64)
    whole[: len(found)] = found
    whole[len(found) :] = -1
    return whole, np.asarray(len(found), np.int64)


def unique(x: Array, sorted: int = 1) -> tuple[Array, ...]:
    """The different elements, the first place of each, which each is, how often, how many."""
    flat = x.reshape(-1)
    values, first, inverse, counts = np.unique(
        flat, return_index=True, return_inverse=True, return_counts=True
    )
    if not sorted:
        order = np.argsort(first, kind="stable")
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        values, first, counts, inverse = values[order], first[order], counts[order], back[inverse]
    # Past their number the operator gives the last in order, none times.
    last = np.argsort(flat, kind="stable")[-1:]
    fill = (flat[last], last, np.zeros(1, np.int64))
    parts = [_filled(*each, flat.size) for each in zip((values, first, counts), fill, strict=True)]
    count = np.asarray(len(values), np.int64)
    return parts[0], parts[1], inverse.astype(np.int64).reshape(-1), parts[2], count


def _filled(part: Array, rest: Array, size: int) -> Array:
    """A vector with one number behind it, again and again."""
    whole = np.empty(size, part.dtype)
    whole[: len(part)] = part
    if len(part) < size:
        whole[len(part) :] = rest[0]
    return whole


RUN: Final[dict[str, Callable[..., tuple[Array, ...]]]] = {
    "argsort": argsort,
    "argwhere": argwhere,
    "unique": unique,
}
