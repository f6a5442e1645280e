"""Passes over rows on a GPU, with elements where they are kept (`row_place`).

    m        = joined over own, edge, held, what is read again;  across threads
    y[…]     = … of the same

Sums in f64 are made of sums of a few terms in f32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from plica.ir.loop import scalar as sc
from plica.ir.loop.combiner import MEANING
from plica.ir.loop.memory_scope import WARP
from plica.ir.loop.stage import ExternStage
from plica.ir.loop.stages import Stages, stages
from plica.ir.loop.statement import NOTHING, Alloc, Branch, For, Stmt, Store, allocated, seq
from plica.ir.type import bf16, f16, f32, f64
from plica.schedule.default.gpu.row_cut import Lot
from plica.schedule.default.gpu.row_passes import RowPass
from plica.schedule.default.gpu.row_place import RowPlaces
from plica.schedule.default.gpu.thread_code import block_launch, only_within
from plica.schedule.default.gpu.warp_meaning import JOINED, SHUFFLED, lanes_joined

Terms: TypeAlias = Callable[[sc.Scalar], sc.Scalar]  # the terms to join, by index


class RowWriter(RowPlaces):
    """Writes the statements of a launch."""

    def stages(self) -> Stages:
        """One launch."""
        cut, row_passes = self.cut, self.found
        passes = [self._pass(n, row_pass) for n, row_pass in enumerate(row_passes.passes)]
        body = seq(*map(self._put, self.staged), *passes, self._last())
        memory = [*self.totals.values(), *self.staged.values()]
        memory += self.own if cut.registers else []
        memory += self.held if cut.shared else []
        memory += self.end if self.rest else []
        memory += self.edges if self.edge else []
        body = allocated(body, memory)
        blocks, along = (self.block, self.blocks), (self.thread, cut.along)
        whole = block_launch(body, blocks, along, (self.lane, cut.rows), beside=cut.high == 1)
        inputs = [self.flat.get(buffer, buffer) for buffer in self.of.inputs]
        out = self.flat.get(row_passes.last.out, row_passes.last.out)
        return stages(inputs, (ExternStage((out,), whole),))

    def _through(self, use: Callable[[Lot], Stmt], fresh: bool) -> Stmt:
        """A pass over a row; kept elements are loaded in a `fresh` one.

        Law: every element is used once by one thread.
        """
        cut = self.cut
        kept = [Lot(self.own, sc.index(n * cut.group), cut.group, cut.near, n * self.width)
                for n in range(cut.registers)]  # fmt: skip
        rest = Lot(self.end, sc.index(self.first_of_rest), self.rest, cut.near, guarded=True)
        kept += [rest] if self.rest else []
        kept += [Lot(self.edges, sc.index(0), 1, 1, edge=True)] if self.edge else []
        every = [self._fetched(each) for each in kept] if fresh else []
        every += [use(each) for each in kept]
        for begin, groups, holds in (
            (cut.registers, cut.shared, True),
            (cut.registers + cut.shared, self.again, False),
        ):
            if not groups:
                continue
            near = [self._local("near", self.width, load) for load in self.found.kept]
            number = self.names.var("n")
            lot = Lot(near, (number + begin) * cut.group, cut.group, cut.near)
            body = self._fetched(lot) if fresh or not holds else NOTHING
            if holds:
                body = seq(body, self._moved(near, number, keep=fresh))
            body = seq(body, use(lot))
            body = allocated(body, near)
            every.append(For(number, sc.index(groups), "serial", body))
        return seq(*every)

    def _pass(self, number: int, of: RowPass) -> Stmt:
        """A reduction of all rows of a block, whose result every thread has."""
        start, join = MEANING[of.combiner]
        dtype, value = of.out.dtype, of.value
        narrow = isinstance(value, sc.Cast) and dtype is f64 and of.combiner == "sum"
        inner = value.value if isinstance(value, sc.Cast) and narrow else value
        inner, same, statements = self._of_row(inner)
        own = self._each_row("acc", dtype)

        def each_row(body: Callable[[tuple[sc.Scalar]], Stmt]) -> Stmt:
            return self._each(self.cut.wide, lambda near: body((self._of(near),)))

        def use(of: Lot) -> Stmt:
            some = own
            if narrow:  # a few terms in their own dtype, their total in the wide one
                some = self._each_row("few", sc.dtype_of(inner))

            def one(u: sc.Scalar, v: sc.Scalar) -> Stmt:
                term, mine = self._filled(inner, of, u, v), (self._of(v),)
                first: list[Stmt] = []
                if any(held_term.number == number for held_term in self.found.held):
                    place = (u * of.lanes + v + of.base,)
                    first, term = [Store(of.near[-1], place, term)], sc.Load(of.near[-1], place)
                return seq(*first, Store(some, mine, join(sc.Load(some, mine), term)))

            whole = self._in_lot(of, one, "unrolled")
            if not narrow:
                return whole
            first = each_row(lambda at: Store(some, at, start(some.dtype)))
            total = each_row(lambda at: Store(
                own, at, join(sc.Load(own, at), sc.Cast(sc.Load(some, at), dtype))
            ))  # fmt: skip
            return Alloc(some, seq(first, whole, total))

        body = seq(
            *statements,
            each_row(lambda at: Store(own, at, start(dtype))),
            self._through(use, number == 0),
            self._joined(own, self.totals[of.out], of.combiner),
        )
        return allocated(body, (*same, own))

    def _joined(self, own: sc.Buffer, into: sc.Buffer, combiner: sc.Combiner) -> Stmt:
        """The joined totals of a row's threads: by shuffles in a warp, if rows are along it."""
        cut = self.cut
        if cut.along == 1:
            return self._each(cut.wide, lambda w: Store(into, (w,), sc.Load(own, (w,))))
        width = min(cut.along, WARP)
        along = cut.across == cut.wide == 1 and cut.along % width == 0 == WARP % width
        narrow = combiner in ("max", "min") and own.dtype in (f16, bf16)
        if along and combiner in JOINED and (narrow or own.dtype in SHUFFLED):
            return self._shuffled(own, into, combiner, width)
        return self._in_groups(own, into, combiner)

    def _shuffled(self, own: sc.Buffer, into: sc.Buffer, combiner: sc.Combiner, width: int) -> Stmt:
        """Joins the totals of a warp, then those of warps."""
        start, join = MEANING[combiner]
        cut, zero = self.cut, sc.index(0)
        dtype = own.dtype if own.dtype in SHUFFLED else f32  # an extreme is the same in either
        lanes = width if cut.high == 1 else WARP
        held = self.names.buffer("held", (lanes, 1), dtype, "warp")
        number = (self.lane * cut.along + self.thread) % WARP if cut.high > 1 else (
            self.thread % WARP if cut.along > WARP else self.thread)  # fmt: skip
        target = self._each_row("warp", dtype)
        mine = own[0] if dtype is own.dtype else sc.Cast(own[0], dtype)
        joined = lanes_joined(combiner, held, (number, width), mine, target)
        scalar = target[0] if dtype is into.dtype else sc.Cast(target[0], into.dtype)
        if cut.along == width:
            return allocated(seq(joined, Store(into, (zero,), scalar)), (held, target))
        part = self.names.buffer("part", (cut.rows, cut.along // width), into.dtype, "shared")
        told = Store(part, (self.lane, self.thread // width), scalar)

        def add(warp: sc.Scalar) -> Stmt:
            return Store(into, (zero,), join(into[0], sc.Load(part, (self.lane, warp))))

        body = seq(
            joined,
            Branch(sc.Eq(self.thread % width, zero), told, NOTHING),
            Store(into, (zero,), start(into.dtype)),
            self._each(cut.along // width, add),
        )
        return allocated(body, (part, held, target))

    def _in_groups(self, own: sc.Buffer, into: sc.Buffer, combiner: sc.Combiner) -> Stmt:
        """The same through shared memory: first groups of threads, then those by who needs it.

        If a thread has several rows, different threads join each, if there are enough.
        """
        start, join = MEANING[combiner]
        cut, dtype = self.cut, own.dtype
        groups = 1 << ((cut.along // cut.wide).bit_length() // 2)
        spread = 1 < cut.wide <= cut.along // groups
        groups = groups if spread else 1 << (cut.along.bit_length() // 2)
        part, whole = (
            self.names.buffer(word, (cut.wide, n, cut.rows), dtype, "shared")
            for word, n in (("part", cut.along), ("whole", groups))
        )
        few = self._each_row("few", dtype)

        def summed(target: sc.Buffer, at: sc.Scalar, count: int, term: Terms) -> Stmt:
            def add(u: sc.Scalar) -> Stmt:
                return Store(target, (at,), join(sc.Load(target, (at,)), term(u)))

            return seq(Store(target, (at,), start(dtype)), self._each(count, add))

        def of_group(number: sc.Scalar, near: sc.Scalar, at: sc.Scalar) -> Stmt:
            return summed(few, at, cut.along // groups, lambda u: sc.Load(
                part, (near, number + u * groups, self.lane)
            ))  # fmt: skip

        def of_all(near: sc.Scalar) -> Stmt:
            return summed(into, near, groups, lambda u: sc.Load(whole, (near, u, self.lane)))

        if spread:
            mine = self.thread // groups, self.thread % groups, self.lane
            first = seq(of_group(mine[1], mine[0], sc.index(0)), Store(whole, mine, few[0]))
        else:
            first = seq(
                self._each(cut.wide, lambda w: of_group(self.thread, w, w)),
                self._each(cut.wide, lambda w: Store(whole, (w, self.thread, self.lane), few[w])),
            )
        busy = sc.index(groups * (cut.wide if spread else 1))
        body = seq(
            self._each(cut.wide, lambda w: Store(part, (w, self.thread, self.lane), own[w])),
            Branch(sc.Lt(self.thread, busy), Alloc(few, first), NOTHING),
            self._each(cut.wide, of_all),
        )
        return Alloc(part, Alloc(whole, body))

    def _last(self) -> Stmt:
        """The elements of a row that are wanted."""
        out = self.flat.get(self.found.last.out, self.found.last.out)
        value, same, statements = self._of_row(self.found.value)

        def use(of: Lot) -> Stmt:
            def one(u: sc.Scalar, v: sc.Scalar) -> Stmt:
                return Store(out, self._place(of, u, v), self._filled(value, of, u, v))

            return self._in_lot(of, one, "vectorized")

        if self.staged:
            return self._last_staged(value, same, statements)
        body = seq(*statements, self._through(use, not self.found.passes))
        body = allocated(body, same)
        return only_within(body, self.guards)

    def _last_staged(self, value: sc.Scalar, same: list[sc.Buffer], made: list[Stmt]) -> Stmt:
        """The same through shared memory, where rows were if they have room there."""
        out = self.found.last.out
        alike = [there for there in self.staged.values() if there.dtype is out.dtype]
        there = alike[0] if alike else self._stage(out)

        def use(of: Lot) -> Stmt:
            def one(u: sc.Scalar, v: sc.Scalar) -> Stmt:
                place = self._staged_at(out, self._element(of, u, v))
                return Store(there, (place,), self._filled(value, of, u, v))

            return self._in_lot(of, one, "unrolled")

        body = allocated(seq(*made, self._through(use, not self.found.passes)), same)
        return allocated(seq(body, self._taken(there)), [] if alike else [there])
