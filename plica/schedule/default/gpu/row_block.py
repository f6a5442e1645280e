"""Rows of any length along any axes on a GPU: a block keeps what it can of them, and reads once.

    m[i]    = max over k of x[i, k]            for block i, for threads:
    s[i]    = sum over k of exp(…)      -->        own  = slices of x            registers
    y[i, j] = exp(x[i, j] - m[i]) / s[i]           held = more slices of x       shared memory
                                                   m = joined across threads;  s likewise
                                                   y[…] = … of own, of held, of what is read again

Threads go through a row in slices, neighbours by neighbouring threads.  The first slices stay in
registers, the next ones in shared memory, and what has no room in either is read once more by each
pass: it is in a cache then.  A row along other axes than the last (a softmax of columns) has others
beside it: neighbouring threads have those, as many of them as leave a row its room.

>>> cut_of(1280, 50257, 1, 4, 1, 1, Gpu())
RowCut(across=1, along=1024, lanes=1, group=8, registers=3, shared=3)
>>> cut_of(1, 8192, 8192, 4, 1, 1, Gpu())
RowCut(across=8, along=128, lanes=1, group=8, registers=3, shared=5)
>>> cut_of(64, 21, 65536, 4, 1, 1, Gpu())
RowCut(across=128, along=2, lanes=1, group=8, registers=1, shared=0)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from attrs import frozen

from plica.core.binding import free_vars, substitute
from plica.core.fold import map_bottom_up, map_top_down
from plica.core.term import Term
from plica.ir.loop import scalar as sc
from plica.ir.loop.combiner import MEANING
from plica.ir.loop.stage import ExternStage
from plica.ir.loop.stages import Names, Stages, loads, stages
from plica.ir.loop.statement import NOTHING, Alloc, Branch, For, LoopKind, Stmt, Store, seq
from plica.ir.type.dtype import f64
from plica.schedule.default.gpu.cost import BYTES, LAUNCH
from plica.schedule.default.gpu.machine import Gpu
from plica.schedule.default.gpu.row_passes import RowPass, RowPasses, row_passes

WIDE: Final = 16
"""Bytes that one instruction moves."""

SECTOR: Final = 32
"""Bytes of neighbours that memory gives at once."""

LINE: Final = 128
"""Bytes that a warp reads at once, best of all."""

GROUP: Final = 16
"""Elements of four bytes that a thread has under way at once."""

KEPT: Final = 24
"""Registers of a thread for elements of a row, where a block has all threads; else a half more."""

SPARE: Final = 20 * 1024
"""Bytes of shared memory for what threads tell each other."""


@frozen
class RowCut:
    """Rows beside one another and threads along each, neighbours of a thread; slices of a group,
    and how many groups registers and shared memory keep."""

    across: int
    along: int
    lanes: int
    group: int
    registers: int
    shared: int

    @property
    def step(self) -> int:
        """Elements of a row in a slice."""
        return self.along * self.lanes


def cut_of(  # noqa: PLR0917  # what rows are, and where
    rows: int, length: int, beside: int, size: int, kept: int, lanes: int, gpu: Gpu
) -> RowCut:
    """How rows are cut whose kept elements have some bytes in all, of so many loads each."""
    most = (gpu.shared - SPARE + KEPT * gpu.block * 4) // size
    across = min(LINE // min(size, 4), _power(beside), gpu.block)
    few = _power(rows * beside // gpu.processors)
    while across * size > SECTOR and (across * length > most or across > few):
        across //= 2
    along = min(_power(-(-length // GROUP)), gpu.block // across)
    if across * along < gpu.threads:
        across = max(across, min(gpu.threads // along, _power(beside), few))
    group = max(1, GROUP * 4 // (size * max(2, lanes)))
    step = along * lanes
    slices = length // step
    budget = KEPT if across * along > gpu.threads * 2 else KEPT * 3 // 2
    registers = min(slices // group, max(1, budget // (group * lanes * kept)))
    room = (gpu.shared - SPARE) // (step * across * size * group)
    shared = min(max(0, slices // group - registers), room)
    return RowCut(across, along, lanes, group, registers, shared)


def _power(of: int) -> int:
    """The power of two that is not below a number."""
    return 1 << max(0, of - 1).bit_length()


def kept_rows(of: Stages, gpu: Gpu, *, columns: bool) -> Stages | None:
    """Stages of rows (of columns) as statements of threads, None where they are no such."""
    found = row_passes(of)
    if found is None or (found.beside > 1) != columns:
        return None
    sizes = [each.buffer.dtype.bytes for each in found.kept]
    widest = max(*sizes, found.last.out.dtype.bytes)
    inner = found.sizes[found.row[-1]]
    lanes = 1 if columns else next(n for n in (8, 4, 2, 1) if n * widest <= WIDE and not inner % n)
    cut = cut_of(found.count, found.length, found.beside, sum(sizes), len(sizes), lanes, gpu)
    blocks = found.count * -(-found.beside // cut.across)
    cycles = 2 * cut.across * found.length * sum(sizes) / BYTES
    if 2 * blocks < gpu.processors and cycles > 2 * LAUNCH * (len(found.passes) + 1):
        return None  # processors would have nothing to do for longer than more launches take
    return _RowWriter(of, found, cut).stages()


class _RowWriter:
    """Writes the statements: who has which elements, and where they are kept."""

    def __init__(self, of: Stages, found: RowPasses, cut: RowCut) -> None:
        self.of, self.found, self.cut, self.names = of, found, cut, Names(of)
        self.block, self.lane, self.thread = map(self.names.var, ("b", "l", "a"))
        self.strips = -(-found.beside // cut.across)
        self.whole = self.strips * cut.across == found.beside
        self.column = self.block % self.strips * cut.across + self.lane
        inside = self.column if self.whole else sc.Min(self.column, sc.index(found.beside - 1))
        self.places: dict[Term, Term] = {
            axis: sc.index(0) for axis in found.last.axes if found.sizes[axis] == 1
        }
        self.places |= self._digits(found.lanes, inside)
        self.places |= self._digits(found.rows, self.block // self.strips)
        slices = found.length // cut.step
        kept = (cut.registers + cut.shared) * cut.group
        self.again = (slices - kept) // cut.group
        """Groups of slices that are read by each pass."""
        self.first_of_rest = kept + self.again * cut.group
        self.rest = -(-(found.length - self.first_of_rest * cut.step) // cut.step)
        self.own = [self._local("own", cut.registers * self.width, e) for e in found.kept]
        self.end = [self._local("end", self.rest * cut.lanes, each) for each in found.kept]
        count = sc.index(cut.shared * cut.group * cut.step * cut.across)
        self.held = [
            sc.Buffer(self.names.name("held"), (count,), each.buffer.dtype, "shared")
            for each in found.kept
        ]
        self.totals = {
            each.out: sc.Buffer(self.names.name("all"), (sc.index(1),), each.out.dtype, "local")
            for each in found.passes
        }

    @property
    def width(self) -> int:
        """Elements of a thread in a group of slices."""
        return self.cut.group * self.cut.lanes

    def _digits(self, axes: Sequence[sc.ScalarVar], number: sc.Scalar) -> dict[Term, Term]:
        """Where along some axes the place of a number is."""
        found: dict[Term, Term] = {}
        axes = [each for each in axes if self.found.sizes[each] != 1]
        for axis in reversed(axes):
            size = self.found.sizes[axis]
            found[axis] = number if axis is axes[0] else number % size
            number = number // size
        return found

    def stages(self) -> Stages:
        """One launch."""
        cut, found = self.cut, self.found
        body = seq(*[self._pass(n, each) for n, each in enumerate(found.passes)], self._last())
        memory = [*self.totals.values()]
        memory += self.own if cut.registers else []
        memory += self.held if cut.shared else []
        memory += self.end if self.rest else []
        for each in memory:
            body = Alloc(each, body)
        if cut.across == 1:
            body = substitute(body, {self.lane: sc.index(0)})
            body = For(self.thread, sc.index(cut.along), "threadIdx.x", body)
        else:
            body = For(self.thread, sc.index(cut.along), "threadIdx.y", body)
            body = For(self.lane, sc.index(cut.across), "threadIdx.x", body)
        blocks = sc.index(found.count * self.strips)
        whole = For(self.block, blocks, "blockIdx.x", body)
        return stages(self.of.inputs, (ExternStage((found.last.out,), whole),))

    # --- places -----------------------------------------------------------------------------------

    def _local(self, word: str, count: int, like: sc.Load) -> sc.Buffer:
        return sc.Buffer(self.names.name(word), (sc.index(count),), like.buffer.dtype, "local")

    def _each(
        self, count: int, body: Callable[[sc.Scalar], Stmt], kind: LoopKind = "unrolled"
    ) -> Stmt:
        if count == 1:
            return body(sc.index(0))
        var = self.names.var("v")
        return For(var, sc.index(count), kind, body(var))

    def _element(self, piece: sc.Scalar, near: sc.Scalar) -> sc.Scalar:
        """How far along the row an element of a slice is."""
        return (piece * self.cut.along + self.thread) * self.cut.lanes + near

    def _at(self, piece: sc.Scalar, near: sc.Scalar) -> dict[Term, Term]:
        return {**self.places, **self._digits(self.found.row, self._element(piece, near))}

    def _fetched(
        self, into: Sequence[sc.Buffer], first: sc.Scalar, count: int, guarded: bool = False
    ) -> Stmt:
        """Elements of some slices, from memory; where `guarded`, as far as there are such."""
        pairs = [*zip(into, self.found.kept, strict=True)]

        def slice_(u: sc.Scalar) -> Stmt:
            def one(v: sc.Scalar) -> Stmt:
                at, place = self._at(first + u, v), (u * self.cut.lanes + v,)
                return seq(*[Store(own, place, substitute(load, at)) for own, load in pairs])

            return self._guarded(first + u, self._each(self.cut.lanes, one, "vectorized"), guarded)

        return self._each(count, slice_)

    def _guarded(self, piece: sc.Scalar, body: Stmt, guarded: bool) -> Stmt:
        """What is done to elements of a slice; of the last one some may be beyond the row."""
        if not guarded:
            return body
        inside = sc.Lt(self._element(piece, sc.index(0)), sc.index(self.found.length))
        return Branch(inside, body, NOTHING)

    def _moved(self, near: Sequence[sc.Buffer], number: sc.Scalar, *, keep: bool) -> Stmt:
        """A group of slices to shared memory, or from there."""
        cut = self.cut
        lot = self.thread * cut.across + self.lane

        def slice_(u: sc.Scalar) -> Stmt:
            def one(v: sc.Scalar) -> Stmt:
                piece = number * cut.group + u
                there = ((piece * (cut.along * cut.across) + lot) * cut.lanes + v,)
                here = (u * cut.lanes + v,)
                return seq(*[
                    Store(far, there, sc.Load(own, here)) if keep
                    else Store(own, here, sc.Load(far, there))
                    for own, far in zip(near, self.held, strict=True)
                ])  # fmt: skip

            return self._each(cut.lanes, one, "vectorized")

        return self._each(cut.group, slice_)

    def _of_row(self, value: sc.Scalar) -> tuple[sc.Scalar, list[sc.Buffer], list[Stmt]]:
        """A value that reads what is the same for all of a row, where that is held, and how."""
        held: dict[sc.Scalar, sc.Buffer] = {}

        def put(node: Term) -> Term:
            if isinstance(node, sc.Load) and node.buffer in self.totals:
                return sc.Load(self.totals[node.buffer], (sc.index(0),))
            return node

        def hold(node: Term) -> Term:
            if not isinstance(node, sc.Scalar) or node in self.found.sizes:
                return node
            if not free_vars(node).isdisjoint(self.found.row) or not loads(node):
                return node
            if isinstance(node, sc.Load) and node.buffer in self.totals.values():
                return node
            if node not in held:
                name = self.names.name("same")
                held[node] = sc.Buffer(name, (sc.index(1),), sc.dtype_of(node), "local")
            return sc.Load(held[node], (sc.index(0),))

        found = map_top_down(hold, map_bottom_up(put, value))
        made: list[Stmt] = [Store(buffer, (sc.index(0),), substitute(node, self.places))
                            for node, buffer in held.items()]  # fmt: skip
        return found, [*held.values()], made

    def _filled(
        self, value: Term, near: Sequence[sc.Buffer], place: sc.Scalar, at: dict[Term, Term]
    ) -> Term:
        """What is made of an element that a thread has."""
        there: dict[Term, Term] = {
            load: sc.Load(own, (place,)) for load, own in zip(self.found.kept, near, strict=True)
        }

        return substitute(map_bottom_up(lambda node: there.get(node, node), value), at)

    # --- passes -----------------------------------------------------------------------------------

    def _through(
        self, use: Callable[[Sequence[sc.Buffer], sc.Scalar, int, int, bool], Stmt], fresh: bool
    ) -> Stmt:
        """A pass over a row; what is kept is fetched where it is a `fresh` one.

        Law: every element is used once by one thread.
        """
        cut = self.cut
        every: list[Stmt] = []
        if fresh and cut.registers:
            every.append(self._fetched(self.own, sc.index(0), cut.registers * cut.group))
        if fresh and self.rest:
            every.append(self._fetched(self.end, sc.index(self.first_of_rest), self.rest, True))
        for n in range(cut.registers):
            every.append(use(self.own, sc.index(n * cut.group), n * self.width, cut.group, False))
        for begin, groups, kept in (
            (cut.registers, cut.shared, True),
            (cut.registers + cut.shared, self.again, False),
        ):
            if not groups:
                continue
            near = [self._local("near", self.width, each) for each in self.found.kept]
            number = self.names.var("n")
            first = (number + begin) * cut.group
            body = self._fetched(near, first, cut.group)
            if kept:
                to = self._moved(near, number, keep=fresh)
                body = seq(body, to) if fresh else to
            body = seq(body, use(near, first, 0, cut.group, False))
            for each in near:
                body = Alloc(each, body)
            every.append(For(number, sc.index(groups), "serial", body))
        if self.rest:
            every.append(use(self.end, sc.index(self.first_of_rest), 0, self.rest, True))
        return seq(*every)

    def _pass(self, number: int, of: RowPass) -> Stmt:
        """A reduction of all rows of a block, whose result every thread has."""
        start, join = MEANING[of.combiner]
        dtype, value = of.out.dtype, of.value
        narrow = isinstance(value, sc.Cast) and dtype is f64 and of.combiner == "sum"
        inner = value.value if isinstance(value, sc.Cast) and narrow else value
        inner, same, made = self._of_row(inner)
        own = sc.Buffer(self.names.name("acc"), (sc.index(1),), dtype, "local")
        zero = (sc.index(0),)

        def use(
            near: Sequence[sc.Buffer], first: sc.Scalar, base: int, count: int, guarded: bool
        ) -> Stmt:
            some = own
            if narrow:  # a few terms in their own dtype, their total in the wide one
                some = sc.Buffer(self.names.name("few"), zero_shape, sc.dtype_of(inner), "local")

            def slice_(u: sc.Scalar) -> Stmt:
                def one(v: sc.Scalar) -> Stmt:
                    place = u * self.cut.lanes + v + base
                    term = self._filled(inner, near, place, self._at(first + u, v))
                    assert isinstance(term, sc.Scalar)
                    return Store(some, zero, join(sc.Load(some, zero), term))

                return self._guarded(first + u, self._each(self.cut.lanes, one), guarded)

            whole = self._each(count, slice_)
            if not narrow:
                return whole
            total = Store(own, zero, join(sc.Load(own, zero), sc.Cast(sc.Load(some, zero), dtype)))
            return Alloc(some, seq(Store(some, zero, start(some.dtype)), whole, total))

        zero_shape = (sc.index(1),)
        body = seq(
            *made,
            Store(own, zero, start(dtype)),
            self._through(use, number == 0),
            self._joined(own, self.totals[of.out], start(dtype), join),
        )
        for each in (*same, own):
            body = Alloc(each, body)
        return body

    def _joined(
        self,
        own: sc.Buffer,
        into: sc.Buffer,
        start: sc.Scalar,
        join: Callable[[sc.Scalar, sc.Scalar], sc.Scalar],
    ) -> Stmt:
        """What the threads of a row have, joined: first groups of them, then those by all."""
        zero, cut = (sc.index(0),), self.cut
        if cut.along == 1:
            return Store(into, zero, sc.Load(own, zero))
        groups = 1 << (cut.along.bit_length() // 2)
        part, whole = (
            sc.Buffer(
                self.names.name(word), (sc.index(n), sc.index(cut.across)), own.dtype, "shared"
            )
            for word, n in (("part", cut.along), ("whole", groups))
        )

        def add(target: sc.Buffer, source: sc.Buffer, first: sc.Scalar, step: int) -> Stmt:
            def one(u: sc.Scalar) -> Stmt:
                new = sc.Load(source, (first + u * step, self.lane))
                return Store(target, zero, join(sc.Load(target, zero), new))

            count = cut.along // groups if source is part else groups
            return seq(Store(target, zero, start), self._each(count, one))

        few = sc.Buffer(self.names.name("few"), (sc.index(1),), own.dtype, "local")
        summed = Alloc(few, seq(
            add(few, part, self.thread, groups),
            Store(whole, (self.thread, self.lane), sc.Load(few, zero)),
        ))  # fmt: skip
        body = seq(
            Store(part, (self.thread, self.lane), sc.Load(own, zero)),
            Branch(sc.Lt(self.thread, sc.index(groups)), summed, NOTHING),
            add(into, whole, sc.index(0), 1),
        )
        return Alloc(part, Alloc(whole, body))

    def _last(self) -> Stmt:
        """The elements of a row that are wanted."""
        out, axes = self.found.last.out, self.found.last.axes
        whole, same, made = self._of_row(self.found.value)

        def use(
            near: Sequence[sc.Buffer], first: sc.Scalar, base: int, count: int, guarded: bool
        ) -> Stmt:
            def slice_(u: sc.Scalar) -> Stmt:
                def one(v: sc.Scalar) -> Stmt:
                    at = self._at(first + u, v)
                    place = u * self.cut.lanes + v + base
                    value = self._filled(whole, near, place, at)
                    assert isinstance(value, sc.Scalar)
                    return Store(out, tuple([substitute(each, at) for each in axes]), value)

                body = self._each(self.cut.lanes, one, "vectorized")
                return self._guarded(first + u, body, guarded)

            return self._each(count, slice_)

        body = seq(*made, self._through(use, not self.found.passes))
        for each in same:
            body = Alloc(each, body)
        if not self.whole:
            body = Branch(sc.Lt(self.column, sc.index(self.found.beside)), body, NOTHING)
        return body


__all__ = ["RowCut", "cut_of", "kept_rows"]
