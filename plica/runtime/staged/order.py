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


def argsort(x: Array, axis: int = -1, descending: int = 0) -> tuple[Array, ...]:
    """The places of the elements along an axis in their order."""
    if not descending:
        return (np.ascontiguousarray(np.argsort(x, axis=axis, kind="stable"), np.int64),)
    back = np.argsort(np.flip(x, axis), axis=axis, kind="stable")
    return (np.ascontiguousarray(np.flip(x.shape[axis] - 1 - back, axis), np.int64),)


def argwhere(x: Array) -> tuple[Array, ...]:
    """The places of what is not zero, a row each, rows of -1 past them, and how many there are."""
    found = np.argwhere(x)
    whole = np.full((x.size, x.ndim), -1, np.int64)
    whole[: len(found)] = found
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
