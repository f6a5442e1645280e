"""The fold template for GPUs: a reduction and its epilogue, as a trace over machine levels.

    terms[i, k] = body                      for blocks, for rows of a block, for threads of a row:
    total[i]    = sum over k of terms  -->      for turns:  terms, vectors into registers
    out[i]      = f(total[i])                               own = joined one after another
                                                total = joined across the threads
                                                out[i]

Rows are folded along contiguous elements: a thread has vectors of terms, and the threads of a row
join their totals by shuffles. Columns are folded down, adjacent threads having adjacent columns: a
thread has a vector of columns, and the threads of a block join their totals in shared memory, in
two steps. A split at the grid level is joined by another launch.

>>> from plica.ir.loop.stage import stage
>>> from plica.ir.loop.stages import stages
>>> from plica.ir.loop.tensor import buffer, reduce
>>> from plica.ir.type.dtype import f32
>>> from plica.schedule.default.gpu.fold_form import row_folds
>>> x = buffer("x", (4096, 1001), f32)
>>> most = stage("y", (4096,), lambda i: reduce("max", (1001,), lambda k: x[i, k]))
>>> trace, _ = fold_schedule(row_folds(stages((x,), (most,)), Gpu()), Gpu())
>>> [step.instruction.kind for step in trace.steps].count("rfactor")
1
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TypeAlias

from attrs import evolve, frozen

from plica.core import free_vars
from plica.ir.loop import Each, Kernel, Stages, kernel_of, loads, scalar as sc
from plica.ir.loop.index_map import IndexMap, index_map
from plica.ir.type import known
from plica.schedule import primitive as pr
from plica.schedule.default.gpu.fold_form import TERMS, TOTAL, narrowed
from plica.schedule.default.gpu.fold_plan import (
    ColumnFold,
    Plan,
    column_plan,
    count_of,
    joining_groups,
    lane_plan,
    row_plan,
    staged_plan,
)
from plica.schedule.default.gpu.machine import VECTOR_BYTES, Gpu, vector_lanes
from plica.schedule.default.gpu.thread import recorded
from plica.schedule.do import Body, do
from plica.schedule.handle import Handle
from plica.schedule.trace import Trace


def fold_schedule(of: Stages, gpu: Gpu) -> tuple[Trace, Kernel] | None:
    """The schedule of terms, their fold and its epilogue."""
    if (fold := fold_nest(of)) is None:
        return None
    if not fold.columns:
        lanes = vector_lanes(fold.inner, max(fold.sizes))
        how = row_plan(fold.outer, fold.length, lanes, max(fold.sizes), gpu)
        how = how if len(fold.terms) == 1 else lane_plan(fold.length, lanes, gpu)
        return recorded(along_rows(fold, how), kernel_of(of))
    shape = ColumnFold(fold.outer, fold.columns, fold.length, fold.inner, fold.sizes)
    how = column_plan(shape, gpu)
    parts = count_of(how, "term", "grid")
    joins = evolve(shape, terms=parts, inner=fold.columns, sizes=(fold.total_bytes,))
    after = column_plan(joins, gpu, alone=True) if parts > 1 else ()
    return recorded(down_columns(fold, how, after), kernel_of(of))


def staged_schedule(of: Stages, gpu: Gpu) -> tuple[Trace, Kernel] | None:
    """The same of rows that go through shared memory as they lie."""
    fold = fold_nest(of)
    assert fold is not None
    size = sum(fold.sizes)
    how = staged_plan(fold.outer, fold.length, size, gpu)
    return None if how is None else recorded(along_rows(fold, how, staged=True), kernel_of(of))


@frozen
class FoldNest:
    """The loops of a fold: operands of its terms, axes of its results, number of rows (without
    columns), sums per row, columns and terms, contiguous elements along vectors, bytes of operands
    per term and of a total, and whether totals are wider than terms."""

    terms: tuple[str, ...]
    rank: int
    sums: int
    outer: int
    columns: int
    length: int
    inner: int
    sizes: tuple[int, ...]
    total_bytes: int
    is_widened: bool


def fold_nest(of: Stages) -> FoldNest | None:
    """The loops of terms, their fold and its epilogue, or None for other stages."""
    match of.stages:
        case (*terms, Each(total, wide, sc.Reduce() as fold), Each()) if terms:
            pass
        case _:
            return None
    every = [term for term in terms if isinstance(term, Each)]
    (k,), axes, out = fold.axes, every[0].axes, every[0].out
    columns = axes[-1] is not k
    lane = axes[-1]
    extents = {axis: known(size) or 0 for axis, size in zip(axes, out.shape, strict=True)}
    read = [load for stage in every for load in loads(stage.value) if lane in free_vars(load)]
    inner = min([_inner(each, extents[lane]) for each in read], default=extents[lane])
    count = extents[lane] if columns else 0
    outer = prod([extents[var] for var in axes if var is not k]) // max(1, count)
    sums = prod([known(n) or 0 for axis, n in zip(wide, total.shape, strict=True)
                 if axis not in extents])  # fmt: skip
    sizes = tuple([each.buffer.dtype.bytes for each in read]) or (out.dtype.bytes,)
    return FoldNest(
        tuple([str(stage.out.name) for stage in every]), len(wide), sums, outer, count, extents[k],
        inner, sizes, total.dtype.bytes, narrowed(fold.body) is not fold.body,
    )  # fmt: skip


def _inner(load: sc.Load, extent: int) -> int:
    """Neighbours in memory along an axis, of which a load may read a digit."""
    match load.indices[-1]:
        case sc.FloorMod(_, sc.Lit(size)):
            return int(size)
        case _:
            return extent


@do
def along_rows(fold: FoldNest, how: Plan, *, staged: bool = False) -> Body:
    """One fold or several folds of each row, whose rows are `staged` in shared memory or not."""
    terms = list[Handle]()
    for term in fold.terms:
        terms.append((yield pr.block(term)))
    total = yield pr.block(TOTAL)
    (out,) = yield pr.output_blocks()
    counts = [count_of(how, "term", level) for level in ("thread", "block", "vector")]
    k = (yield pr.loops(total))[-1]
    if fold.length % prod(counts):
        yield pr.pad_fold(k, prod(counts))
    turns, group, t, lane = yield pr.split(k, (None, *counts))
    yield pr.reorder(t, turns, group, lane)
    own = yield pr.rfactor(t, 0)
    turns = -(-fold.length // prod(counts))
    few = (yield in_few_terms(own, 3, turns)) if fold.is_widened else None
    around = yield pr.loops(out)
    row = (yield fused(around)) if around else (yield pr.add_unit_loop(out))
    high = count_of(how, "row", "block")
    blocks, row = (yield pr.split(row, (None, high))) if high > 1 else (row, row)
    for each in (total, own):
        yield pr.compute_at(each, row)
    copies = (yield staged_rows(terms[0], row, blocks, len(fold.sizes))) if staged else ()
    t = yield own_terms(own, few, terms, (turns, counts[0], fold.sums, counts[2]), staged=staged)
    movers = list[tuple[Handle, Handle]]()
    for copy, size in zip(copies, fold.sizes, strict=False):
        movers.append((yield by_all_threads(copy, (high, counts[1]), VECTOR_BYTES // size)))
    for each in (total, own):
        yield pr.set_scope(each, 0, "shared")
    one = yield pr.add_unit_loop(out)
    yield pr.bind(blocks, "blockIdx.x")
    if high > 1:
        yield pr.bind(row, "threadIdx.y")
    for y, x in movers:
        yield pr.bind(y, "threadIdx.y")
        yield pr.bind(x, "threadIdx.x")
    *_, sums, lane = yield pr.loops(total)
    if fold.sums > 1:
        yield pr.unroll(sums)
    for each in (t, lane, one):
        yield pr.bind(each, "threadIdx.x")


@do
def staged_rows(terms: Handle, row: Handle, blocks: Handle, count: int) -> Body:
    """Stages consecutive rows of a block in shared memory; returns the copies."""
    yield pr.compute_at(terms, row)
    copies = list[Handle]()
    for number in range(count):
        copies.append((yield pr.cache_read(terms, number, "shared")))
        yield pr.compute_at(copies[-1], blocks)
    return copies


@do
def by_all_threads(copy: Handle, threads: tuple[int, int], lanes: int) -> Body:
    """A copy to shared memory in vectors, by all threads of a block; gives the loops over these."""
    turn, y, x, lane = yield pr.split((yield pr.loops(copy))[-1], (None, *threads, lanes))
    yield pr.reorder(y, x, turn, lane)
    yield pr.vectorize(lane)
    yield pr.unroll(turn)
    return y, x


@do
def in_few_terms(own: Handle, digits: int, count: int) -> Body:
    """Folds a thread's iteration in the dtype of the terms; returns its block, or None if there is
    one iteration."""
    if count == 1:
        yield pr.narrow_sum(own)
        return None
    turns = (yield pr.loops(own))[-digits]
    few = yield pr.rfactor(turns, 0)
    yield pr.narrow_sum(few)
    return few


@do
def own_terms(
    own: Handle, few: Handle | None, terms: Sequence[Handle], counts: tuple[int, int, int, int],
    *, staged: bool = False,
) -> Body:  # fmt: skip
    """The partial folds of a thread: loops over iterations, vectors in flight, sums and lanes,
    without unit loops; returns the outer loop."""
    inner, digits = own, dict[int, Handle]()
    if few is not None:
        *_, around, digits[0] = yield pr.loops(own)
        yield pr.compute_at(few, digits[0])
        yield pr.set_scope(few, 0, "local")
        yield pr.decompose_reduction(own, digits[0])
        inner = few
    wide = [at for at, count in enumerate(counts) if count > 1 and at not in digits]
    every = yield pr.loops(inner)
    if few is None:
        around = every[-len(wide) - 1]
    own_loops = every[len(every) - len(wide) :]
    if 2 in wide:  # sums are an axis of the result: their loop comes first
        last = len(own_loops) - (3 in wide)
        own_loops = (*own_loops[1:last], own_loops[0], *own_loops[last:])
        if last > 1:
            yield pr.reorder(*own_loops)
    digits |= dict(zip(wide, own_loops, strict=True))
    inside = next((digits[at] for at in (1, 0) if at in digits), around)
    if folded := [at for at in wide if at != 2]:
        yield pr.decompose_reduction(inner, digits[folded[0]])
    if counts[2:] == (1, 1) and not staged:
        for term in terms:
            yield pr.compute_inline(term)
    else:
        for term in terms:
            yield vectors(term, inside, is_wide=counts[3] > 1)
    for at in (3, 1):
        if at in digits:
            yield pr.unroll(digits[at])
    if 2 in digits:
        yield pr.annotate(digits[2], "unroll_explicit", value=True)
    return around


@do
def down_columns(fold: FoldNest, how: Plan, after: Plan) -> Body:
    """A fold down columns, in parts that a second launch joins or without."""
    terms, total = (yield pr.block(TERMS)), (yield pr.block(TOTAL))
    (out,) = yield pr.output_blocks()
    parts = count_of(how, "term", "grid")
    if parts == 1:
        yield begun((yield one_launch(fold, how, (terms, total, out), fold.rank - 1)))
        return
    k = (yield pr.loops(total))[-1]
    whole = parts
    if fold.length % parts:  # one guard for what is beyond the terms and beyond those of a part
        whole *= count_of(how, "term", "block") * count_of(how, "term", "thread")
    length = -(-fold.length // whole) * whole
    if length > fold.length:
        yield pr.pad_fold(k, whole)
    p, _ = yield pr.split(k, (parts, None))
    part = yield pr.rfactor(p, 0)
    if length == fold.length:  # what a thread reads ends with its part, too
        own = yield pr.reindex(part, "read", 0)
        yield pr.compute_inline(terms)
        terms = own
    told = yield pr.cache_write(part, 0, "local")
    of_part = evolve(fold, rank=fold.rank + 1, length=length // parts)
    first = yield one_launch(of_part, how, (terms, part, told), fold.rank - 1)
    read = yield pr.cache_read(total, 0, "local")
    joins = evolve(fold, length=parts, is_widened=False)
    second = yield one_launch(joins, after, (read, total, out), fold.rank - 1)
    yield begun((*first, *second))


Begin: TypeAlias = tuple[Handle, Handle]  # a fold, and the loop before which it begins


@do
def begun(folds: Sequence[Begin]) -> Body:
    """What threads fold in registers begins before their loops."""
    for block, loop in folds:
        yield pr.decompose_reduction(block, loop)


@do
def one_launch(
    fold: FoldNest, how: Plan, blocks: tuple[Handle, Handle, Handle], outer: int
) -> Body:
    """One launch: terms, their fold, and the epilogue in vectors of columns; parts precede the
    outer axes of results. Returns the folds whose inits must precede their loops."""
    terms, total, out = blocks
    along, group = count_of(how, "term", "block"), count_of(how, "term", "thread")
    across, wide = count_of(how, "column", "block"), count_of(how, "column", "vector")
    turns, groups = -(-fold.length // (along * group)), joining_groups(along, wide)
    spread = groups * wide <= along
    k = (yield pr.loops(total))[-1]
    if fold.length % (along * group):
        yield pr.pad_fold(k, along * group)
    _, _, t = yield pr.split(k, (None, group, along))
    own, steps = total, list[Handle]()
    if along > 1:
        yield pr.reorder(t, *(yield pr.loops(total))[fold.rank : -1])
        own = yield pr.rfactor(t, 0)
    few = (yield in_few_terms(own, 2, turns)) if fold.is_widened else None
    if along > 1:
        m, g = yield pr.split((yield pr.loops(total))[-1], (None, groups))
        yield pr.reorder(g, m)
        steps = [(yield pr.rfactor(g, 0)), own]
    around = yield pr.loops(out)
    before = len(around) - (len(around) - outer - (fold.rank - 1 - outer))
    column = yield fused(around[before:])
    strip, lane, near = yield pr.split(column, (None, across, wide))
    block = yield fused((*around[:before], strip))
    threads = [((yield pr.add_unit_loop(lane)), lane)]
    yield pr.compute_at(total, lane)
    yield pr.set_scope(total, 0, "local")
    if along > 1:
        for each in (yield pr.loops(total))[-(wide > 1) - (groups > 1) :]:
            yield pr.unroll(each)
        threads.append((yield partial_fold(steps[0], block, (fold.rank, groups, wide), spread)))
        if along > groups:
            yield pr.unroll((yield pr.loops(steps[0]))[-1])
        threads.append((yield partial_fold(own, block, (fold.rank, along, wide), False)))
    folds = yield own_columns(own, few, terms, (turns, group, wide))
    if wide > 1:
        yield pr.vectorize(near)
    yield pr.bind(block, "blockIdx.x")
    for y, x in threads:
        yield pr.bind(y, "threadIdx.y")
        yield pr.bind(x, "threadIdx.x")
    return folds


@do
def partial_fold(block: Handle, around: Handle, counts: tuple[int, int, int], spread: bool) -> Body:
    """The fold of a number of a block's threads over columns, stored in shared memory with adjacent
    threads at adjacent places; returns the thread loops.

    Those who have several columns fold them all, or others do each where they are `spread`.
    """
    rank, count, wide = counts
    told = yield pr.cache_write(block, 0, "local")
    yield pr.set_scope(told, 0, "shared")
    yield pr.compute_at(told, around)
    yield pr.transform_layout(told, "write", 0, by_lanes(rank, wide))
    lane, near = yield pr.split((yield pr.loops(told))[-1], (None, wide))
    if count == 1:
        yield pr.reorder(near, lane)
        t = near
    else:
        *_, t, lane, near = yield pr.loops(told)
        if spread:
            yield pr.reorder(near, t, lane)
            t = yield pr.fuse(near, t)
    yield pr.compute_at(block, lane)
    if not spread and wide > 1:
        yield pr.unroll(near)
    return t, lane


def by_lanes(rank: int, wide: int) -> IndexMap:
    """The layout of partial folds: those of one lane are contiguous over threads."""
    return index_map(lambda t, *at: (*at[:-1], at[-1] % wide, t, at[-1] // wide), rank + 1)


@do
def own_columns(
    own: Handle, few: Handle | None, terms: Handle, counts: tuple[int, int, int]
) -> Body:
    """A thread's fold of its own columns: iterations, rows in flight and columns; returns the folds
    whose inits must precede their loops."""
    turns, group, wide = counts
    inner, folds = own, list[Begin]()
    if few is not None:
        *_, near, turn = yield pr.loops(own)
        if wide > 1:
            yield pr.reorder(turn, near)
            yield pr.unroll(near)
        yield pr.compute_at(few, turn)
        yield pr.set_scope(few, 0, "local")
        folds.append((own, turn))
        inner, turns = few, 1
    every = (yield pr.loops(inner))[-(turns > 1) - (group > 1) - (wide > 1) :]
    if wide > 1:
        near, *every = every
        yield pr.reorder(*every, near)
        yield pr.unroll(near)
    folds.append((inner, every[0]))
    yield vectors(terms, every[-1], is_wide=wide > 1)
    if group > 1:
        yield pr.unroll(every[-1])
    return folds


@do
def vectors(terms: Handle, loop: Handle, *, is_wide: bool = True) -> Body:
    """Terms in registers, those that are neighbours at once."""
    yield pr.compute_at(terms, loop)
    yield pr.set_scope(terms, 0, "local")
    if is_wide:
        yield pr.vectorize((yield pr.loops(terms))[-1])


@do
def fused(loops: Sequence[Handle]) -> Body:
    """One loop of several."""
    return loops[0] if len(loops) == 1 else (yield pr.fuse(*loops))
