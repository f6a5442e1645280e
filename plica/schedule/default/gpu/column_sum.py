"""Reductions over other axes than the last on a GPU: threads read vectors of neighbouring columns.

    y[j] = sum over k of x[k, j]   -->   part[p, j] = sum over k of part p of x[k, j]     launch 1
                                         y[j]       = sum over p of part[p, j]            launch 2

A thread has 16 bytes of a row, and of several rows at once; those of a block that have the same
columns join what they have in shared memory.  Where the blocks that columns give cannot read as
fast as memory is, columns are cut into parts, which a second launch joins.

>>> from plica.ir.loop.stage import stage
>>> from plica.ir.loop.tensor import buffer, reduce
>>> from plica.ir.type.dtype import f32
>>> x = buffer("x", (8192, 256), f32)
>>> total = stage("y", (256,), lambda j: reduce("sum", (8192,), lambda k: x[k, j]))
>>> made = column_sums(stages((x,), (total,)), Gpu())
>>> [[known(size) for size in each.outs[0].shape] for each in made.stages]
[[256, 256], [256]]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from attrs import frozen

from plica.core.binding import free_vars, substitute
from plica.core.fold import map_bottom_up
from plica.core.term import Term
from plica.ir.loop import scalar as sc
from plica.ir.loop.stage import Each, ExternStage, Stage
from plica.ir.loop.stages import Names, Stages, loads, reductions, stages
from plica.ir.loop.statement import NOTHING, Branch, LoopKind, Stmt, Store, allocated, seq
from plica.ir.type.dim import known
from plica.schedule.default.gpu.block_launch import block_launch
from plica.schedule.default.gpu.cost import BYTES, LATENCY, LAUNCH
from plica.schedule.default.gpu.machine import Gpu
from plica.schedule.default.gpu.row_cut import Lot, RowCut
from plica.schedule.default.gpu.row_passes import RowPass, RowPasses
from plica.schedule.default.gpu.row_writer import RowWriter
from plica.schedule.default.gpu.split_reduction import even_cut, is_along

WIDE: Final = 16
"""Bytes that one instruction moves."""

LINE: Final = 128
"""Bytes of a row that threads of a block read at once, at least."""

GROUP: Final = 4
"""Rows that a thread has under way at once."""

READ: Final = 20
"""Bytes that a processor reads in a cycle where all do."""

BLOCKS: Final = 8
"""Blocks of threads that a processor has under way."""


def column_sums(of: Stages, gpu: Gpu) -> Stages | None:
    """Stages with one reduction whose results are neighbours where what is read is, as launches of
    vectors; None where they are no such."""
    names = Names(of)
    names.used.add(of.result.name)
    found = _columns(of, names)
    if found is None:
        return None
    one, last = found
    cut = cut_of(one, gpu)
    if cut.parts == 1:
        whole = _SumWriter(of, one, cut, names, last)
        return stages(of.inputs, (ExternStage((last.out,), whole.launch()),))
    (total,) = one.passes
    shape = (cut.parts, *[known(size) or 0 for size in last.out.shape])
    part = sc.Buffer(names.name("part"), tuple(map(sc.index, shape)), total.out.dtype)
    first = _SumWriter(of, one, cut, names, Each(part, last.axes, one.value), in_parts=True)
    p = names.var("p")
    sizes = {**{each: one.sizes[each] for each in last.axes}, p: cut.parts}
    terms = Each(part, (p, *last.axes), sc.Load(part, (p, *last.axes)))
    load = sc.Load(part, tuple([_place(each, sizes) for each in terms.axes]))
    join = RowPass(total.out, total.combiner, load)
    two = RowPasses((join,), terms, one.value, (p,), sizes, (load,))
    second = _SumWriter(of, two, cut_of(two, gpu, alone=True), names, last)
    made: list[Stage] = [
        ExternStage((part,), first.launch()),
        ExternStage((last.out,), second.launch()),
    ]
    return stages(of.inputs, made)


def _place(axis: sc.ScalarVar, sizes: Mapping[sc.ScalarVar, int]) -> sc.Scalar:
    return axis if sizes[axis] != 1 else sc.index(0)


# --- what stages are ------------------------------------------------------------------------------


def _columns(of: Stages, names: Names) -> tuple[RowPasses, Each] | None:
    """The one reduction of stages as a pass over columns, and what is made of it in the end."""
    every = [each for each in of.stages if isinstance(each, Each)]
    folds = [each for each in every if isinstance(each.value, sc.Reduce)]
    if len(every) != len(of.stages) or of.outputs != (every[-1].out,) or len(folds) != 1:
        return None
    (total,), last = folds, every[-1]
    fold = total.value
    assert isinstance(fold, sc.Reduce)
    others = [fold.body, *[each.value for each in every if each is not total]]
    if fold.runs or any(reductions(each) for each in others):
        return None
    plain = {each.out: each for each in every if each is not total and each is not last}
    sizes = {axis: known(n) or 0 for axis, n in zip(last.axes, last.out.shape, strict=True)}
    wide = [axis for axis in last.axes if sizes[axis] != 1]
    value = last.value if last is not total else sc.Load(total.out, last.axes)
    value = _inlined(value, plain)
    read = {each.indices for each in loads(value) if each.buffer is total.out}
    if len(read) != 1 or not all(sizes.values()) or not wide:
        return None
    (place,) = read
    own = [each for each in place if not isinstance(each, sc.Lit)]
    if [each for each in own if sizes.get(each, 0) != 1] != wide:  # type: ignore[call-overload]  # others are no axes
        return None
    extents = [known(size) or 0 for size in fold.extents]
    terms = [names.var("k") for _ in extents]
    sizes |= dict(zip(terms, extents, strict=True))
    at: dict[Term, Term] = {
        **dict(zip(total.axes, place, strict=True)),
        **{axis: _place(own, sizes) for axis, own in zip(fold.axes, terms, strict=True)},
    }
    body = _inlined(substitute(fold.body, at), plain)
    body = substitute(body, {axis: sc.index(0) for axis in last.axes if sizes[axis] == 1})
    row = tuple([each for each in terms if sizes[each] > 1])
    lanes = _lanes(body, wide, row)
    if not lanes or not all(sizes.values()) or any(e.buffer is total.out for e in loads(body)):
        return None
    before = [each for each in last.axes if each not in lanes]
    axes = (*before, *row, *lanes)
    shape = tuple([sc.index(sizes[each]) for each in axes])
    terms_of = Each(sc.Buffer(names.name("terms"), shape, sc.dtype_of(body)), axes, body)
    kept = [each for each in loads(body) if lanes[-1] in free_vars(each)]
    kept = [each for each in kept if not free_vars(each).isdisjoint(row)]
    only = RowPass(total.out, fold.combiner, body)
    return RowPasses((only,), terms_of, value, row, sizes, tuple(kept)), last


def _inlined(value: sc.Scalar, plain: Mapping[sc.Buffer, Each]) -> sc.Scalar:
    """A value that reads none of some stages: these are computed where they are read."""

    def instead(node: Term) -> Term:
        if not isinstance(node, sc.Load) or node.buffer not in plain:
            return node
        stage = plain[node.buffer]
        return substitute(stage.value, dict(zip(stage.axes, node.indices, strict=True)))

    for _ in plain:
        value = map_bottom_up(instead, value)
    return value


def _lanes(
    body: sc.Scalar, axes: Sequence[sc.ScalarVar], row: Sequence[sc.ScalarVar]
) -> tuple[sc.ScalarVar, ...]:
    """The last of some axes along which neighbours are neighbours in memory, behind all terms; none
    where something is read for several results, which tiles of a product do better."""
    read = [each for each in loads(body) if not free_vars(each).isdisjoint(row)]
    mine = [each for each in read if axes[-1] in free_vars(each)]
    if not mine or not all(is_along(each, axes[-1]) for each in mine):
        return ()
    if not all(free_vars(each).issuperset(axes) for each in mine):
        return ()
    count = len(axes)
    for load in mine:
        deep = max(n for n, e in enumerate(load.indices) if not free_vars(e).isdisjoint(row))
        behind = [*load.indices[deep + 1 :]]
        same = 0
        while same < min(len(behind), count) and behind[-1 - same] is axes[-1 - same]:
            same += 1
        count = min(count, same)
    return tuple(axes[len(axes) - count :]) if count else ()


# --- how they are cut -----------------------------------------------------------------------------


@frozen
class ColumnCut:
    """Threads across columns and along each, columns of a thread, and parts of so many terms."""

    across: int
    along: int
    wide: int
    parts: int
    length: int


def cut_of(of: RowPasses, gpu: Gpu, *, alone: bool = False) -> ColumnCut:
    """The cut that should take the fewest cycles: more threads of a block, or parts that one more
    launch joins; where one launch is `alone` there are none."""
    inner = next(of.sizes[axis] for axis in reversed(of.lanes) if of.sizes[axis] != 1)
    sizes = [each.buffer.dtype.bytes for each in of.kept]
    wide = next(n for n in (8, 4, 2, 1) if n * max(sizes) <= WIDE and inner % n == 0)
    columns = -(-of.beside // wide)
    whole = of.count * of.beside * of.length * sum(sizes)

    def cycles(cut: ColumnCut) -> float:
        threads = cut.across * cut.along
        blocks = of.count * -(-columns // cut.across) * cut.parts
        rate = min(BYTES, threads * GROUP * wide * sum(sizes) / (2 * LATENCY))
        time = whole / min(blocks * rate, gpu.processors * READ)
        return time + (LAUNCH + LATENCY if cut.parts > 1 else 0)

    found: list[ColumnCut] = []
    threads = gpu.threads
    while threads <= gpu.block:
        across = min(gpu.warp, _power(columns))
        while True:
            along = min(threads // across, _power(-(-of.length // GROUP)))
            high = min(threads // along, _power(columns))
            blocks = of.count * -(-columns // high)
            many = min(-(-gpu.processors * BLOCKS // blocks), of.length // (along * GROUP))
            for parts in (1,) if alone or many < 2 else (1, many):
                found.append(ColumnCut(high, along, wide, *even_cut(of.length, parts)))
            across //= 2
            if not across or across * wide * max(sizes) < LINE:
                break
        threads *= 2
    return min(found, key=cycles)


def _power(of: int) -> int:
    """The power of two that is not below a number."""
    return 1 << max(0, of - 1).bit_length()


# --- what is written ------------------------------------------------------------------------------


class _SumWriter(RowWriter):
    """A launch: what is joined of columns, or of parts of them, and what is made of that."""

    def __init__(
        self, of: Stages, found: RowPasses, cut: ColumnCut, names: Names, last: Each, *,
        in_parts: bool = False,
    ) -> None:  # fmt: skip
        rows = RowCut(cut.across, cut.along, 1, GROUP, 0, 0, cut.wide)
        super().__init__(of, found, rows, cut.length, names, cut.parts)
        self.last, self.parts, self.part = last, cut.parts, names.var("p")
        self.even = cut.length * cut.parts == found.length
        self.in_parts = in_parts

    def launch(self) -> Stmt:
        """Statements by blocks: all columns of a part, then those of the next."""
        (one,) = self.found.passes
        body = seq(self._pass(0, one), self._told())
        body = allocated(body, [*self.totals.values(), *(self.end if self.rest else [])])
        blocks, each = self.names.var("g"), self.blocks
        at = (blocks // each, blocks % each) if self.parts > 1 else (sc.index(0), blocks)
        body = substitute(body, dict(zip((self.part, self.block), at, strict=True)))
        along, across = (self.thread, self.cut.along), (self.lane, self.cut.across)
        return block_launch(body, (blocks, each * self.parts), along, across)

    def _told(self) -> Stmt:
        """What is made of the totals, by the first of the threads that have a column."""
        (total,) = self.totals.values()
        value, same, made = self._of_row(self.found.value)

        def one(near: sc.Scalar) -> Stmt:
            at = {**self._places(near), self.near: near}
            places = [substitute(each, at) for each in self.last.axes]
            if self.in_parts:
                return Store(self.last.out, (self.part, *places), sc.Load(total, (near,)))
            return Store(self.last.out, tuple(places), substitute(value, at))

        body = self._each(self.cut.wide, one, "vectorized")
        body = body if self.in_parts else allocated(seq(*made, body), same)
        if self.cut.along > 1:
            body = Branch(sc.Eq(self.thread, sc.index(0)), body, NOTHING)
        return body if self.inside is None else Branch(self.inside, body, NOTHING)

    def _element(self, of: Lot, u: sc.Scalar, near: sc.Scalar) -> sc.Scalar:
        return self._unit(of, u) + self.part * self.length

    def _in_lot(
        self, of: Lot, body: Callable[[sc.Scalar, sc.Scalar], Stmt], kind: LoopKind
    ) -> Stmt:
        if self.even:
            return super()._in_lot(of, body, kind)
        end = sc.index(self.found.length)

        def slice_(u: sc.Scalar) -> Stmt:
            inner = self._each(of.lanes, partial(body, u), kind)
            inside: sc.Scalar = sc.Lt(self._element(of, u, sc.index(0)), end)
            if of.guarded:
                inside = sc.And(sc.Lt(self._unit(of, u), sc.index(self.length)), inside)
            return Branch(inside, inner, NOTHING)

        return self._each(of.count, slice_)


__all__ = ["column_sums"]
