"""Statements in LLVM's text: loops, branches, stores, and memory of the kernel's own.

    serial, parallel    a loop
    unrolled            the body once for each value of the variable, which is a constant there
    vectorized          the body once, for all lanes at the same time

Lanes that diverge at a branch are active in one side of it. A vectorized loop with local memory, or
with another one inside, is emitted as a scalar loop, which is equivalent.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Final

from attrs import evolve

from plica.analysis.constant_bound import Interval, facts_of, within
from plica.analysis.index.context import negated
from plica.analysis.statement import refused
from plica.codegen.emit.contraction import SMALL
from plica.codegen.emit.statement import Row, Step, assuming, write
from plica.codegen.llvm.buffer_address import BufferAddress, place_of
from plica.codegen.llvm.dialect import memory
from plica.codegen.llvm.lane import FALSE, TRUE, LaneValue, constant
from plica.codegen.llvm.store import StoreEmitter
from plica.codegen.llvm.value import LlvmValues
from plica.codegen.llvm.vectorized_loop import VectorizedLoops, copied_store, is_straight
from plica.codegen.llvm.writer import MARK, PLAIN
from plica.core import free_vars, post_order
from plica.ir.loop import Buffer, Load, Scalar, ScalarVar, dtype_of, statement as st
from plica.ir.type import known
from plica.runtime.late import lazy_imports

with lazy_imports(__name__):
    from plica.codegen.llvm.common_nest import NestCall, is_called
    from plica.codegen.llvm.fetch import fetch_next
    from plica.codegen.llvm.invoke import invoke
    from plica.codegen.llvm.move import move
    from plica.codegen.llvm.parallel import can_share, share

MOVED: Final = 2048  # bytes of a row that the system's own copy moves faster than vectors do
MAX_SHORT_TRIP_COUNT: Final = 4
"""The maximum trip count of loops that do not benefit from LLVM's loop passes; LLVM unrolls those
with constant trip counts, and the enclosing loop benefits instead."""


class StatementEmitter:
    """Writes statements: the rows of the statement fold, and what they know of one another."""

    def __init__(
        self, values: LlvmValues, name: str | None = None, nests: Sequence[NestCall] = (),
        gains: bool = True,
    ) -> None:  # fmt: skip
        self.values = values
        self.stores = StoreEmitter(values)
        self.nests = {nest.nest.kernel.body: nest for nest in nests}
        self.gains = gains  # whether plain loops, if there are any, do a part worth LLVM's time
        self.vectorized = VectorizedLoops(values)
        self.name = name  # bodies of parallel loops are named after it; None if there are none
        self.bodies: list[str] = []  # functions beside this one
        self.count = 0  # how many parallel loops there were
        self.around = values.around
        self.plain = False  # whether something is left that LLVM's loop passes make better
        self.own: dict[Buffer, str] = {}
        self.tile_in = ""  # the block in which the last tile of registers ended
        self.open: list[tuple[ScalarVar, int | None]] = []  # loops around, and how often they run
        self.marks = {mark: number for number, mark in enumerate(values.w.traits.marks)}

    def write(self, *steps: Step) -> None:
        """Write statements one after another."""
        rows: dict[type, Row] = {
            st.For: self._loop,
            st.Store: self._store,
            st.Alloc: self._reserve,
            st.Bind: self._bind,
            st.Branch: self._branch,
            st.Invoke: self._invoke,
        }
        marked = {kind: partial(self._marked, row) for kind, row in rows.items()}
        write(steps, marked if self.marks else rows)

    def _marked(self, row: Row, stmt: st.Stmt) -> Sequence[Step]:
        """The output of a row, marked with its statement, including text after the body."""
        self._mark(stmt)
        more: list[Step] = []
        for step in row(stmt) or ():
            more += [partial(self._mark, stmt), step] if callable(step) else [step]
        return more

    def _mark(self, stmt: st.Stmt) -> None:
        """Note that the next lines are written for a statement of the kernel."""
        if (number := self.marks.get(stmt)) is not None:
            self.values.w.lines.append(f"{MARK}{number}")

    def _store(self, store: st.Store) -> None:
        self._judge(store)
        self.stores.write(store)

    def _judge(self, store: st.Store) -> None:
        """Note a sum that LLVM's loop passes make better."""
        self.plain = self.plain or (
            self._is_sum(store) and _accumulates(store) and not self._is_register(store)
        )

    def _are_stores(self, loop: st.For) -> bool:
        """Whether an unrolled loop is copies of one store, which are written now."""
        copied = copied_store(loop)
        if copied is None or (self.nests and any(each in self.nests for each, _ in copied.loops)):
            return False
        self._mark(copied.store)
        if copied.strip in self.nests or not self.vectorized.copies(copied, self.stores.write):
            return False
        self._judge(copied.store)
        return True

    def _is_sum(self, store: st.Store) -> bool:
        """Whether the enclosing loop updates one element repeatedly."""
        return not self.open or all(self.open[-1][0] not in free_vars(at) for at in store.indices)

    def _is_register(self, store: st.Store) -> bool:
        """Whether a local element has one address in all iterations of enclosing loops."""
        places = [free_vars(at) for at in store.indices]
        return store.buffer in self.own and not any(
            var in free for var, _ in self.open for free in places
        )

    def _invoke(self, of: st.Invoke) -> None:
        invoke(of, self.values)

    def _bind(self, bind: st.Bind) -> Sequence[Step]:
        (found,) = self.values.evaluate([bind.value])
        is_index = dtype_of(bind.var).is_integer
        bounds = self.around.interval(bind.value) if is_index else (0, 0)
        self.around.bind(bind.var, found, bounds)
        return bind.body, partial(self.around.unbind, bind.var)

    def _loop(self, loop: st.For) -> Sequence[Step]:
        around = self.around
        extent, bounds = self._extent(loop)
        count = extent.number
        if bounds[1] <= 0 or (loop in self.nests and is_called(self.nests[loop], self.values)):
            return ()
        match loop.kind:
            case "unrolled" if count is not None:
                return () if self._are_stores(loop) else self._copy(loop, 0, count)
            case "vectorized" if count is not None and count > 1 and is_straight(loop):
                if (
                    self.vectorized.masks
                    and isinstance(loop.body, st.Store)
                    and moves(loop.body, count)
                ):
                    return (
                        ()
                        if move(self.values, loop, count)
                        else self.vectorized.strips(loop, count)
                    )
                if loop.annotations and SMALL in dict(loop.annotations):
                    return self.vectorized.small(loop, count)
                return self.vectorized.strips(loop, count)
            case "parallel" if self.name is not None and can_share(self.values, count):
                self.count += 1
                name = f"{self.name}.p{self.count}"
                fill = partial(self._fill, loop)
                self.bodies += share(loop, (extent, bounds), name, self.values, fill)
                return ()
            case "serial" | "parallel" | "vectorized" | "unrolled":
                few = count is None and bounds[1] <= MAX_SHORT_TRIP_COUNT
                self.plain = self.plain or not (few or _has_loops(loop.body))
                opened = around.open(loop.var, extent, bounds)
                if "fetch_next" in dict(loop.annotations):
                    fetch_next(self.values, loop, count, self.open)
                self.open.append((loop.var, count))
                inside = assuming(around, loop.body, within(loop.var, loop.extent))
                return *inside, partial(around.close, opened), self._closed
            case _:
                message = "Processors have no such threads as this loop is bound to."
                expected, hint = "serial, parallel, vectorized or unrolled", "Use target='cuda'."
                raise refused(message, f"the loop {loop.var.name}", expected, loop.kind, hint)

    def _fill(self, loop: st.For, inner: LlvmValues) -> str:
        """Emits the body of a parallel loop as a separate function."""
        inside = StatementEmitter(inner, nests=tuple(self.nests.values()), gains=self.gains)
        inside.plain = not _has_loops(loop.body)
        inside.write(*assuming(inner.around, loop.body, within(loop.var, loop.extent)))
        inside.stores.close()
        return inside.told()

    def told(self) -> str:
        """The function's LLVM attributes."""
        width = self.values.w.traits.width
        facts = "noinline nounwind" + (f' "prefer-vector-width"="{width}"' if width else "")
        if not ((self.gains and self.plain) or self.values.loops):
            return facts
        self.values.w.look_through()
        return f"{facts} {PLAIN}"

    def _extent(self, loop: st.For) -> tuple[LaneValue, Interval]:
        """How often a loop runs, and the least and greatest that may be."""
        count = known(loop.extent)
        if count is not None:
            return constant(count), (count, count)
        (extent,) = self.values.evaluate([loop.extent])
        return extent, self.around.interval(loop.extent)

    def _copy(self, loop: st.For, number: int, count: int) -> Sequence[Step]:
        """The body of an unrolled loop for one value of its variable, then for the others."""
        access = self.values.access
        if number:
            self.around.unbind(loop.var)
        if number == count:
            if access.zipped:
                access.unzip()
            return ()
        if not number and self.values.lanes.count and _zips(loop, count):
            access.zipped = []
        self.around.bind(loop.var, constant(number), (number, number), (0, count - 1))
        return loop.body, partial(self._copy, loop, number + 1, count)

    def _closed(self) -> None:
        self.open.pop()

    def _reserve(self, of: st.Alloc) -> Sequence[Step]:
        """Memory for a buffer, shared by the copies of an unrolled loop."""
        values, buffer = self.values, of.buffer
        if buffer not in self.own:
            place = place_of(buffer, "")
            for size in (*place.shape, *place.strides):
                if not isinstance(size, int):
                    message = "The size of a buffer is not known before its kernel is launched."
                    raise refused(message, buffer.name, "a number", str(size))
            self.own[buffer] = values.reserve(memory(buffer.dtype), max(1, place.span))
        values.access.places[buffer] = place_of(buffer, self.own[buffer])
        if buffer.scope != "local":
            return (of.body,)
        given = self._read_anew(of.body) if values.w.block == self.tile_in else {}
        return of.body, partial(self._tile_done, given)

    def _read_anew(self, tile: st.Stmt) -> dict[Buffer, BufferAddress]:
        """Fresh addresses for the inputs of a tile that follows another one in straight-line code;
        returns the previous ones.

        Otherwise rows shared by two tiles would be kept in registers from the first to the second,
        while the sums of both need registers: spilling costs as much as loading again.
        """
        places, w = self.values.access.places, self.values.w
        # Memory reserved inside the tile has no address yet.
        read = {each: places[each] for each in reads(tile) if each in places}
        given = {each: place for each, place in read.items() if place.is_constant}
        for buffer, place in given.items():
            pointer = w.let(f'call ptr asm sideeffect "", "=r,0"(ptr {place.pointer})')
            places[buffer] = evolve(place, pointer=pointer)
        return given

    def _tile_done(self, given: dict[Buffer, BufferAddress]) -> None:
        self.values.access.places.update(given)
        self.tile_in = self.values.w.block

    def _branch(self, branch: st.Branch) -> Sequence[Step]:
        values, lanes = self.values, self.values.lanes
        (test,) = values.evaluate([branch.condition])
        if test in (TRUE, FALSE):
            return (branch.then if test == TRUE else branch.orelse,)
        if not test.is_uniform:
            before = self.around.mask
            other = lanes.negated(test)
            return (
                *self._assume(branch.then, branch.condition, before, test),
                *self._assume(branch.orelse, negated(branch.condition), before, other),
            )
        w = values.w
        yes, no, done = w.labels("then", "else", "done")
        w.do(f"br i1 {lanes.scalar(test)}, label %{yes}, label %{no}")
        w.start(yes)
        mark = lanes.mark()
        return (
            *self._assume(branch.then, branch.condition),
            partial(self._join, mark, done, no),
            *self._assume(branch.orelse, negated(branch.condition)),
            partial(self._join, mark, done, done),
        )

    def _assume(
        self,
        body: st.Stmt,
        condition: Scalar,
        mask: LaneValue = TRUE,
        test: LaneValue | None = None,
    ) -> Sequence[Step]:
        """One side of a branch, in which a condition holds; per lane if there is a vector test."""
        if body is st.NOTHING:
            return ()
        around = self.around
        inside = assuming(around, body, facts_of(condition))
        if test is None:
            return inside

        def some() -> None:
            around.mask = self.values.lanes.both(mask, test)

        def all_() -> None:
            around.mask = mask

        return some, *inside, all_

    def _join(self, mark: int, end: str, begin: str) -> None:
        """Go on to the end of a branch, and begin what follows in the text."""
        self.values.lanes.release(mark)
        self.values.w.do(f"br label %{end}")
        self.values.w.start(begin)


@lru_cache(maxsize=256)  # copies of an unrolled loop ask again
def reads(of: st.Stmt) -> tuple[Buffer, ...]:
    """The buffers a statement reads, in order."""
    found: dict[Buffer, None] = {}
    for stmt in st.statements(of):
        parts = [child for child in stmt._children if isinstance(child, Scalar)]
        found.update({each.buffer: None for each in post_order(*parts) if isinstance(each, Load)})
    return tuple(found)


def moves(of: st.Store, count: int) -> bool:
    """Whether a statement only moves a given, large number of elements."""
    size = count * of.buffer.dtype.bytes
    return size >= MOVED and isinstance(of.value, Load) and of.value.buffer is not of.buffer


@lru_cache(maxsize=256)  # copies of an unrolled loop ask again
def _zips(loop: st.For, count: int) -> bool:
    """Whether iterations of an unrolled loop write neighbours, and read none of these."""
    body = loop.body
    if (
        not isinstance(body, st.Store)
        or body.buffer in free_vars(body.value)
        or count not in (2, 4)
    ):
        return False
    return body.buffer.scope != "local" and body.indices[-1] is loop.var


@lru_cache(maxsize=256)  # copies of an unrolled loop ask again
def _accumulates(store: st.Store) -> bool:
    """Whether an element in memory, not in a register, is updated."""
    if store.buffer.scope == "local" or store.buffer not in free_vars(store.value):
        return False
    return any(isinstance(n, Load) and n.buffer is store.buffer for n in post_order(store.value))


def _has_loops(body: st.Stmt) -> bool:
    return any(isinstance(stmt, st.For) for stmt in st.statements(body))
