"""Long columns on a GPU in two launches: folds of parts, then the elements.

    m[j]    = max over k of x[k, j]                 n[p, j] = max of x[k, j] of part p
    s[j]    = sum over k of exp(x[k, j] - m[j])     t[p, j] = sum of exp(x[k, j] - n[p, j])
    y[i, j] = exp(x[i, j] - m[j]) / s[j]       -->  -- the second launch
                                                    m = max of n;  s = sum of t * exp(n - m)
                                                    y[i, j] = … as it was

A block that keeps columns whole (`plica.schedule.default.gpu.row_block`) reads once, but if one
fills a processor, nothing is loaded while it computes and writes. Here all columns are read twice,
16 bytes of a row per thread, with many blocks in flight. A maximum and a sum of exponentials
relative to it are folded together, by the law `exp(x - m) = exp(x - n) * exp(n - m)`; a maximum of
minus infinity contributes nothing. The second launch starts with what the first has read last.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from attrs import frozen

from plica.core import substitute
from plica.ir.loop import scalar as sc
from plica.ir.loop.combiner import MEANING
from plica.ir.loop.stage import ExternStage
from plica.ir.loop.stages import Stages, stages
from plica.ir.loop.statement import NOTHING, Branch, Stmt, Store, allocated, seq
from plica.ir.type import f32, f64, known
from plica.schedule.default.gpu.machine import Gpu, vector_lanes
from plica.schedule.default.gpu.row_block import keeps_well
from plica.schedule.default.gpu.row_cut import Lot, RowCut
from plica.schedule.default.gpu.row_passes import RowPass, RowPasses, row_passes
from plica.schedule.default.gpu.row_writer import RowWriter
from plica.schedule.default.gpu.thread_code import ThreadNames, block_launch, only_within

FOLDING: Final = 4  # folding blocks per processor: the second launch joins their results
WRITING: Final = 16  # writing blocks: two rounds of concurrent ones
GROUP: Final = 4  # elements along a column that a thread has under way at once
LEAST: Final = -math.inf


Below: TypeAlias = Callable[[sc.Scalar, sc.Scalar], sc.Scalar]
"""A term of a sum, from an element and a maximum."""


@frozen(eq=False)
class FoldedColumn:
    """The folded values of a column: a maximum and a sum relative to it."""

    most: RowPass
    total: RowPass
    below: Below


def folded(of: RowPasses) -> FoldedColumn | None:
    """All passes over a column as one, or None if the law does not apply."""
    match of.passes:
        case (RowPass(out, "max", value) as most, RowPass(_, "sum", terms) as total):
            inner = terms.value if isinstance(terms, sc.Cast) and terms.dtype is f64 else terms
            below = _below(inner, value, out)
            return None if below is None else FoldedColumn(most, total, below)
        case _:
            return None


def _below(of: sc.Scalar, value: sc.Scalar, most: sc.Buffer) -> Below | None:
    """An exponential of how far a value is below the greatest one, as a function of both."""
    match of:
        case sc.Intrinsic("exp" | "exp2" as name, (apart,)):
            pass
        case _:
            return None
    by = sc.Lit(1.0, f32)
    match apart:
        case sc.Mul(far, sc.Lit() as by):
            apart = far
        case _:
            pass
    match apart:
        case sc.Sub(left, sc.Load(there)):
            pass
        case _:
            return None
    if left is not value or there is not most or sc.dtype_of(left) is not f32:
        return None

    def below(term: sc.Scalar, top: sc.Scalar) -> sc.Scalar:
        less = sc.Sub(term, top)
        return sc.Intrinsic(name, (less if by.value == 1 else sc.Mul(less, by),))

    return below


def split_columns(of: Stages, gpu: Gpu) -> Stages | None:
    """Stages of long columns as two launches, or None if they are others, or not long."""
    passes = row_passes(of)
    if passes is None or passes.beside == 1:
        return None
    one = folded(passes)
    if one is None:
        return None
    size = sum(load.buffer.dtype.bytes for load in passes.kept)
    inner = next(passes.sizes[axis] for axis in reversed(passes.lanes) if passes.sizes[axis] != 1)
    wide = vector_lanes(inner, size)
    if wide == 1 or keeps_well(passes, gpu):
        return None
    across = min(gpu.warp, 1 << (passes.beside // wide).bit_length() - 1)
    along = gpu.threads // across
    strips = passes.count * -(-passes.beside // (across * wide))
    most = passes.length // (along * GROUP)
    counts = [n for n in range(2, most + 1) if passes.length % n == 0]
    if not counts:
        return None
    folding, writing = (
        min(counts, key=lambda n: abs(math.log(n * strips / (gpu.processors * many))))
        for many in (FOLDING, WRITING)
    )
    cut = RowCut(across, along, 1, GROUP, 0, 0, wide)
    names = ThreadNames(of)
    shape = (sc.index(folding), sc.index(passes.count * passes.beside))
    parts = {row_pass.out: sc.Buffer(names.name("part"), shape, f32) for row_pass in passes.passes}
    first = _FoldWriter(of, passes, cut, folding, names, one, parts)
    second = _ElementWriter(of, passes, cut, writing, names, one, parts)
    extern_stage = ExternStage(tuple(parts.values()), first.launch())
    return stages(of.inputs, (extern_stage, ExternStage((passes.last.out,), second.launch())))


class _ColumnWriter(RowWriter):
    """A launch in which column parts play the role of rows."""

    def __init__(  # noqa: PLR0917  # what columns are, how they are cut, and what is folded of them
        self, of: Stages, found: RowPasses, cut: RowCut, count: int, names: ThreadNames,
        one: FoldedColumn, parts: Mapping[sc.Buffer, sc.Buffer],
    ) -> None:  # fmt: skip
        super().__init__(of, found, cut, found.length // count, names, count)
        self.one, self.count, self.parts, self.part = one, count, parts, names.var("p")

    def _launched(self, body: Stmt, number: Callable[[sc.Scalar], sc.Scalar]) -> Stmt:
        """Statements by blocks: all columns of a part, then those of the next."""
        blocks, each = self.names.var("g"), self.found.count * self.strips
        body = substitute(body, {self.part: number(blocks // each), self.block: blocks % each})
        body = allocated(body, self.end if self.rest else [])
        along, across = (self.thread, self.cut.along), (self.lane, self.cut.across)
        return block_launch(body, (blocks, each * self.count), along, across)

    def _element(self, of: Lot, u: sc.Scalar, near: sc.Scalar) -> sc.Scalar:
        return self._unit(of, u) + self.part * self.length


class _FoldWriter(_ColumnWriter):
    """The first launch: folds of column parts."""

    def launch(self) -> Stmt:
        return self._launched(self._folded_parts(), lambda number: number)

    def _number(self, near: sc.Scalar) -> sc.Scalar:
        """Which of all columns one of a thread's is."""
        return self.block // self.strips * self.found.beside + self.column + near

    def _folded_parts(self) -> Stmt:
        """The fold of a part of each column."""
        one, zero = self.one, sc.Lit(0.0, f32)
        (least, greater), (_, add) = MEANING["max"], MEANING["sum"]
        most, total, top, whole = (
            self._each_row(word, f32) for word in ("most", "total", "top", "whole")
        )

        def use(of: Lot) -> Stmt:
            before, base = self._each_row("before", f32), self._each_row("base", f32)

            def term(u: sc.Scalar, v: sc.Scalar) -> sc.Scalar:
                return self._filled(one.most.value, of, u, v)

            def compare(u: sc.Scalar, v: sc.Scalar) -> Stmt:
                return Store(most, (v,), greater(most[v], term(u, v)))

            def sum_up(u: sc.Scalar, v: sc.Scalar) -> Stmt:
                return Store(total, (v,), add(total[v], one.below(term(u, v), base[v])))

            def rescale(v: sc.Scalar) -> Stmt:
                return seq(
                    Store(base, (v,), _base(most[v])),
                    Store(total, (v,), total[v] * one.below(before[v], base[v])),
                )

            body = seq(
                self._each(self.cut.wide, lambda v: Store(before, (v,), most[v])),
                self._in_lot(of, compare, "unrolled"),
                self._each(self.cut.wide, rescale),
                self._in_lot(of, sum_up, "unrolled"),
            )
            return allocated(body, [before, base])

        def begin(v: sc.Scalar) -> Stmt:
            return seq(Store(most, (v,), least(f32)), Store(total, (v,), zero))

        def share(v: sc.Scalar) -> Stmt:
            return Store(total, (v,), total[v] * one.below(most[v], _base(top[v])))

        def told(v: sc.Scalar) -> Stmt:
            there = (self.part, self._number(v))
            return seq(
                Store(self.parts[one.most.out], there, top[v]),
                Store(self.parts[one.total.out], there, whole[v]),
            )

        write = self._each(self.cut.wide, told)
        body = seq(
            self._each(self.cut.wide, begin),
            self._through(use, True),
            self._joined(most, top, "max"),
            self._each(self.cut.wide, share),
            self._joined(total, whole, "sum"),
            only_within(Branch(sc.Eq(self.thread, sc.index(0)), write, NOTHING), self.guards),
        )
        return allocated(body, [most, total, top, whole])


class _ElementWriter(_ColumnWriter):
    """The second launch: elements, from the folds; in reverse order of the first."""

    def launch(self) -> Stmt:
        last = sc.index(self.count - 1)
        return self._launched(self._elements(), lambda number: last - number)

    def _elements(self) -> Stmt:
        """The elements of a part of each column, once its parts are joined."""
        value, same, statements = self._of_row(self.found.value)
        out = self.found.last.out

        def use(of: Lot) -> Stmt:
            def one(u: sc.Scalar, v: sc.Scalar) -> Stmt:
                return Store(out, self._place(of, u, v), self._filled(value, of, u, v))

            return self._in_lot(of, one, "vectorized")

        body = allocated(seq(*statements, self._through(use, True)), same)
        whole = seq(self._whole(), only_within(body, self.guards))
        return allocated(whole, self.totals.values())

    def _whole(self) -> Stmt:
        """The folds of whole columns: each by one thread of a block, then broadcast."""
        one, cut = self.one, self.cut
        (least, greater), (_, add) = MEANING["max"], MEANING["sum"]
        columns = cut.across * cut.wide
        outs = (one.most.out, one.total.out)
        folds = known(self.parts[one.most.out].shape[0]) or 0
        held = {out: self.names.buffer("whole", (columns,), f32, "shared") for out in outs}
        threads = cut.across * cut.along
        turns = -(-columns // threads)
        first, last = self.block % self.strips * columns, sc.index(self.found.beside - 1)
        top, total = (self.names.buffer(word, (1,), f32, "local") for word in ("top", "sum"))
        zero = (sc.index(0),)

        def joined(turn: sc.Scalar) -> Stmt:
            mine = turn * threads + (self.thread * cut.across + self.lane)
            column = self.block // self.strips * self.found.beside + sc.Min(first + mine, last)

            def part(of: sc.Buffer, p: sc.Scalar) -> sc.Scalar:
                return sc.Load(self.parts[of], (p, column))

            def compare(p: sc.Scalar) -> Stmt:
                return Store(top, zero, greater(top[0], part(one.most.out, p)))

            def sum_up(p: sc.Scalar) -> Stmt:
                share = one.below(part(one.most.out, p), _base(top[0]))
                return Store(total, zero, add(total[0], part(one.total.out, p) * share))

            body = seq(
                Store(top, zero, least(f32)),
                self._each(folds, compare, "serial"),
                Store(held[one.most.out], (mine,), top[0]),
                Store(total, zero, sc.Lit(0.0, f32)),
                self._each(folds, sum_up, "serial"),
                Store(held[one.total.out], (mine,), total[0]),
            )
            return only_within(body, [(mine, turns * threads, columns)])

        def told(v: sc.Scalar) -> Stmt:
            statements: list[Stmt] = []
            for out in outs:
                value: sc.Scalar = sc.Load(held[out], (self.lane * cut.wide + v,))
                into = self.totals[out]
                statements.append(
                    Store(into, (v,), value if into.dtype is f32 else sc.Cast(value, into.dtype))
                )
            return seq(*statements)

        body = seq(self._each(turns, joined), self._each(cut.wide, told))
        return allocated(body, [top, total, *held.values()])


def _base(of: sc.Scalar) -> sc.Scalar:
    """The reference point of exponentials: 0 if the maximum is minus infinity."""
    return sc.Select(sc.Eq(of, sc.Lit(LEAST, f32)), sc.Lit(0.0, f32), of)
