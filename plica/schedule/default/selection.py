"""Selection: maintains the first elements of a row in order while it is read.

    y[r] = the place of the element that r others come before
      -->  for p:  if x[p] comes before the last that is kept:  it is put among them

`first_places` counts the predecessors of each element, which needs all of them. A processor that
keeps the k first so far compares most elements only with the last of these, a few vectors at a
time; a preceding element is inserted, and those behind it move by one, all at once:

    kept[j] = kept[j] if x does not come before it, x if it comes behind kept[j - 1], else that

Kept elements are always sorted. The first k are ranked by counting: each is placed by its number of
predecessors. A sentinel that nothing precedes is in front.

>>> from plica.ir.loop.tensor import axis, buffer
>>> from plica.ir.loop.stage import stage
>>> from plica.ir.op.top_k import place_of_rank
>>> from plica.ir.type.dtype import f32
>>> x, terms = buffer("x", (3, 100), f32), (axis("m"), axis("o"))
>>> first = stage("y", (3, 5), lambda i, r: place_of_rank(
...     lambda at: x[i, at], sc.index(100), r, terms, True))
>>> [type(each).__name__ for each in selected(stages((x,), (first,)), Machine(512, 32)).stages]
['ExternStage']

Where the rows are columns of memory, a column is in each lane: adjacent elements are in different
columns, so vectors are read directly. An element is inserted without a test: one that sorts behind
all kept ones leaves them unchanged. Kept elements are updated from the last to the first, each
reading those not yet written. As many as are kept are inserted first: everything precedes free
places.

    y[r, c] = the place of the element of column c that r others come before
      -->  for vectors of columns:  for p:  each lane puts x[p, c] among the few that it keeps

>>> x = buffer("x", (100, 64), f32)
>>> first = stage("y", (2, 64), lambda r, i: place_of_rank(
...     lambda at: x[at, i], sc.index(100), r, terms, True))
>>> found = first_places_of(x, first.out, first.axes, first.value)
>>> made = kept_columns(found, Names(stages((x,), (first,))), Machine(512, 32))
>>> made.extent.value  # so often two vectors of 16 columns
2
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce
from math import prod
from typing import Final

from plica.ir.loop import scalar as sc
from plica.ir.loop.stage import Each, ExternStage
from plica.ir.loop.stages import Names, Stages, stages
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
from plica.ir.op.order import is_before
from plica.ir.op.rank import PLACE_LIMIT
from plica.ir.type import DType, i32, i64, known
from plica.schedule.default.first_place import FirstPlaces, first_places_of
from plica.schedule.default.machine import FEW_LANES, MIN_SHARED_ELEMENTS, Machine
from plica.schedule.default.reduction import halved

GROUP: Final = 16
"""Elements tested together for one that precedes the last kept; if there is one, all are visited,
so more would cost more than they save."""

UNASKED: Final = 3
"""The number of vectors visited without a test: a mispredicted branch costs as much."""


def selected(of: Stages, machine: Machine) -> Stages | None:
    """A stage of first places in the form for its loops, or None."""
    match of.stages:
        case (Each(out, axes, sc.Reduce() as value),) if len(of.inputs) == 1:
            first_places = first_places_of(of.inputs[0], out, axes, value)
        case _:
            return None
    if first_places is None:
        return None
    if first_places.is_row:
        statement: Stmt | None = _Writer(first_places, Names(of), machine).body(axes)
    else:
        statement = kept_columns(first_places, Names(of), machine)
    return None if statement is None else stages(of.inputs, (ExternStage((out,), statement),))


class _Writer:
    """The loops of first places under construction."""

    def __init__(self, of: FirstPlaces, names: Names, machine: Machine) -> None:
        self.of, self.names, self.machine = of, names, machine
        self.dtype = of.x.dtype
        self.place: DType = i32 if self.dtype.bytes <= i32.bytes else i64
        self.lanes = machine.lanes(self.dtype)
        self.vectors = max(1, GROUP // self.lanes)
        whole = -(-of.kept // self.lanes) * self.lanes
        room, filled = (sc.index(of.kept + 1),), (sc.index(whole),)
        self.kept = sc.Buffer(names.name("kept"), room, self.dtype)
        self.at = sc.Buffer(names.name("at"), room, self.place)
        self.moved = sc.Buffer(names.name("moved"), filled, self.dtype)
        self.moved_at = sc.Buffer(names.name("moved_at"), filled, self.place)

    def body(self, axes: tuple[sc.ScalarVar, ...]) -> Stmt:
        """All rows, with their kept elements."""
        counts = [known(dim) or 0 for dim in self.of.x.shape[:-1]]
        shares = self.machine.cores > 1 and prod(counts) * self.of.size >= MIN_SHARED_ELEMENTS
        statement = self.row()
        statement = allocated(statement, (self.kept, self.moved, self.at, self.moved_at))
        return over_rows(statement, axes, counts, shares=shares)

    def row(self) -> Stmt:
        """The first elements sorted, then each of the others, then the indices of the kept ones."""
        kept, size, many = self.of.kept, self.of.size, self.lanes * self.vectors
        last = self.names.var("r")
        place = sc.Cast(sc.Load(self.at, (last + 1,)), i64)
        there = (*self.of.rows, last) if self.of.has_axis else self.of.rows
        result = Store(self.of.out, there, place)
        whole, left = divmod(size - kept, many)
        parts = [self.counted()]
        if whole:
            group = self.names.var("b")
            parts.append(For(group, sc.index(whole), "serial", self.group(group * many + kept)))
        if left:
            parts.append(self.each(sc.index(size - left), left))
        return seq(*parts, For(last, sc.index(kept), "vectorized", result))

    def counted(self) -> Stmt:
        """As many elements as are kept, ranked by counting; a sentinel in front of them."""
        of, many = self.of, known(self.moved.shape[0]) or 0
        zero, none = (sc.index(0),), sc.Lit(0, self.place)
        step, first, group, lane = (self.names.var(name) for name in ("p", "v", "u", "v"))
        hits = sc.Buffer(self.names.name("hits"), (sc.index(self.lanes),), self.place, "local")
        mine, other = (step,), (group * self.lanes + lane,)
        before = self.is_ahead(other, mine)
        sums = sc.Load(hits, (lane,)) + sc.Select(before, sc.Lit(1, self.place), none)
        vectors = _vectors(lane, self.lanes, Store(hits, (lane,), sums))

        def stored(total: sc.Scalar) -> Stmt:
            rank = sc.Min(sc.Cast(total, i64), sc.index(of.kept - 1))
            inside = sc.Max(sc.index(0), rank) + 1  # so that it is known to be
            element = Store(self.kept, (inside,), self.element(step))
            return seq(element, Store(self.at, (inside,), sc.Cast(step, self.place)))

        one = Alloc(
            hits,
            seq(
                _vectors(first, self.lanes, Store(hits, (first,), none)),
                For(group, sc.index(many // self.lanes), "serial", vectors),
                self.with_sum(hits, stored),
            ),
        )
        return seq(
            Store(self.kept, zero, sc.Lit(_first_of(self.dtype, of.descending), self.dtype)),
            Store(self.at, zero, sc.Lit(-1, self.place)),
            self.compared(many),
            For(step, sc.index(of.kept), "serial", one),
        )

    def compared(self, many: int) -> Stmt:
        """The elements and their indices as comparable numbers: NaN is infinite, with an index
        before or behind all others. Vectors are padded with values that sort last."""
        of, var, rest = self.of, self.names.var("j"), self.names.var("j")
        value: sc.Scalar = self.element(var)
        place: sc.Scalar = sc.Cast(var, self.place)
        if self.dtype.is_float:
            is_number = sc.Eq(value, value)
            value = sc.Select(is_number, value, sc.Lit(math.inf, self.dtype))
            apart = sc.Lit(-PLACE_LIMIT if of.descending else PLACE_LIMIT, self.place)
            place = sc.Select(is_number, place, place + apart)
        parts = seq(Store(self.moved, (var,), value), Store(self.moved_at, (var,), place))
        statement = _vectors(var, of.kept, parts)
        if many == of.kept:
            return statement
        worst = -math.inf if of.descending else math.inf
        last = worst if self.dtype.is_float else self.dtype.bounds[0 if of.descending else 1]
        at = (rest + of.kept,)
        behind = seq(
            Store(self.moved, at, sc.Lit(last, self.dtype)),
            Store(self.moved_at, at, sc.Lit(self.place.bounds[1], self.place)),
        )
        return seq(statement, _vectors(rest, many - of.kept, behind))

    def is_ahead(self, one: tuple[sc.Scalar], other: tuple[sc.Scalar]) -> sc.Scalar:
        """Whether one comparable element precedes another."""
        left, right = sc.Load(self.moved, one), sc.Load(self.moved, other)
        beyond = sc.Lt(right, left) if self.of.descending else sc.Lt(left, right)
        tied = sc.Lt(sc.Load(self.moved_at, one), sc.Load(self.moved_at, other))
        return sc.Or(beyond, sc.And(sc.Eq(left, right), tied))

    def group(self, start: sc.Scalar) -> Stmt:
        """Several vectors: skipped if no element precedes the last kept one."""
        lane, lanes = self.names.var("v"), self.lanes
        hits = sc.Buffer(self.names.name("hits"), (sc.index(lanes),), i32, "local")
        one, none = sc.Lit(1, i32), sc.Lit(0, i32)
        scalars: list[sc.Scalar] = [
            sc.Select(self.is_wanted(start + (lane + lanes * number)), one, none)
            for number in range(self.vectors)
        ]
        counted = _vectors(lane, lanes, Store(hits, (lane,), reduce(sc.Add, scalars)))
        all_of_them = self.each(start, lanes * self.vectors)
        asked = self.with_sum(hits, lambda sum_: Branch(sc.Lt(none, sum_), all_of_them, NOTHING))
        return Alloc(hits, seq(counted, asked))

    def with_sum(self, of: sc.Buffer, then: Callable[[sc.Scalar], Stmt]) -> Stmt:
        """Something with the sum of all lanes, of which few are added up one by one."""
        count, lane = known(of.shape[0]) or 0, self.names.var("v")
        if count <= FEW_LANES:
            return then(halved([sc.Load(of, (sc.index(n),)) for n in range(count)], sc.Add))
        few = sc.Buffer(self.names.name("few"), (sc.index(FEW_LANES),), of.dtype, "local")
        parts = halved(
            [sc.Load(of, (lane + start,)) for start in range(0, count, FEW_LANES)], sc.Add
        )
        last = halved([sc.Load(few, (sc.index(n),)) for n in range(FEW_LANES)], sc.Add)
        return Alloc(few, seq(_vectors(lane, FEW_LANES, Store(few, (lane,), parts)), then(last)))

    def each(self, start: sc.Scalar, count: int) -> Stmt:
        """A number of elements from an index on: those that precede the last kept one are
        inserted."""
        step = self.names.var("p")
        place = start + step
        return For(
            step, sc.index(count), "serial", Branch(self.is_wanted(place), self.put(place), NOTHING)
        )

    def is_wanted(self, place: sc.Scalar) -> sc.Scalar:
        """Whether an element precedes the last kept one; ties go to the lower index."""
        last = sc.Load(self.kept, (sc.index(self.of.kept),))
        return is_before(self.element(place), last, self.of.descending)

    def element(self, place: sc.Scalar) -> sc.Scalar:
        return sc.Load(self.of.x, (*self.of.rows, place))

    def put(self, place: sc.Scalar) -> Stmt:
        """Inserts an element among kept ones, all with lower indices; those behind it move, last
        vector first; vectors entirely before it are skipped, if there are many."""
        whole, left = divmod(self.of.kept, self.lanes)
        turn = self.names.var("u")
        parts: list[Stmt] = []
        if whole:
            start = sc.index(self.of.kept - self.lanes) - turn * self.lanes
            parts.append(
                For(turn, sc.index(whole), "serial", self.put_into(place, start, self.lanes))
            )
        if left:
            parts.append(self.put_into(place, sc.index(0), left))
        return seq(*parts)

    def put_into(self, place: sc.Scalar, start: sc.Scalar, count: int) -> Stmt:
        """Inserts an element among a number of kept ones from an index on, with the one in front of
        them."""
        lane, again = self.names.var("v"), self.names.var("v")
        mine = (self.element(place), sc.Cast(place, self.place))
        own, before, last = (
            is_before(mine[0], sc.Load(self.kept, (start + at,)), self.of.descending)
            for at in (lane + 1, lane, sc.index(count))
        )
        moves: list[Stmt] = []
        back: list[Stmt] = []
        held: list[sc.Buffer] = []
        for kept, name, value in zip(
            (self.kept, self.at), ("pushed", "pushed_at"), mine, strict=True
        ):
            held.append(sc.Buffer(self.names.name(name), (sc.index(count),), kept.dtype, "local"))
            later = sc.Select(before, sc.Load(kept, (start + lane,)), value)
            chosen = sc.Select(own, later, sc.Load(kept, (start + (lane + 1),)))
            moves.append(Store(held[-1], (lane,), chosen))
            back.append(Store(kept, (start + (again + 1),), sc.Load(held[-1], (again,))))
        made = seq(_vectors(lane, count, seq(*moves)), _vectors(again, count, seq(*back)))
        made = allocated(made, tuple(held))
        return Branch(last, made, NOTHING) if self.of.kept > UNASKED * self.lanes else made


def over_rows(
    of: Stmt, axes: Sequence[sc.ScalarVar], counts: Sequence[int], *, shares: bool
) -> Stmt:
    """A statement for all rows, which cores share along the first axis of several."""
    shared = next((at for at, count in enumerate(counts) if shares and count > 1), None)
    for at in reversed(range(len(counts))):
        kind: LoopKind = "parallel" if at == shared else "serial"
        of = For(axes[at], sc.index(counts[at]), kind, of)
    return of


def _vectors(var: sc.ScalarVar, count: int, body: Stmt) -> Stmt:
    return For(var, sc.index(count), "vectorized", body)


def _first_of(of: DType, descending: bool) -> float:
    """A value that precedes all others, or equals the first."""
    if of.is_float:
        return math.nan if descending else -math.inf
    return of.bounds[1 if descending else 0]


MOST_KEPT: Final = 8  # the maximum number of elements and indices kept in registers
UNDER_WAY: Final = 4
"""Elements and indices with dependent updates: if fewer are kept, several vectors are
interleaved."""


def kept_columns(of: FirstPlaces, names: Names, machine: Machine) -> Stmt | None:
    """The loops for first places of columns, or None if too many are kept."""
    if of.kept > MOST_KEPT:
        return None
    return _ColumnWriter(of, names, machine).body()


class _ColumnWriter:
    """The loops of first places of columns under construction."""

    def __init__(self, of: FirstPlaces, names: Names, machine: Machine) -> None:
        self.of, self.names, self.machine = of, names, machine
        self.place: DType = i32 if of.x.dtype.bytes <= i32.bytes else i64
        self.columns = known(of.x.shape[-1]) or 0
        lanes = machine.lanes(self.place)
        vectors = min(max(1, UNDER_WAY // of.kept), max(1, self.columns // lanes))
        # fewer than a vector's lanes are a partial vector, without scalars
        part = 1 << (self.columns.bit_length() - 1)
        self.width = lanes * vectors if self.columns >= lanes else part
        outer = [at for at in range(len(of.x.shape) - 1) if at != of.axis]
        self.outer = tuple([(names.var("i"), known(of.x.shape[at]) or 0) for at in outer])

    def body(self) -> Stmt:
        """All columns, as many at once as vectors have lanes; the last of them begin earlier where
        no more are left, and are found twice."""
        counts = [count for _, count in self.outer]
        work = prod(counts) * self.columns * self.of.size * self.of.kept
        shares = self.machine.cores > 1 and work >= MIN_SHARED_ELEMENTS
        whole, left = divmod(self.columns, self.width)
        block, first = self.names.var("b"), prod(counts) < self.machine.cores
        kind: LoopKind = "parallel" if shares and first and whole > 1 else "serial"
        loop = For(block, sc.index(whole), kind, self.block(block * self.width))
        last = self.block(sc.index(self.columns - self.width)) if left else NOTHING
        return over_rows(seq(loop, last), [var for var, _ in self.outer], counts,
                         shares=shares and not first)  # fmt: skip

    def block(self, start: sc.Scalar) -> Stmt:
        """The columns of some vectors from one on."""
        of, width = self.of, self.width
        room = (sc.index(of.kept * width),)
        kept = sc.Buffer(self.names.name("kept"), room, of.x.dtype, "local")
        at = sc.Buffer(self.names.name("at"), room, self.place, "local")
        fresh, lane, early, late = (self.names.var(word) for word in ("v", "v", "p", "p"))
        zero, free = sc.Lit(0, of.x.dtype), sc.Lit(0, self.place)
        cleared = [
            store
            for j in range(of.kept)
            for store in (
                Store(kept, (fresh + j * width,), zero),
                Store(at, (fresh + j * width,), free),
            )
        ]
        written = [
            Store(
                of.out,
                self.index(sc.index(j), start + lane, of.has_axis),
                sc.Cast(sc.Load(at, (lane + j * width,)), i64),
            )
            for j in range(of.kept)
        ]
        parts: list[Stmt] = [
            self.lanes(fresh, cleared),
            For(early, sc.index(of.kept), "serial", self.put(kept, at, start, early, True)),
        ]
        if of.size > of.kept:
            inner = self.put(kept, at, start, late + of.kept, False)
            parts.append(For(late, sc.index(of.size - of.kept), "serial", inner))
        return Alloc(kept, Alloc(at, seq(*parts, self.lanes(lane, written))))

    def put(
        self, kept: sc.Buffer, at: sc.Buffer, start: sc.Scalar, place: sc.Scalar, early: bool
    ) -> Stmt:
        """Inserts an element of each column among its kept ones, all with lower indices."""
        of, width, lane = self.of, self.width, self.names.var("v")
        mine = sc.Load(of.x, self.index(place, start + lane, True))
        here = sc.Cast(place, self.place)

        def ahead(j: int) -> sc.Scalar:
            before = is_before(mine, sc.Load(kept, (lane + j * width,)), of.descending)
            return sc.Or(sc.Le(place, sc.index(j)), before) if early else before

        moves: list[Stmt] = []
        for j in reversed(range(of.kept)):
            for own, value in ((at, here), (kept, mine)):  # places first: elements are asked
                old = sc.Load(own, (lane + j * width,))
                came = (
                    sc.Select(ahead(j - 1), sc.Load(own, (lane + (j - 1) * width,)), value)
                    if j else value
                )  # fmt: skip
                moves.append(Store(own, (lane + j * width,), sc.Select(ahead(j), came, old)))
        return self.lanes(lane, moves)

    def lanes(self, lane: sc.ScalarVar, body: Sequence[Stmt]) -> Stmt:
        return _vectors(lane, self.width, seq(*body))

    def index(self, place: sc.Scalar, column: sc.Scalar, has_axis: bool) -> tuple[sc.Scalar, ...]:
        """The index of a column's element in the operand, or in the result."""
        outer = [var for var, _ in self.outer]
        along = [place] if has_axis else []
        return (*outer[: self.of.axis], *along, *outer[self.of.axis :], column)
