"""The template of dot products (`plica.schedule.default.dot_tile`): tiles of results in registers.

    for tiles of rows, of columns:
        part[r, c, u, v]   for h: vectors of both sides, each read once for all of the tile
        joined, few        shorter and shorter vectors
        out[r, c]          four at once

The operand with more rows is read once, the other for each of its tiles.

>>> from plica.ir.loop.stage import stage
>>> from plica.ir.loop.stages import kernel_of, stages
>>> from plica.ir.loop.tensor import buffer, reduce
>>> from plica.ir.type.dtype import f32
>>> from plica.schedule.default.contraction import contraction
>>> from plica.schedule.default.dot_tile import dot_form, dots_of
>>> x, w = buffer("x", (4, 64), f32), buffer("w", (5, 64), f32)
>>> dense = stage("y", (4, 5), lambda i, j: reduce("sum", (64,), lambda k: x[i, k] * w[j, k]))
>>> of, machine = contraction(stages((x, w), (dense,))), Machine(512, 32)
>>> kernel = kernel_of(dot_form(dots_of(of, machine), machine))
>>> dot_tile_schedule(kernel, machine) is None
False
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from attrs import frozen

from plica.core import free_vars
from plica.ir.loop import Block, Kernel, Load, Store
from plica.ir.loop.scalar import Add, Mul
from plica.ir.type import known
from plica.schedule import primitive as st
from plica.schedule.default.dot_tile import dot_tile
from plica.schedule.default.machine import FEW_LANES, Machine
from plica.schedule.default.nest import opened, summed, vectors
from plica.schedule.default.role import BlockFlow, block_flow, is_reduction, made_by, reads
from plica.schedule.default.share import pays
from plica.schedule.do import Body, DoBlock as Do, do
from plica.schedule.handle import Handle


def dot_tile_schedule(kernel: Kernel, machine: Machine) -> Do | None:
    """The schedule of results that join the lanes of their sums, or None."""
    flow = block_flow(kernel)
    if flow is None or is_reduction(flow.result) or not _joins_lanes(flow):
        return None
    template = _DotTemplate.of(kernel, flow, machine)
    return None if template is None else template.schedule()


def _joins_lanes(flow: BlockFlow) -> bool:
    """Whether each element of the result is made of a few lanes of a stage."""
    loads = [load for load in reads(flow.result) if load.buffer in flow.writer]
    lanes = [known(load.indices[-1]) for load in loads if load.indices]
    return sorted(lane for lane in lanes if lane is not None) == [*range(FEW_LANES)]


@frozen(eq=False)
class _DotTemplate:
    """What the template knows about the stages: `part` sums products; `own` are the axes of one
    operand each among those of the result, with the tile size along them."""

    flow: BlockFlow
    part: Block
    own: Mapping[int, int]
    shares: bool

    @staticmethod
    def of(kernel: Kernel, flow: BlockFlow, machine: Machine) -> _DotTemplate | None:
        """The template for a kernel, or None if no block sums products of two operands."""
        part = next(iter(flow.blocks.values()))
        match part.body:
            case Store(_, _, Add(_, Mul(Load() as left, Load() as right))):
                pass
            case _:
                return None
        axes = part.vars[: len(flow.result.vars)]
        sides = [{at for at, var in enumerate(axes) if var in free_vars(side)}
                 for side in (left, right)]  # fmt: skip
        ends = [max(mine - other) for mine, other in (sides, sides[::-1]) if mine - other]
        if not ends:
            return None
        sizes = [known(size) or 0 for size in flow.result.extents]
        columns, high = max(ends), sizes[min(ends)] if len(ends) > 1 else 1
        depth, dtype = known(left.buffer.shape[-1]) or 0, made_by(part).dtype
        tile, _ = dot_tile(high, sizes[columns], depth, dtype, machine)
        own = {min(ends): tile.rows} | {columns: tile.columns}
        shares = pays(machine, prod(sizes) * depth, kernel.params, dtype)
        return _DotTemplate(flow, part, own, shares)

    def size(self, axis: int) -> int:
        """How many places of an axis the result has."""
        return known(self.flow.result.extents[axis]) or 0

    def schedule(self) -> Do:
        """The schedule of all stages."""

        @do
        def schedule() -> Body:
            _, every = yield from opened(self.flow.result)
            tiles: dict[int, Handle] = {}
            inner: list[Handle] = []
            for axis, length in self.own.items():
                inside = every[axis]
                if length < self.size(axis):
                    tiles[axis], inside = yield st.split(every[axis], (None, length))
                inner.append(inside)
            long = sorted(tiles, key=self.size, reverse=True)  # the longer side goes by once
            around = [axis for axis in range(len(every)) if axis not in self.own]
            outer = [*[every[axis] for axis in around], *[tiles[axis] for axis in long]]
            yield st.reorder(*outer, *inner)
            yield from self.sums(outer)
            yield from self.results(inner)
            if not self.shares:
                return
            if wide := [axis for axis in around if self.size(axis) > 1]:
                yield st.parallel(every[wide[0]])
            elif long:
                yield st.parallel(tiles[long[0]])

        return schedule()

    def sums(self, outer: Sequence[Handle]) -> Body:
        """All stages before the result, for each tile."""
        *before, _ = self.flow.blocks.values()
        around, found = list(outer), list[tuple[Block, Handle]]()
        for stage in reversed(before):
            one = yield st.block(str(stage.label))
            if around:
                yield st.compute_at(one, around[-1])
            yield st.set_scope(one, 0, "local")
            found.append((stage, one))
            if is_reduction(stage) and stage is not self.part:  # its parts are made term by term
                runs = yield from self.vectors(stage, one, moved=bool(outer))
                around.append(runs)
        for stage, one in found:
            if stage is self.part or not is_reduction(stage):
                yield from self.vectors(stage, one, moved=bool(around))

    def vectors(self, stage: Block, one: Handle, *, moved: bool) -> Body:
        """The loops of a stage in a tile: term loops, of which it returns the first, around
        vectors. Vectors of the shorter operand stay in registers."""
        rank = len(self.flow.result.vars)
        in_runs = stage is self.part and len(stage.vars) > rank + 3
        dims: list[tuple[int, bool]] = []
        for at, (extent, kind) in enumerate(zip(stage.extents, stage.kinds, strict=True)):
            size = self.own.get(at, 1) if at < rank else known(extent) or 0
            if not moved or (size > 1 and not (in_runs and at == rank)):
                dims.append((at, kind == "reduce"))
        every: tuple[Handle, ...] = yield st.loops(one)
        inside = dict(zip(dims, every[len(every) - len(dims) :], strict=True))
        terms = [loop for (_, reduces), loop in inside.items() if reduces]
        spatial = {at: loop for (at, reduces), loop in inside.items() if not reduces}
        *_, lane = spatial.values()
        tiled = sorted([at for at in self.own if at in spatial], key=self.own.__getitem__)
        rest = [loop for at, loop in spatial.items() if at not in tiled and loop is not lane]
        many = [*rest, *[spatial[at] for at in reversed(tiled)]]
        if terms:
            yield from summed(one, terms, (*many, lane))
            return terms[0]
        yield st.reorder(*many, lane)
        yield from vectors((*many, lane))
        return None

    def results(self, inner: Sequence[Handle]) -> Body:
        """The results of a tile, four at once."""
        *rows, lane = inner
        width = [*self.own.values()][-1]
        for loop in rows:
            yield st.unroll(loop)
        rest = width % FEW_LANES
        if rest and width > FEW_LANES:
            lane, last = yield st.loop_partition(lane, (width - rest, None))
            yield st.unroll(last)
        if width > FEW_LANES + rest:
            several, lane = yield st.split(lane, (None, FEW_LANES))
            yield st.unroll(several)
        yield st.unroll(lane) if width < FEW_LANES else st.vectorize(lane)
