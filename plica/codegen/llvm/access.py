"""Access: elements of buffers read (`plica.codegen.llvm.load`) and written, one at a time or for
all lanes at once.

Vectors whose elements are neighbours of one another wait, and are written as one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from plica.codegen.emit.scalar import pack_element
from plica.codegen.llvm.dialect import LLVM, memory
from plica.codegen.llvm.lane import TRUE, Lanes, LaneValue
from plica.codegen.llvm.load import LoadEmitter
from plica.codegen.llvm.writer import SHORT, LlvmPlace
from plica.core import CompilerBug
from plica.ir.loop.scalar import Buffer
from plica.ir.type import bool_, i64


class MemoryEmitter(LoadEmitter):
    """Reads and writes the buffers that are in reach."""

    def __init__(self, lanes: Lanes) -> None:
        super().__init__(lanes)
        self.zipped: list[tuple[Buffer, LaneValue, str, LaneValue]] | None = (
            None  # stores that wait
        )

    @contextmanager
    def only_where(self, inside: LaneValue) -> Iterator[None]:
        """Executes the code written inside only if a condition holds."""
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

    def store(  # an element, and what is known of its place
        self, buffer: Buffer, at: LaneValue, value: LaneValue, mask: LaneValue, sound: bool
    ) -> None:
        """Stores the element of every active lane."""
        lanes, w, n = self.lanes, self.lanes.w, self.lanes.count
        where, of = self.places[buffer], buffer.dtype
        kind, align = where.kind, where.align
        if buffer.scope == "local" and self.turner is not None:
            self.turner.forget(where.pointer)
        if not n:
            stored = lanes.scalar(value)
            if not where.is_plain:
                stored = pack_element(stored, of, LlvmPlace(LLVM, w))
            place = self.address(buffer, at, sound)
            w.do(f"store {kind} {stored}, ptr {place}, align {align}")
            return
        if at.step == 0 and mask == TRUE:
            raise CompilerBug(f"All lanes of a vectorized loop write one element of {buffer.name}.")
        stored = lanes.vector(value, of)
        if not where.is_plain:
            stored = pack_element(stored, of, LlvmPlace(LLVM, w, n))
        if self.zipped is not None:
            self.zipped.append((buffer, at, stored, mask))
            return
        self._store_vector(buffer, at, stored, mask, sound)

    def _store_vector(  # as `store`, of what is computed
        self, buffer: Buffer, at: LaneValue, stored: str, mask: LaneValue, sound: bool
    ) -> None:
        lanes, w, n = self.lanes, self.lanes.w, self.lanes.count
        kind, align = self.places[buffer].kind, self.places[buffer].align
        if mask != TRUE:
            self._store_masked(buffer, at, stored, lanes.vector(mask, bool_))
            return
        if at.step == 1:
            place = self.address(buffer, at, sound)
            w.do(f"store <{n} x {kind}> {stored}, ptr {place}, align {align}")
            return
        for lane, place in enumerate(self.lane_addresses(buffer, at)):
            one = w.let(f"extractelement <{n} x {kind}> {stored}, i64 {lane}")
            w.do(f"store {kind} {one}, ptr {place}, align {align}")

    def unzip(self) -> None:
        """Write what waits: vectors whose elements are neighbours of one another as one vector.

        a0 a1 a2 …, b0 b1 b2 …  -->  a0 b0 a1 b1 a2 b2 …
        """
        waiting, self.zipped = self.zipped or [], None
        many, n, w = len(waiting), self.lanes.count, self.lanes.w
        buffer, first, _, mask = waiting[0]
        beside = [
            (buffer, LaneValue(first.text, many, first.plus + number), mask)
            for number in range(many)
        ]
        if [(b, at, m) for b, at, _, m in waiting] != beside:
            for each, at, stored, where in waiting:
                self._store_vector(each, at, stored, where, False)
            return
        rows, kind, count = [stored for _, _, stored, _ in waiting], self.places[buffer].kind, n
        size = 8 * buffer.dtype.bytes
        while len(rows) > 1:  # pairs of neighbours become elements of twice the size
            order = ", ".join(f"i32 {a}" for at in range(count) for a in (at, at + count))
            pairs, half = [], len(rows) // 2
            for a, b in zip(rows[0::2], rows[1::2], strict=True):
                both = w.let(
                    f"shufflevector <{count} x {kind}> {a}, <{count} x {kind}> {b}, "
                    f"<{2 * count} x i32> <{order}>"
                )
                pairs.append(both)
            if half > 1:
                wide = f"<{count} x i{2 * size}>"
                pairs = [w.let(f"bitcast <{2 * count} x {kind}> {e} to {wide}") for e in pairs]
                kind, size = f"i{2 * size}", 2 * size
            else:
                count *= 2
            rows = pairs
        total, one = f"<{many * n} x {self.places[buffer].kind}>", self.places[buffer].kind
        (whole,) = rows
        if kind != one:
            whole = w.let(f"bitcast <{count} x {kind}> {whole} to {total}")
        if mask == TRUE:
            place = self.address(buffer, first, False)
            w.do(f"store {total} {whole}, ptr {place}, align {buffer.dtype.bytes}")
            return
        inside = self.lanes.vector(mask, bool_)
        order = ", ".join(f"i32 {at}" for at in range(n) for _ in range(many))
        spread = w.let(
            f"shufflevector <{n} x i1> {inside}, <{n} x i1> poison, <{many * n} x i32> <{order}>"
        )
        before, self.lanes.count = n, many * n
        self._store_masked(buffer, LaneValue(first.text, 1, first.plus), whole, spread)
        self.lanes.count = before

    def _store_masked(self, buffer: Buffer, at: LaneValue, stored: str, mask: str) -> None:
        """Stores the lanes in which a condition holds.

        Registers are written as a whole, with inactive lanes unchanged: a masked store would force
        the tile into memory.
        """
        w, n = self.lanes.w, self.lanes.count
        one, align = memory(buffer.dtype), buffer.dtype.bytes
        kind, short = f"<{n} x {one}>", SHORT.get(one, one)
        if self.is_register(buffer, at):
            place = self.address(buffer, at, True)
            before = w.let(f"load {kind}, ptr {place}, align {align}")
            both = w.let(f"select <{n} x i1> {mask}, {kind} {stored}, {kind} {before}")
            w.do(f"store {kind} {both}, ptr {place}, align {align}")
            return
        if at.step == 1:
            place = f"ptr align {align} {self.address(buffer, at, False)}"
            name = f"@llvm.masked.store.v{n}{short}.p0"
        else:
            pointer, where = self.places[buffer].pointer, self.lanes.vector(at, i64)
            places = w.let(f"getelementptr {one}, ptr {pointer}, <{n} x i64> {where}")
            place = f"<{n} x ptr> align {align} {places}"
            name = f"@llvm.masked.scatter.v{n}{short}.v{n}p0"
        w.do(f"call void {name}({kind} {stored}, {place}, <{n} x i1> {mask})")
