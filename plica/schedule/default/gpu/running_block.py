"""Running totals on a GPU: a row by the threads of a block, which join what those before them hold.

    y[i, j] = sum(x[i, j]) along j
      -->  for block i:
               for tiles of the row, for threads:   own = totals along some neighbours
                   part[thread] = the last of own                          in shared memory
                   y[…] = what came before, parts of threads before, own

Axes behind the scanned one are lanes, across the threads of a block. With fewer rows than
processors, rows are split: a first launch computes the totals of the pieces, and the second starts
each piece from those before it.

>>> from plica.ir.loop.stages import stages_of
>>> from plica.ir.loop.tensor import buffer, compute, prefix
>>> from plica.ir.type.dtype import f32
>>> x = buffer("x", (4000, 9), f32)
>>> upto = compute((x,), x.shape, lambda i, j: prefix("sum", 4000, i, lambda k: x[k, j]))
>>> [len(each.outs) for each in running_blocks(stages_of(upto), Gpu()).stages]
[1, 1]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Final

from plica.core import Term, substitute
from plica.ir.loop import scalar as sc
from plica.ir.loop.combiner import MEANING
from plica.ir.loop.define import stored_epilogue
from plica.ir.loop.stage import Each, ExternStage, Scan, Stage, epilogue_of
from plica.ir.loop.stages import Stages, stages
from plica.ir.loop.statement import (
    NOTHING,
    Alloc,
    Branch,
    For,
    LoopKind,
    Stmt,
    Store,
    allocated,
    seq,
)
from plica.ir.type import known
from plica.schedule.default.gpu.machine import BLOCKS_A_PROCESSOR, Gpu, power_of_two
from plica.schedule.default.gpu.thread_code import (
    Guard,
    ThreadNames,
    block_launch,
    digits,
    inside,
    only_within,
    within,
)

NEIGHBOURS: Final = 8  # places along a row that a thread has
GROUP: Final = 16  # threads whose parts one adds up: a block has this many such groups at most

MOST: Final = 1024  # pieces of a row, at most: each piece reads the totals of those before


def running_blocks(of: Stages, gpu: Gpu) -> Stages | None:
    """Stages of a running total as thread statements, or None."""
    match of.stages:
        case (Scan() as scan,):
            epilogue = None
        case (Scan() as scan, Each() as epilogue) if epilogue_of(scan, epilogue):
            pass
        case _:
            return None
    if of.outputs != (of.result,) or not all(known(size) for size in scan.out.shape):
        return None
    return _BlockWriter(of, scan, epilogue, gpu).stages()


class _BlockWriter:
    """Builds the statements: the distribution of elements, and the joins."""

    def __init__(self, of: Stages, scan: Scan, epilogue: Each | None, gpu: Gpu) -> None:
        self.of, self.scan, self.epilogue, self.names = of, scan, epilogue, ThreadNames(of)
        start, self.join = MEANING[scan.combiner]
        self.dtype = sc.dtype_of(scan.value)
        self.start = start(self.dtype)
        axes, at = scan.axes, scan.along
        self.axis = axes[at]
        self.sizes = {a: known(n) or 0 for a, n in zip(axes, scan.out.shape, strict=True)}
        self.rows, self.lanes = axes[:at], axes[at + 1 :]
        self.size, self.beside = self.sizes[self.axis], self._count(self.lanes)
        self.across = min(gpu.warp, power_of_two(self.beside))
        most = power_of_two(-(-self.size // NEIGHBOURS))
        self.along = min(gpu.threads // self.across, most)
        self.group = min(GROUP, self.along)
        self.groups = self.along // self.group
        self.tile = self.along * NEIGHBOURS
        self.strips = -(-self.beside // self.across)
        blocks = self._count(self.rows) * self.strips
        # Lanes across threads read shorter runs: half as many blocks are under way.
        under_way = BLOCKS_A_PROCESSOR // 2 if self.lanes else BLOCKS_A_PROCESSOR
        wanted = min(MOST, gpu.processors * under_way // blocks, self.size // (2 * self.tile))
        self.turns = -(-self.size // (self.tile * max(1, wanted)))
        self.pieces = -(-self.size // (self.tile * self.turns))
        self.blocks = blocks * self.pieces
        self.block, self.lane, self.thread, self.turn = map(self.names.var, ("b", "l", "a", "n"))
        # A block has a piece of a row, and some of its lanes.
        self.piece: sc.Scalar = self.block % self.pieces
        number: sc.Scalar = self.block // self.pieces
        self.column = number % self.strips * self.across + self.lane
        self.lane_guard = (self.column, self.strips * self.across, self.beside)
        column: sc.Scalar = self.column
        if self.strips * self.across != self.beside:
            column = sc.Min(column, sc.index(self.beside - 1))
        self.places = digits(self.lanes, self.sizes, column)
        self.places |= digits(self.rows, self.sizes, number // self.strips)
        self.totals = sc.Buffer(
            self.names.name("totals"),
            tuple([sc.index(n) for n in (self._count(self.rows), self.pieces, self.beside)]),
            self.dtype,
        )
        self.mine = (number // self.strips, self.piece, column)

    def _count(self, axes: Sequence[sc.ScalarVar]) -> int:
        return prod([self.sizes[axis] for axis in axes])

    def stages(self) -> Stages:
        """One launch, or one for the totals of the pieces and one for the places."""
        made: list[Stage] = []
        if self.pieces > 1:
            made.append(ExternStage((self.totals,), self._launch(self._pieces())))
        made.append(ExternStage((self.of.result,), self._launch(self._running())))
        return stages(self.of.inputs, made)

    def _launch(self, body: Stmt) -> Stmt:
        blocks, along = (self.block, self.blocks), (self.thread, self.along)
        return block_launch(body, blocks, along, (self.lane, self.across))

    # --- what a thread has ------------------------------------------------------------------------

    def _local(self, word: str, count: int = 1) -> sc.Buffer:
        return self.names.buffer(word, (count,), self.dtype, "local")

    def _shared(self, word: str, count: int) -> sc.Buffer:
        return self.names.buffer(word, (count, self.across), self.dtype, "shared")

    def _step(self, near: sc.Scalar) -> sc.Scalar:
        """How far along the row a place of a thread is, in the order of the totals."""
        tile = self.piece * self.turns + self.turn
        return (tile * self.along + self.thread) * NEIGHBOURS + near

    def _stored(self, total: sc.Scalar) -> Store:
        """The store of the fold up to the current index."""
        if self.epilogue is None:
            return Store(self.scan.out, self.scan.axes, total)
        return stored_epilogue(self.epilogue, self.scan, total)

    def _guards(self, near: sc.Scalar) -> list[Guard]:
        """Whether a place is in the row; adjacent ones may share the condition."""
        step = self._step(near if self.size % NEIGHBOURS else sc.index(0))
        return [(step, self.pieces * self.turns * self.tile, self.size)]

    def _at(self, step: sc.Scalar) -> dict[Term, Term]:
        place = sc.index(self.size - 1) - step if self.scan.reverse else step
        return {**self.places, self.axis: place}

    def _fetched(self, own: sc.Buffer) -> Stmt:
        """The values of a thread's places."""

        def fetch(near: sc.Scalar) -> Stmt:
            value = substitute(self.scan.value, self._at(self._step(near)))
            return Store(own, (near,), within(value, self._guards(near), self.start))

        return self._each(NEIGHBOURS, fetch, self._kind())

    def _kind(self) -> LoopKind:
        """The kind of the loop over adjacent elements: vectorized if contiguous."""
        return "unrolled" if self.lanes or self.scan.reverse else "vectorized"

    def _each(
        self, count: int, body: Callable[[sc.Scalar], Stmt], kind: LoopKind = "unrolled"
    ) -> Stmt:
        return self.names.each({"v": count}, body, kind)

    def _joined(self, into: sc.Buffer, value: sc.Scalar, when: sc.Scalar | None = None) -> Stmt:
        """Joins a value to a thread's total, under a condition."""
        zero = (sc.index(0),)
        held = sc.Load(into, zero)
        new = self.join(held, value)
        return Store(into, zero, new if when is None else sc.Select(when, new, held))

    # --- what threads tell each other -------------------------------------------------------------

    def _told(self, own: sc.Scalar, part: sc.Buffer, whole: sc.Buffer) -> Stmt:
        """The parts of all threads, and what those of each group are together."""
        total = self._local("total")
        first = self.thread * self.group

        def add(u: sc.Scalar) -> Stmt:
            return self._joined(total, sc.Load(part, (first + u, self.lane)))

        summed = Alloc(total, seq(
            Store(total, (sc.index(0),), self.start),
            self._each(self.group, add),
            Store(whole, (self.thread, self.lane), sc.Load(total, (sc.index(0),))),
        ))  # fmt: skip
        one = sc.Lt(self.thread, sc.index(self.groups))
        return seq(Store(part, (self.thread, self.lane), own), Branch(one, summed, NOTHING))

    def _everything(self, into: sc.Buffer, whole: sc.Buffer) -> Stmt:
        """Joins all groups to a thread's total."""
        return self._each(self.groups, lambda h: self._joined(into, sc.Load(whole, (h, self.lane))))

    def _before(self, into: sc.Buffer, part: sc.Buffer, whole: sc.Buffer) -> Stmt:
        """Groups before that of a thread, and threads of its group before it, joined likewise."""
        mine, number = self.thread // self.group, self.thread % self.group

        def group(h: sc.Scalar) -> Stmt:
            return self._joined(into, sc.Load(whole, (h, self.lane)), sc.Lt(h, mine))

        def thread(u: sc.Scalar) -> Stmt:
            value = sc.Load(part, (mine * self.group + u, self.lane))
            return self._joined(into, value, sc.Lt(u, number))

        parts = [self._each(self.group, thread)]
        if self.groups > 1:
            parts.insert(0, self._each(self.groups, group))
        return seq(*parts)

    # --- launches ---------------------------------------------------------------------------------

    def _pieces(self) -> Stmt:
        """The total of a piece of a row, from its end: the second launch starts with what this one
        has read last, which is in cache."""
        own, total, sum_ = self._local("own", NEIGHBOURS), self._local("all"), self._local("sum")
        part, whole = self._shared("part", self.along), self._shared("whole", self.groups)
        zero = (sc.index(0),)
        step = seq(
            self._fetched(own), self._each(NEIGHBOURS, lambda v: self._joined(total, own[v]))
        )
        back = self.names.var("n")
        step = substitute(step, {self.turn: sc.index(self.turns - 1) - back})
        body = seq(
            Store(total, zero, self.start),
            For(back, sc.index(self.turns), "serial", Alloc(own, step)),
            self._told(total[0], part, whole),
            Store(sum_, zero, self.start),
            self._everything(sum_, whole),
            self._first(Store(self.totals, self.mine, sum_[0])),
        )
        return allocated(body, (total, sum_, part, whole))

    def _first(self, body: Stmt) -> Stmt:
        """A body for the first thread of each lane."""
        first: sc.Scalar = sc.Eq(self.thread, sc.index(0))
        if (test := inside([self.lane_guard])) is not None:
            first = sc.And(first, test)
        return Branch(first, body, NOTHING)

    def _running(self) -> Stmt:
        """All places of a piece of a row."""
        own, carry, before = self._local("own", NEIGHBOURS), self._local("carry"), self._local("at")
        part, whole = self._shared("part", self.along), self._shared("whole", self.groups)
        zero = (sc.index(0),)

        def along(v: sc.Scalar) -> Stmt:
            return Store(own, (v + 1,), self.join(own[v], own[v + 1]))

        step = seq(
            self._fetched(own),
            self._each(NEIGHBOURS - 1, along),
            self._told(own[NEIGHBOURS - 1], part, whole),
            Store(before, zero, carry[0]),
            self._before(before, part, whole),
            self._everything(carry, whole),
            self._kept(own, before),
        )
        body = seq(
            Store(carry, zero, self.start),
            self._begun(carry, part, whole) if self.pieces > 1 else NOTHING,
            For(self.turn, sc.index(self.turns), "serial", Alloc(own, Alloc(before, step))),
        )
        return allocated(body, (carry, part, whole))

    def _begun(self, carry: sc.Buffer, part: sc.Buffer, whole: sc.Buffer) -> Stmt:
        """The joined totals of the pieces before a block's, by all its threads."""
        total = self._local("total")
        row, _, column = self.mine

        def add(m: sc.Scalar) -> Stmt:
            piece = m * self.along + self.thread
            told = sc.Lt(piece, self.piece)
            value = sc.Load(self.totals, (row, sc.Min(piece, sc.index(self.pieces - 1)), column))
            return self._joined(total, value, told)

        turns = -(-self.pieces // self.along)
        return Alloc(total, seq(
            Store(total, (sc.index(0),), self.start),
            self._each(turns, add, "serial"),
            self._told(total[0], part, whole),
            self._everything(carry, whole),
        ))  # fmt: skip

    def _kept(self, own: sc.Buffer, before: sc.Buffer) -> Stmt:
        """The totals of a thread's places, each where it belongs."""

        def keep(v: sc.Scalar) -> Stmt:
            total = self.join(before[0], own[v])
            if self.scan.exclusive:
                last = sc.Max(v - 1, sc.index(0))
                total = sc.Select(sc.Lt(sc.index(0), v), self.join(before[0], own[last]), before[0])
            store = substitute(self._stored(total), self._at(self._step(v)))
            return only_within(store, self._guards(v) if self.size % NEIGHBOURS else ())

        body = self._each(NEIGHBOURS, keep, self._kind())
        body = only_within(body, () if self.size % NEIGHBOURS else self._guards(sc.index(0)))
        return only_within(body, [self.lane_guard])
