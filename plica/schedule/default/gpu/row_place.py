"""Elements of rows on a GPU: which of them a thread has, and where they are kept.

    own[…]   = vectors of x                registers, with those that not all threads have
    held[…]  = more of them                shared memory
    edge     = what is before and behind   where a row begins at no multiple of a vector

What is the same for all of a row (a mean, a scale of it) is computed once by each thread.  Passes
over all of that are in `plica.schedule.default.gpu.row_writer`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod

from plica.core.binding import free_vars, substitute
from plica.core.fold import map_bottom_up, map_top_down
from plica.core.term import Term
from plica.ir.loop import scalar as sc
from plica.ir.loop.stages import Names, Stages, loads
from plica.ir.loop.statement import NOTHING, Branch, For, LoopKind, Stmt, Store, seq
from plica.ir.type.dim import known
from plica.ir.type.dtype import DType
from plica.schedule.default.gpu.row_cut import Lot, RowCut
from plica.schedule.default.gpu.row_passes import RowPasses, reads_inside


class RowPlaces:
    """Who has which elements of a block's rows, and where they are kept."""

    def __init__(  # noqa: PLR0917  # what rows are, and how they are cut
        self, of: Stages, found: RowPasses, cut: RowCut, length: int, names: Names | None = None,
        parts: int = 1,
    ) -> None:  # fmt: skip
        self.of, self.found, self.cut, self.names = of, found, cut, names or Names(of)
        self.length, self.edge = length, found.length - length if parts == 1 else 0
        """Elements of a row (of a part of it) in vectors, and those before and behind them."""
        self.block, self.lane, self.thread = map(self.names.var, ("b", "l", "a"))
        self.near = self.names.var("w")
        """Which of the rows beside one another that a thread has."""
        self.strips = -(-found.beside // (cut.across * cut.wide))
        self.whole = self.strips * cut.across * cut.wide == found.beside
        self.column = (self.block % self.strips * cut.across + self.lane) * cut.wide
        last = sc.index(found.beside - cut.wide)
        inside = self.column if self.whole else sc.Min(self.column, last)
        self.places: dict[Term, Term] = {
            axis: sc.index(0) for axis in found.last.axes if found.sizes[axis] == 1
        }
        self.places |= self._digits(found.lanes, inside)
        if cut.wide > 1:
            inner = next(e for e in reversed(found.lanes) if found.sizes[e] != 1)
            self.places[inner] = _number(self.places[inner]) + self.near
        self.number = self.block // self.strips
        """Which of the rows that follow one another a thread has; the last where there is none."""
        self.blocks = found.count * self.strips
        self.inside: sc.Scalar | None = None
        """Whether a thread has a row or column of its own, where not all do."""
        if not self.whole:
            self.inside = sc.Lt(self.column, sc.index(found.beside))
        if cut.high > 1:
            self.number = self.block * cut.high + self.lane
            self.blocks = -(-found.count // cut.high)
            if found.count % cut.high:
                self.inside = sc.Lt(self.number, sc.index(found.count))
                self.number = sc.Min(self.number, sc.index(found.count - 1))
        self.places |= self._digits(found.rows, self.number)
        # A row begins anywhere: its vectors with the next multiple of their length.
        begin = self.number * found.length
        self.unit = (begin + (cut.lanes - 1)) // cut.lanes if self.edge else sc.index(0)
        self.head = self.unit * cut.lanes - begin if self.edge else sc.index(0)
        flat = [each.buffer for each in found.kept] if self.edge else []
        self.flat = {each: _flat(each) for each in (*flat, *([found.last.out] if flat else []))}
        slices = length // cut.step
        kept = (cut.registers + cut.shared) * cut.group
        self.again = (slices - kept) // cut.group
        """Groups of slices that are read by each pass."""
        self.first_of_rest = kept + self.again * cut.group
        self.rest = -(-(length - self.first_of_rest * cut.step) // cut.step)
        self.own = [self._local("own", cut.registers * self.width, e) for e in found.kept]
        self.end = [self._local("end", self.rest * cut.near, each) for each in found.kept]
        self.edges = [self._local("edge", 1, each) for each in found.kept]
        count = sc.index(cut.shared * cut.group * cut.step * cut.across * cut.wide)
        self.held = [
            sc.Buffer(self.names.name("held"), (count,), each.buffer.dtype, "shared")
            for each in found.kept
        ]
        self.totals = {each.out: self._each_row("all", each.out.dtype) for each in found.passes}

    @property
    def width(self) -> int:
        """Elements of a thread in a group of slices."""
        return self.cut.group * self.cut.near

    def _digits(self, axes: Sequence[sc.ScalarVar], number: sc.Scalar) -> dict[Term, Term]:
        """Where along some axes the place of a number is."""
        found: dict[Term, Term] = {}
        axes = [each for each in axes if self.found.sizes[each] != 1]
        for axis in reversed(axes):
            size = self.found.sizes[axis]
            found[axis] = number if axis is axes[0] else number % size
            number = number // size
        return found

    def _local(self, word: str, count: int, like: sc.Load) -> sc.Buffer:
        return sc.Buffer(self.names.name(word), (sc.index(count),), like.buffer.dtype, "local")

    def _each_row(self, word: str, dtype: DType) -> sc.Buffer:
        """What a thread holds of each of its rows."""
        return sc.Buffer(self.names.name(word), (sc.index(self.cut.wide),), dtype, "local")

    def _of(self, near: sc.Scalar) -> sc.Scalar:
        """Which of its rows a neighbour of a thread is of."""
        return near if self.cut.wide > 1 else sc.index(0)

    def _each(
        self, count: int, body: Callable[[sc.Scalar], Stmt], kind: LoopKind = "unrolled"
    ) -> Stmt:
        if count == 1:
            return body(sc.index(0))
        var = self.names.var("v")
        return For(var, sc.index(count), kind, body(var))

    def _unit(self, of: Lot, u: sc.Scalar) -> sc.Scalar:
        """Which vector of a row one of a lot is."""
        return (of.first + u) * self.cut.along + self.thread

    def _element(self, of: Lot, u: sc.Scalar, near: sc.Scalar) -> sc.Scalar:
        """How far along the row an element of a lot is."""
        if of.edge:  # threads have one each: first those before the vectors
            return sc.Select(sc.Lt(self.thread, self.head), self.thread, self.thread + self.length)
        along = near if self.cut.wide == 1 else sc.index(0)
        found = self._unit(of, u) * self.cut.lanes + along
        return self.head + found if self.edge else found

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
            return tuple([substitute(each, at) for each in self.found.last.axes])
        if of.edge:
            return (self.number * self.found.length + self._element(of, u, near),)
        return ((self.unit + self._unit(of, u)) * self.cut.lanes + near,)

    def _in_lot(
        self, of: Lot, body: Callable[[sc.Scalar, sc.Scalar], Stmt], kind: LoopKind
    ) -> Stmt:
        """What is done to each element of a lot; of the last ones some may be beyond the row."""

        def slice_(u: sc.Scalar) -> Stmt:
            inner = self._each(of.lanes, lambda v: body(u, v), kind)
            if of.edge:
                return Branch(sc.Lt(self.thread, sc.index(self.edge)), inner, NOTHING)
            if of.guarded:
                first = self._unit(of, u) * self.cut.lanes
                return Branch(sc.Lt(first, sc.index(self.length)), inner, NOTHING)
            return inner

        return self._each(of.count, slice_)

    def _fetched(self, of: Lot) -> Stmt:
        """Elements of a lot, from memory."""

        def one(u: sc.Scalar, v: sc.Scalar) -> Stmt:
            at, place = self._at(of, u, v), (u * of.lanes + v + of.base,)
            return seq(*[
                Store(own, place, sc.Load(self.flat[load.buffer], self._place(of, u, v))
                      if self.edge else substitute(load, at))
                for own, load in zip(of.near, self.found.kept, strict=True)
            ])  # fmt: skip

        return self._in_lot(of, one, "vectorized")

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
        """A value that reads what is the same for all of a row, where that is held, and how."""
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
            far = [each for each in loads(node) if each.buffer not in self.totals.values()]
            if not all(reads_inside(each, self.found.sizes) for each in far):
                return node  # a choice may be around it
            if node not in held:
                held[node] = self._each_row("same", sc.dtype_of(node))
            return sc.Load(held[node], (self._of(self.near),))

        found = map_top_down(hold, map_bottom_up(put, value))

        def kept(of: sc.Scalar, buffer: sc.Buffer, near: sc.Scalar) -> Stmt:
            own = substitute(of, {**self._places(near), self.near: near})
            return Store(buffer, (self._of(near),), own)

        made = [self._each(self.cut.wide, partial(kept, node, buffer))
                for node, buffer in held.items()]  # fmt: skip
        return found, [*held.values()], made

    def _filled(self, value: sc.Scalar, of: Lot, u: sc.Scalar, v: sc.Scalar) -> sc.Scalar:
        """What is made of an element that a thread has."""
        place = (u * of.lanes + v + of.base,)
        there: dict[Term, Term] = {
            load: sc.Load(own, place) for load, own in zip(self.found.kept, of.near, strict=True)
        }
        held = map_bottom_up(lambda node: there.get(node, node), value)
        return substitute(held, {**self._at(of, u, v), self.near: v})


def _number(of: Term) -> sc.Scalar:
    """A place along an axis."""
    assert isinstance(of, sc.Scalar)
    return of


def _flat(of: sc.Buffer) -> sc.Buffer:
    """A buffer with one axis."""
    return sc.Buffer(of.name, (sc.index(prod([known(n) or 0 for n in of.shape])),), of.dtype)
