"""Constants: what a kernel reads instead of one, or besides, computed once and for all.

>>> cut = Cut(0, ((0, 2), (1, 4)), (0, 2, 1, 3), i8)
>>> cut.apply(np.ones((3, 6))).shape
(2, 2, 2, 4)
>>> Sums(0, 1, 4).apply(np.ones((3, 6))).tolist()
[[3, 3, 3, 3], [3, 3, 0, 0]]
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from attrs import frozen

from plica.ir.dtype import DType, i8, i32

__all__ = ["Cut", "Derived", "Sums", "i8"]

Array = np.ndarray[Any, Any]


@frozen
class Cut:
    """How a constant is laid out in bytes: some axes cut in two, then all put in an order."""

    input: int
    cuts: tuple[tuple[int, int], ...]
    order: tuple[int, ...]
    dtype: DType

    def apply(self, array: Array) -> Array:
        """The array as the kernel reads it, 0 where it has no more elements."""
        parts = dict(self.cuts)
        pad = [(0, -size % parts.get(at, 1)) for at, size in enumerate(array.shape)]
        array = np.pad(array, pad)
        shape: list[int] = []
        for at, size in enumerate(array.shape):
            shape += [size // parts[at], parts[at]] if at in parts else [size]
        moved = array.reshape(shape).transpose(self.order)
        return np.ascontiguousarray(moved).astype(self.dtype.numpy)


@frozen
class Sums:
    """What a kernel reads besides: the sums of a constant over all axes but one, which is cut."""

    input: int
    axis: int
    lanes: int
    dtype: DType = i32

    def apply(self, array: Array) -> Array:
        """The sums modulo 2**32, 0 where there are no more elements."""
        others = tuple([at for at in range(array.ndim) if at != self.axis])
        total = array.astype(np.int64).sum(axis=others).astype(np.uint32).view(np.int32)
        return np.pad(total, (0, -total.size % self.lanes)).reshape(-1, self.lanes)


Derived: TypeAlias = Cut | Sums
