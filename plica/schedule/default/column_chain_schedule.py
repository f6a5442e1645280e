"""The schedule of columns in stages (`plica.schedule.default.column_chain`): long rows in vectors.

    for i:                                       what all stages share
        for b:
            run[p]  = fold over h                vectors side by side, written out
            long[p] = long[p] + run[p]
        total[j] = fold over r of long[r, j]
        again[r, j] = total[j]
        for q: out[q, p] = f(x[q, p], again[p])  vectors of a long row, written out

>>> from plica.ir.loop.stage import stage
>>> from plica.ir.loop.stages import kernel_of, stages
>>> from plica.ir.loop.tensor import buffer, reduce
>>> from plica.ir.type.dtype import f32
>>> from plica.schedule.default.column_chain import column_chain_form
>>> x, machine = buffer("x", (4, 100, 3), f32), Machine(512, 32)
>>> top = stage("m", (4, 3), lambda i, j: reduce("max", (100,), lambda k: x[i, k, j]))
>>> away = stage("y", (4, 100, 3), lambda i, k, j: x[i, k, j] - top[i, j])
>>> chain = column_chain_form(stages((x,), (top, away)), machine)
>>> column_chain_schedule(kernel_of(chain), machine) is None
False
"""

from __future__ import annotations

from math import prod

from attrs import frozen

from plica.ir.loop import Block, Buffer, Kernel
from plica.ir.type import known
from plica.schedule.default.elementwise import COSTLY
from plica.schedule.default.machine import Machine
from plica.schedule.default.role import BlockFlow, block_flow, is_reduction, made_by
from plica.schedule.default.share import pays
from plica.schedule.default.step import (
    annotate,
    block,
    cache_write,
    compute_at,
    decompose_reduction,
    loops,
    parallel,
    reorder,
    set_scope,
    split,
    unroll,
    vectorize,
)
from plica.schedule.do import Body, DoBlock as Do, do
from plica.schedule.handle import Handle


def column_chain_schedule(kernel: Kernel, machine: Machine) -> Do | None:
    """The schedule of columns in stages, None for other kernels."""
    flow = block_flow(kernel)
    if flow is None or is_reduction(flow.result):
        return None
    totals = [each for each in flow.blocks.values() if _is_total(each, flow)]
    maps = [each for each in flow.blocks.values() if not is_reduction(each)]
    if not totals or len(totals) + len(maps) < 3:
        return None
    around, width = len(made_by(totals[0]).shape) - 1, _last(made_by(totals[0]))
    long = width * (known(totals[0].extents[-1]) or 0)
    if any(_sizes(each)[:around] != _sizes(flow.result)[:around] for each in flow.blocks.values()):
        return None
    first = next(each for each in flow.blocks.values() if is_reduction(each))
    lanes = machine.lanes(made_by(first).dtype)
    shares = pays(
        machine, COSTLY * sum(map(prod, map(_sizes, flow.blocks.values()))), kernel.params
    )
    return _ColumnNest(flow, around, width, long, lanes, shares).schedule()


def _is_total(of: Block, flow: BlockFlow) -> bool:
    """Whether a block folds the parts of a long row, which another fold has made."""
    parts = [each for each in flow.blocks.values() if of in flow.readers.get(made_by(each), ())]
    if not is_reduction(of) or len(parts) != 1 or not is_reduction(parts[0]):
        return False
    own, part = made_by(of).shape, made_by(parts[0]).shape
    terms = [
        known(n) or 0 for n, kind in zip(of.extents, of.kinds, strict=True) if kind == "reduce"
    ]
    return len(part) == len(own) and _last(made_by(parts[0])) == prod(terms) * _last(made_by(of))


def _last(of: Buffer) -> int:
    return known(of.shape[-1]) or 0


def _sizes(of: Block) -> list[int]:
    return [known(size) or 0 for size in of.extents]


@frozen(eq=False)
class _ColumnNest:
    """The blocks of columns in stages, how many axes are around, the elements of a row, of a long
    row, and of a vector, and whether cores share the work."""

    flow: BlockFlow
    around: int
    width: int
    long: int
    lanes: int
    shares: bool

    def schedule(self) -> Do:
        result, blocks = self.flow.result, [*self.flow.blocks.values()]

        @do
        def schedule() -> Body:
            out = yield block(str(result.label))
            every: tuple[Handle, ...] = yield loops(out)
            outer = terms = every[: self.around]
            for each in reversed(blocks[:-1]):
                stage = yield block(str(each.label))
                place = terms if self.is_run(each) else outer
                if place:
                    yield compute_at(stage, place[-1])
                if not is_reduction(each):
                    yield from self.elements(stage, each)
                    continue
                yield set_scope(stage, 0, "local")
                terms = yield from self.fold(stage, each)
            yield from self.elements(out, result)
            long = [axis for axis, size in zip(outer, _sizes(result), strict=False) if size > 1]
            if self.shares and long:
                yield parallel(long[0])

        return schedule()

    def is_run(self, of: Block) -> bool:
        """Whether a fold makes parts that the next adds up one by one."""
        after = self.flow.readers.get(made_by(of), ())
        return is_reduction(of) and any(
            is_reduction(each) and len(made_by(of).shape) > len(made_by(each).shape)
            for each in after
        )

    def fold(self, stage: Handle, of: Block) -> Body:
        """The loops of a fold: over its terms, which it gives, and inside of these over lanes."""
        size, count = _last(made_by(of)), of.kinds.count("reduce")
        runs = any(self.is_run(each) for each in self.flow.blocks.values()
                   if of in self.flow.readers.get(made_by(each), ()))  # fmt: skip
        if size == self.long and not runs and not self.is_run(of):
            # Accumulators stay in registers, whose copy is read at any place.
            copy = yield cache_write(stage, 0, "local")
            copied: tuple[Handle, ...] = yield loops(copy)
            yield from self.vectors(copied[-1], of)
        every: tuple[Handle, ...] = yield loops(stage)
        lane, terms = every[-1 - count], every[len(every) - count :]
        yield reorder(*terms, lane)
        begun = yield decompose_reduction(stage, terms[0])
        first: tuple[Handle, ...] = yield loops(begun)
        yield from self.vectors(first[-1], of)
        yield from self.vectors(lane, of)
        if size == self.long:
            for each in terms:
                yield annotate(each, "cut_choices", True)
        return terms

    def elements(self, stage: Handle, of: Block) -> Body:
        """The loops of a stage that folds nothing: long row after long row, or columns."""
        *_, lane = yield loops(stage)
        size = _last(made_by(of))
        if size == self.long:  # columns, one after another, again and again
            _, column = yield split(lane, (None, self.width))
            yield unroll(column)
            return
        if size > self.long:
            rows, lane = yield split(lane, (None, self.long))
            if size % self.long:
                yield annotate(rows, "cut_choices", True)
        yield from self.vectors(lane, of)

    def vectors(self, lane: Handle, of: Block) -> Body:
        """Vectors of a long row, written out; columns that fill half a vector, or one by one."""
        size = _last(made_by(of))
        if size >= self.long > self.lanes:
            many, lane = yield split(lane, (None, self.lanes))
            yield unroll(many)
        yield unroll(lane) if 2 * size < self.lanes else vectorize(lane)
