"""Columns in stages: rows that lie before a few columns, stage after stage (softmax, norms).

    m[i, j]    = max over k of x[i, k, j]          for i:                x[i] stays in a near cache
    e[i, k, j] = exp(x[i, k, j] - m[i, j])   -->       max of all columns
    s[i, j]    = sum over k of e[i, k, j]              e, and its sum in all columns
    y[i, k, j] = e[i, k, j] / s[i, j]                  y of all columns

Columns too few for a vector are contiguous, so several rows are read as one, as in
`plica.schedule.default.column`. Per-column values are repeated as often as there are such rows, so
that their vectors are read like those of a row. Terms behind the last row are the identity.

>>> from plica.ir.loop.stage import stage
>>> from plica.ir.loop.tensor import buffer, reduce
>>> x = buffer("x", (4, 100, 3), f32)
>>> top = stage("m", (4, 3), lambda i, j: reduce("max", (100,), lambda k: x[i, k, j]))
>>> away = stage("y", (4, 100, 3), lambda i, k, j: x[i, k, j] - top[i, j])
>>> whole = stages((x,), (top, away))
>>> columns_of(whole).width, columns_of(whole).depth
(3, 100)
>>> [str(each.out.name) for each in column_chain_form(whole, Machine(512, 32)).stages]
['long', 'total', 'again', 'out']
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Final

from attrs import evolve, frozen

from plica.core import Term, free_vars, map_bottom_up, map_top_down, substitute
from plica.ir.loop import MEANING, Each, Names, Stages, loads, reductions, scalar as sc
from plica.ir.loop.stages import stages
from plica.ir.type import f32, f64, i32, i64, known
from plica.schedule.default.column import Folds, cast_to, rows_together, stands_in_loads
from plica.schedule.default.elementwise import COSTLY
from plica.schedule.default.machine import LONGEST, Machine
from plica.schedule.default.row import is_cheap
from plica.schedule.default.share import pays

MAX_COLUMNS: Final = 15  # more columns fill vectors by themselves, in kernels that cores share
MIN_ROWS: Final = 32
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
    """Stages of `depth` rows by `width` columns, at each point of the axes `around`: elements are
    read at [row, column], per-column values at [column]."""

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
        return self.depth * self.width * max(step.out.dtype.bytes for step in self.steps)

    @property
    def few(self) -> bool:
        """Whether there are too few columns for vectors, and rows stay in a near cache."""
        short = 1 < self.width <= MAX_COLUMNS and self.depth >= MIN_ROWS
        return short and self.bytes <= LONGEST

    def is_for(self, machine: Machine) -> bool:
        """Whether no core that could do a part of a stage would wait for the places of others."""
        elements = self.depth * self.width * prod(self.sizes)
        return prod(self.sizes) >= machine.cores or not pays(machine, COSTLY * elements, ())


def columns_of(of: Stages) -> Columns | None:
    """The common columns of stages, or None."""
    every = [stage for stage in of.stages if isinstance(stage, Each)]
    first = next((stage for stage in every if isinstance(stage.value, sc.Reduce)), None)
    if of.dims or len(every) < 2 or len(every) < len(of.stages) or len(of.outputs) > 1:
        return None
    if first is None or not isinstance(first.value, sc.Reduce) or not first.axes:
        return None
    if len(first.value.axes) != 1:
        return None
    row, (*around, column) = first.value.axes[0], first.axes
    *sizes, width = [known(size) or 0 for size in first.out.shape]
    depth = known(first.value.extents[0]) or 0
    columns = Columns((), tuple(around), tuple(sizes), row, column, depth, width)
    steps = [_step(stage, columns) for stage in every]
    made = {step.out: step.whole for step in steps if step is not None}
    if len(made) < len(every) or not all(_reads(step, columns, made) for step in steps if step):
        return None
    ways: dict[sc.Buffer, bool] = {}
    for step in steps:
        for load in loads(step.value) if step else ():
            if ways.setdefault(load.buffer, row in free_vars(load)) != (row in free_vars(load)):
                return None  # it cannot be seen as long rows and as something else
    return evolve(columns, steps=tuple(filter(None, steps)))


def _step(of: Each, there: Columns) -> _Step | None:
    """A stage at the common points of all stages, or None."""
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
    """Whether a stage reads whole rows, per-column values, or scalars."""
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
        # Then it exists for all rows, whatever condition it is read under.
        for place, size in zip(before, load.buffer.shape, strict=False):
            most = sizes.get(place, 0) if place in there.around else (known(place) or 0) + 1
            if (place not in there.around and not isinstance(place, sc.Lit)) or most > (
                known(size) or 0
            ):
                return False
    return stands_in_loads(value, (there.row, there.column))


def column_chain_form(of: Stages, machine: Machine) -> Stages | None:
    """Stages along rows with few columns in the form for their loops, or None."""
    if (columns := columns_of(of)) is None or not columns.few:
        return None
    lanes = machine.lanes(next(step.out.dtype for step in columns.steps if _folds(step)))
    rows = rows_together(columns.width, columns.depth, lanes)
    if lanes < 2 or rows == 1:
        return None
    return _Chain(of, columns, rows).stages()


def _folds(of: _Step) -> bool:
    return isinstance(of.value, sc.Reduce)


class _Chain:
    """Stages along long rows under construction: elements are indexed along concatenated rows,
    per-column values by column, and repeated along a long row."""

    def __init__(self, of: Stages, columns: Columns, rows: int) -> None:
        self.of, self.columns, self.rows, self.long = of, columns, rows, rows * columns.width
        self.names = Names(of, anew=of.made)
        self.flat, self.place = self.names.var("p"), self.names.var("w")
        self.values: dict[sc.Buffer, sc.Scalar] = {}
        self.repeated: dict[sc.Scalar, sc.Scalar] = {}
        self.made: list[Each] = []
        self.views = {
            load.buffer: self.view(load.buffer)
            for step in columns.steps
            for load in loads(step.value)
            if load.buffer in of.inputs and columns.row in free_vars(load)
        }

    @property
    def size(self) -> int:
        """How many elements all rows have."""
        return self.columns.depth * self.columns.width

    def view(self, of: sc.Buffer) -> sc.Buffer:
        """A tensor whose rows are one behind another."""
        shape = (*of.shape[:-2], sc.index(self.size))
        return sc.Buffer(of.name, shape, of.dtype, of.scope, (), of.align)

    def stages(self) -> Stages:
        """The stages in order."""
        *before, last = self.columns.steps
        for step in before:
            self.step(step)
        value = self.read(last.value)
        if isinstance(value, sc.Reduce):
            value = self.total(value)
        out = sc.Buffer(self.names.name("out"), self.of.result.shape, self.of.result.dtype)
        if last.whole:
            self.elements(self.view(out), value)
        else:
            self.made.append(Each(out, (*self.columns.around, self.columns.column), value))
        return stages([self.views.get(buffer, buffer) for buffer in self.of.inputs], self.made)

    def step(self, of: _Step) -> None:
        """Adds the stages for one stage, and records how its elements are read afterwards."""
        value = self.read(of.value)
        if isinstance(value, sc.Reduce):
            value = self.total(value)
        elif of.whole and self.uses(of.out) > 1 and not is_cheap(value, {self.flat}):
            around = tuple(map(sc.index, self.columns.sizes))
            kept = sc.Buffer(self.names.name("stage"), (*around, sc.index(self.size)), of.out.dtype)
            value = self.elements(kept, value)
        self.values[of.out] = value

    def uses(self, of: sc.Buffer) -> int:
        """How often a stage is computed if it is where it is read, and all that read it are too."""
        readers = [step for step in self.columns.steps
                   if any(load.buffer is of for load in loads(step.value))]  # fmt: skip
        ends = [_folds(reader) or reader.out is self.of.result for reader in readers]
        return sum(1 if end else self.uses(e.out) for e, end in zip(readers, ends, strict=True))

    def read(self, of: sc.Scalar) -> sc.Scalar:
        """A value in terms of earlier stages' results, along all rows."""

        def new(node: Term) -> Term:
            if not isinstance(node, sc.Load):
                return node
            if node.buffer in self.views:
                return sc.Load(self.views[node.buffer], (*node.indices[:-2], self.flat))
            return self.values.get(node.buffer, node)

        return map_bottom_up(new, of)

    def elements(self, out: sc.Buffer, value: sc.Scalar) -> sc.Load:
        """Adds a stage that has an element at each place of all rows."""
        axes = (*self.columns.around, self.flat)
        value = substitute(self.along(value), {self.place: self.flat % self.long})
        self.made.append(Each(out, axes, value))
        return sc.Load(out, axes)

    def along(self, of: sc.Scalar) -> sc.Scalar:
        """A value with per-column operands read at an index of a long row."""

        def new(node: Term) -> Term:
            if not isinstance(node, sc.Scalar) or isinstance(node, sc.Lit | sc.ScalarVar):
                return node
            inside = free_vars(node)
            if self.flat in inside or self.columns.column not in inside:
                return node
            if node not in self.repeated:
                self.repeated[node] = self.repeat(node)
            return self.repeated[node]

        return map_top_down(new, of)

    def repeat(self, of: sc.Scalar) -> sc.Scalar:
        """Adds stages for per-column values: per column, and repeated along a long row."""
        around, sizes = self.columns.around, tuple(map(sc.index, self.columns.sizes))
        column, width = self.columns.column, self.columns.width
        if not isinstance(of, sc.Load):
            one = sc.Buffer(self.names.name("one"), (*sizes, sc.index(width)), sc.dtype_of(of))
            self.made.append(Each(one, (*around, column), of))
            of = sc.Load(one, (*around, column))
        again = sc.Buffer(self.names.name("again"), (*sizes, sc.index(self.long)), sc.dtype_of(of))
        read = substitute(of, {column: self.place % width})
        self.made.append(Each(again, (*around, self.place), read))
        return sc.Load(again, (*around, self.place))

    def total(self, fold: sc.Reduce) -> sc.Scalar:
        """Adds the folds of runs of long rows, of these, and of their parts in each column."""
        dtype = sc.dtype_of(fold)

        def term(row: sc.Scalar, padded: bool) -> sc.Scalar:
            at = row * self.long + self.place
            value: sc.Scalar = substitute(self.along(fold.body), {self.flat: at})
            if not padded:
                return value
            start = MEANING[fold.combiner][0](dtype)
            return sc.Select(sc.Lt(at, sc.index(self.size)), value, start)

        folds = Folds(fold, self.rows, self.columns.depth, self.names, made=self.made)
        around = [*zip(self.columns.around, map(sc.index, self.columns.sizes), strict=True)]
        long = folds.long(term, around, [(self.place, sc.index(self.long))])
        return cast_to(folds.joined(long, around, self.columns.column, self.columns.width), dtype)
