"""Open tiles: sums of products whose outputs are known in number, but not their places.

A convolution of images of any height and width has as many channels as it has.  So vectors go over
its outputs, for which the weight is packed as it is for sizes that are known; and a few neighbours
along the last open axis are summed together.

    pad[n, c, i, j]      the data with its border of zeros, if it has one, and room for tiles
    packed[b, c, k, v]   the weight
    sum[n, o, i, j]      what `plica.codegen.lower.open_tile_nest` makes loops of

Results in groups are a product for each (`plica.schedule.default.grouped`).

Law: `evaluate_stages` gives the same elements, and each sum has its terms in the same order, unless
it may have them in another: then runs are of one length, and few have no totals of f64.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from attrs import frozen

from plica.codegen.lower.open_tile_choice import USUAL, open_passes
from plica.core import free_vars, substitute
from plica.ir.loop import Each, Stages, scalar as sc
from plica.ir.loop.stages import pairs, stages as joined
from plica.ir.type import f32, known, polynomial
from plica.schedule.default.contraction import Contraction, contraction, merged
from plica.schedule.default.estimate import vectors_side_by_side
from plica.schedule.default.form import names_of, packed, packer, with_padding
from plica.schedule.default.grouped import by_group
from plica.schedule.default.machine import Machine
from plica.schedule.default.register_tile import UNDER_WAY
from plica.schedule.default.share import pays
from plica.schedule.default.summed import in_equal_runs

FEWEST: Final = 2
"""Outputs of a group that are worth a vector, however long: no other loops are as good for them."""

PARTS_OF_CACHE: Final = 4
"""What is read once for each block of outputs takes one of as many parts of the second cache."""

TERMS: Final = 8  # a sum of fewer terms is not worth a tile


@frozen(eq=False)
class OpenTile:
    """Stages of which the last sum is made in tiles: which axis has lanes, and which neighbours."""

    stages: Stages
    lane: sc.ScalarVar
    column: sc.ScalarVar
    lanes: int
    vectors: int
    steps: int
    narrower: tuple[int, ...]
    """Neighbours of the tiles for what fills no whole one, and for what fills none of these."""
    room: bool
    """Whether the data has room for whole tiles."""
    wide: int
    """Outputs of a packed weight that lie side by side: those of a tile, or of one vector."""
    source: sc.Buffer
    """What the data is read from."""
    group: int = 0
    """Where rows are images as a whole, long enough for a last tile that ends with them: how many
    tiles go together for all outputs, copied to where these stay near if several do."""
    inner: tuple[int, ...] = ()
    """The axes of the data that the sum goes through."""
    shares: bool = False
    """Whether cores share the blocks of outputs of a group."""

    def fills(self) -> bool:
        """Whether a tile keeps the units for products busy, or there is nothing to make more of."""
        fold, _ = pairs(self.stages)[-1]
        sizes = dict(zip(fold.axes, fold.out.shape, strict=True))
        rest = [size for axis, size in sizes.items() if axis not in (self.lane, self.column)]
        many = self.vectors * self.steps
        return many >= UNDER_WAY or all(known(size) == 1 for size in rest)


def open_tile(
    of: Stages, constant: Sequence[bool], machine: Machine, reassociates: bool = False
) -> OpenTile | None:
    """The stages of a sum in tiles, None where they are no such sum."""
    grouped = by_group(of)
    if (product := _constant_product(grouped or of, constant)) is None:
        return None
    found, lane, column = product
    assert found.weight is not None
    lanes, count = machine.lanes(found.reduced.dtype), found.sizes[lane]
    if count < (FEWEST if grouped is not None else -(-lanes // 2)):
        return None
    size = found.extent(column)
    row = known(size)
    long = [axis for axis in found.axes if found.sizes[axis] > 1] or [lane]
    if row is None and not found.guarded and long[-1] is lane:
        return None  # rows of a product have a template
    degree = max(len(atoms) for atoms, _ in polynomial(size).values())
    image = row is None and degree > 1
    rows = tuple([n * n for n in USUAL] if image else USUAL) if row is None else (row,)
    tile, narrower = open_passes(count, found.depth, lanes, rows, machine)
    names, sizes = names_of(found), dict(found.sizes)
    sizes[column] += narrower[-1] - 1
    beyond = {column: narrower[-1] - 1}
    padding = (
        with_padding(found, sizes, names, beyond=beyond) if found.guarded else ([], found.data)
    )
    copies, data = padding
    wide = lanes * vectors_side_by_side(tile.vectors, lanes, found.weight.buffer.dtype.bytes)
    outer, part = names.var("b"), names.var("v")
    there = packed(found, lane, (outer, part), wide, names.name("packed"))
    pack = packer(found.weight, lane, (outer, part), wide, there)
    weight = substitute(there, {outer: lane // wide, part: lane % wide})
    inner = tuple([
        at for at, index in enumerate(data.indices) if not free_vars(index).isdisjoint(found.k)
    ])  # fmt: skip
    extents = tuple([sc.index(sizes[var]) for var in found.k])
    value = sc.Reduce(found.combiner, found.k, extents, sc.Mul(data, weight), found.runs)
    if reassociates:
        value = in_equal_runs(value, names)
    every: list[Each] = [*copies, pack, Each(found.reduced, found.axes, value)]
    if not isinstance(found.value, sc.Load):
        out = sc.Buffer(names.name("out"), found.reduced.shape, sc.dtype_of(found.value))
        every.append(Each(out, found.axes, found.value))
    outputs = (*[copy.out for copy in copies], pack.out, every[-1].out)
    whole = joined(found.inputs, every, outputs)
    together = _tiles_together(found, (lane, column), tile.steps, machine)
    return OpenTile(
        whole,
        lane,
        column,
        lanes,
        tile.vectors,
        tile.steps,
        narrower,
        bool(copies),
        wide,
        data.buffer,
        together if image and not copies else 0,
        inner,
        pays(machine, found.depth * count * USUAL[0] ** 2, ()),
    )


def _tiles_together(
    of: Contraction, axes: tuple[sc.ScalarVar, sc.ScalarVar], steps: int, machine: Machine
) -> int:
    """How many tiles of columns go together for each block of outputs: one if the nearest cache
    holds all weights beside it, or the data is not one column after another; else as many as a
    part of the second one holds."""
    (lane, column), (*places, last) = axes, of.data.indices
    terms, inner = of.depth * of.data.buffer.dtype.bytes, {*of.k}
    sums = [(free_vars(term), term) for term in places if not free_vars(term).isdisjoint(inner)]
    sizes = dict(zip(places, of.data.buffer.shape, strict=False))
    apart = all(free <= inner and known(sizes[place]) for free, place in sums)
    in_rows = last is column and all(column not in free_vars(scalar) for scalar in places)
    if terms * (of.sizes[lane] + steps) <= machine.cache(1) or not (apart and in_rows):
        return 1
    return max(1, machine.cache(2) // PARTS_OF_CACHE // (terms * steps))


def _constant_product(
    of: Stages, constant: Sequence[bool]
) -> tuple[Contraction, sc.ScalarVar, sc.ScalarVar] | None:
    """The product with a constant that stages sum, the axis of its outputs and that of its columns;
    None if there is none."""
    found = contraction(of, again=True, opened=True)
    if found is None or found.weight is None or found.combiner != "sum":
        return None
    if found.reduced.dtype is not f32 or found.depth < TERMS:
        return None
    if found.weight.buffer not in of.inputs or not constant[of.inputs.index(found.weight.buffer)]:
        return None
    factors = [pair for place in found.data.indices for pair in polynomial(place).values()]
    if any(atoms and factor < 0 for atoms, factor in factors):
        return None
    found = merged(found) or found
    assert found.weight is not None
    mine, theirs = free_vars(found.data), free_vars(found.weight)
    lanes = [axis for axis in found.axes if axis in theirs and axis not in mine]
    columns = [axis for axis in found.axes if axis in mine and axis not in theirs]
    columns = [axis for axis in columns if found.sizes[axis] != 1] or columns
    if not lanes or not columns or lanes[-1] in found.open:
        return None
    return found, lanes[-1], columns[-1]
