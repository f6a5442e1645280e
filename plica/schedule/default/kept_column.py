"""Kept columns: the first elements of columns in registers, one column per lane.

    y[r, c] = the place of the element of column c that r others come before
      -->  for vectors of columns:  for p:  each lane puts x[p, c] among the few that it keeps

Adjacent elements are in different columns, so vectors are read directly. An element is inserted
without a test: one that sorts behind all kept ones leaves them unchanged.

    kept[j] = kept[j] if x does not come before it, x if it comes behind kept[j - 1], else that

from the last to the first, each reading those not yet written. As many as are kept are inserted
first: everything precedes free places.

>>> from plica.ir.loop.tensor import axis, buffer
>>> from plica.ir.loop.stage import stage
>>> from plica.ir.loop.stages import stages
>>> from plica.ir.op.top_k import place_of_rank
>>> from plica.ir.type.dtype import f32
>>> from plica.schedule.default.first_place import first_places_of
>>> x, terms = buffer("x", (100, 64), f32), (axis("m"), axis("o"))
>>> first = stage("y", (2, 64), lambda r, i: place_of_rank(
...     lambda at: x[at, i], sc.index(100), r, terms, True))
>>> found = first_places_of(x, first.out, first.axes, first.value)
>>> made = kept_columns(found, Names(stages((x,), (first,))), Machine(512, 32))
>>> made.extent.value  # so often two vectors of 16 columns
2
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final

from plica.ir.loop import NOTHING, Alloc, For, Names, Stmt, Store, scalar as sc, seq
from plica.ir.loop.statement import LoopKind
from plica.ir.op.order import is_before
from plica.ir.type import DType, i32, i64, known
from plica.schedule.default.first_place import FirstPlaces
from plica.schedule.default.machine import MIN_SHARED_ELEMENTS, Machine

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
        made_all: Stmt = seq(loop, last)
        shared = next((at for at, count in enumerate(counts) if count > 1), None)
        for at in reversed(range(len(self.outer))):
            var, count = self.outer[at]
            around: LoopKind = "parallel" if shares and not first and at == shared else "serial"
            made_all = For(var, sc.index(count), around, made_all)
        return made_all

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
        return For(lane, sc.index(self.width), "vectorized", seq(*body))

    def index(self, place: sc.Scalar, column: sc.Scalar, has_axis: bool) -> tuple[sc.Scalar, ...]:
        """The index of a column's element in the operand, or in the result."""
        outer = [var for var, _ in self.outer]
        along = [place] if has_axis else []
        return (*outer[: self.of.axis], *along, *outer[self.of.axis :], column)
