"""Buffer addresses: the base and strides of a buffer, base addresses with immediate offsets, and
the text of an element's address.

>>> from plica.ir.type.dtype import f32
>>> from plica.ir.loop.tensor import buffer
>>> place = place_of(buffer("x", (3, 4), f32), "%x")
>>> place.strides, place.span, place.kind
((4, 1), 12, 'float')
>>> [base_element(plus, 4, 16, 4096) for plus in (0, 5000, 5001, 20000)]
[-4, -4, -3, 16376]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, reduce
from math import prod
from typing import Final, TypeAlias

from attrs import frozen

from plica.codegen.llvm.dialect import memory, register
from plica.codegen.llvm.lane import Lanes, LaneValue, constant, wrapped
from plica.codegen.llvm.writer import OPAQUE
from plica.core import CompilerBug, free_vars
from plica.ir.loop.scalar import Buffer, Scalar
from plica.ir.type import evaluate, known, product

REGISTER_BYTES: Final = 16
UNALIGNED: Final = 256
"""The maximum access size with immediate offsets in multiples of it; offsets of single bytes are
limited to the same distance."""

FIRST_ELEMENT: Final = constant(0)

Size: TypeAlias = "int | Scalar"  # a number, or a term over the dims of the kernel


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
    """Whether the buffer is not written while the kernel runs, so loads need not be repeated."""

    @cached_property
    def span(self) -> int:
        """How many elements lie between its first and its last, with these; at least.

        Nothing is known of a buffer with an open size: it may be empty.
        """
        sizes = [each for each in self.shape if isinstance(each, int)]
        steps = [stride for stride in self.strides if isinstance(stride, int)]
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


def parameter_facts(buffer: Buffer, size: int, read_only: bool = False) -> str:
    """What LLVM may know of a parameter that is the address of a buffer of a given number of
    bytes."""
    align = max(buffer.align, buffer.dtype.bytes)
    words = ["ptr", "noalias", "nonnull", "captures(none)", f"align {align}"]
    if read_only:
        words.append("readonly")
    if size:
        words.append(f"dereferenceable({size})")
    return " ".join(words)


def sizes_of(dims: Sequence[Scalar]) -> tuple[Size, ...]:
    """The shape or the strides of a buffer, as numbers where they are known."""
    found: list[Size] = []
    for dim in dims:
        if (size := known(dim)) is None:
            size = evaluate(dim, {}) if not free_vars(dim) else None
        found.append(dim if size is None else size)
    return tuple(found)


def base_element(plus: int, element: int, size: int, steps: int) -> int:
    """The base element from which an access of `size` bytes reaches element `plus` by an immediate
    offset.

    The offset is a multiple of the access size, up to about this many.

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


class AddressEmitter:
    """Writes the addresses of elements of the buffers that are in reach."""

    def __init__(self, lanes: Lanes) -> None:
        self.lanes = lanes
        self.places: dict[Buffer, BufferAddress] = {}
        self.apart: dict[str, tuple[LaneValue, LaneValue]] = {}  # what lanes share
        self.size: Callable[[Scalar], LaneValue] = _none  # the value of an open size
        self.rows: dict[str, tuple[str, str]] = {}  # places as a row and a column

    def linear(self, buffer: Buffer, indices: Sequence[LaneValue]) -> LaneValue:
        """How many elements a place is from the first."""
        place = self.places[buffer]
        if place.is_flat:
            return indices[0]
        lanes, text = self.lanes, ""
        step = plus = 0
        vectors: list[LaneValue] = []
        fixed: list[LaneValue] = []
        for index, stride in zip(indices, place.strides, strict=True):
            if not isinstance(stride, int):
                if index.step == 0 and index.text and index.plus:
                    # Places a few rows apart share what depends on loops; the rest does not.
                    fixed.append(lanes.mul(constant(index.plus), self.size(stride)))
                    index = index._replace(plus=0)
                vectors.append(lanes.mul(index, self.size(stride)))
                continue
            if index.step is None:
                vectors.append(lanes.mul(index, constant(stride)) if stride != 1 else index)
                continue
            step += index.step * stride
            plus += index.plus * stride
            if index.text and stride:
                part = index.text
                if stride != 1:
                    part = lanes.pure(f"mul nsw i64 {part}, {stride}")
                text = lanes.pure(f"add nsw i64 {text}, {part}") if text else part
        found = first = LaneValue(text, step, wrapped(plus))
        if vectors and all(vector.is_uniform for vector in vectors):
            return self._in_row((*vectors, *fixed), first)
        for each in (*vectors, *fixed):
            found = lanes.add(each, found) if found != FIRST_ELEMENT else each
        if found.step is None and first.is_uniform and len(vectors) == 1 and not fixed:
            self.apart[found.text] = first, vectors[0]
        return found

    def _in_row(self, rows: Sequence[LaneValue], column: LaneValue) -> LaneValue:
        """A place in a row, an open distance from others: where rows begin is written before the
        loops along them."""
        lanes = self.lanes
        row = reduce(lanes.add, rows)
        found = lanes.add(row, column)
        if row.text and column.text:
            self.rows[found.text] = row.text, column.text
        return found

    def address(self, buffer: Buffer, at: LaneValue, sound: bool) -> str:
        """The address of the first lane; `sound` says that without `plus` it is inside as well."""
        place = self.places[buffer]
        kind, pointer = place.kind, place.pointer
        text, _, plus = at
        lanes = self.lanes
        word = "getelementptr inbounds" if sound or not plus else "getelementptr"
        if text:
            if text in self.rows:
                row, text = self.rows[text]
                pointer = lanes.ahead(f"getelementptr {kind}, ptr {pointer}, i64 {row}")
                pointer = lanes.ahead(f'call ptr asm "", "=r,0"(ptr {pointer})')
            pointer = lanes.pure(f"{word} {kind}, ptr {pointer}, i64 {text}")
            traits = lanes.w.traits
            if traits.near:
                size = place.align * (lanes.count if at.step else 1)
                first = base_element(plus, place.align, size, traits.near)
                word = "getelementptr"  # the base may lie before the buffer
                pointer = lanes.pure(f"{word} {kind}, ptr {pointer}, i64 {first}")
                plus -= first
            opaque, anyhow = f"{OPAQUE[0]}{pointer}{OPAQUE[1]}", traits.far or traits.near
            if anyhow or (traits.open and (plus or lanes.is_known(opaque))):
                pointer = lanes.pure(opaque)
        return lanes.pure(f"{word} {kind}, ptr {pointer}, i64 {plus}") if plus else pointer

    def lane_addresses(self, buffer: Buffer, at: LaneValue) -> list[str]:
        """The address of each lane."""
        w, n = self.lanes.w, self.lanes.count
        if at.step is not None:
            apart = [LaneValue(at.text, 0, at.plus + at.step * lane) for lane in range(n)]
        else:
            apart = [
                LaneValue(w.let(f"extractelement <{n} x i64> {at.text}, i64 {lane}"))
                for lane in range(n)
            ]
        return [self.address(buffer, each, False) for each in apart]


def _none(of: Scalar) -> LaneValue:
    raise CompilerBug(f"The size {of!r} is open, and there is no value for it.")
