"""Ordering on the host: operations for which open-size programs have no native code.

>>> argsort(np.array([3.0, np.nan, 1.0]))[0].tolist()
[2, 0, 1]
>>> argwhere(np.array([0, 4, 5]))[0].tolist()
[[1], [2], [-1]]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from plica.runtime.port import Array

_WORDS: Final = {
    word.itemsize: (word, int(np.iinfo(word).min))
    for word in map(np.dtype, ("i1", "i2", "i4", "i8"))
}
"""Integers of as many bytes as a float: the least has the bits of the zero below 0."""

_NOTHING: Final = np.zeros(1, np.int64)

SORTED: Final = 128
"""The row length up to which elements are sorted together with their indices as one number."""


def argsort(
    x: Array,
    axis: int = -1,
    descending: int = 0,
    wanted: Sequence[bool] = (True,),
    whole: Sequence[bool] = (True,),
) -> tuple[Array, ...]:
    """The places of the elements along an axis in their order."""
    keys = _keys(x) if x.shape[axis] >= SORTED else None
    if keys is not None:
        return (_by_keys(keys, axis, descending),)
    if not descending:
        return (np.ascontiguousarray(np.argsort(x, axis=axis, kind="stable"), np.int64),)
    back = np.argsort(np.flip(x, axis), axis=axis, kind="stable")
    return (np.ascontiguousarray(np.flip(x.shape[axis] - 1 - back, axis), np.int64),)


def _keys(x: Array) -> Array | None:
    """32-bit integers in i64 with the order of the elements, or None for wider elements.

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
    """The stable order of 32-bit keys: key and index form one number, all distinct, so any sort is
    stable."""
    if descending:
        np.invert(keys, out=keys)
    keys <<= 32
    shape = [1] * keys.ndim
    shape[axis] = keys.shape[axis]
    keys |= np.arange(keys.shape[axis]).reshape(shape)
    keys.sort(axis=axis)
    keys &= 0xFFFFFFFF
    return np.ascontiguousarray(keys)


def argwhere(
    x: Array, wanted: Sequence[bool] = (True, True), whole: Sequence[bool] = (True, True)
) -> tuple[Array, ...]:
    """The indices of non-zero elements, one row each, padded with rows of -1, and their number."""
    flags = x.astype(np.bool_, copy=False)  # numpy finds these several times as fast as numbers
    array = np.argwhere(flags) if x.ndim != 1 else flags.nonzero()[0][:, None]
    count = np.asarray(len(array), np.int64)
    if not whole[0]:
        return np.ascontiguousarray(array, np.int64), count
    rows = np.empty((x.size, x.ndim), np.int64)
    rows[: len(array)] = array
    rows[len(array) :] = -1
    return rows, count


def unique(
    x: Array,
    sorted: int = 1,
    wanted: Sequence[bool] = (True,) * 5,
    whole: Sequence[bool] = (True,) * 5,
) -> tuple[Array | None, ...]:
    """The distinct elements, the index of each one's first occurrence, the inverse, the counts and
    the number: the `wanted` ones of these five, unpadded unless `whole`.

    The values alone, in their order, take a sort of them, all else one that knows their places.
    """
    flat = x if x.ndim == 1 else x.reshape(-1)
    size = flat.size
    if sorted and not (wanted[1] or wanted[2] or wanted[3]):
        values = _values(flat)
        count = np.asarray(len(values), np.int64)
        return _filled(values, size) if whole[0] else values, None, None, None, count
    (order,) = argsort(flat)
    ordered = flat[order]
    new = _is_new(ordered)
    starts = np.flatnonzero(new)
    first = order[starts]
    there = None if sorted else np.argsort(first, kind="stable")
    if there is not None:
        first = first[there]

    def part(number: int, of: Callable[[], Array], rest: Array) -> Array | None:
        if not wanted[number]:
            return None
        return _filled(of(), size, rest) if whole[number] else of()

    return (
        part(0, lambda: flat[first], ordered[-1:]),
        part(1, lambda: first, order[-1:]),
        _which(order, new, there) if wanted[2] else None,
        part(3, lambda: _counts(starts, size, there), _NOTHING),
        np.asarray(len(first), np.int64),
    )


def _values(flat: Array) -> Array:
    """The distinct elements in order; of both zeros the first that occurs."""
    ordered = flat.copy()
    ordered.sort()
    values = ordered[_is_new(ordered)]
    if flat.dtype.kind not in "biu" and flat.size:
        word, below = _WORDS[flat.itemsize]
        if np.minimum.reduce(flat.view(word)) == below:  # the zero below 0 is there
            values[values == 0] = flat[np.argmax(flat == 0)]
    return values


def _is_new(ordered: Array) -> Array:
    """Of elements in their order, which are another than the one before; a nan is like any."""
    new = np.empty(len(ordered), np.bool_)
    if not len(ordered):
        return new
    new[0] = True
    np.not_equal(ordered[1:], ordered[:-1], new[1:])
    if ordered.dtype.kind not in "biu" and ordered[-1] != ordered[-1]:
        new[1:] &= ~np.isnan(ordered[:-1])
    return new


def _which(order: Array, new: Array, there: Array | None) -> Array:
    """For each element which of the different ones it is, where these are in another order."""
    number = np.cumsum(new)
    number -= 1
    if there is not None:
        ranks = np.empty_like(there)
        ranks[there] = np.arange(len(there))
        number = ranks[number]
    which = np.empty_like(order)
    which[order] = number
    return which


def _counts(starts: Array, size: int, there: Array | None) -> Array:
    """The count of each distinct element."""
    counts = np.empty_like(starts)
    np.subtract(starts[1:], starts[:-1], counts[:-1])
    counts[-1:] = size - starts[-1:]
    return counts if there is None else counts[there]


def _filled(part: Array, size: int, rest: Array | None = None) -> Array:
    """A vector with one number behind it, again and again: its last, if no other is given."""
    if len(part) == size:
        return part
    whole = np.empty(size, part.dtype)
    whole[: len(part)] = part
    whole[len(part) :] = part[-1] if rest is None else rest[0]
    return whole


RUN: Final[dict[str, Callable[..., tuple[Array | None, ...]]]] = {
    "argsort": argsort,
    "argwhere": argwhere,
    "unique": unique,
}
