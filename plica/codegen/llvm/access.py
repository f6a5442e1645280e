"""Access: elements of buffers read and written, one at a time or for all lanes at once.

Neighbours are one vector; neighbours a few elements apart are picked from one; anything else is
read lane by lane.  A load whose index may be outside its buffer is made only where it is inside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from attrs import frozen

from plica.codegen.llvm.lane import TRUE, Lanes, Value, constant
from plica.codegen.llvm.scalar import pack, unpack
from plica.codegen.llvm.word import literal, memory
from plica.core.binding import free_vars
from plica.core.diagnostic import CompilerBug
from plica.ir.dim import evaluate, known
from plica.ir.dtype import bool_, i64
from plica.ir.scalar import Buffer, Scalar

APART: Final = 4
"""How far apart lanes may lie for all between them to be read as well."""


@frozen(eq=False)
class Place:
    """Where a buffer is: its address, and how many elements lie between neighbours of each dim."""

    pointer: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def span(self) -> int:
        """How many elements lie between its first and its last, with these."""
        if 0 in self.shape:
            return 0
        return 1 + sum(s * (n - 1) for s, n in zip(self.strides, self.shape, strict=True))


def place_of(buffer: Buffer, pointer: str) -> Place:
    """Where a buffer is that begins at an address."""
    shape = numbers(buffer, buffer.shape)
    if buffer.strides:
        return Place(pointer, shape, numbers(buffer, buffer.strides))
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return Place(pointer, shape, tuple(reversed(strides)))


def numbers(buffer: Buffer, dims: Sequence[Scalar]) -> tuple[int, ...]:
    """The shape or the strides of a buffer, all of which must be known."""
    found = []
    for each in dims:
        size = known(each)
        if size is None:
            size = evaluate(each, {}) if not free_vars(each) else None
        if size is None:
            raise CompilerBug(f"The buffer {buffer.name} has a symbolic dim.")
        found.append(size)
    return tuple(found)


class Access:
    """Reads and writes the buffers that are in reach."""

    def __init__(self, lanes: Lanes) -> None:
        self.lanes = lanes
        self.places: dict[Buffer, Place] = {}

    def linear(self, buffer: Buffer, indices: Sequence[Value]) -> Value:
        """How many elements a place is from the first."""
        found = constant(0)
        for index, stride in zip(indices, self.places[buffer].strides, strict=True):
            found = self.lanes.add(found, self.lanes.mul(index, constant(stride), "nsw "), "nsw ")
        return found

    def address(self, buffer: Buffer, at: Value, sound: bool) -> str:
        """The address of the first lane; `sound` says that without `plus` it is inside as well."""
        kind = memory(buffer.dtype)
        pointer = self.places[buffer].pointer
        word = "getelementptr inbounds" if sound or not at.plus else "getelementptr"
        if at.text:
            pointer = self.lanes.pure(f"{word} {kind}, ptr {pointer}, i64 {at.text}")
        if at.plus:
            pointer = self.lanes.pure(f"{word} {kind}, ptr {pointer}, i64 {at.plus}")
        return pointer

    # --- reading -------------------------------------------------------------------------------

    def load(self, buffer: Buffer, indices: Sequence[Value], inside: Value, sound: bool) -> Value:
        """The element in every lane where `inside` holds; it is 0 elsewhere."""
        lanes = self.lanes
        at = self.linear(buffer, indices)
        if inside.is_uniform:
            n = 0 if at.is_uniform else lanes.count
            stored = self._where(
                inside, memory(buffer.dtype, n), lambda: self._read(buffer, at, sound)
            )
        else:
            n = lanes.count
            stored = self._masked(buffer, at, inside.text, sound)
        return Value(unpack(lanes.w, stored, buffer.dtype, n), None if n else 0)

    def _where(self, inside: Value, kind: str, read: Callable[[], str]) -> str:
        """What is read if a condition holds, 0 otherwise."""
        if inside == TRUE:
            return read()
        w = self.lanes.w
        here, skip = w.labels("read", "skip")
        before = w.block
        w.do(f"br i1 {inside.text}, label %{here}, label %{skip}")
        w.start(here)
        mark = self.lanes.mark()
        stored = read()
        self.lanes.release(mark)
        end = w.block
        w.do(f"br label %{skip}")
        w.start(skip)
        return w.let(f"phi {kind} [ {stored}, %{end} ], [ zeroinitializer, %{before} ]")

    def _read(self, buffer: Buffer, at: Value, sound: bool) -> str:
        lanes, w, n = self.lanes, self.lanes.w, self.lanes.count
        kind, align = memory(buffer.dtype), buffer.dtype.bytes
        if at.step is None:
            return self._gathered(buffer, at)
        if at.step == 0:
            return w.let(f"load {kind}, ptr {self.address(buffer, at, sound)}, align {align}")
        if at.step == 1:
            place = self.address(buffer, at, sound)
            return w.let(f"load <{n} x {kind}>, ptr {place}, align {align}")
        if abs(at.step) > APART:
            return self._gathered(buffer, at)
        # All from the first lane to the last lies inside the buffer, as both of them do.
        width = abs(at.step) * (n - 1) + 1
        first = at if at.step > 0 else lanes.add(at, constant(at.step * (n - 1)))
        place = self.address(buffer, first, False)
        every = w.let(f"load <{width} x {kind}>, ptr {place}, align {align}")
        start = 0 if at.step > 0 else width - 1
        picked = ", ".join(f"i32 {start + at.step * lane}" for lane in range(n))
        many = f"<{width} x {kind}>"
        return w.let(f"shufflevector {many} {every}, {many} poison, <{n} x i32> <{picked}>")

    def _gathered(self, buffer: Buffer, at: Value) -> str:
        w, n = self.lanes.w, self.lanes.count
        kind, align = memory(buffer.dtype), buffer.dtype.bytes
        found = "poison"
        for lane, place in enumerate(self._each(buffer, at)):
            one = w.let(f"load {kind}, ptr {place}, align {align}")
            found = w.let(f"insertelement <{n} x {kind}> {found}, {kind} {one}, i64 {lane}")
        return found

    def _each(self, buffer: Buffer, at: Value) -> list[str]:
        """The address of each lane."""
        w, n = self.lanes.w, self.lanes.count
        if at.step is not None:
            apart = [Value(at.text, 0, at.plus + at.step * lane) for lane in range(n)]
        else:
            apart = [
                Value(w.let(f"extractelement <{n} x i64> {at.text}, i64 {lane}"))
                for lane in range(n)
            ]
        return [self.address(buffer, each, False) for each in apart]

    def _masked(self, buffer: Buffer, at: Value, mask: str, sound: bool) -> str:
        """Read the lanes in which a condition holds."""
        lanes, w, n = self.lanes, self.lanes.w, self.lanes.count
        one, align = memory(buffer.dtype), buffer.dtype.bytes
        kind = f"<{n} x {one}>"
        short = _SHORT.get(one, one)
        rest = f"<{n} x i1> {mask}, {kind} zeroinitializer"
        if at.step == 1:
            place = self.address(buffer, at, sound)
            name = f"@llvm.masked.load.v{n}{short}.p0"
            return w.let(f"call {kind} {name}(ptr align {align} {place}, {rest})")
        pointer = self.places[buffer].pointer
        where = lanes.vector(at, i64)
        places = w.let(f"getelementptr {one}, ptr {pointer}, <{n} x i64> {where}")
        name = f"@llvm.masked.gather.v{n}{short}.v{n}p0"
        return w.let(f"call {kind} {name}(<{n} x ptr> align {align} {places}, {rest})")

    @contextmanager
    def only_where(self, inside: Value) -> Iterator[None]:
        """Do what is written inside if a condition holds."""
        if inside == TRUE:
            yield
            return
        w = self.lanes.w
        here, skip = w.labels("write", "skip")
        w.do(f"br i1 {inside.text}, label %{here}, label %{skip}")
        w.start(here)
        mark = self.lanes.mark()
        yield
        self.lanes.release(mark)
        w.do(f"br label %{skip}")
        w.start(skip)

    # --- writing -------------------------------------------------------------------------------

    def store(  # an element, and what is known of its place
        self, buffer: Buffer, indices: Sequence[Value], value: Value, mask: Value, sound: bool
    ) -> None:
        """Write the element of every lane that takes part."""
        lanes, w, n = self.lanes, self.lanes.w, self.lanes.count
        of, kind, align = buffer.dtype, memory(buffer.dtype), buffer.dtype.bytes
        at = self.linear(buffer, indices)
        if not n:
            stored = pack(w, lanes.scalar(value), of)
            place = self.address(buffer, at, sound)
            w.do(f"store {kind} {stored}, ptr {place}, align {align}")
            return
        if at.step == 0 and mask == TRUE:
            raise CompilerBug(f"All lanes of a vectorized loop write one element of {buffer.name}.")
        stored = pack(w, lanes.vector(value, of), of, n)
        if mask != TRUE:
            self._store_masked(buffer, at, stored, lanes.vector(mask, bool_))
            return
        if at.step == 1:
            place = self.address(buffer, at, sound)
            w.do(f"store <{n} x {kind}> {stored}, ptr {place}, align {align}")
            return
        for lane, place in enumerate(self._each(buffer, at)):
            one = w.let(f"extractelement <{n} x {kind}> {stored}, i64 {lane}")
            w.do(f"store {kind} {one}, ptr {place}, align {align}")

    def _store_masked(self, buffer: Buffer, at: Value, stored: str, mask: str) -> None:
        """Write the lanes in which a condition holds."""
        w, n = self.lanes.w, self.lanes.count
        one, align = memory(buffer.dtype), buffer.dtype.bytes
        kind, short = f"<{n} x {one}>", _SHORT.get(one, one)
        if at.step == 1:
            place = f"ptr align {align} {self.address(buffer, at, False)}"
            name = f"@llvm.masked.store.v{n}{short}.p0"
        else:
            pointer, where = self.places[buffer].pointer, self.lanes.vector(at, i64)
            places = w.let(f"getelementptr {one}, ptr {pointer}, <{n} x i64> {where}")
            place = f"<{n} x ptr> align {align} {places}"
            name = f"@llvm.masked.scatter.v{n}{short}.v{n}p0"
        w.do(f"call void {name}({kind} {stored}, {place}, <{n} x i1> {mask})")


_SHORT: Final = {"float": "f32", "double": "f64"}
"""How the types that have another name are called in the names of LLVM's functions."""


def nothing(buffer: Buffer) -> Value:
    """What a load from an empty buffer gives."""
    return constant(0) if buffer.dtype is i64 else Value(literal(0, buffer.dtype))
