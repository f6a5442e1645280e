"""Buffer addresses: where a buffer begins, how far apart its elements lie, and beside which of them
instructions name others.

>>> from plica.ir.type.dtype import f32
>>> from plica.ir.loop.tensor import buffer
>>> place = place_of(buffer("x", (3, 4), f32), "%x")
>>> place.strides, place.span, place.kind
((4, 1), 12, 'float')
>>> [base_element(plus, 4, 16, 4096) for plus in (0, 5000, 5001, 20000)]
[-4, -4, -3, 16376]
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final, TypeAlias

from attrs import frozen

from plica.codegen.llvm.dialect import memory, register
from plica.core.binding import free_vars
from plica.ir.loop.scalar import Buffer, Scalar
from plica.ir.type.dim import evaluate, known, product

REGISTER_BYTES: Final = 16
UNALIGNED: Final = 256
"""Instructions that name whole steps beside an address read so many bytes at once, at most, and any
byte that is no further."""

Size: TypeAlias = "int | Scalar"
"""A number, or a term over the dims of the kernel."""


@frozen(eq=False)
class BufferAddress:
    """Where a buffer is: its address, and how many elements lie between neighbours of each dim."""

    pointer: str
    shape: tuple[Size, ...]
    strides: tuple[Size, ...]
    kind: str
    """The type of an element in memory."""
    align: int
    """The bytes of an element."""
    is_plain: bool
    """Whether an element in memory is the value itself."""
    is_flat: bool
    """Whether an index is how many elements a place is from the first."""
    is_constant: bool = False
    """Whether nobody writes there while the kernel runs: what was read once need not be again."""

    @property
    def span(self) -> int:
        """How many elements lie between its first and its last, with these; at least.

        Nothing is known of a buffer with an open size: it may be empty.
        """
        sizes = [each for each in self.shape if isinstance(each, int)]
        steps = [each for each in self.strides if isinstance(each, int)]
        if 0 in sizes or len(sizes) < len(self.shape) or len(steps) < len(self.strides):
            return 0
        return 1 + sum(s * (n - 1) for s, n in zip(steps, sizes, strict=True))


def place_of(buffer: Buffer, pointer: str) -> BufferAddress:
    """Where a buffer is that begins at an address."""
    shape, of = sizes_of(buffer.shape), buffer.dtype
    facts = memory(of), of.bytes, memory(of) == register(of)
    if buffer.strides:
        return BufferAddress(pointer, shape, sizes_of(buffer.strides), *facts, False)
    strides: list[Size] = []
    for at in range(len(shape)):
        rest = shape[at + 1 :]
        if all(isinstance(each, int) for each in rest):
            strides.append(prod([each for each in rest if isinstance(each, int)]))
        else:
            strides.append(product(buffer.shape[at + 1 :]))
    return BufferAddress(pointer, shape, tuple(strides), *facts, len(shape) == 1)


def sizes_of(dims: Sequence[Scalar]) -> tuple[Size, ...]:
    """The shape or the strides of a buffer, as numbers where they are known."""
    found: list[Size] = []
    for each in dims:
        if (size := known(each)) is None:
            size = evaluate(each, {}) if not free_vars(each) else None
        found.append(each if size is None else size)
    return tuple(found)


def base_element(plus: int, element: int, size: int, steps: int) -> int:
    """The element beside which an instruction that reads `size` bytes names the one at `plus`.

    From there to what it reads are whole steps of its size, about so many of them at most.

    Neighbours share it.  It is a register before the first of these: LLVM would advance an address
    that is read itself from one neighbour to the next, in a register for each, and the reads that
    have to wait for one another take registers of sums.
    """
    step = min(size, REGISTER_BYTES)
    offset, rest = plus * element, 0
    if not -UNALIGNED <= offset + REGISTER_BYTES < UNALIGNED:
        most = step * steps - REGISTER_BYTES
        rest = offset % step + offset // most * most
    return (rest - REGISTER_BYTES) // element
