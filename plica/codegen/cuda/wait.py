"""Waiting: copies and products that are under way, and where threads wait for them."""

from __future__ import annotations

from functools import partial
from typing import Final

from attrs import frozen

from plica.analysis.statement import refused
from plica.codegen.cuda import in_flight_depth as in_flight_depths
from plica.codegen.cuda.in_flight_buffer import in_flight_buffers
from plica.codegen.cuda.intrinsic import handed
from plica.codegen.cuda.nest import by_one_thread, under_way
from plica.codegen.cuda.tma import check_swizzled, is_tile
from plica.codegen.cuda.wgmma import has_products, is_product, sums_of
from plica.codegen.emit.clike import count_of
from plica.codegen.emit.expression import Expressions
from plica.codegen.emit.statement import Step
from plica.ir.loop.scalar import Buffer
from plica.ir.loop.statement import Barrier, For, Seq, Stmt, statements

LONGEST_RING: Final = 64  # copies of tiles that may be under way, at most


@frozen(eq=False)
class Asynchronous:
    """The asynchronous operations of a launch."""

    handed: frozenset[Buffer]  # buffers into which copies may be under way
    copies: frozenset[Stmt]  # the statements that are groups of copies
    ring: int  # the maximum number of pending tiles, a power of two; 0 if there are none
    multiplies: bool
    sums: tuple[Buffer, ...]  # what products add to


def asynchronous(nest: Stmt, name: str) -> Asynchronous:
    """The asynchronous operations of a launch."""
    kept = handed(nest) | in_flight_buffers(nest)
    copies = in_flight_depths.groups(nest, kept)
    sums = tuple(sums_of(nest))
    check_swizzled(nest, copies, is_product)
    return Asynchronous(kept, copies, _ring(nest, copies, name), has_products(nest), sums)


def _ring(nest: Stmt, copies: frozenset[Stmt], name: str) -> int:
    """How many tiles may be under way together."""
    mine = [copy for copy in copies if any(is_tile(one) for one in statements(copy))]
    if not mine:
        return 0
    if len(mine) < len(copies):
        message = "A launch copies by threads and by the copy engine."
        raise refused(message, name, "one or the other", "both")
    if not all(by_one_thread(statement, nest) for statement in mine):
        message = "The copy engine is asked for a tile by several threads."
        raise refused(message, name, "one thread", "all that come there")
    most = under_way(nest, copies)
    if most is None or most > LONGEST_RING:
        message = "Copies begin in a loop in which nobody waits for them."
        raise refused(message, name, f"{LONGEST_RING} under way at most", str(most))
    return 1 << (most - 1).bit_length()


class Waits:
    """Writes where threads wait; knows what may be under way at the next barrier."""

    def __init__(self, of: Asynchronous, values: Expressions) -> None:
        self.of, self.values, self.lines = of, values, values.lines
        self.pending = False  # products whose sums nobody may read yet
        self.held: set[Buffer] = set()  # memory of a thread that is there at the moment
        self._patient: dict[Stmt, int] = {}
        self._copies = self._products = 0  # that may be under way at the next barrier
        self.counted = self.begun = self.awaited = ""  # the words of the ring
        if of.ring:
            fresh = values.names.fresh
            self.counted, self.begun, self.awaited = map(fresh, ("counted", "begun", "awaited"))
            values.help("p_tile")

    def ring(self, at: int) -> list[str]:
        """The lines that prepare the ring, whose counters lie so far into shared memory."""
        kind = "unsigned long long"
        return [
            f"  {kind}* const {self.counted} = ({kind}*)(shared_memory + {at});",
            f"  {self.values.help('p_tiles_ready')}({self.counted}, {self.of.ring});",
            f"  unsigned int {self.begun} = 0, {self.awaited} = 0;",
        ]

    def copied(self) -> None:
        """After a group of copies: they are under way."""
        help_ = self.values.help
        self.lines.do(f"++{self.begun};" if self.of.ring else f"{help_('p_copies_begun')}();")

    def sequence(self, of: Seq) -> tuple[Step, ...]:
        """Statements in sequence: copies issued before a loop may be pending in it, and copies for
        later products complete at the barrier before them."""
        every = [*in_flight_depths.flat(of.stmts)]
        steps: list[Step] = []
        late: dict[int, int] = {}
        for at, each in enumerate(every):
            if isinstance(each, For) and self.of.copies:
                less = in_flight_depths.in_flight_depth(every[:at], each, self.of.copies)
                self._patient[each] = min(less, self._patient.get(each, less))
            if at in late:  # each thread waits for what the copy engine brings
                steps.append(partial(self._await, late[at]))
            if isinstance(each, Barrier) and self.of.ring:
                begins = in_flight_depths.in_flight_after(
                    every[:at], every[at + 1 :], self.of.copies, is_product
                )
                steps += [partial(self._allow, count) for count in begins[:1]]
                late = dict(enumerate(begins[1:], at + 2))
            steps.append(each)
        return tuple(steps)

    def _allow(self, copies: int) -> None:
        """Before a barrier at which a given number of copies may be under way."""
        self._copies = copies

    def _await(self, copies: int) -> None:
        """Wait for tiles, but for this many."""
        awaited, ring = self.awaited, self.of.ring
        self.lines.do(f"for (; {awaited} + {copies} < {self.begun}; ++{awaited})")
        at, turn = f"{awaited} % {ring}", f"{awaited} / {ring} % 2"
        self.lines.do(f"  {self.values.help('p_tile_awaited')}(&{self.counted}[{at}], {turn});")

    def enter(self, loop: For) -> None:
        """Before a loop."""
        self._copies = self._patient.get(loop, 0)

    def around(self, loop: For, steps: tuple[Step, ...]) -> tuple[Step, ...]:
        """A loop (its body, and what closes it) with products in it: all are done after it."""
        if not self.of.multiplies or not has_products(loop):
            return steps
        self._products = in_flight_depths.in_flight_slack(loop, self.of.copies, is_product)
        *body, close = steps
        waits = isinstance(next(in_flight_depths.flat((loop.body,)), None), Barrier)
        return (*body, *(() if waits else (self.finish,)), close, self.finish)

    def wait(self) -> None:
        """Wait for copies and products, but for those that may be under way at a barrier."""
        lines, help_ = self.lines, self.values.help
        if self.of.ring:
            self._await(self._copies)
        elif self.of.copies:
            lines.do(f"{help_('p_copies_done')}<{self._copies}>();")
        if self.of.multiplies and not self._products:
            self.finish()
        elif self.of.multiplies:
            lines.do(f"{help_('p_products_done')}<{self._products}>();")
        self._copies = self._products = 0
        self.pending = False

    def finish(self) -> None:
        """Wait for all products: what they sum is read next."""
        lines, values = self.lines, self.values
        lines.do(f"{values.help('p_products_done')}<0>();")
        for buffer in self.of.sums:
            if buffer in self.held:
                word = "p_products_kept" if buffer.dtype.is_float else "p_products_kept_i32"
                kept = f"{values.help(word)}<{count_of(buffer)}>"
                lines.do(f"{kept}({values.buffers[buffer]});")
        self.pending = False
