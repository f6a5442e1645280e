"""Row elements on a GPU: which thread has them, and where they are kept.

    own[…]   = vectors of x                registers, with those that not all threads have
    held[…]  = more of them                shared memory
    edge     = what is before and behind   where a row begins at no multiple of a vector

Values uniform in a row (its mean, its scale) are computed once per thread. Passes are in
`plica.schedule.default.gpu.row_writer`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from plica.core import Term, free_vars, map_bottom_up, map_top_down, substitute
from plica.ir.loop import scalar as sc
from plica.ir.loop.combiner import MEANING
from plica.ir.loop.stages import Stages, loads
from plica.ir.loop.statement import NOTHING, Alloc, Branch, For, LoopKind, Stmt, Store, seq
from plica.ir.type import DType, known
from plica.schedule.default.gpu.machine import VECTOR_BYTES
from plica.schedule.default.gpu.row_cut import Lot, RowCut
from plica.schedule.default.gpu.row_passes import RowPasses, reads_inside
from plica.schedule.default.gpu.thread_code import (
    Guard,
    ThreadNames,
    digits,
    flattened,
    only_within,
)


class RowPlaces:
    """The distribution of a block's row elements over threads, and their storage."""

    def __init__(  # noqa: PLR0917  # what rows are, and how they are cut
        self, of: Stages, found: RowPasses, cut: RowCut, length: int,
        names: ThreadNames | None = None, parts: int = 1,
    ) -> None:  # fmt: skip
        self.of, self.found, self.cut, self.names = of, found, cut, names or ThreadNames(of)
        self.length, self.edge = length, found.length - length if parts == 1 else 0
        """Elements of a row (of a part of it) in vectors, and those before and behind them."""
        assert self.edge <= cut.along, "Each element of the edge has a thread."
        self.block, self.lane, self.thread = map(self.names.var, ("b", "l", "a"))
        self.near = self.names.var("w")
        """The adjacent row of a thread."""
        self.strips = -(-found.beside // (cut.across * cut.wide))
        self.column = (self.block % self.strips * cut.across + self.lane) * cut.wide
        reach = self.strips * cut.across * cut.wide
        self.guards: list[Guard] = [(self.column, reach, found.beside)]
        """That a thread has a valid column, or row."""
        last = sc.index(found.beside - cut.wide)
        column = self.column if reach == found.beside else sc.Min(self.column, last)
        self.places: dict[Term, Term] = {
            axis: sc.index(0) for axis in found.last.axes if found.sizes[axis] == 1
        }
        self.places |= self._digits(found.lanes, column)
        if cut.wide > 1:
            inner = next(e for e in reversed(found.lanes) if found.sizes[e] != 1)
            self.places[inner] = _number(self.places[inner]) + self.near
        self.number = self.block // self.strips
        """The consecutive row of a thread, clamped to the last."""
        self.blocks = found.count * self.strips
        if cut.high > 1:
            self.number = self.block * cut.high + self.lane
            self.blocks = -(-found.count // cut.high)
            self.guards = [(self.number, self.blocks * cut.high, found.count)]
            if found.count % cut.high:
                self.number = sc.Min(self.number, sc.index(found.count - 1))
        self.places |= self._digits(found.rows, self.number)
        # A row begins anywhere: its vectors with the next multiple of their length.
        begin = self.number * found.length
        self.unit = (begin + (cut.lanes - 1)) // cut.lanes if self.edge else sc.index(0)
        self.head = self.unit * cut.lanes - begin if self.edge else sc.index(0)
        flat = [load.buffer for load in found.kept if found.is_element(load)]
        flat = [*flat, found.last.out] if self.edge or cut.staged else []
        self.flat = {buffer: flattened(buffer) for buffer in flat}
        self.staged = {buffer: self._stage(buffer) for buffer in flat[:-1] if cut.staged}
        """Where elements of all rows of a block lie side by side, as they do in memory."""
        slices = length // cut.step
        kept = (cut.registers + cut.shared) * cut.group
        self.again = (slices - kept) // cut.group
        """Groups of slices that are read by each pass."""
        self.first_of_rest = kept + self.again * cut.group
        self.rest = -(-(length - self.first_of_rest * cut.step) // cut.step)
        mine = [*found.kept, *[held_term.load for held_term in found.held]]
        self.own = [self._local("own", cut.registers * self.width, load) for load in mine]
        self.end = [self._local("end", self.rest * cut.near, load) for load in mine]
        self.edges = [self._local("edge", 1, load) for load in mine]
        count = cut.shared * cut.group * cut.step * cut.across * cut.wide
        self.held = [
            self.names.buffer("held", (count,), load.buffer.dtype, "shared") for load in found.kept
        ]
        self.totals = {pass_.out: self._each_row("all", pass_.out.dtype) for pass_ in found.passes}

    @property
    def width(self) -> int:
        """Elements of a thread in a group of slices."""
        return self.cut.group * self.cut.near

    def _digits(self, axes: Sequence[sc.ScalarVar], number: sc.Scalar) -> dict[Term, Term]:
        sizes = self.found.sizes
        return digits([axis for axis in axes if sizes[axis] != 1], sizes, number)

    def _local(self, word: str, count: int, like: sc.Load) -> sc.Buffer:
        return self.names.buffer(word, (count,), like.buffer.dtype, "local")

    def _each_row(self, word: str, dtype: DType) -> sc.Buffer:
        """A thread's storage per row."""
        return self.names.buffer(word, (self.cut.wide,), dtype, "local")

    def _of(self, near: sc.Scalar) -> sc.Scalar:
        """Which of its rows a neighbour of a thread is of."""
        return near if self.cut.wide > 1 else sc.index(0)

    def _each(
        self, count: int, body: Callable[[sc.Scalar], Stmt], kind: LoopKind = "unrolled"
    ) -> Stmt:
        return body(sc.index(0)) if count == 1 else self.names.each({"v": count}, body, kind)

    def _unit(self, of: Lot, u: sc.Scalar) -> sc.Scalar:
        """Which vector of a row one of a lot is."""
        return (of.first + u) * self.cut.along + self.thread

    def _element(self, of: Lot, u: sc.Scalar, near: sc.Scalar) -> sc.Scalar:
        """How far along the row an element of a lot is."""
        if of.edge:  # threads have one each: first those before the vectors
            return sc.Select(sc.Lt(self.thread, self.head), self.thread, self.thread + self.length)
        along = near if self.cut.wide == 1 else sc.index(0)
        scalar = self._unit(of, u) * self.cut.lanes + along
        return self.head + scalar if self.edge else scalar

    def _at(self, of: Lot, u: sc.Scalar, near: sc.Scalar) -> dict[Term, Term]:
        row = self._digits(self.found.row, self._element(of, u, near))
        return {**self._places(near), **row}

    def _places(self, near: sc.Scalar) -> dict[Term, Term]:
        """Which row a neighbour of a thread is of, along all axes that say so."""
        if self.cut.wide == 1:
            return self.places
        return {axis: substitute(_number(at), {self.near: near})
                for axis, at in self.places.items()}  # fmt: skip

    def _place(self, of: Lot, u: sc.Scalar, near: sc.Scalar) -> tuple[sc.Scalar, ...]:
        """Where an element is in memory that has one axis, or along all axes of the result."""
        at = self._at(of, u, near)
        if not self.edge:
            return tuple([substitute(axis, at) for axis in self.found.last.axes])
        if of.edge:
            return (self.number * self.found.length + self._element(of, u, near),)
        return ((self.unit + self._unit(of, u)) * self.cut.lanes + near,)

    def _in_lot(
        self, of: Lot, body: Callable[[sc.Scalar, sc.Scalar], Stmt], kind: LoopKind
    ) -> Stmt:
        """A body for each element of a lot; the last ones may be beyond the row."""

        def slice_(u: sc.Scalar) -> Stmt:
            inner = self._each(of.lanes, lambda v: body(u, v), kind)
            if of.edge:
                return Branch(sc.Lt(self.thread, sc.index(self.edge)), inner, NOTHING)
            reach = self.length + of.guarded  # some are beyond the row, or none
            return only_within(inner, [(self._unit(of, u) * self.cut.lanes, reach, self.length)])

        return self._each(of.count, slice_)

    def _fetched(self, of: Lot) -> Stmt:
        """Elements of a lot, from memory."""

        def one(u: sc.Scalar, v: sc.Scalar) -> Stmt:
            at, place = self._at(of, u, v), (u * of.lanes + v + of.base,)
            return seq(*[
                Store(own, place, self._read_of(of, u, v, load, at))
                for own, load in zip(of.near, self.found.kept, strict=False)
            ])  # fmt: skip

        return self._in_lot(of, one, "vectorized")

    def _read_of(
        self, of: Lot, u: sc.Scalar, v: sc.Scalar, load: sc.Load, at: dict[Term, Term]
    ) -> sc.Scalar:
        """An element of a lot, from where it is first."""
        if load.buffer in self.staged:
            there = self.staged[load.buffer]
            return sc.Load(there, (self._staged_at(load.buffer, self._element(of, u, v)),))
        if load.buffer in self.flat:
            return sc.Load(self.flat[load.buffer], self._place(of, u, v))
        return substitute(load, at)

    def _stage(self, of: sc.Buffer) -> sc.Buffer:
        """Shared memory for the vectors that a block's rows are in."""
        count = self._vectors(of) * (VECTOR_BYTES // of.dtype.bytes)
        return self.names.buffer("rows", (count,), of.dtype, "shared")

    def _vectors(self, of: sc.Buffer) -> int:
        """The vectors that cover a block's rows, whatever their alignment."""
        lanes, elements = VECTOR_BYTES // of.dtype.bytes, self.cut.high * self.found.length
        return -(-elements // lanes) + (1 if elements % lanes else 0)

    def _begin(self, of: sc.Buffer) -> tuple[sc.Scalar, sc.Scalar]:
        """The first vector that a block's rows are in, and how far in it they begin."""
        lanes, elements = VECTOR_BYTES // of.dtype.bytes, self.cut.high * self.found.length
        if elements % lanes == 0:
            return self.block * (elements // lanes), sc.index(0)
        return self.block * elements // lanes, self.block * elements % lanes

    def _staged_at(self, of: sc.Buffer, element: sc.Scalar) -> sc.Scalar:
        """Where an element of a thread's row is among those of the block."""
        row = self.lane * self.found.length + element
        is_aligned = self.cut.high * self.found.length % (VECTOR_BYTES // of.dtype.bytes) == 0
        return row if is_aligned else self._begin(of)[1] + row

    def _each_vector(self, of: sc.Buffer, body: Callable[[sc.Scalar, sc.Scalar], Stmt]) -> Stmt:
        """A body for each vector of a block's rows, by one thread: given its iteration and its
        vector index."""
        count, threads = self._vectors(of), self.cut.along * self.cut.rows
        turns = -(-count // threads)

        def turn(n: sc.Scalar) -> Stmt:
            number = n * threads + (self.lane * self.cut.along + self.thread)
            return only_within(body(n, number), [(number, turns * threads, count)])

        return self._each(turns, turn)

    def _put(self, of: sc.Buffer) -> Stmt:
        """Copies a block's rows to shared memory; zeros past the end.

        All loads of a thread are issued before it waits for the first.
        """
        flat, there = self.flat[of], self.staged[of]
        lanes, total = VECTOR_BYTES // of.dtype.bytes, known(flat.shape[0]) or 0
        first, _ = self._begin(of)
        elements = self.cut.high * self.found.length
        turns = -(-self._vectors(of) // (self.cut.along * self.cut.rows))
        on_the_way = self.names.buffer("way", (turns * lanes,), of.dtype, "local")
        near = self.names.var("v")

        def read(n: sc.Scalar, number: sc.Scalar) -> Stmt:
            source, own = (first + number) * lanes + near, (n * lanes + near,)
            whole = For(near, sc.index(lanes), "vectorized",
                        Store(on_the_way, own, sc.Load(flat, (source,))))  # fmt: skip
            if total % elements == 0 == elements % lanes:
                return whole
            value: sc.Scalar = sc.Load(flat, (sc.Min(source, sc.index(total - 1)),))
            none = MEANING["sum"][0](of.dtype)
            value = sc.Select(sc.Lt(source, sc.index(total)), value, none)
            single = For(near, sc.index(lanes), "unrolled", Store(on_the_way, own, value))
            return Branch(sc.Lt(first + number, sc.index(total // lanes)), whole, single)

        def keep(n: sc.Scalar, number: sc.Scalar) -> Stmt:
            own = sc.Load(on_the_way, (n * lanes + near,))
            return For(near, sc.index(lanes), "vectorized",
                       Store(there, (number * lanes + near,), own))  # fmt: skip

        body = seq(self._each_vector(of, read), self._each_vector(of, keep))
        return Alloc(on_the_way, body)

    def _taken(self, there: sc.Buffer) -> Stmt:
        """A block's rows of the result from shared memory, and no elements of others."""
        out = self.found.last.out
        flat, near = self.flat[out], self.names.var("v")
        lanes, total = VECTOR_BYTES // out.dtype.bytes, known(flat.shape[0]) or 0
        elements = self.cut.high * self.found.length
        begin = self.block * elements
        end = begin + elements
        end = end if total % elements == 0 else sc.Min(end, sc.index(total))
        first, _ = self._begin(out)

        def vector(_: sc.Scalar, number: sc.Scalar) -> Stmt:
            place = (first + number) * lanes
            move = Store(flat, (place + near,), sc.Load(there, (number * lanes + near,)))
            whole = For(near, sc.index(lanes), "vectorized", move)
            if total % elements == 0 == elements % lanes:
                return whole
            inside = sc.And(sc.Le(begin, place + near), sc.Lt(place + near, end))
            single = For(near, sc.index(lanes), "unrolled", Branch(inside, move, NOTHING))
            every = sc.And(sc.Le(begin, place), sc.Le(place + lanes, end))
            return Branch(every, whole, single)

        return self._each_vector(out, vector)

    def _moved(self, near: Sequence[sc.Buffer], number: sc.Scalar, *, keep: bool) -> Stmt:
        """A group of slices to shared memory, or from there."""
        cut = self.cut
        lot = self.thread * cut.across + self.lane

        def slice_(u: sc.Scalar) -> Stmt:
            def one(v: sc.Scalar) -> Stmt:
                piece = number * cut.group + u
                there = ((piece * (cut.along * cut.across) + lot) * cut.near + v,)
                here = (u * cut.near + v,)
                return seq(*[
                    Store(far, there, sc.Load(own, here)) if keep
                    else Store(own, here, sc.Load(far, there))
                    for own, far in zip(near, self.held, strict=True)
                ])  # fmt: skip

            return self._each(cut.near, one, "vectorized")

        return self._each(cut.group, slice_)

    def _of_row(self, value: sc.Scalar) -> tuple[sc.Scalar, list[sc.Buffer], list[Stmt]]:
        """A value with its uniform parts replaced by registers, and their definitions."""
        held: dict[sc.Scalar, sc.Buffer] = {}

        def put(node: Term) -> Term:
            if isinstance(node, sc.Load) and node.buffer in self.totals:
                return sc.Load(self.totals[node.buffer], (self._of(self.near),))
            return node

        def hold(node: Term) -> Term:
            if not isinstance(node, sc.Scalar) or node in self.found.sizes:
                return node
            if not free_vars(node).isdisjoint(self.found.row) or not loads(node):
                return node
            if isinstance(node, sc.Load) and node.buffer in self.totals.values():
                return node
            far = [load for load in loads(node) if load.buffer not in self.totals.values()]
            if not all(reads_inside(load, self.found.sizes) for load in far):
                return node  # a choice may be around it
            if node not in held:
                held[node] = self._each_row("same", sc.dtype_of(node))
            return sc.Load(held[node], (self._of(self.near),))

        scalar = map_top_down(hold, map_bottom_up(put, value))

        def kept(of: sc.Scalar, buffer: sc.Buffer, near: sc.Scalar) -> Stmt:
            own = substitute(of, {**self._places(near), self.near: near})
            return Store(buffer, (self._of(near),), own)

        statements = [self._each(self.cut.wide, partial(kept, node, buffer))
                for node, buffer in held.items()]  # fmt: skip
        return scalar, [*held.values()], statements

    def _filled(self, value: sc.Scalar, of: Lot, u: sc.Scalar, v: sc.Scalar) -> sc.Scalar:
        """A value of a thread's element."""
        place = (u * of.lanes + v + of.base,)
        mine = [*self.found.kept, *[held_term.load for held_term in self.found.held]]
        there: dict[Term, Term] = {
            load: sc.Load(own, place) for load, own in zip(mine, of.near, strict=True)
        }
        held = map_bottom_up(lambda node: there.get(node, node), value)
        return substitute(held, {**self._at(of, u, v), self.near: v})


def _number(of: Term) -> sc.Scalar:
    """A place along an axis."""
    assert isinstance(of, sc.Scalar)
    return of
