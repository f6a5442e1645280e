"""Columns in stages: rows that lie before a few columns, stage after stage (softmax, norms).

    m[i, j]    = max over k of x[i, k, j]          for i:                x[i] stays in a near cache
    e[i, k, j] = exp(x[i, k, j] - m[i, j])   -->       max of all columns
    s[i, j]    = sum over k of e[i, k, j]              e, and its sum in all columns
    y[i, k, j] = e[i, k, j] / s[i, j]                  y of all columns

Columns too few for a vector lie one behind another, so some rows are read as one (see
`plica.schedule.default.column`).  What is one number for each column is repeated as often as there
are such rows: then its vectors are read like those of a row.  The last of these long rows begins
where it still ends with the last row; what of it was added before is not added again.

>>> from plica.ir.loop.stage import stage
>>> from plica.ir.loop.stages import stages
>>> from plica.ir.loop.tensor import buffer, reduce
>>> x = buffer("x", (4, 100, 3), f32)
>>> top = stage("m", (4, 3), lambda i, j: reduce("max", (100,), lambda k: x[i, k, j]))
>>> away = stage("y", (4, 100, 3), lambda i, k, j: x[i, k, j] - top[i, j])
>>> whole = stages((x,), (top, away))
>>> columns_of(whole).width, columns_of(whole).depth
(3, 100)
>>> [type(each).__name__ for each in column_chain_form(whole, Machine(512, 32)).stages]
['ExternStage']
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Final

from attrs import frozen

from plica.core.binding import free_vars, substitute
from plica.core.fold import map_bottom_up, map_top_down, post_order
from plica.core.term import Term
from plica.ir.loop import scalar as sc
from plica.ir.loop.combiner import MEANING
from plica.ir.loop.scalar import row_of
from plica.ir.loop.stage import Each, ExternStage
from plica.ir.loop.stages import Names, Stages, loads, reductions, stages
from plica.ir.loop.statement import Alloc, For, LoopKind, Stmt, Store, seq
from plica.ir.type.dim import known
from plica.ir.type.dtype import DType, f32, f64, i32, i64
from plica.schedule.default.column import (
    UNDER_WAY,
    ColumnReduction,
    rows_together,
    stands_in_loads,
)
from plica.schedule.default.column_writer import ColumnWriter, Then
from plica.schedule.default.elementwise import COSTLY
from plica.schedule.default.machine import LONGEST, Machine
from plica.schedule.default.row import is_cheap
from plica.schedule.default.share import pays
from plica.schedule.default.short_row import ABREAST

MOST_COLUMNS: Final = 15
"""More columns fill vectors by themselves, in kernels that cores share."""

FEWEST_ROWS: Final = 32
"""Two long rows of columns that are odd in number, at least, in the longest vectors."""


@frozen(eq=False)
class _Step:
    """A stage at the places of `Columns`; `whole` where it has elements in rows, not one for each
    column alone."""

    out: sc.Buffer
    value: sc.Scalar
    whole: bool


@frozen(eq=False)
class Columns:
    """Stages of `depth` rows before `width` columns, at each place of the axes `around`: elements
    of rows are read at [row, column], and what columns have at [column]."""

    steps: tuple[_Step, ...]
    around: tuple[sc.ScalarVar, ...]
    sizes: tuple[int, ...]
    row: sc.ScalarVar
    column: sc.ScalarVar
    depth: int
    width: int

    @property
    def bytes(self) -> int:
        """What all rows before the columns take, at most, of any stage."""
        return self.depth * self.width * max(each.out.dtype.bytes for each in self.steps)

    @property
    def few(self) -> bool:
        """Whether there are too few columns for vectors of their own, and rows stay near."""
        short = 1 < self.width <= MOST_COLUMNS and self.depth >= FEWEST_ROWS
        return short and self.bytes <= LONGEST

    def is_for(self, machine: Machine) -> bool:
        """Whether no core that could do a part of a stage would wait for the places of others."""
        elements = self.depth * self.width * prod(self.sizes)
        return prod(self.sizes) >= machine.cores or not pays(machine, COSTLY * elements, ())


def columns_of(of: Stages) -> Columns | None:
    """The columns along which stages go together, None where they do not."""
    every = [each for each in of.stages if isinstance(each, Each)]
    first = next((each for each in every if isinstance(each.value, sc.Reduce)), None)
    if of.dims or len(every) < 2 or len(every) < len(of.stages) or len(of.outputs) > 1:
        return None
    if first is None or not isinstance(first.value, sc.Reduce) or not first.axes:
        return None
    if len(first.value.axes) != 1:
        return None
    row, (*around, column) = first.value.axes[0], first.axes
    *sizes, width = [known(size) or 0 for size in first.out.shape]
    depth = known(first.value.extents[0]) or 0
    found = Columns((), tuple(around), tuple(sizes), row, column, depth, width)
    steps = [_step(each, found) for each in every]
    made = {each.out: each.whole for each in steps if each is not None}
    if len(made) < len(every) or not all(_reads(each, found, made) for each in steps if each):
        return None
    ways: dict[sc.Buffer, bool] = {}
    for each in steps:
        for load in loads(each.value) if each else ():
            if ways.setdefault(load.buffer, row in free_vars(load)) != (row in free_vars(load)):
                return None  # it cannot be seen as long rows and as something else
    return Columns(
        tuple([each for each in steps if each]),
        tuple(around),
        tuple(sizes),
        row,
        column,
        depth,
        width,
    )


def _step(of: Each, there: Columns) -> _Step | None:
    """A stage at the places that all stages share, None where it has others."""
    sizes = tuple([known(size) or 0 for size in of.out.shape])
    whole = sizes == (*there.sizes, there.depth, there.width)
    if not whole and sizes != (*there.sizes, there.width):
        return None
    places = (*there.around, there.row, there.column) if whole else (*there.around, there.column)
    at: dict[Term, Term] = dict(zip(of.axes, places, strict=True))
    if not isinstance(of.value, sc.Reduce):
        return None if reductions(of.value) else _Step(of.out, substitute(of.value, at), whole)
    fold = of.value
    if whole or len(fold.axes) != 1 or known(fold.extents[0]) != there.depth:
        return None
    if fold.combiner not in MEANING or sc.dtype_of(fold) not in (f32, f64, i32, i64):
        return None
    if reductions(fold.body):
        return None
    body = substitute(fold.body, {**at, fold.axes[0]: there.row})
    return _Step(of.out, sc.Reduce(fold.combiner, (there.row,), fold.extents, body), whole)


def _reads(of: _Step, there: Columns, made: Mapping[sc.Buffer, bool]) -> bool:
    """Whether a stage reads whole rows, what columns have, or one number for all of them."""
    value = of.value.body if isinstance(of.value, sc.Reduce) else of.value
    sizes = {there.row: there.depth, there.column: there.width}
    sizes.update(zip(there.around, there.sizes, strict=True))
    for load in loads(value):
        in_rows = there.row in free_vars(load)
        last = [there.row] if in_rows else []
        last += [there.column] if in_rows or there.column in free_vars(load) else []
        before = load.indices[: len(load.indices) - len(last)]
        if load.buffer.strides or load.indices[len(before) :] != (*last,):
            return False
        if any(
            known(n) != sizes[v]
            for n, v in zip(load.buffer.shape[len(before) :], last, strict=True)
        ):
            return False
        if load.buffer in made and (made[load.buffer] != in_rows or before != there.around):
            return False
        # Then it is there for all rows, whatever condition it is read under.
        for place, size in zip(before, load.buffer.shape, strict=False):
            most = sizes.get(place, 0) if place in there.around else (known(place) or 0) + 1
            if (place not in there.around and not isinstance(place, sc.Lit)) or most > (
                known(size) or 0
            ):
                return False
    return stands_in_loads(value, (there.row, there.column))


def column_chain_form(of: Stages, machine: Machine) -> Stages | None:
    """Stages along rows before few columns with the loops they should have, None where these are
    none."""
    if (found := columns_of(of)) is None or not found.few:
        return None
    lanes = machine.lanes(next(each.out.dtype for each in found.steps if _folds(each)))
    rows = rows_together(found.width, found.depth, lanes)
    if lanes < 2 or rows == 1:
        return None
    return _Writer(of, found, machine, lanes, rows).formed()


def _folds(of: _Step) -> bool:
    return isinstance(of.value, sc.Reduce)


def _has_function(of: sc.Scalar) -> bool:
    """Whether an element is computed by a function that takes many steps."""
    rows = [row_of(node) for node in post_order(of) if isinstance(node, sc.Scalar)]
    return any(row is not None and row.cost == "function" for row in rows)


class _Writer:
    """The loops of such stages under construction."""

    def __init__(self, of: Stages, found: Columns, machine: Machine, lanes: int, rows: int) -> None:
        self.of, self.found, self.machine = of, found, machine
        self.lanes, self.rows, self.long = lanes, rows, rows * found.width
        self.names = Names(of)
        self.flat = self.names.var("p")
        self.known: dict[sc.Buffer, sc.Scalar] = {}
        self.local: list[sc.Buffer] = []
        self.beside: tuple[sc.Load, sc.Scalar] | None = None
        """Where elements are kept that the next reduction reads, and what they are."""
        self.views = {
            load.buffer: self.view(load.buffer)
            for each in found.steps
            for load in loads(each.value)
            if load.buffer in of.inputs and found.row in free_vars(load)
        }
        steps = len(found.steps) * found.depth * found.width * prod(found.sizes)
        self.shares = pays(machine, COSTLY * steps, of.inputs)

    def view(self, of: sc.Buffer) -> sc.Buffer:
        """A tensor whose rows are one behind another."""
        size = sc.index(self.found.depth * self.found.width)
        return sc.Buffer(of.name, (*of.shape[:-2], size), of.dtype, of.scope, (), of.align)

    def formed(self) -> Stages:
        """The stages: one, with the loops it should have."""
        *before, last = self.found.steps
        out = self.view(self.of.result) if last.whole else self.of.result
        made: Stmt = seq(
            *[part for each in before for part in self.step(each)], *self.last(last, out)
        )
        for kept in reversed(self.local):
            made = Alloc(kept, made)
        first = next((at for at, size in enumerate(self.found.sizes) if size > 1), None)
        for at, axis in reversed(list(enumerate(self.found.around))):
            kind: LoopKind = "parallel" if self.shares and at == first else "serial"
            made = For(axis, sc.index(self.found.sizes[at]), kind, made)
        inputs = tuple([self.views.get(each, each) for each in self.of.inputs])
        return stages(inputs, (ExternStage((out,), made),))

    # --- stages ----------------------------------------------------------------------------------

    def step(self, of: _Step) -> list[Stmt]:
        """What is done for a stage; how it is read from then on is known after that."""
        value = self.filled(of.value)
        if isinstance(value, sc.Reduce):
            total = self.kept("total", self.found.width, of.out)
            self.known[of.out] = sc.Load(total, (self.found.column,))
            return self.reduced(of, value, total)
        if not of.whole or self.uses(of.out) == 1 or is_cheap(value, {self.flat}):
            self.known[of.out] = value
            return []
        kept = self.kept("stage", self.found.depth * self.found.width, of.out)
        self.known[of.out] = there = sc.Load(kept, (self.flat,))
        after = self.found.steps[self.found.steps.index(of) + 1]
        if _folds(after) and any(load.buffer is of.out for load in loads(after.value)):
            self.beside = (there, value)
            return []
        return self.in_rows(value, kept, ())

    def last(self, of: _Step, out: sc.Buffer) -> list[Stmt]:
        """What is done for the result."""
        around, value = self.found.around, self.filled(of.value)
        if of.whole:
            return self.in_rows(value, out, around)
        before: list[Stmt] = []
        if isinstance(value, sc.Reduce):
            total = self.kept("total", self.found.width, of.out)
            before = self.reduced(of, value, total)
            value = sc.Load(total, (self.found.column,))
        return [*before, self.by_column(value, out, around)]

    def uses(self, of: sc.Buffer) -> int:
        """How often a stage is computed if it is where it is read, and all that read it are too."""
        found = 0
        for each in self.found.steps:
            if any(load.buffer is of for load in loads(each.value)):
                ends = _folds(each) or each.out is self.of.result
                found += 1 if ends else self.uses(each.out)
        return found

    def kept(self, like: str, size: int, of: sc.Buffer) -> sc.Buffer:
        self.local.append(sc.Buffer(self.names.name(like), (sc.index(size),), of.dtype))
        return self.local[-1]

    def filled(self, of: sc.Scalar) -> sc.Scalar:
        """A value of what earlier stages have kept, along long rows."""

        def new(node: Term) -> Term:
            if not isinstance(node, sc.Load):
                return node
            if node.buffer in self.views:
                return sc.Load(self.views[node.buffer], (*node.indices[:-2], self.flat))
            return self.known.get(node.buffer, node)

        return map_bottom_up(new, of)

    # --- what columns have -----------------------------------------------------------------------

    def by_column(self, value: sc.Scalar, out: sc.Buffer, around: tuple[sc.ScalarVar, ...]) -> Stmt:
        """A value for each column."""
        place = self.names.var("j")
        kind: LoopKind = "vectorized" if self.found.width * 2 >= self.lanes else "unrolled"
        made = Store(out, (*around, place), substitute(value, {self.found.column: place}))
        return For(place, sc.index(self.found.width), kind, made)

    def repeated(self, *of: sc.Scalar) -> tuple[list[sc.Scalar], sc.ScalarVar, list[Stmt]]:
        """Values of rows in which what is the same in all of them is read, at a place of a long
        row, and how that is made."""
        place, width = self.names.var("w"), self.found.width
        again: dict[sc.Scalar, sc.Buffer] = {}
        made: list[Stmt] = []

        def new(node: Term) -> Term:
            if not isinstance(node, sc.Scalar) or isinstance(node, sc.Lit | sc.ScalarVar):
                return node
            inside = free_vars(node)
            if self.flat in inside or self.found.column not in inside:
                return node
            if node not in again:
                like = sc.Buffer(self.names.name("again"), (), sc.dtype_of(node))
                one = self.kept("one", width, like)
                again[node] = self.kept("again", self.long, like)
                r, j = self.names.var("r"), self.names.var("j")
                each = Store(again[node], (r * width + j,), sc.Load(one, (j,)))
                made.append(self.by_column(node, one, ()))
                inner = For(j, sc.index(width), "unrolled", each)
                made.append(For(r, sc.index(self.rows), "serial", inner))
            return sc.Load(again[node], (place,))

        return [map_top_down(new, each) for each in of], place, made

    # --- long rows -------------------------------------------------------------------------------

    def in_rows(
        self, of: sc.Scalar, out: sc.Buffer, around: tuple[sc.ScalarVar, ...]
    ) -> list[Stmt]:
        """A value for each element, long row after long row; the last two may overlap."""
        (value,), place, before = self.repeated(of)
        vectors, block, u, v = self.long // self.lanes, *map(self.names.var, "buv")
        last = self.found.depth - self.rows
        begin: sc.Scalar = block * self.rows
        if self.found.depth % self.rows:
            begin = sc.Min(begin, sc.index(last))
        at = u * self.lanes + v
        there = begin * self.found.width + at
        made: Stmt = Store(out, (*around, there), substitute(value, {self.flat: there, place: at}))
        made = For(v, sc.index(self.lanes), "vectorized", made)
        kind: LoopKind = "unrolled" if vectors <= UNDER_WAY else "serial"
        made = For(u, sc.index(vectors), kind, made)
        return [*before, For(block, sc.index(-(-self.found.depth // self.rows)), "serial", made)]

    def reduced(self, of: _Step, fold: sc.Reduce, total: sc.Buffer) -> list[Stmt]:
        """The totals of all columns."""
        beside, self.beside = self.beside, None
        (value, *stored), place, before = self.repeated(fold.body, *(beside or ())[1:])
        depth = self.found.depth // self.rows * self.rows
        body = sc.Reduce(fold.combiner, fold.axes, (sc.index(depth),), value)
        whole = Each(of.out, (*self.found.around, self.found.column), body)
        found = ColumnReduction(whole, body, None, self.found.column, self.found.width, depth)
        writer = _LongRows(self.of, found, self.machine, self.lanes, self.rows)
        writer.names, writer.there, writer.place, writer.to = self.names, self.flat, place, total
        writer.kept = None if beside is None else (beside[0], stored[0])
        writer.rest = self.found.depth - depth
        writer.under_way = ABREAST if any(map(_has_function, (value, *stored))) else UNDER_WAY
        return [*before, writer.joined()]


class _LongRows(ColumnWriter):
    """A reduction of long rows, whose term is read at a place of all rows and of a long one."""

    there: sc.ScalarVar
    place: sc.ScalarVar
    to: sc.Buffer
    kept: tuple[sc.Load, sc.Scalar] | None
    """Where something is kept that the term reads, and what it is."""
    rest: int
    """Rows behind the last whole long one: fewer than it has."""

    def value(self, row: sc.Scalar, at: sc.Scalar) -> sc.Scalar:
        return substitute(self.found.body.body, {self.there: row * self.row + at, self.place: at})

    def beside(self, row: sc.Scalar, at: sc.Scalar) -> tuple[Stmt, ...]:
        return self.keeping({self.there: row * self.row + at, self.place: at})

    def keeping(self, places: Mapping[Term, Term]) -> tuple[Stmt, ...]:
        """What is kept of an element, stored."""
        if self.kept is None:
            return ()
        (where,) = substitute(self.kept[0], dict(places)).indices
        return (Store(self.kept[0].buffer, (where,), substitute(self.kept[1], dict(places))),)

    def reduced(self, begin: sc.Scalar, many: int, then: Then, cut: bool = False) -> Stmt:
        """So many vectors of all long rows; what is left is in one that ends with the last row."""
        first = (self.found.depth + self.rest - self.rows) * self.found.width
        done = sc.index((self.rows - self.rest) * self.found.width)

        def more(start: sc.Scalar, count: int, total: sc.Buffer, partly: bool) -> Stmt:
            def one(at: sc.Scalar, _: bool) -> Stmt:
                place = start + at
                places: dict[Term, Term] = {self.there: place + first, self.place: place}
                term: sc.Scalar = substitute(self.found.body.body, places)
                term = sc.Select(sc.Lt(place, done), self.start(self.dtype), term)
                if total.dtype is not self.dtype:
                    term = self.widened(term)
                joined = Store(total, (at,), self.join(sc.Load(total, (at,)), term))
                return seq(*self.keeping(places), joined)

            return seq(self.vectors(count, one), then(start, count, total, partly))

        return super().reduced(begin, many, more if self.rest else then, cut)

    def result(self, place: sc.Scalar, total: sc.Scalar) -> Stmt:
        return Store(self.to, (place,), _as(total, self.dtype))


def _as(of: sc.Scalar, dtype: DType) -> sc.Scalar:
    return of if sc.dtype_of(of) is dtype else sc.Cast(of, dtype)
