"""Columns: a reduction across rows as loops, some vectors of the kept axis through all rows.

    for blocks of vectors:                        those that keep the units for sums busy
        acc[block] = start
        for rows: acc[block] = join(acc[block], f(x[row, block]))
        out[block] = acc[block]

Rows that fill few vectors are read as one long row, whose parts are joined in the end; which of
both it is, and how many rows those are, is said by `plica.schedule.default.column`.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Final, TypeAlias

from plica.core.binding import substitute
from plica.core.fold import map_bottom_up
from plica.core.term import Term
from plica.ir.loop import scalar as sc
from plica.ir.loop.combiner import MEANING
from plica.ir.loop.stage import ExternStage
from plica.ir.loop.stages import Names, Stages, stages, with_element
from plica.ir.loop.statement import Alloc, Branch, For, LoopKind, Seq, Stmt, Store, seq
from plica.ir.type.dim import known
from plica.ir.type.dtype import DType, f64
from plica.schedule.default.column import UNDER_WAY, ColumnReduction
from plica.schedule.default.machine import Machine
from plica.schedule.default.reduction import ONE_RUN, WIDE
from plica.schedule.default.share import pays

NOTHING: Final = Seq(())

Then: TypeAlias = Callable[[sc.Scalar, int, sc.Buffer, bool], Stmt]
"""What is done with the totals of so many vectors from a place on, the last maybe cut short."""


class ColumnWriter:
    """The loops of such a reduction under construction."""

    def __init__(
        self, of: Stages, found: ColumnReduction, machine: Machine, lanes: int, rows: int
    ) -> None:
        self.found, self.names, self.lanes, self.rows = found, Names(of), lanes, rows
        self.machine = machine
        self.out, self.inputs = of.result, of.inputs
        self.row = rows * found.width
        self.dtype = sc.dtype_of(found.body)
        self.start, self.join = MEANING[found.body.combiner]
        rounds = found.body.combiner == "sum" and self.dtype.is_float
        self.wide = f64 if rounds and found.terms >= WIDE else self.dtype
        self.run = ONE_RUN if rounds else found.depth
        sizes = [known(each) or 0 for each in found.fold.out.shape[:-1]]
        self.around = list(zip(found.fold.axes[:-1], sizes, strict=True))
        self.shares = pays(machine, found.terms * prod(sizes) * found.width, of.inputs)
        self.term = found.body.body
        self.under_way = UNDER_WAY
        if rows > 1:
            self._view(of)

    def _view(self, of: Stages) -> None:
        """Rows one after another as one, in what is read along them."""
        found = self.found
        term, lane = found.body.axes[-1], found.lane
        flat = self.names.var("p")
        views: dict[sc.Buffer, sc.Buffer] = {}

        def viewed(node: Term) -> Term:
            if isinstance(node, sc.Load) and node.indices[-2:] == (term, lane):
                old = node.buffer
                shape = (*old.shape[:-2], sc.index(found.depth * found.width))
                views[old] = sc.Buffer(old.name, shape, old.dtype)
                return sc.Load(views[old], (*node.indices[:-2], flat))
            return node

        body = map_bottom_up(viewed, self.term)
        assert isinstance(body, sc.Scalar)
        self.term, self.flat = body, flat
        self.inputs = tuple([views.get(each, each) for each in of.inputs])

    def value(self, row: sc.Scalar, at: sc.Scalar) -> sc.Scalar:
        """The term of a (long) row, at a place of it."""
        if self.rows > 1:
            return substitute(self.term, {self.flat: row * self.row + at})
        return substitute(self.term, {self.found.body.axes[-1]: row, self.found.lane: at})

    def formed(self, of: Stages) -> Stages:
        """The stages: one, with the loops it should have."""
        body = self.body()
        return stages(self.inputs, (ExternStage((of.result,), body),))

    def body(self) -> Stmt:
        """All places of the axes around, and at each all blocks of vectors."""
        made = self.joined() if self.rows > 1 else self.blocks()
        first = next((at for at, (_, size) in enumerate(self.around) if size > 1), None)
        for at, (axis, size) in reversed(list(enumerate(self.around))):
            kind: LoopKind = "parallel" if self.shares and at == first else "serial"
            made = For(axis, sc.index(size), kind, made)
        return made

    @property
    def alone(self) -> bool:
        """Whether cores share a row, as there is one."""
        return self.shares and all(size == 1 for _, size in self.around)

    # --- a wide row ------------------------------------------------------------------------------

    def blocks(self) -> Stmt:
        """Blocks of vectors, of which the last may have fewer; each is stored where it is done."""
        vectors = -(-self.row // self.lanes)
        many = -(-vectors // -(-vectors // UNDER_WAY))
        cut = self.row % self.lanes != 0
        whole = (vectors - cut) // many
        alone = self.alone
        parts: list[Stmt] = []
        if whole:
            block = self.names.var("b")
            some = self.reduced(block * (many * self.lanes), many, self.stored)
            parts.append(For(block, sc.index(whole), "parallel" if alone else "serial", some))
        if left := vectors - whole * many:
            begin = sc.index(whole * many * self.lanes)
            parts.append(self.reduced(begin, left, self.stored, cut))
        return seq(*parts)

    def stored(self, begin: sc.Scalar, many: int, total: sc.Buffer, cut: bool) -> Stmt:
        """The results of a block."""

        def one(at: sc.Scalar, partly: bool) -> Stmt:
            place = begin + at
            made: Stmt = self.result(place, sc.Load(total, (at,)))
            return Branch(sc.Lt(place, sc.index(self.row)), made, NOTHING) if partly else made

        return self.vectors(many, one, cut)

    def result(self, place: sc.Scalar, total: sc.Scalar) -> Stmt:
        """What is done with the total of a place."""
        fold, epilogue = self.found.fold, self.found.epilogue
        if sc.dtype_of(total) is not self.dtype:
            total = sc.Cast(total, self.dtype)
        places = (*fold.axes[:-1], place)
        if epilogue is None:
            return Store(self.out, places, total)
        moved: dict[Term, Term] = dict(zip(epilogue.axes, places, strict=True))
        return Store(
            self.out, places, substitute(with_element(epilogue.value, fold.out, total), moved)
        )

    # --- rows together ---------------------------------------------------------------------------

    def joined(self) -> Stmt:
        """A long row whose parts are joined in the end."""
        sums = self.local("sums", self.row, self.wide)
        vectors = self.row // self.lanes
        many = -(-vectors // -(-vectors // self.under_way))

        def kept(begin: sc.Scalar, count: int, total: sc.Buffer, _: bool) -> Stmt:
            def one(at: sc.Scalar, _: bool) -> Stmt:
                return Store(sums, (begin + at,), self.widened(sc.Load(total, (at,))))

            return self.vectors(count, one)

        parts = [
            self.reduced(sc.index(at * self.lanes), min(many, vectors - at), kept)
            for at in range(0, vectors, many)
        ]
        width, r = self.found.width, self.names.var("r")
        total = self.local("total", width, self.wide)

        def more(at: sc.Scalar, found: sc.Scalar) -> Stmt:
            return Store(total, (at,), self.join(sc.Load(total, (at,)), self.widened(found)))

        parts.append(self.along_row(lambda j: Store(total, (j,), self.start(self.wide))))
        every = self.along_row(lambda j: more(j, sc.Load(sums, (r * width + j,))))
        parts.append(For(r, sc.index(self.rows), "serial", every))
        long, rest = divmod(self.found.depth, self.rows)
        if rest:
            r, begin = self.names.var("r"), long * self.row
            left = self.along_row(lambda j: more(j, self.value(sc.index(0), r * width + j + begin)))
            parts.append(self.over_others(For(r, sc.index(rest), "serial", left)))
        parts.append(self.along_row(lambda j: self.result(j, sc.Load(total, (j,)))))
        return Alloc(sums, Alloc(total, seq(*parts)))

    def along_row(self, body: Callable[[sc.Scalar], Stmt]) -> Stmt:
        """A statement for each place of the kept axis."""
        place = self.names.var("j")
        kind: LoopKind = "vectorized" if self.found.width * 2 >= self.lanes else "unrolled"
        return For(place, sc.index(self.found.width), kind, body(place))

    # --- vectors side by side --------------------------------------------------------------------

    def local(self, name: str, size: int, dtype: DType) -> sc.Buffer:
        return sc.Buffer(self.names.name(name), (sc.index(size),), dtype, "local")

    def widened(self, of: sc.Scalar) -> sc.Scalar:
        return of if sc.dtype_of(of) is self.wide else sc.Cast(of, self.wide)

    def vectors(
        self, many: int, body: Callable[[sc.Scalar, bool], Stmt], cut: bool = False
    ) -> Stmt:
        """A statement for each place of so many vectors, of which the last may be `cut` short."""
        u, lane = self.names.var("u"), self.names.var("v")
        parts: list[Stmt] = []
        if whole := many - cut:
            inner = For(
                lane, sc.index(self.lanes), "vectorized", body(u * self.lanes + lane, False)
            )
            parts.append(For(u, sc.index(whole), "unrolled", inner))
        if cut:
            lane = self.names.var("v")
            last = body(lane + whole * self.lanes, True)
            parts.append(For(lane, sc.index(self.lanes), "vectorized", last))
        return seq(*parts)

    def over_others(self, inner: Stmt) -> Stmt:
        """A statement for all terms but those of the last axis."""
        body = self.found.body
        for axis, size in reversed(list(zip(body.axes[:-1], body.extents[:-1], strict=True))):
            inner = For(axis, size, "serial", inner)
        return inner

    def beside(self, row: sc.Scalar, at: sc.Scalar) -> tuple[Stmt, ...]:
        """What is done besides with the term of a (long) row, at a place of it."""
        return ()

    def reduced(self, begin: sc.Scalar, many: int, then: Then, cut: bool = False) -> Stmt:
        """So many vectors from a place on, reduced over all rows, and what is done with them."""
        acc = self.local("acc", many * self.lanes, self.dtype)
        long = self.found.depth // self.rows
        others = self.found.terms // self.found.depth
        in_runs = others * long > self.run
        whole = self.local("whole", many * self.lanes, self.wide) if in_runs else acc

        def cleared(of: sc.Buffer) -> Stmt:
            return self.vectors(many, lambda at, _: Store(of, (at,), self.start(of.dtype)))

        def added(row: sc.Scalar) -> Callable[[sc.Scalar, bool], Stmt]:
            def one(at: sc.Scalar, partly: bool) -> Stmt:
                found = self.value(row, begin + at)
                if partly:
                    inside = sc.Lt(begin + at, sc.index(self.row))
                    found = sc.Select(inside, found, self.start(self.dtype))
                total = Store(acc, (at,), self.join(sc.Load(acc, (at,)), found))
                return seq(*self.beside(row, begin + at), total)

            return one

        def kept(at: sc.Scalar, _: bool) -> Stmt:
            found = self.widened(sc.Load(acc, (at,)))
            return Store(whole, (at,), self.join(sc.Load(whole, (at,)), found))

        def some(first: sc.Scalar, count: int) -> Stmt:
            h = self.names.var("h")
            rows = For(h, sc.index(count), "serial", self.vectors(many, added(first + h), cut))
            return seq(cleared(acc), rows, self.vectors(many, kept)) if in_runs else rows

        parts: list[Stmt] = []
        runs, rest = divmod(long, self.run) if in_runs else (0, long)
        if runs:
            b = self.names.var("b")
            parts.append(For(b, sc.index(runs), "serial", some(b * self.run, self.run)))
        if rest:
            parts.append(some(sc.index(runs * self.run), rest))
        inner = self.over_others(seq(*parts))
        made = seq(cleared(whole), inner, then(begin, many, whole, cut))
        return Alloc(acc, Alloc(whole, made)) if in_runs else Alloc(acc, made)
