"""Reductions across rows: vectors along the kept axis, several in flight.

    out[i, j] = sum over k of f(x[i, k, j])
      -->  run[i, b, p]  = sum over h < L of f(x[i, (b * L + h) * W + p])    long rows of W = R * J
           long[i, p]    = sum over b of f64(run[i, b, p])
           total[i, j]   = sum over r < R of long[i, r * J + j]
           out[i, j]     = total[i, j]

An addition has a latency of several cycles, and a processor issues several per cycle. A kept axis
of `J` elements that fills few vectors would leave most units idle, so `R` rows become one of `W`
elements: they are contiguous, so this is a view of the same numbers. Long float sums go in runs of
at most 32 rows, with f64 totals if there are many terms. Incomplete long rows and runs are padded
with the identity. Only stages are built here; `plica.schedule.default.fold_schedule` has their
loops.

>>> from plica.ir.loop.stage import stage
>>> from plica.ir.loop.stages import stages
>>> from plica.ir.loop.tensor import buffer, reduce
>>> x = buffer("x", (4, 1000, 8), f32)
>>> total = stage("y", (4, 8), lambda i, j: reduce("sum", (1000,), lambda k: x[i, k, j]))
>>> made = column_form(stages((x,), (total,)), Machine(512, 32))
>>> [str(each.out.name) for each in made.stages]
['run', 'long', 'total', 'out']
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import gcd, prod
from typing import Final, TypeAlias

from attrs import field, frozen

from plica.core import Term, free_vars, map_bottom_up, substitute
from plica.ir.loop import MEANING, Each, Names, Stages, loads, reductions, scalar as sc
from plica.ir.loop.stages import pairs, stages, with_element
from plica.ir.type import DType, f32, f64, i32, i64, known
from plica.schedule.default.lane import is_row
from plica.schedule.default.machine import Machine
from plica.schedule.default.reduction import ONE_RUN, WIDE, halved, is_across_rows

Axes: TypeAlias = Sequence[tuple[sc.ScalarVar, sc.Scalar]]
"""Axes with their sizes."""

VECTORS_IN_FLIGHT: Final = 8
"""The number of vectors that keep the adders busy: latency four, two per cycle."""

STREAMED_ROWS: Final = 4  # rows that are read side by side where they are read as they lie
WIDE_ROW_VECTORS: Final = 4  # a row of this many vectors has enough of them by itself
MIN_VECTORS: Final = 16  # fewer vectors than this are summed in order


@frozen(eq=False)
class ColumnReduction:
    """A reduction over `terms` in which neighbours along `lane`, the last axis, are contiguous."""

    fold: Each
    body: sc.Reduce
    epilogue: Each | None
    lane: sc.ScalarVar
    width: int
    depth: int  # how many terms its last axis has

    def weighted(self) -> bool:
        """Whether rows have factors: operands that vary with the term, but not along the
        kept axis."""
        found = [free_vars(load) for load in loads(self.body.body)]
        return any(self.lane not in each and not each.isdisjoint(self.body.axes) for each in found)

    @property
    def terms(self) -> int:
        """The total number of terms."""
        return prod([known(extent) or 0 for extent in self.body.extents])


def column_form(of: Stages, machine: Machine) -> Stages | None:
    """The stages of a reduction across rows in long rows and runs, or None.

    Rows that have factors, which are a product of one row with a matrix, go as they lie where no
    vector is read in part.
    """
    if not is_across_rows(of) or (found := _columns(of)) is None:
        return None
    lanes = machine.lanes(sc.dtype_of(found.body))
    if lanes < 2 or found.terms * found.width < MIN_VECTORS * lanes:
        return None
    rows = _rows_together(found, of, lanes)
    # Short vectors are parts of a line: rows are read as they lie, whole lines.
    streams = rows == 1 and not machine.masks and found.width >= WIDE_ROW_VECTORS * lanes
    if not streams and (found.weighted() or (not machine.masks and rows * found.width % lanes)):
        return None
    lanes = 1 if streams or rows > 1 else lanes
    beside = STREAMED_ROWS if streams and found.depth >= 2 * STREAMED_ROWS else 1
    return _formed(found, of, rows, lanes, beside)


def _columns(of: Stages) -> ColumnReduction | None:
    every = pairs(of) if all(isinstance(stage, Each) for stage in of.stages) else []
    if len(every) != 1 or of.dims:
        return None
    ((fold, epilogue),) = every
    body = fold.value
    if not isinstance(body, sc.Reduce) or not fold.axes or reductions(body.body):
        return None
    if sc.dtype_of(body) not in (f32, f64, i32, i64):
        return None
    lane, width, depth = fold.axes[-1], known(fold.out.shape[-1]), known(body.extents[-1])
    if not width or not depth or 1 in (width, depth) or not all(map(known, body.extents)):
        return None
    if not is_row(body.body, lane) or not _same_places(fold, epilogue):
        return None
    return ColumnReduction(fold, body, epilogue, lane, width, depth)


def _same_places(fold: Each, epilogue: Each | None) -> bool:
    """Whether each element is stored where it was reduced, or all of it along the same axis."""
    if epilogue is None:
        return True
    (read,) = [load for load in loads(epilogue.value) if load.buffer is fold.out]
    return read.indices == epilogue.axes and is_row(epilogue.value, epilogue.axes[-1])


def _rows_together(of: ColumnReduction, whole: Stages, lanes: int) -> int:
    """How many rows are read as one, 1 where they are wide or do not lie one after another."""
    if of.width >= WIDE_ROW_VECTORS * lanes or not _lies_in_rows(of, whole):
        return 1
    return rows_together(of.width, of.depth, lanes)


def rows_together(width: int, depth: int, lanes: int) -> int:
    """How many rows fill whole vectors and keep enough in flight; 1 if there are too few."""
    unit = lanes // gcd(width, lanes)
    vectors = unit * width // lanes
    for many in (unit * max(1, VECTORS_IN_FLIGHT // vectors), unit):
        if 2 * many <= depth:
            return many
    return 1


def _lies_in_rows(of: ColumnReduction, whole: Stages) -> bool:
    """Whether all operands along the kept axis are contiguous with the last terms, as whole
    rows."""
    term, every = of.body.axes[-1], loads(of.body.body)
    moving = [load for load in every if not free_vars(load).isdisjoint((of.lane, term))]
    views = {load.buffer for load in moving}
    for load in moving:
        sizes = [known(size) for size in load.buffer.shape[-2:]]
        if load.indices[-2:] != (term, of.lane) or sizes != [of.depth, of.width]:
            return False
        if not all(free_vars(place).isdisjoint((of.lane, term)) for place in load.indices[:-2]):
            return False
    others = [load for load in every if load not in moving]
    others += [] if of.epilogue is None else loads(of.epilogue.value)
    return (
        views <= set(whole.inputs)
        and not any(load.buffer in views for load in others)
        and stands_in_loads(of.body.body, (term, of.lane))
    )


def stands_in_loads(of: sc.Scalar, variables: tuple[sc.ScalarVar, ...]) -> bool:
    """Whether variables say where something is read, and nothing else."""

    def without(node: Term) -> Term:
        return sc.Lit(0, node.buffer.dtype) if isinstance(node, sc.Load) else node

    return free_vars(map_bottom_up(without, of)).isdisjoint(variables)


# --- stages ---------------------------------------------------------------------------------------


def _formed(of: ColumnReduction, whole: Stages, rows: int, lanes: int, beside: int) -> Stages:
    """The stages: runs of long rows, their totals, these joined for each column, the result."""
    names, fold = Names(whole), of.fold
    row_of = _LongRow(of, whole, rows, lanes, names)

    def term(row: sc.Scalar, padded: bool) -> sc.Scalar:
        parts = [
            row_of.term(row * beside + n if beside > 1 else row, padded) for n in range(beside)
        ]
        return halved(parts, MEANING[of.body.combiner][1])

    folds = Folds(of.body, rows, of.depth, names, _long_axes(of.body), beside)
    around = list(zip(fold.axes[:-1], fold.out.shape, strict=False))
    long = folds.long(term, around, list(zip(row_of.places, row_of.sizes, strict=True)))
    if rows > 1:
        total = folds.joined(long, around, of.lane, of.width)
    else:
        total = sc.Load(long.buffer, (*fold.axes[:-1], *row_of.digits(of.lane)))
    result = _result(of, cast_to(total, sc.dtype_of(of.body)), names)
    return stages(row_of.inputs, (*folds.made, result))


@frozen(eq=False)
class Folds:
    """The stages of a fold of rows, several read as one, whose last axis has `depth` terms and
    whose `others` have a number each; so many (long) rows are `beside` one another in a term."""

    fold: sc.Reduce
    rows: int
    depth: int
    names: Names
    others: Axes = ()
    beside: int = 1
    made: list[Each] = field(factory=list)

    def add(self, name: str, over: Axes, term: sc.Scalar, at: Axes) -> sc.Load:
        """An element of a new fold over axes."""
        (terms, counts), (axes, shape) = zip(*over, strict=True), zip(*at, strict=True)
        body = sc.Reduce(self.fold.combiner, terms, counts, term)
        out = sc.Buffer(self.names.name(name), shape, sc.dtype_of(term))
        self.made.append(Each(out, axes, body))
        return sc.Load(out, axes)

    def long(self, term: Callable[[sc.Scalar, bool], sc.Scalar], around: Axes, at: Axes) -> sc.Load:
        """The folds of runs, and of these, `at` places of a long row: of the terms of each row,
        which may be one behind the last."""
        count, others = -(-self.depth // self.rows), prod([known(n) or 0 for _, n in self.others])
        rounds = self.fold.combiner == "sum" and sc.dtype_of(self.fold).is_float
        in_runs = rounds and others * count > ONE_RUN
        runs = -(-count // ONE_RUN) if in_runs else 1
        length = -(-count // (runs * self.beside))
        group, h = self.names.var("b"), self.names.var("h")
        padded = runs * length * self.beside * self.rows > self.depth
        value = term(group * length + h if runs > 1 else h, padded)
        outer, inner = [*self.others], [(h, sc.index(length))]
        outer += [(group, sc.index(runs))] if runs > 1 else []
        if not in_runs or not outer:
            return self.add("long", [*self.others, *inner], value, [*around, *at])
        part = self.wide(self.add("run", inner, value, [*around, *outer, *at]))
        return self.add("long", outer, part, [*around, *at])

    def wide(self, part: sc.Scalar) -> sc.Scalar:
        """A part as totals have it: those of many floats are in f64."""
        dtype, terms = sc.dtype_of(self.fold), prod([known(n) or 0 for _, n in self.others])
        rounds = self.fold.combiner == "sum" and dtype.is_float
        return cast_to(part, f64 if rounds and terms * self.depth >= WIDE else dtype)

    def joined(self, long: sc.Load, around: Axes, column: sc.ScalarVar, width: int) -> sc.Load:
        """The fold of the parts that a long row has of each column."""
        r = self.names.var("r")
        part = sc.Load(long.buffer, (*[axis for axis, _ in around], r * width + column))
        at = [*around, (column, sc.index(width))]
        return self.add("total", [(r, sc.index(self.rows))], self.wide(part), at)


class _LongRow:
    """Rows of a column reduction, several of them as one, in whole vectors of a given number of
    lanes.

    x[i, k, j]  -->  x[i, k * W + p]                      where rows are read as one of W elements
                     x[i, k, c * 16 + v] if … < J else 0  where lanes do not divide J
    """

    def __init__(
        self, of: ColumnReduction, whole: Stages, rows: int, lanes: int, names: Names
    ) -> None:
        self.of, self.rows, self.lanes = of, rows, lanes
        self.width = rows * of.width
        count = -(-self.width // lanes)
        self.shape = (self.width,) if lanes == 1 else (count, lanes) if count > 1 else (lanes,)
        self.sizes = tuple(map(sc.index, self.shape))
        words = ("p",) if lanes == 1 else ("c", "v")[-len(self.shape) :]
        self.places = tuple(map(names.var, words))
        views: dict[sc.Buffer, sc.Buffer] = {}
        where = of.body.axes[-1], of.lane

        def viewed(node: Term) -> Term:
            if isinstance(node, sc.Load) and node.indices[-2:] == where:
                old = node.buffer
                shape = (*old.shape[:-2], sc.index(of.depth * of.width))
                views[old] = sc.Buffer(old.name, shape, old.dtype)
                return sc.Load(views[old], (*node.indices[:-2], where[0] * self.width + where[1]))
            return node

        body = of.body.body if rows == 1 else map_bottom_up(viewed, of.body.body)
        assert isinstance(body, sc.Scalar)
        self.body = substitute(body, _once(of.body))
        self.inputs = tuple([views.get(buffer, buffer) for buffer in whole.inputs])

    @property
    def place(self) -> sc.Scalar:
        """The place in a row."""
        *chunk, last = self.places
        return chunk[0] * self.lanes + last if chunk else last

    def digits(self, place: sc.Scalar) -> tuple[sc.Scalar, ...]:
        """Where the place of a row is."""
        return (place // self.lanes, place % self.lanes) if len(self.shape) > 1 else (place,)

    def term(self, row: sc.Scalar, padded: bool) -> sc.Scalar:
        """The term of a (long) row, the identity behind the last of them."""
        of, place = self.of, self.place
        value = substitute(self.body, {of.body.axes[-1]: row, of.lane: place})
        tests = []
        if padded and self.rows > 1:
            tests.append(sc.Lt(row * self.width + place, sc.index(of.depth * of.width)))
        elif padded:
            tests.append(sc.Lt(row, sc.index(of.depth)))
        if prod(self.shape) > self.width:
            tests.append(sc.Lt(place, sc.index(self.width)))
        for test in tests:
            value = sc.Select(test, value, MEANING[of.body.combiner][0](sc.dtype_of(of.body)))
        return value


def _long_axes(of: sc.Reduce) -> Axes:
    """The axes of the terms but the last, without those of one element."""
    both = zip(of.axes[:-1], of.extents, strict=False)
    return [(axis, size) for axis, size in both if known(size) != 1]


def _once(of: sc.Reduce) -> dict[Term, Term]:
    """The substitution for axes with one term."""
    both = zip(of.axes[:-1], of.extents, strict=False)
    return {axis: sc.index(0) for axis, size in both if known(size) == 1}


def _result(of: ColumnReduction, total: sc.Scalar, names: Names) -> Each:
    """The stage of the result, made of the total of a place."""
    value, axes, shape = total, of.fold.axes, of.fold.out.shape
    if of.epilogue is not None:
        moved: dict[Term, Term] = dict(zip(of.fold.axes, of.epilogue.axes, strict=True))
        value = with_element(of.epilogue.value, of.fold.out, substitute(total, moved))
        axes, shape = of.epilogue.axes, of.epilogue.out.shape
    return Each(sc.Buffer(names.name("out"), shape, sc.dtype_of(value)), axes, value)


def cast_to(of: sc.Scalar, dtype: DType) -> sc.Scalar:
    """The number as one of a dtype, which it may be already."""
    return of if sc.dtype_of(of) is dtype else sc.Cast(of, dtype)
