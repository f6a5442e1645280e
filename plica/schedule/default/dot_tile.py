"""Products of two sides that both lie along their terms: tiles of dot products in registers.

    out[i, j] = sum over k of x[i, k] * w[j, k]
      -->  part[i, j, u, v]  = sum over h of x[i, (h * 2 + u) * 16 + v] * w[j, (h * 2 + u) * 16 + v]
           joined[i, j, v]   = part[i, j, 0, v] + part[i, j, 1, v] + what is left
           few[i, j, v]      = joined[i, j, v] + joined[i, j, v + 8], and half of these
           out[i, j]         = few[i, j, 0] + … + few[i, j, 3]

A vector of either side is multiplied by all vectors of the other that a tile has, and nothing is
packed; the price is that lanes are joined for each result.  A tile that is too small to keep the
units for products busy has several sums for each result.

A lane of a long sum would lose digits, so it goes in runs like other products
(`plica.schedule.default.summed`). Terms are reordered. The template keeps tiles of results in
registers; the operand with more rows is read once, the other for each of its tiles:

    for tiles of rows, of columns:
        part[r, c, u, v]   for h: vectors of both sides, each read once for all of the tile
        joined, few        shorter and shorter vectors
        out[r, c]          four at once

>>> from plica.ir.loop.stage import stage
>>> from plica.ir.loop.stages import kernel_of
>>> from plica.ir.loop.tensor import buffer, reduce
>>> from plica.schedule.default.contraction import contraction
>>> x, w = buffer("x", (13, 983), f32), buffer("w", (117, 983), f32)
>>> dense = stage("y", (13, 117), lambda i, j: reduce("sum", (983,), lambda k: x[i, k] * w[j, k]))
>>> machine = Machine(512, 32)
>>> found = contraction(stages((x, w), (dense,)))
>>> dots_of(found, machine).tile
DotTile(rows=5, columns=5)
>>> made = dot_form(dots_of(found, machine), machine)
>>> dot_tile_schedule(kernel_of(made), machine) is None
False
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import product
from math import log2, prod
from typing import Final

from attrs import frozen

from plica.core import free_vars, substitute
from plica.ir.loop import Block, Kernel, Stages, Store, scalar as sc
from plica.ir.loop.stages import stages, with_element
from plica.ir.type import DType, f32, f64, i32, i64, known
from plica.schedule import primitive as st
from plica.schedule.default.contraction import Contraction
from plica.schedule.default.form import names_of
from plica.schedule.default.limb import StageList, summed
from plica.schedule.default.machine import FEW_LANES, LINE, Machine
from plica.schedule.default.nest import opened, summed as summed_in, vectors
from plica.schedule.default.reduction import AT_ONCE, halved
from plica.schedule.default.role import BlockFlow, block_flow, is_reduction, made_by, reads
from plica.schedule.default.share import pays
from plica.schedule.default.summed import FEW, LONGEST
from plica.schedule.default.tile import LOOP, VECTOR_AWAY, parts, reads_of
from plica.schedule.do import Body, DoBlock as Do, do
from plica.schedule.handle import Handle

BEGUN: Final = 16  # cycles in which a tile begins and ends
JOINED_ALONE: Final = 4  # cycles in which the last four lanes of a sum are joined by themselves
JOINED_TOGETHER: Final = 2  # the same for four sums joined together
MAX_SIDE: Final = 8  # rows or columns of a tile
HIDDEN: Final = 0.5  # the fraction of the second-cache transfer time that products do not hide


@frozen
class DotTile:
    """A given number of rows of one side, by this many of the other."""

    rows: int
    columns: int

    @property
    def sums(self) -> int:
        """How many results it has."""
        return self.rows * self.columns

    def fits(self, registers: int) -> bool:
        """Whether sums and vectors of the side that has fewer are all in registers."""
        return self.sums + min(self.rows, self.columns) + 1 <= registers

    def independent_sums(self, machine: Machine) -> int:
        """Independent partial sums per result, so that the multiply-add units are busy."""
        enough = machine.rates.fma * machine.rates.latency
        return max(1, min(AT_ONCE, int(enough // self.sums)))


@frozen(eq=False)
class Dots:
    """A contraction with both operands contiguous along its terms, its tile, and its cycles."""

    whole: Contraction
    tile: DotTile
    cycles: float


def dots_of(of: Contraction, machine: Machine) -> Dots | None:
    """The tile for a contraction and its cycles, or None if an operand is not contiguous along the
    terms, or no axis belongs to one operand alone."""
    lanes = machine.lanes(of.reduced.dtype)
    if of.weight is None or of.guarded or len(of.k) != 1 or of.reduced.dtype not in _NUMBERS:
        return None
    (term,) = of.k
    runs = -(-of.depth // (lanes * LONGEST["box"]))
    if lanes < FEW_LANES or of.depth < lanes or runs > FEW:
        return None
    if not all(_lies_along(load, term) for load in (of.data, of.weight)):
        return None
    own = [*of.m[-1:], *of.n[-1:]]
    if not own:
        return None
    columns = max(own, key=of.axes.index)
    rows = next((var for var in own if var is not columns), None)
    high, wide = 1 if rows is None else of.sizes[rows], of.sizes[columns]
    tile, cycles = dot_tile(high, wide, of.depth, of.reduced.dtype, machine)
    others = [axis for axis in of.axes if axis not in (rows, columns)]
    return Dots(of, tile, cycles * prod([of.sizes[axis] for axis in others]))


_NUMBERS: Final = (f32, f64, i32, i64)


def _lies_along(of: sc.Load, term: sc.ScalarVar) -> bool:
    *outer, last = of.indices or (None,)
    return last is term and all(term not in free_vars(at) for at in outer)


@lru_cache(maxsize=256)
def dot_tile(
    high: int, wide: int, depth: int, dtype: DType, machine: Machine
) -> tuple[DotTile, float]:
    """The tile for this many rows and columns of sums of `depth` terms, and the cycles of all."""
    best: tuple[DotTile, float] | None = None
    for r, c in product(range(1, min(high, MAX_SIDE) + 1), range(1, min(wide, MAX_SIDE) + 1)):
        tile = DotTile(r, c)
        if not tile.fits(machine.registers):
            continue
        moved = _moved(depth, dtype, tile, (high, wide), machine)
        cycles = moved + sum(
            many * often * _cycles(DotTile(some, more), depth, dtype, machine)
            for some, many in parts(high, r)
            for more, often in parts(wide, c)
        )
        if best is None or cycles < best[1]:
            best = tile, cycles
    assert best is not None
    return best


def _moved(
    depth: int, dtype: DType, tile: DotTile, sizes: tuple[int, int], machine: Machine
) -> float:
    """The cycles to load both operands from the second cache: the longer one once, the other for
    each tile of it, unless it stays in the first."""
    row = depth * dtype.bytes
    (short, _), (long, some) = sorted(zip(sizes, (tile.rows, tile.columns), strict=True))
    near = short * row <= machine.cache(1) // 2
    often = 1 if near else -(-long // some)
    return HIDDEN * (long + short * often) * row / machine.rates.near


def _cycles(tile: DotTile, depth: int, dtype: DType, machine: Machine) -> float:
    """The cycles of a tile: a vector that crosses a cache line takes two accesses."""
    size, lanes, rates = dtype.bytes, machine.lanes(dtype), machine.rates
    vectors, read = -(-depth // lanes), tile.rows + tile.columns
    lines = 1 if depth % lanes == 0 else 1 + (lanes - 1) * size / LINE
    begun = (tile.sums + read + LOOP / tile.independent_sums(machine)) / rates.issue
    waits = rates.latency / tile.independent_sums(machine)
    busy = max(tile.sums / rates.fma, read * lines / reads_of(rates), begun, waits)
    busy += read * (lines - 1) * VECTOR_AWAY
    alone = tile.columns % FEW_LANES
    shorter = log2(lanes / FEW_LANES) + tile.independent_sums(machine) - 1
    last = JOINED_TOGETHER * (tile.columns - alone) + JOINED_ALONE * alone
    return vectors * busy + tile.sums * shorter + tile.rows * last + BEGUN


def dot_form(of: Dots, machine: Machine) -> Stages:
    """The stages of a contraction in dot products: vectors of partial sums of each result."""
    whole, names = of.whole, names_of(of.whole)
    dtype = whole.reduced.dtype
    lanes, depth, many = machine.lanes(dtype), whole.depth, of.tile.independent_sums(machine)
    axes, (term,) = whole.axes, whole.k
    every, rows = StageList(names), [(axis, whole.sizes[axis]) for axis in axes]
    h, u, v, b = (names.var(word) for word in "huvb")
    assert whole.weight is not None
    sides = whole.data, whole.weight

    def at(place: sc.Scalar, inside: sc.Scalar | None = None) -> sc.Scalar:
        both: list[sc.Scalar] = [substitute(side, {term: place}) for side in sides]
        if inside is not None:
            both = [sc.Select(inside, side, sc.Lit(0, dtype)) for side in both]
        return sc.Mul(*both)

    vectors, rest = divmod(depth, lanes)
    runs = -(-vectors // LONGEST["box"])
    many = min(many, vectors // runs)
    groups = vectors // (many * runs)
    length, done = groups * many * lanes, groups * many * runs * lanes
    place = (h * many + u) * lanes + v
    over = ((b, runs),) if runs > 1 else ()
    one_run = summed([(h, groups)], at(b * length + place if runs > 1 else place))
    part = every.made("part", (*rows, *over, (u, many), (v, lanes)), one_run)
    total = halved([substitute(part, {u: sc.index(n)}) for n in range(many)], sc.Add)
    if runs > 1:
        total = every.made("long", (*rows, (v, lanes)), summed(over, total))
    terms = [total, *[at(v + place) for place in range(done, depth - rest, lanes)]]
    if rest and machine.masks:
        terms.append(at(v + (depth - rest), sc.Lt(v, sc.index(rest))))
    elif rest:  # a vector that ends with the last terms, of which those before are left out
        terms.append(at(v + (depth - lanes), sc.Lt(sc.index(lanes - rest - 1), v)))
    while lanes > FEW_LANES or len(terms) > 1 or not isinstance(total, sc.Load):
        if len(terms) == 1 and isinstance(total, sc.Load):
            lanes //= 2
            terms = [substitute(total, {v: v + start}) for start in (0, lanes)]
        total = every.made("few", (*rows, (v, lanes)), halved(terms, sc.Add))
        terms = [total]
    last = halved([substitute(total, {v: sc.index(n)}) for n in range(FEW_LANES)], sc.Add)
    out = every.made("out", rows, with_element(whole.value, whole.reduced, last))
    return stages(whole.inputs, every.stages, (out.buffer,))


# --- the schedule ---------------------------------------------------------------------------------


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
            case Store(_, _, sc.Add(_, sc.Mul(sc.Load() as left, sc.Load() as right))):
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
            yield from summed_in(one, terms, (*many, lane))
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
