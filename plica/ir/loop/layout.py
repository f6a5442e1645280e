"""Layouts: in which order, and in which blocks, the axes of a tensor lie in memory.

    Layout ::= Layout(axes)        axes: pairs (logical axis, block); block 0 is the axis itself,
                                   or what its blocks leave of it, a size is one of its blocks

A word says it with the letters of the logical axes: `NHWC`, `NCHW4c` (channels in blocks of four,
the place in a block last), `OIHW4i16o`.  Of several blocks of one axis the last is the innermost.

>>> blocked = read_layout("NCHW4c", "NCHW")
>>> blocked.axes
((0, 0), (1, 0), (2, 0), (3, 0), (1, 4))
>>> show_layout(blocked, "NCHW"), show_layout(permuted((0, 2, 3, 1)), "NCHW")
('NCHW4c', 'NHWC')
>>> blocked.pack(np.arange(6).reshape(1, 6, 1, 1)).reshape(2, 4)
array([[0, 1, 2, 3],
       [4, 5, 0, 0]])

Laws: `show_layout(read_layout(w, l), l) == w`; `unpack(pack(a), a.shape)` is `a`; the index maps
`logical` and `places` are inverse to each other.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from attrs import frozen

from plica.core import IllTyped, Term, ill_formed
from plica.ir.loop.scalar import FloorDiv, FloorMod, Scalar, index
from plica.ir.type.dim import known, product, quotient

WRITTEN = "ir.layout"  # the path that its terms are written down under
_PART: Final = re.compile(r"([A-Z])|([1-9][0-9]*)([a-z])")
MAX_AXES: Final = 32  # a word with more parts is no layout: numpy's arrays have no more axes


@frozen(eq=False)
class Layout(Term):
    """How the axes of a tensor are stored, from the outermost to the innermost."""

    axes: tuple[tuple[int, int], ...]

    @staticmethod
    def normal(axes: tuple[tuple[int, int], ...]) -> tuple[Any, ...]:
        whole = sorted(axis for axis, block in axes if block == 0)
        if whole != list(range(len(whole))):
            raise ill_formed(f"A layout names each axis once, unlike {axes}.")
        if any(not 0 <= axis < len(whole) or block < 0 for axis, block in axes):
            raise ill_formed(f"The blocks of a layout are blocks of its axes, unlike {axes}.")
        return (axes,)

    @property
    def rank(self) -> int:
        """The number of logical axes."""
        return sum(block == 0 for _, block in self.axes)

    @property
    def is_identity(self) -> bool:
        return all(part == (at, 0) for at, part in enumerate(self.axes))

    @property
    def is_permutation(self) -> bool:
        return all(block == 0 for _, block in self.axes)

    @property
    def order(self) -> tuple[int, ...]:
        """The logical axes without their blocks, in the order they are stored."""
        return tuple(axis for axis, block in self.axes if block == 0)

    def blocks(self, axis: int) -> tuple[int, ...]:
        """The sizes of the blocks of an axis, the innermost last."""
        return tuple(block for at, block in self.axes if at == axis and block)

    def positions(self, axis: int) -> tuple[int, ...]:
        """Where an axis is stored: what its blocks leave of it, then its blocks."""
        inner = [at for at, (each, block) in enumerate(self.axes) if each == axis and block]
        return (self.axes.index((axis, 0)), *inner)

    def renamed(self, names: Sequence[int]) -> Layout:
        """The same storage when the logical axis `a` is called `names[a]`."""
        return Layout(tuple((names[axis], block) for axis, block in self.axes))

    def without(self, dropped: Sequence[int]) -> Layout:
        """The storage of a tensor that lacks some of the axes."""
        kept = [axis for axis in range(self.rank) if axis not in dropped]
        return Layout(tuple((kept.index(a), block) for a, block in self.axes if a in kept))

    def with_unit_blocks(self, axes: Sequence[int]) -> Layout:
        """The same storage with blocks of size 1 for axes that are of size 1 themselves."""
        return Layout(tuple((a, 1 if block and a in axes else block) for a, block in self.axes))

    def shape_of(self, logical: Sequence[Scalar]) -> tuple[Scalar, ...] | None:
        """The shape in memory, or None if the blocks do not divide an axis."""
        outer = [quotient(size, index(math.prod(self.blocks(a)))) for a, size in enumerate(logical)]
        scalars = [index(block) if block else outer[axis] for axis, block in self.axes]
        return None if None in outer else tuple(scalar for scalar in scalars if scalar is not None)

    def logical_shape(self, stored: Sequence[Scalar]) -> tuple[Scalar, ...] | None:
        """The logical shape of a stored shape, or None if the block sizes differ."""
        for (_, block), size in zip(self.axes, stored, strict=True):
            if block and known(size) != block:
                return None
        parts = [[stored[at] for at in self.positions(axis)] for axis in range(self.rank)]
        return tuple(part[0] if len(part) == 1 else product(part) for part in parts)

    def logical(self, stored: Sequence[Scalar]) -> tuple[Scalar, ...]:
        """The index of the element that is stored at some place."""
        found = []
        for axis in range(self.rank):
            whole: Scalar | None = None
            for at in self.positions(axis):
                block = self.axes[at][1]
                place = stored[at]
                if whole is None:
                    whole = place
                elif block > 1:
                    whole = (whole * block) + place
            assert whole is not None
            found.append(whole)
        return tuple(found)

    def places(
        self,
        indices: Sequence[Scalar],
        cut: Callable[[Scalar, tuple[int, ...]], Sequence[Scalar] | None] = lambda *_: None,
    ) -> tuple[Scalar, ...]:
        """Where the element of an index is stored.

        `cut(i, blocks)` may know the parts of an index without a division.
        """
        places: list[Scalar] = [index(0)] * len(self.axes)
        for axis, at in enumerate(indices):
            blocks = self.blocks(axis)
            parts = cut(at, blocks) if blocks else (at,)
            scalars = cut_index(at, blocks) if parts is None else parts
            for position, part in zip(self.positions(axis), scalars, strict=True):
                places[position] = part
        return tuple(places)

    def pack(self, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """The array as stored; axes that blocks do not divide are padded with zeros."""
        blocks = [self.blocks(axis) for axis in range(self.rank)]
        missing = [-size % math.prod(b) for size, b in zip(array.shape, blocks, strict=True)]
        if any(missing):
            array = np.pad(array, [(0, more) for more in missing])
        array = array.reshape(
            [n for s, b in zip(array.shape, blocks, strict=True) for n in (s // math.prod(b), *b)]
        )
        return np.asarray(array.transpose(self._from_parts()), order="C")

    def unpack(self, array: np.ndarray[Any, Any], shape: Sequence[int]) -> np.ndarray[Any, Any]:
        """The array of that shape of which this is the storage."""
        back = self._from_parts()
        array = array.transpose([back.index(at) for at in range(len(back))])
        whole = [-(-size // (b := math.prod(self.blocks(a)))) * b for a, size in enumerate(shape)]
        cut = array.reshape(whole)[tuple(slice(0, size) for size in shape)]
        return np.asarray(cut, order="C")

    def _from_parts(self) -> list[int]:
        """The value of an expression."""
        parts = [at for axis in range(self.rank) for at in self.positions(axis)]
        return [parts.index(at) for at in range(len(parts))]


def permuted(order: Sequence[int]) -> Layout:
    """Axes in another order."""
    return Layout(tuple((axis, 0) for axis in order))


def as_it_is(rank: int) -> Layout:
    """Axes in their own order."""
    return permuted(range(rank))


def cut_index(at: Scalar, blocks: Sequence[int]) -> list[Scalar]:
    """The parts of an index: the outermost, then its place in each block."""
    parts: list[Scalar] = []
    for block in reversed(blocks):
        if block == 1:
            parts.append(index(0))
            continue
        if (number := known(at)) is not None:
            parts.append(index(number % block))
            at = index(number // block)
        else:
            parts.append(FloorMod(at, index(block)))
            at = FloorDiv(at, index(block))
    return [at, *reversed(parts)]


def layout_of(word: str, logical: str) -> Layout | str:
    """The layout of a word, or why it is invalid."""
    end, axes = 0, []
    for match in _PART.finditer(word[: 8 * MAX_AXES]):
        letter = (match[1] or match[3]).upper()
        if match.start() != end or letter not in logical:
            return f"{word!r} is no layout of the axes {logical}."
        axes.append((logical.index(letter), int(match[2] or 0)))
        end = match.end()
    whole = sorted(axis for axis, block in axes if block == 0)
    if end != len(word) or whole != list(range(len(logical))) or len(axes) > MAX_AXES:
        return f"{word!r} is no layout of the axes {logical}."
    if any(block >= 1 << 31 for _, block in axes):
        return f"A block of {word!r} is too large."
    return Layout(tuple(axes))


def read_layout(word: str, logical: str) -> Layout:
    """The layout of a word; raises `IllTyped` if it is invalid."""
    if isinstance(found := layout_of(word, logical), str):
        example = f"each letter of {logical} once, and blocks such as 4{logical[-1:].lower()}"
        raise IllTyped.of("bad-layout", found, expected=example, found=word)
    return found


def show_layout(layout: Layout, logical: str) -> str:
    """The word of a layout."""
    return "".join(
        f"{block}{logical[axis].lower()}" if block else logical[axis] for axis, block in layout.axes
    )
