"""Row streams: rows are added up as they lie in memory, a few of them at a time.

    out[i, j] = sum over k of w[i, k] * x[i, k, j]
      -->  for i, runs of 32 rows:
               acc[j] = 0
               for each four rows k: for vectors j: acc[j] += w[i, k] * x[i, k, j] + …
               whole[j] += acc[j]

A product of one row with a matrix reads it once: whatever waits for memory is read in order, and
what is kept, a row of sums, stays in the nearest cache.  No row is cut into blocks of vectors, so
it may have any length.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from plica.ir.loop import scalar as sc
from plica.ir.loop.statement import Alloc, For, LoopKind, Stmt, Store, seq
from plica.schedule.default.column_writer import ColumnWriter

TOGETHER: Final = 4
"""Rows that are read side by side."""

STRIP: Final = 4
"""Vectors of a strip of a row."""


class RowStream(ColumnWriter):
    """The loops of a reduction of wide rows."""

    def blocks(self) -> Stmt:
        """Parts of a row whose sums the nearest cache holds, and one for each core at least where
        cores share them."""
        wide = STRIP * self.lanes
        most = self.machine.cache(1) // 4 // self.wide.bytes
        if self.alone:
            most = min(most, -(-self.found.width // self.machine.cores))
        width = min(-(-most // wide) * wide, self.found.width)
        many, left = divmod(self.found.width, width)
        part = self.names.var("part")
        kind: LoopKind = "parallel" if self.alone else "serial"
        whole = For(part, sc.index(many), kind, self.streamed(part * width, width))
        last = [self.streamed(sc.index(many * width), left)] if left else []
        return seq(whole, *last)

    def streamed(self, begin: sc.Scalar, width: int) -> Stmt:
        """Runs of rows from a place on, then what is done with the sums."""
        found = self.found
        acc = sc.Buffer(self.names.name("acc"), (sc.index(width),), self.dtype)
        in_runs = found.terms > self.run
        whole = acc
        if in_runs:
            whole = sc.Buffer(self.names.name("whole"), (sc.index(width),), self.wide)

        def cleared(of: sc.Buffer) -> Stmt:
            return self.along(width, lambda at: Store(of, (at,), self.start(of.dtype)))

        def added(first: sc.Scalar, count: int) -> Stmt:
            def one(at: sc.Scalar) -> Stmt:
                total: sc.Scalar = sc.Load(acc, (at,))
                for row in range(count):
                    total = self.join(total, self.value(first + row, begin + at))
                return Store(acc, (at,), total)

            return self.along(width, one)

        def kept(at: sc.Scalar) -> Stmt:
            total = self.join(sc.Load(whole, (at,)), self.widened(sc.Load(acc, (at,))))
            return Store(whole, (at,), total)

        def some(first: sc.Scalar, count: int) -> Stmt:
            few, left = divmod(count, TOGETHER)
            h = self.names.var("h")
            rows: list[Stmt] = []
            if few:
                rows.append(For(h, sc.index(few), "serial", added(first + h * TOGETHER, TOGETHER)))
            if left:
                rows.append(added(first + few * TOGETHER, left))
            return seq(cleared(acc), *rows, self.along(width, kept)) if in_runs else seq(*rows)

        runs, rest = divmod(found.depth, self.run) if in_runs else (0, found.depth)
        parts: list[Stmt] = []
        if runs:
            b = self.names.var("b")
            parts.append(For(b, sc.index(runs), "serial", some(b * self.run, self.run)))
        if rest:
            parts.append(some(sc.index(runs * self.run), rest))
        stored = self.along(width, lambda at: self.result(begin + at, sc.Load(whole, (at,))))
        made = seq(cleared(whole), self.over_others(seq(*parts)), stored)
        return Alloc(acc, Alloc(whole, made)) if in_runs else Alloc(acc, made)

    def along(self, width: int, body: Callable[[sc.Scalar], Stmt]) -> Stmt:
        """A statement for each of so many places: strips of some vectors, then what is left."""
        wide = STRIP * self.lanes
        strips, left = divmod(width, wide)
        s, lane, last = (self.names.var(each) for each in ("s", "v", "v"))
        made: list[Stmt] = []
        if strips:
            inner = For(lane, sc.index(wide), "vectorized", body(s * wide + lane))
            made.append(For(s, sc.index(strips), "serial", inner))
        if left:
            made.append(For(last, sc.index(left), "vectorized", body(last + strips * wide)))
        return seq(*made)
