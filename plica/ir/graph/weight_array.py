"""Weight arrays at compile time: column-wise derivation, reordering and queries.

>>> def sums(parts, into):
...     np.add(parts[0], parts[1], out=into[0])
>>> made = ColumnwiseArray("sums", np.arange(6).reshape(2, 3), 1, sums)
>>> made.shape, made.whole()
((1, 3), array([[3, 5, 7]]))

>>> turned = StridedCopy((3, 2), ((0, 0), (0, 0)), None, (0, 0), ((0, 1), (1, 0)))
>>> turned.of(np.arange(6).reshape(2, 3))
array([[0, 3],
       [1, 4],
       [2, 5]])

This module does not import terms, so constants can be derived without the compiler.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product as box
from math import prod
from typing import Any, Final, TypeAlias

import numpy as np

from plica.core import DeferredBytes
from plica.runtime.artefact import aligned_array

Array: TypeAlias = "np.ndarray[Any, Any]"

COLUMNS: Final = 1 << 15  # how many columns are made at once: many for numpy, and few for a cache


def chunks(extents: list[int], rows: int) -> Iterator[tuple[tuple[int, int], ...]]:
    """The box in row-major order, in pieces of about a given number of rows."""
    inner, at = 1, len(extents)
    while at > 0 and inner * extents[at - 1] <= rows:
        at -= 1
        inner *= extents[at]
    whole = tuple((0, size) for size in extents[at:])
    if at == 0:
        yield whole
        return
    width = max(1, rows // inner)
    cuts = [(low, min(low + width, extents[at - 1])) for low in range(0, extents[at - 1], width)]
    for outer in box(*[range(size) for size in extents[: at - 1]]):
        lead = tuple((place, place + 1) for place in outer)
        for cut in cuts:
            yield (*lead, cut, *whole)


class ColumnwiseArray(DeferredBytes):
    """A given number of rows of columns; `make` writes them into an array, from columns of the
    source.

    `words` say how, as a plain recipe does (`plica.ir.graph.plain_recipe`), if one can.
    """

    __slots__ = ("make", "shape", "source", "words")

    def __init__(
        self,
        origin: Hashable,
        source: Array,
        rows: int,
        make: Callable[[Array, Array], None],
        words: tuple[Any, ...] = (),  # Any: JSON
    ) -> None:
        self.source = source
        self.words = words
        self.shape: tuple[int, ...] = (rows, *source.shape[1:])
        self.make = make
        super().__init__(origin, prod(self.shape) * source.dtype.itemsize, self._bytes)

    def into(self, room: Array, source: Array) -> None:
        """Make the columns of a room, from the source in the order of the room."""
        if 0 in room.shape:
            return
        for piece in chunks([*room.shape[1:]], COLUMNS):
            at = (slice(None), *[slice(low, high) for low, high in piece])
            self.make(np.ascontiguousarray(source[at]), room[at])

    def whole(self) -> Array:
        """All columns in order, as a new array."""
        room: Array = np.empty(self.shape, self.source.dtype)
        self.into(room, self.source)
        return room

    def _bytes(self) -> memoryview:
        plain = self.whole().reshape(-1).view(np.uint8)
        plain.flags.writeable = False
        return plain.data


@dataclass(frozen=True, slots=True)
class StridedCopy:
    """Where the elements of an array of a shape lie in another, padded with `fill`: at `starts`,
    and a step along an axis is a sum of steps along the other's axes (a row of `steps` for
    each)."""

    shape: tuple[int, ...]
    pads: tuple[tuple[int, int], ...]
    fill: bool | int | float | None
    starts: tuple[int, ...]
    steps: tuple[tuple[int, ...], ...]

    def of(self, source: Array) -> Array:
        """The elements, where they are if none is padding."""
        if self.fill is not None and any(pad != (0, 0) for pad in self.pads):
            source = np.pad(source, self.pads, constant_values=self.fill)
        strides = [0] * len(self.shape)
        for row, stride in zip(self.steps, source.strides, strict=True):
            strides = [done + step * stride for done, step in zip(strides, row, strict=True)]
        whole = tuple([slice(start, None) for start in self.starts])
        first = source[whole] if whole else source
        return np.lib.stride_tricks.as_strided(first, self.shape, strides, writeable=False)


def together(array: Array) -> Array:
    """The elements of an array one after the other, where a vector of them may begin."""
    if array.flags.c_contiguous:
        return array
    room: Array = aligned_array(array.nbytes).view(array.dtype).reshape(array.shape)
    room[...] = array
    return room


def put_in_columns(made: ColumnwiseArray, at: int, order: StridedCopy) -> Array:
    """Columns in another order, along another axis: they are made there."""
    shape = (*order.shape[:at], made.shape[0], *order.shape[at + 1 :])
    room: Array = aligned_array(prod(shape) * made.source.dtype.itemsize)
    room = room.view(made.source.dtype).reshape(shape)
    made.into(np.moveaxis(room, at, 0), np.moveaxis(order.of(made.source), at, 0))
    return room


LIKE_NUMPY: Final[dict[str, Callable[[Array, Array], Array]]] = {
    "add": np.add, "multiply": np.multiply, "subtract": np.subtract,
}  # fmt: skip
"""Operators that round once, as numpy does."""


# --- questions ------------------------------------------------------------------------------------


def _are_finite(*factors: Array) -> bool:
    """Whether numbers are finite, and the products of the largest of each would be, too."""
    largest = 1.0
    for value in factors:
        if value.dtype.kind in "biu":  # integers wrap alike in any order
            continue
        with np.errstate(over="ignore"):
            largest *= float(np.maximum(value.max(initial=0.0), -value.min(initial=0.0)))
            largest = float(np.asarray(largest).astype(value.dtype))
    return bool(np.isfinite(largest))


def _is_tame(value: Array) -> bool:
    """Whether sums and multiples of the numbers stay finite."""
    return bool((np.abs(value) < MAX_WEIGHT).all())


def _is_one_number(value: Array) -> bool:
    """Whether the array is non-empty and all elements have the same bits."""
    size = value.dtype.itemsize
    bits = np.ascontiguousarray(value).reshape(-1).view(np.uint8).reshape(-1, size)
    return bool(len(bits)) and bool((bits[-1] == bits[0]).all() and (bits == bits[0]).all())


def _are_bytes(value: Array) -> bool:
    """Whether the array is non-empty and all numbers are signed bytes."""
    low, high = np.iinfo(np.int8).min, np.iinfo(np.int8).max
    return bool(value.size and low <= value.min() and value.max() <= high)


MAX_WEIGHT: Final = 1e30
QUESTIONS: Final[dict[str, Callable[..., bool]]] = {
    "are-bytes": _are_bytes,
    "are-finite": _are_finite,
    "is-tame": _is_tame,
    "is-one-number": _is_one_number,
}
"""What may be asked about the elements of constants."""


def answer_to(question: str, values: Sequence[Array]) -> bool | None:
    """The answer to a query about arrays, or None if the query is unknown."""
    asked = QUESTIONS.get(question)
    return None if asked is None else asked(*values)
