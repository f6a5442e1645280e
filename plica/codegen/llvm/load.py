"""Loads: elements of buffers read, one at a time or for all lanes at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Final, NamedTuple

from plica.codegen.emit.scalar import unpack_element
from plica.codegen.llvm.buffer_address import FIRST_ELEMENT, AddressEmitter, BufferAddress
from plica.codegen.llvm.dialect import LLVM, memory
from plica.codegen.llvm.lane import TRUE, Lanes, LaneValue, constant, valued
from plica.codegen.llvm.writer import SHORT, LlvmPlace
from plica.core import CompilerBug
from plica.ir.loop.scalar import Buffer
from plica.ir.type import f32, f64, i64
from plica.runtime.late import lazy_imports
from plica.schedule.default.machine import PASSING, waiting

with lazy_imports(__name__):
    from plica.codegen.llvm.moved_read import RowLanes, moved, unzipped, whole_shift
    from plica.codegen.llvm.transpose import (
        RegisterTranspose,
        RegisterTranspose as register_transpose,
    )

APART: Final = 4  # how far apart lanes may lie for all between them to be read as well
FEW_ELEMENTS: Final = 16  # this many elements at most are read one by one for the lanes of a vector
MAX_I32_ELEMENTS: Final = 1 << 31  # the number of elements addressable by an i32


NEIGHBOURS: Final = 64
"""The maximum offset of elements from one base address that may point to zeros."""

BEFORE: Final = 16  # this many of them are before it


class GuardedRow(NamedTuple):
    """A row that is loaded if a condition holds, and a column of it."""

    only: str
    row: LaneValue
    column: LaneValue


class LoadEmitter(AddressEmitter):
    """Reads the buffers that are in reach."""

    def __init__(self, lanes: Lanes) -> None:
        super().__init__(lanes)
        self.turner: RegisterTranspose | None = None  # made for the first tile that is turned
        self.width = 512  # bits of a vector
        self.reserve: Callable[[str], str] = _nowhere  # memory of the function, which holds 0
        self._guard: GuardedRow | None = None  # what must hold for vectors to be read

    def load(  # an element, and what is known of its place
        self,
        buffer: Buffer,
        at: LaneValue,
        inside: LaneValue,
        sound: bool,
        *,
        here: LaneValue = TRUE,
        reach: Callable[[int], str] | None = None,
        row: RowLanes | None = None,
        beside: tuple[int, int] = (0, 0),
        apart: tuple[LaneValue, LaneValue] | None = None,
    ) -> LaneValue:
        """Loads the element in every lane where `inside` and `here` hold; 0 elsewhere.

        `reach` states which elements from an index on are in bounds, `row` the lanes in bounds if
        that is the only check, `beside` how many elements before and after all lanes are in bounds,
        `apart` the row's base and the column.
        """
        lanes = self.lanes
        n = 0 if at.step == 0 and inside.step == 0 else lanes.count
        if inside == TRUE == here and self.places[buffer].is_plain:  # as nearly always
            return valued((self._read(buffer, at, sound, beside), None if n else 0, 0))
        kind = memory(buffer.dtype, n)
        near = at.step is not None and 0 < at.step <= APART and buffer.scope == "global"
        # Lanes may be neighbours although they lie in several rows.
        one_row = near and apart is not None and all(each.step is not None for each in apart)
        where = partial(self._where, kind=kind, row=apart if one_row else None)
        if inside.step == 0:
            stored = where(lanes.both(here, inside), lambda: self._read(buffer, at, sound, beside))
        else:
            mask = inside.text
            moves = row is not None and n <= row.columns and at.step == row.step <= APART

            def read() -> str:
                if row is None or not moves:
                    return self._masked(buffer, at, mask, sound, reach)
                return self._moved(buffer, lanes.add(at, constant(-row.first)), row)

            stored = where(here, read)
        if not self.places[buffer].is_plain:
            stored = unpack_element(stored, buffer.dtype, LlvmPlace(LLVM, lanes.w, n))
        return valued((stored, None if n else 0, 0))

    def address(self, buffer: Buffer, at: LaneValue, sound: bool) -> str:
        """The address of the first lane; that of zeros where a row is not to be read.

        The base is selected before the loops along the row, whose columns are all the same in the
        zero row: the loops contain no check.
        """
        if (guard := self._guard) is None:
            return super().address(buffer, at, sound)
        lanes, kind, (only, row, column) = self.lanes, self.places[buffer].kind, guard
        here = at.plus - row.plus
        first = (here + BEFORE) // NEIGHBOURS * NEIGHBOURS
        where = self.places[buffer].pointer
        for part in (row.text, str(row.plus + first)):
            if part not in ("", "0"):
                where = lanes.ahead(f"getelementptr {kind}, ptr {where}, i64 {part}")
        zeros = self.reserve(f"[{NEIGHBOURS + lanes.count} x {kind}]")
        middle = lanes.ahead(f"getelementptr {kind}, ptr {zeros}, i64 {BEFORE}")
        where = lanes.ahead(f"select i1 {only}, ptr {where}, ptr {middle}")
        where = lanes.ahead(f'call ptr asm "", "=r,0"(ptr {where})')  # it is not chosen again
        if column.text:
            every = lanes.ahead(f"sext i1 {only} to i64")
            there = lanes.pure(f"and i64 {column.text}, {every}")
            where = lanes.pure(f"getelementptr {kind}, ptr {where}, i64 {there}")
        near = here - first
        return lanes.pure(f"getelementptr {kind}, ptr {where}, i64 {near}") if near else where

    def beside(
        self, buffer: Buffer, at: LaneValue, most: int, copies: tuple[tuple[int, int], ...]
    ) -> LaneValue | None:
        """A uniform element extracted from a vector of its neighbours: copies of a loop read others
        of them, and products broadcast a lane. None if the machine has no such products, no
        registers for these vectors besides the sums, or the vector may exceed the buffer."""
        lanes, size = self.lanes, buffer.dtype.bytes
        if not lanes.count or not lanes.w.traits.picks or buffer.dtype not in (f32, f64):
            return None
        place, many = self.places[buffer], self.width // (8 * size)
        number = at.plus % many
        start = at.plus - number
        if (vectors := waiting(copies, many)) is None or start + most + many > place.span:
            return None
        if self._held() + vectors + PASSING > lanes.w.traits.picks:
            return None
        where = self.address(buffer, at._replace(plus=start), True)
        kind = f"<{many} x {place.kind}>"
        whole = self._fetched(place, f"load {kind}, ptr {where}, align {place.align}")
        return LaneValue(lanes.taken(kind, whole, number))

    def _held(self) -> int:
        """How many vectors the sums of a tile are."""
        own = [place for place in self.places if place.scope == "local"]
        sizes = [self.places[buffer].span * buffer.dtype.bytes for buffer in own]
        return 8 * max(sizes, default=0) // self.width

    def _where(
        self,
        inside: LaneValue,
        read: Callable[[], str],
        kind: str,
        row: tuple[LaneValue, LaneValue] | None,
    ) -> str:
        """A load if a condition holds, 0 otherwise: vectors of a row in constant memory, so that no
        other instruction waits."""
        if inside == TRUE:
            return read()
        w = self.lanes.w
        if row is not None:
            self._guard = GuardedRow(inside.text, *row)
            stored = read()
            self._guard = None
            return stored
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

    def _read(
        self, buffer: Buffer, at: LaneValue, sound: bool, beside: tuple[int, int] = (0, 0)
    ) -> str:
        if (step := at.step) is None:
            few = self._exchanged(buffer, at) or self._repeated(buffer, at) or self._few(buffer, at)
            return few or self._named(buffer, at, "splat (i1 true)")
        if step == 0:
            place, where = self.places[buffer], self.address(buffer, at, sound)
            return self._fetched(place, f"load {place.kind}, ptr {where}, align {place.align}")
        if step == 1:
            return self._vector(buffer, self.address(buffer, at, sound), None)
        near, row = abs(step) <= APART, self.width // (8 * buffer.dtype.bytes)
        # A column of registers is no memory to pick from, however short its rows are.
        columns = step % min(row, self.lanes.count) == 0
        turned = self._register_tile_column(buffer, at) if not near or columns else None
        if turned is not None:
            return turned
        if not near:
            return self._gathered(buffer, at)
        # Windows that overlap read the same: vectors, and lanes of them, are found once in a block.
        lanes, place = self.lanes, self.places[buffer]
        key = f"{lanes.w.block}: apart {place.pointer} {at} {beside} {lanes.count} {self._guard}"
        if not place.is_constant or not lanes.is_known(key):
            found = self._strided(buffer, at, beside) or self._picked(buffer, at, None)
            lanes.remember(key, found)
        return lanes.recall(key)

    def _exchanged(self, buffer: Buffer, at: LaneValue) -> str | None:
        """Lanes of a register, each at a place that is known; None where they are no such."""
        apart, place = self.lanes.distances(at), self.places[buffer]
        if buffer.scope != "local" or apart is None or (base := apart.shared.number) is None:
            return None
        first = base + min(apart.own)
        count = 1 << (base + max(apart.own) - first).bit_length()
        if count * buffer.dtype.bits > self.width or not 0 <= first <= place.span - count:
            return None
        where, kind = self.address(buffer, constant(first), True), f"<{count} x {place.kind}>"
        whole = self.lanes.w.let(f"load {kind}, ptr {where}, align {place.align}")
        mask = _exchange(tuple([base + each - first for each in apart.own]))
        return self.lanes.w.let(f"shufflevector {kind} {whole}, {kind} poison, {mask}")

    def _repeated(self, buffer: Buffer, at: LaneValue) -> str | None:
        """Lanes that read each of a few neighbours at least once, from a vector of these; None for
        others."""
        apart, place = self.lanes.distances(at), self.places[buffer]
        if apart is None:
            return None
        first, *others = sorted({*apart.own})
        if [*range(first + 1, first + 1 + len(others))] != others:
            return None
        where = self.address(buffer, self.lanes.add(apart.shared, constant(first)), False)
        kind = f"<{len(others) + 1} x {place.kind}>"
        whole = self._fetched(place, f"load {kind}, ptr {where}, align {place.align}")
        mask = _exchange(tuple([each - first for each in apart.own]))
        return self.lanes.w.let(f"shufflevector {kind} {whole}, {kind} poison, {mask}")

    def _few(self, buffer: Buffer, at: LaneValue) -> str | None:
        """Lanes that read a few distinct elements, loaded before independent loops; None if
        unknown."""
        lanes, n, place = self.lanes, self.lanes.count, self.places[buffer]
        if (apart := lanes.distances(at)) is None or not place.is_constant:
            return None
        if len({*apart.own}) > FEW_ELEMENTS:
            return None
        kind, many, found = place.kind, f"<{n} x {place.kind}>", ""
        for each in dict.fromkeys(apart.own):
            where = self.address(buffer, lanes.add(apart.shared, constant(each)), False)
            read = lanes.ahead(f"load {kind}, ptr {where}, align {place.align}")
            one = lanes.splat(read, kind)
            if found:
                mask = ", ".join([f"i1 {str(other == each).lower()}" for other in apart.own])
                one = lanes.ahead(f"select <{n} x i1> <{mask}>, {many} {one}, {many} {found}")
            found = one
        # Otherwise LLVM reselects in each iteration, as far as that saves registers.
        fence = f"call {many} @llvm.arithmetic.fence.v{n}{SHORT.get(kind, kind)}({many} {found})"
        return lanes.ahead(fence) if kind in SHORT and len({*apart.own}) > 1 else found

    def _strided(self, buffer: Buffer, at: LaneValue, beside: tuple[int, int]) -> str | None:
        """Strided lanes from as many consecutive vectors, if the elements between lanes are in
        bounds as well: a shuffle that machines have."""
        lanes, n = self.lanes, self.lanes.count
        if (shift := whole_shift(at, beside)) is None:
            return None
        begin = [lanes.add(at, constant(n * part - shift)) for part in range(at.step or 0)]
        places = [self.address(buffer, each, False) for each in begin]
        vectors = [self._vector(buffer, place, None) for place in places]
        return unzipped(vectors, shift, n, f"<{n} x {memory(buffer.dtype)}>", self._shuffled)

    def _picked(
        self,
        buffer: Buffer,
        at: LaneValue,
        mask: str | None,
        reach: Callable[[int], str] | None = None,
    ) -> str:
        """Lanes a few elements apart: whole vectors are read, and the lanes picked from them.

        Everything from the first lane to the last is in bounds if both are; the last vector ends
        with the last lane, so nothing beyond is read. With a mask, only active lanes' elements are
        read.
        """
        lanes, n = self.lanes, self.lanes.count
        assert at.step is not None
        step, many = abs(at.step), f"<{n} x {memory(buffer.dtype)}>"
        first = at if at.step > 0 else lanes.add(at, constant(at.step * (n - 1)))
        found = "poison"
        for start in sorted({min(n * part, step * (n - 1) + 1 - n) for part in range(step)}):
            place = self.address(buffer, lanes.add(first, constant(start)), False)
            lane_at = {at_: (start + at_) // step for at_ in range(n) if (start + at_) % step == 0}
            some = mask
            if reach is not None:
                some = reach(start)
            elif mask is not None:
                chosen = [lane_at.get(at_, n) for at_ in range(n)]
                some = self._shuffled(f"<{n} x i1>", mask, "zeroinitializer", chosen)
            read = self._vector(buffer, place, some)
            where = {lane: n + at_ for at_, lane in lane_at.items()}
            found = self._shuffled(many, found, read, [where.get(lane, lane) for lane in range(n)])
        if at.step > 0:
            return found
        return self._shuffled(many, found, "poison", list(range(n - 1, -1, -1)))

    def _moved(self, buffer: Buffer, begin: LaneValue, row: RowLanes) -> str:
        """Lanes of vectors that lie in a row as a whole, 0 in lanes that are outside."""

        def read(column: int) -> str:
            place = self.address(buffer, self.lanes.add(begin, constant(column)), False)
            return self._vector(buffer, place, None)

        n = self.lanes.count
        return moved(row, n, f"<{n} x {memory(buffer.dtype)}>", read, self._shuffled)

    def _vector(self, buffer: Buffer, place: str, mask: str | None) -> str:
        """Contiguous elements, masked if a mask is given."""
        n, at = self.lanes.count, self.places[buffer]
        one, align = at.kind, at.align
        kind = f"<{n} x {one}>"
        if mask is None:
            return self._fetched(at, f"load {kind}, ptr {place}, align {align}")
        name = f"@llvm.masked.load.v{n}{SHORT.get(one, one)}.p0"
        rest = f"<{n} x i1> {mask}, {kind} zeroinitializer"
        return self._fetched(at, f"call {kind} {name}(ptr align {align} {place}, {rest})")

    def _fetched(self, place: BufferAddress, text: str) -> str:
        """A load; of constant memory, once per block."""
        lanes = self.lanes
        if not place.is_constant:
            return lanes.w.let(text)
        key = f"{lanes.w.block}: {text}"
        if not lanes.is_known(key):
            lanes.remember(key, lanes.w.let(text))
        return lanes.recall(key)

    def _shuffled(self, kind: str, left: str, right: str, lanes: Sequence[int]) -> str:
        """Lanes of two vectors, those of the second behind those of the first."""
        mask = _exchange(tuple(lanes))
        return self.lanes.pure(f"shufflevector {kind} {left}, {kind} {right}, {mask}")

    def _register_tile_column(self, buffer: Buffer, at: LaneValue) -> str | None:
        """A column of a register tile whose rows are vectors, None if it is none.

        A tile may begin where a register says, if that is a place where a row of vectors does.
        """
        n, size = self.lanes.count, buffer.dtype.bytes
        step = at.step or 0
        width = self.width // (8 * size)
        if n <= step < width and not step & (step - 1):
            width = step  # rows that are parts of registers
        begins = not at.text or self.lanes.multiple_of(at.text) % width == 0
        whole = buffer.scope == "local" and begins and step > 0
        if not whole or step % width or n & (n - 1) or n > width:
            return None
        if self.places[buffer].span % width:
            return None
        kind = memory(buffer.dtype)
        number = at.plus % width
        first = at.plus - number

        def row(which: int) -> str:
            if not at.text and first + which * step >= self.places[buffer].span:
                return "poison"  # of a lane that takes no part
            there = LaneValue(at.text, 0, first + which * step)
            place = self.address(buffer, there, not at.text)
            return self.lanes.w.let(f"load <{width} x {kind}>, ptr {place}, align {size}")

        pointer, key = self.places[buffer].pointer, f"{at.text} {first} {step} {n}"
        if self.turner is None:
            self.turner = register_transpose(self.lanes)
        return self.turner.column(pointer, key, number, (kind, size, width), row)

    def _gathered(self, buffer: Buffer, at: LaneValue) -> str:
        w, n = self.lanes.w, self.lanes.count
        kind, align, found = memory(buffer.dtype), buffer.dtype.bytes, "poison"
        for lane, place in enumerate(self.lane_addresses(buffer, at)):
            one = w.let(f"load {kind}, ptr {place}, align {align}")
            found = w.let(f"insertelement <{n} x {kind}> {found}, {kind} {one}, i64 {lane}")
        return found

    def is_register(self, buffer: Buffer, at: LaneValue) -> bool:
        """Whether all lanes are neighbours in a tile of registers, at a place that is a number."""
        inside = 0 <= at.plus <= self.places[buffer].span - self.lanes.count
        return buffer.scope == "local" and at.step == 1 and not at.text and inside

    def _masked(
        self,
        buffer: Buffer,
        at: LaneValue,
        mask: str,
        sound: bool,
        reach: Callable[[int], str] | None,
    ) -> str:
        """Loads the lanes in which a condition holds."""
        if self.is_register(buffer, at):
            n, read = self.lanes.count, self._read(buffer, at, True)
            kind = f"<{n} x {memory(buffer.dtype)}>"
            choice = f"select <{n} x i1> {mask}, {kind} {read}, {kind} zeroinitializer"
            return self.lanes.w.let(choice)
        if at.step == 1:
            return self._vector(buffer, self.address(buffer, at, sound), mask)
        if at.step is not None and 1 < at.step <= APART:
            return self._picked(buffer, at, mask, reach)
        # If a tile starts at a register, an inactive lane may be outside of it.
        column = None
        if at.step is not None and not at.text:
            column = self._register_tile_column(buffer, at)
        if column is not None:
            return column
        return self._named(buffer, at, mask)

    def _named(self, buffer: Buffer, at: LaneValue, mask: str) -> str:
        """Gathers the lanes of a mask; the uniform part is an address, and the rest i32 if
        possible, because a register holds twice as many of these."""
        lanes, w, n = self.lanes, self.lanes.w, self.lanes.count
        one, align = memory(buffer.dtype), buffer.dtype.bytes
        kind, short = f"<{n} x {one}>", SHORT.get(one, one)
        rest = f"<{n} x i1> {mask}, {kind} zeroinitializer"
        shared, own = self.apart.get(at.text, (FIRST_ELEMENT, at))
        pointer = self.address(buffer, shared, False)
        where, wide = lanes.vector(own, i64), f"<{n} x i64>"
        if 0 < self.places[buffer].span <= MAX_I32_ELEMENTS:
            where, wide = lanes.pure(f"trunc {wide} {where} to <{n} x i32>"), f"<{n} x i32>"
        places = w.let(f"getelementptr {one}, ptr {pointer}, {wide} {where}")
        name = f"@llvm.masked.gather.v{n}{short}.v{n}p0"
        return w.let(f"call {kind} {name}(<{n} x ptr> align {align} {places}, {rest})")


@lru_cache(maxsize=1024)  # copies of an unrolled loop ask again
def _exchange(lanes: tuple[int, ...]) -> str:
    """The lane of two vectors that each lane takes."""
    return f"<{len(lanes)} x i32> <{', '.join([f'i32 {lane}' for lane in lanes])}>"


def _nowhere(kind: str) -> str:
    raise CompilerBug(f"There is no memory for {kind} here.")
