"""Open pads: rows of open length with a border, for vectors that cannot be read in part.

    out[i, j] = x[i - 1, j - 2] if 0 <= i - 1 < h and 0 <= j - 2 < w else 0
      -->  for i:
               if 0 <= i - 1 < h:
                   zeros before the row, the row a few vectors at a time, zeros behind it
               else: zeros

The last vector ends with the row: it writes some elements again.  Asked lane by lane, each element
would be a branch.
"""

from __future__ import annotations

from typing import Final

from plica.analysis.index.context import conjuncts
from plica.codegen.lower.loop_order import loops_around
from plica.core import free_vars
from plica.ir.loop import NOTHING, Branch, Each, For, Names, Stmt, Store, scalar as sc, seq
from plica.ir.loop.statement import Bind
from plica.ir.type import dim, known
from plica.schedule.default.machine import Machine

STRIP: Final = 4  # vectors of a strip of a row


def padded_rows(of: Each, out: sc.Buffer, machine: Machine) -> Stmt | None:
    """The loops that fill a buffer with rows and their border; None where a stage is none of them,
    or its rows are of known length."""
    value = of.value
    if not isinstance(value, sc.Select) or not isinstance(value.then, sc.Load):
        return None
    if not of.axes or not value.then.indices:
        return None
    load, fill, axis, width = value.then, value.orelse, of.axes[-1], of.out.shape[-1]
    *around, last = load.indices
    before = known(dim(axis - last))
    if not isinstance(fill, sc.Lit) or before is None or before < 0 or known(width) is not None:
        return None
    if any(axis in free_vars(scalar) for scalar in around):
        return None
    size = load.buffer.shape[-1]
    tests = conjuncts(value.condition)
    low, high = sc.Le(sc.index(0), last), sc.Lt(last, size)
    rows = [test for test in tests if test not in (low, high)]
    if any(axis in free_vars(row) for row in rows):
        return None
    ends = known(dim(size + before - width))  # how far the row reaches beyond what is asked for
    if (before and low not in tests) or (high not in tests and (ends is None or ends < 0)):
        return None
    writer = _RowWriter(of, out, load, fill, before)
    statement = writer.row(machine.lanes(out.dtype))
    if rows:
        inside = rows[0]
        for row in rows[1:]:
            inside = sc.And(inside, row)
        statement = Branch(inside, statement, writer.filled(0, width))
    return loops_around(list(zip(of.axes, of.out.shape, strict=True))[:-1], statement)


class _RowWriter:
    """Writes one row."""

    def __init__(self, of: Each, out: sc.Buffer, load: sc.Load, fill: sc.Lit, before: int) -> None:
        self.of, self.out, self.load, self.fill, self.before = of, out, load, fill, before
        self.width, self.size = of.out.shape[-1], load.buffer.shape[-1]
        self.names = Names(of, out)

    def filled(self, start: sc.Scalar | int, count: sc.Scalar) -> Stmt:
        """Fills a number of border elements."""
        at, place = self.names.var("at"), self.names.var("place")
        if start == 0:
            return For(at, count, "serial", Store(self.out, (*self.of.axes[:-1], at), self.fill))
        store = Store(self.out, (*self.of.axes[:-1], place), self.fill)
        inside = sc.And(sc.Le(sc.index(0), place), sc.Lt(place, self.width))  # it is
        one = Bind(place, start + at, Branch(inside, store, NOTHING))
        return For(at, count, "serial", one)

    def row(self, lanes: int) -> Stmt:
        """A row that is there: strips, vectors, or where it is shorter element by element."""
        count, strip, at = (self.names.var(each) for each in ("count", "strip", "at"))
        wide = STRIP * lanes
        done = count // wide * wide
        strips = For(strip, count // wide, "serial", self.copied(strip * wide, wide))
        left = (count - done + (lanes - 1)) // lanes
        last = self.copied(sc.Min(done + strip * lanes, count - lanes), lanes)
        whole = seq(strips, For(strip, left, "serial", last))
        alone = For(at, count, "serial", self.copied(at, 1))
        made: Stmt = seq(
            self.filled(0, sc.Min(sc.index(self.before), self.width)),
            Branch(sc.Le(sc.index(lanes), count), whole, alone),
            self.filled(count + self.before, sc.Max(self.width - self.before - count, sc.index(0))),
        )
        return Bind(count, sc.Max(sc.Min(self.size, self.width - self.before), sc.index(0)), made)

    def copied(self, at: sc.Scalar, lanes: int) -> Stmt:
        """Some neighbours, from a place of the row on."""
        start, lane = self.names.var("start"), self.names.var("lane")
        source = sc.Load(self.load.buffer, (*self.load.indices[:-1], start + lane))
        store = Store(self.out, (*self.of.axes[:-1], start + lane + self.before), source)
        statement = loops_around(
            [(lane, sc.index(lanes))], store, "vectorized" if lanes > 1 else "serial"
        )
        ends = sc.And(
            sc.Le(start + lanes, self.size), sc.Le(start + (lanes + self.before), self.width)
        )
        return Bind(
            start, at, Branch(sc.And(sc.Le(sc.index(0), start), ends), statement, NOTHING)
        )  # it is
