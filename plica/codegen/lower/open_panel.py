"""Open panels: products of a weight with columns of open length, for vectors that are short.

    for n, groups of 64 tiles of columns:
        panel[t, k, q] = x[n, k, start + q]              start = min(8 * (64 * g + t), p - 8)
        for blocks of 8 outputs, the same tiles:
            acc[o, q] += panel[t, k, q] * packed[b, k, o]         2 vectors of columns x 8 outputs
            out[n, 8 * b + o, start + q] = f(acc)
    fewer columns than a tile has: a vector at a time, or one by one

Rows of open length lie pages apart: a panel is read in order, once for each block of outputs.
Lanes are neighbours of the result, so nothing is turned.  The last tile ends with the columns: it
makes some elements again that the one before it made, so no lane is asked whether it is there.

Law: each sum has its terms in the order that it says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Final

from attrs import frozen

from plica.codegen.lower.loop_order import (
    LoopOrder,
    StoredElement,
    last_store,
    loops_around,
    replaced,
    stored,
)
from plica.codegen.lower.nest import Sums, in_order, in_registers, open_sizes
from plica.codegen.lower.open_tile import (
    constant_product,
    flat_columns,
    packed_outputs,
    without_units,
)
from plica.codegen.lower.open_tile_choice import ANOTHER
from plica.core import Term, free_vars, substitute
from plica.ir.loop import statement as st
from plica.ir.loop.reduction import exposed
from plica.ir.loop.scalar import And, Buffer, Le, Load, Min, Mul, Reduce, Scalar, ScalarVar, index
from plica.ir.loop.stage import Each
from plica.ir.loop.stages import Names, Stages, loads, pairs, stages as joined
from plica.ir.type import known
from plica.schedule.default.grouped import by_group
from plica.schedule.default.lane import is_row
from plica.schedule.default.machine import Machine
from plica.schedule.default.share import pays
from plica.schedule.default.summed import in_equal_runs
from plica.schedule.default.tile import RegisterTile

USUAL_COLUMNS: Final = tuple([side * side for side in range(4, 64, 5)])
"""How many places images have, deep in a network and near its input."""

FEWEST: Final = 4
"""Tiles of a panel at least: a block of outputs is read once for this many."""

MOST: Final = 64
"""And at most."""


@frozen(eq=False)
class OpenPanel:
    """Stages of which the last sum has lanes along its columns: which axes these and the outputs
    are, the tile of both, and how many tiles of columns are copied together."""

    stages: Stages
    output: ScalarVar
    column: ScalarVar
    source: Buffer
    tile: RegisterTile
    lanes: int
    group: int
    shares: bool
    """Whether cores share the blocks of outputs."""

    @property
    def wide(self) -> int:
        """Columns of a tile."""
        return self.tile.vectors * self.lanes


def open_panel(
    of: Stages, constant: Sequence[bool], machine: Machine, reassociates: bool = False
) -> OpenPanel | None:
    """The stages of a sum over columns of open length, None where they are no such sum, or vectors
    may be read and written in part: tiles of outputs ask which lanes are there then."""
    if machine.masks:
        return None
    of = flat_columns(without_units(by_group(of) or of))
    if (found := constant_product(of, constant)) is None or found.guards:
        return None
    ((_, epilogue),) = pairs(of)
    sizes = dict(zip(found.fold.axes, found.fold.out.shape, strict=True))
    if known(sizes[found.column]) is not None or not _are_columns(found.data, found.column):
        return None
    after = stored(found.fold, epilogue)
    places, terms = (found.fold.axes, []) if after is None else (after.indices, [after.value])
    if places[-1] is not found.column or not all(is_row(each, found.column) for each in terms):
        return None
    if _inner(found.data, found.reduction.axes) is None:
        return None
    lanes, outputs = machine.lanes(found.data.buffer.dtype), known(sizes[found.lane]) or 0
    tile = _tile(outputs, lanes, machine)
    names = Names(of)
    pack, weight = packed_outputs(found, tile.steps, 1, names)
    old = found.reduction
    value = Reduce(old.combiner, old.axes, old.extents, Mul(found.data, weight), old.runs)
    if reassociates:
        value = in_equal_runs(value, names)
    total = Each(found.fold.out, found.fold.axes, value)
    every = [pack, total, *([] if epilogue is None else [epilogue])]
    whole = joined(of.inputs, every, (pack.out, of.result))
    terms_ = prod(known(each) or 0 for each in old.extents)
    row = terms_ * tile.vectors * lanes * found.data.buffer.dtype.bytes
    group = min(max(machine.cache(2) // 4 // row, FEWEST), MOST)
    shares = pays(machine, terms_ * outputs * USUAL_COLUMNS[0], ())
    source = found.data.buffer
    return OpenPanel(whole, found.lane, found.column, source, tile, lanes, group, shares)


def _are_columns(data: Load, column: ScalarVar) -> bool:
    """Whether neighbours along an axis are neighbours in the data, from its first element on."""
    *around, last = data.indices
    return last is column and all(column not in free_vars(each) for each in around)


def _inner(data: Load, terms: Sequence[ScalarVar]) -> list[int] | None:
    """The axes of the data that a sum goes through; None where it is somewhere in these only."""
    found = []
    for at, each in enumerate(data.indices[:-1]):
        free = free_vars(each)
        if free.isdisjoint(terms):
            continue
        if not free <= set(terms) or known(data.buffer.shape[at]) is None:
            return None
        found.append(at)
    return found


def _tile(outputs: int, lanes: int, machine: Machine) -> RegisterTile:
    """Vectors of columns by outputs: those that usual images take least for.  Elements of a weight
    are lanes of vectors, which wait in registers."""

    def cost(tile: RegisterTile) -> float:
        blocks, left = divmod(outputs, tile.steps)
        each = blocks * tile.cycles(rates=machine.rates)
        if left:
            each = ANOTHER * (each + RegisterTile(tile.vectors, left).cycles(rates=machine.rates))
        wide = tile.vectors * lanes
        return each * sum(-(-count // wide) / count for count in USUAL_COLUMNS)

    most = min(-(-outputs // lanes) * lanes, machine.registers)
    steps = [outputs] if outputs < lanes else range(lanes, most + 1, lanes)
    choices = [
        RegisterTile(v, s)
        for s in steps
        for v in range(1, machine.registers)
        if v * (s + 1) + -(-s // lanes) <= machine.registers
    ]
    return min(choices or [RegisterTile(1, 1)], key=cost)


def paneled_columns(of: OpenPanel, rest: Stages) -> st.Kernel:
    """The loops of stages, less those that were made beforehand."""
    ((fold, epilogue),) = pairs(rest)
    body = _PanelWriter(of, in_order(fold), rest.result, stored(fold, epilogue)).body()
    params = (*rest.inputs, *rest.outputs)
    return st.Kernel(open_sizes(params, body), params, len(rest.inputs), body)


class _PanelWriter:
    """Writes the loops: what is summed and stored, and names in use."""

    def __init__(self, of: OpenPanel, fold: Each, out: Buffer, after: StoredElement | None) -> None:
        self.of, self.fold, self.out, self.after = of, fold, out, after
        self.names = Names(fold, out, *([] if after is None else [after.value]))
        self.sizes = dict(zip(fold.axes, fold.out.shape, strict=True))
        self.size = self.sizes[of.column]
        self.outputs = known(self.sizes[of.output]) or 0
        self.data = [load for load in loads(fold.value) if load.buffer is of.source]
        """What is read of it: once for each run of a sum."""
        around, first = {*fold.axes}, self.data[0].indices
        self.inner = [at for at, each in enumerate(first) if free_vars(each) - around]
        """The axes of the data that the sum goes through."""

    def body(self) -> st.Stmt:
        """All of it: panels, or where there are fewer columns a vector at a time, or one by one."""
        of = self.of
        few = st.Branch(Le(index(of.lanes), self.size), self.strips(1), self.alone())
        whole = self.panels() if self.outputs > of.tile.steps else self.strips(of.tile.vectors)
        axes = [each for each in self.sizes if each not in (of.output, of.column)]
        made = st.Branch(Le(index(of.wide), self.size), whole, few)
        return loops_around([(each, self.sizes[each]) for each in axes], made)

    def panels(self) -> st.Stmt:
        """Groups of tiles: copied, then summed."""
        of = self.of
        inner = [of.source.shape[at] for at in self.inner]
        shape = (index(of.group), *inner, index(of.wide))
        panel = Buffer(self.names.name("panel"), shape, of.source.dtype)
        group, t, many, lane = (self.names.var(each) for each in ("group", "t", "many", "lane"))
        places = [self.names.var("a") for _ in inner]
        number = group * of.group + t

        def copied(start: Scalar) -> st.Stmt:
            source = dict(enumerate(self.data[0].indices))
            source |= {**dict(zip(self.inner, places, strict=True)), len(source) - 1: start + lane}
            value = Load(of.source, tuple(source.values()))
            loops = [*zip(places, inner, strict=True), (lane, index(of.wide))]
            return loops_around(loops, st.Store(panel, (t, *places, lane), value), "vectorized")

        def read(data: Load, _: Scalar, column: Scalar) -> Load:
            return Load(panel, (t, *[data.indices[at] for at in self.inner], column))

        def summed(block: Scalar, outputs: int) -> st.Stmt:
            tile = self.tile(block, outputs, of.tile.vectors, read)
            return st.For(t, many, "serial", self.begun(number, of.wide, tile))

        copies = st.For(t, many, "serial", self.begun(number, of.wide, copied))
        made: st.Stmt = st.Alloc(panel, st.seq(copies, self.by_blocks(summed)))
        made = st.Branch(Le(many, index(of.group)), made, st.NOTHING)  # there are no more
        tiles = (self.size + (of.wide - 1)) // of.wide
        made = st.Bind(many, Min(tiles - group * of.group, index(of.group)), made)
        return st.For(group, (tiles + (of.group - 1)) // of.group, "serial", made)

    def strips(self, vectors: int) -> st.Stmt:
        """Tiles of a given number of vectors, whose columns are read where they lie."""
        wide, strip = vectors * self.of.lanes, self.names.var("strip")

        def read(data: Load, start: Scalar, column: Scalar) -> Load:
            return Load(data.buffer, (*data.indices[:-1], start + column))

        def summed(block: Scalar, outputs: int) -> st.Stmt:
            tile = self.tile(block, outputs, vectors, read)
            return st.For(
                strip, (self.size + (wide - 1)) // wide, "serial", self.begun(strip, wide, tile)
            )  # fmt: skip

        return self.by_blocks(summed)

    def alone(self) -> st.Stmt:
        """Columns one by one, with lanes over outputs."""
        column = self.names.var("column")

        def summed(block: Scalar, outputs: int) -> st.Stmt:
            output = self.names.var("output")
            walk = self.walk(((output, index(outputs)),), block, output, column, {})
            sums = Sums(walk, walk.loops, self.names, "local", 1)
            steps, stand_in = sums.totals(exposed(walk.body))
            last = last_store(replaced(walk.body, stand_in), walk, self.out, self.after)
            made = sums.around([*steps, loops_around(walk.loops, last, "serial")])
            return st.For(column, self.size, "serial", made)

        return self.by_blocks(summed)

    def by_blocks(self, body: Callable[[Scalar, int], st.Stmt]) -> st.Stmt:
        """What is done to blocks of outputs that are whole, then to what is left of these."""
        blocks, left = divmod(self.outputs, self.of.tile.steps)
        block = self.names.var("block")
        kind: st.LoopKind = "parallel" if self.of.shares else "serial"
        whole = st.For(block, index(blocks), kind, body(block, self.of.tile.steps))
        return st.seq(*([whole] if blocks else []), *([body(index(blocks), left)] if left else []))

    def begun(self, number: Scalar, wide: int, body: Callable[[Scalar], st.Stmt]) -> st.Stmt:
        """A tile by its number: it begins where it should, or as far before the end as it has
        columns."""
        start = self.names.var("start")
        inside = And(Le(index(0), start), Le(start + wide, self.size))  # it is
        made = st.Branch(inside, body(start), st.NOTHING)
        return st.Bind(start, Min(number * wide, self.size - wide), made)

    def tile(
        self,
        block: Scalar,
        outputs: int,
        vectors: int,
        read: Callable[[Load, Scalar, Scalar], Load],
    ) -> Callable[[Scalar], st.Stmt]:
        """The sums of a tile, given where it begins, and what is stored of them."""
        output, vector, lane = (self.names.var(each) for each in ("output", "vector", "lane"))
        near = vector * self.of.lanes + lane
        loops = (output, index(outputs)), (vector, index(vectors)), (lane, index(self.of.lanes))

        def one(start: Scalar) -> st.Stmt:
            reads: dict[Term, Scalar] = {each: read(each, start, near) for each in self.data}
            walk = self.walk(loops, block, output, start + near, reads)
            return in_registers(walk, self.out, self.after, self.names)

        return one

    def walk(
        self,
        loops: tuple[tuple[ScalarVar, Scalar], ...],
        block: Scalar,
        output: Scalar,
        column: Scalar,
        reads: Mapping[Term, Scalar],
    ) -> LoopOrder:
        """Some outputs of a block at some columns, which are read somewhere."""
        of, steps = self.of, self.of.tile.steps
        here = ((of.output, block * steps + output), (of.column, column))
        parts = {of.output // steps: block, of.output % steps: output, **reads}
        body = substitute(replaced(self.fold.value, parts), {of.column: column})
        indices = tuple([dict(here).get(axis, axis) for axis in self.fold.axes])
        unrolled = tuple([axis for axis, _ in loops[:-1]])
        return LoopOrder(loops, indices, body, len(loops), here, "vectorized", None, unrolled)
