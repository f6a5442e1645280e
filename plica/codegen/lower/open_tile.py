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
from math import prod
from typing import Final

from attrs import frozen

from plica.codegen.lower.open_tile_choice import USUAL, open_passes
from plica.core import Term, free_vars, map_bottom_up, substitute
from plica.ir.loop import Each, Names, Stages, loads, scalar as sc
from plica.ir.loop.stages import pairs, stages as joined
from plica.ir.type import dim, f32, i64, known, polynomial
from plica.schedule.default.contraction import product_of, says_inside
from plica.schedule.default.estimate import vectors_side_by_side
from plica.schedule.default.grouped import by_group
from plica.schedule.default.machine import Machine
from plica.schedule.default.register_tile import UNDER_WAY
from plica.schedule.default.share import pays
from plica.schedule.default.summed import in_equal_runs

FEWEST: Final = 2
"""Outputs of a group that are worth a vector, however long: no other loops are as good for them."""

PARTS_OF_CACHE: Final = 4
"""What is read once for each block of outputs takes one of as many parts of the second cache."""

TERMS: Final = 8
"""A sum of fewer terms is not worth a tile."""


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
    vectors_across: int
    """Vectors of a packed weight that lie side by side: all of a tile, or one."""
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


@frozen(eq=False)
class ConstantProduct:
    """A sum of products: its axes by what they are for."""

    fold: Each
    reduction: sc.Reduce
    data: sc.Load
    guards: tuple[sc.Scalar, ...]
    fill: sc.Lit
    weight: sc.Load
    lane: sc.ScalarVar
    column: sc.ScalarVar


def open_tile(
    of: Stages, constant: Sequence[bool], machine: Machine, reassociates: bool = False
) -> OpenTile | None:
    """The stages of a sum in tiles, None where they are no such sum."""
    grouped = by_group(of)
    of = flat_columns(without_units(grouped or of))
    if (found := constant_product(of, constant)) is None:
        return None
    (_, epilogue) = pairs(of)[0]
    lanes = machine.vector // (8 * found.weight.buffer.dtype.bytes)
    count = known(found.weight.buffer.shape[found.weight.indices.index(found.lane)]) or 0
    if count < (FEWEST if grouped is not None else -(-lanes // 2)):
        return None
    terms = prod(known(each) or 0 for each in found.reduction.extents)
    size = found.fold.out.shape[found.fold.axes.index(found.column)]
    row = known(size)
    if row is None and not found.guards and _is_last(found, epilogue):
        return None  # rows of a product have a template
    degree = max(len(atoms) for atoms, _ in polynomial(size).values())
    image = row is None and degree > 1
    rows = tuple([n * n for n in USUAL] if image else USUAL) if row is None else (row,)
    tile, narrower = open_passes(count, terms, lanes, rows, machine)
    names = Names(of)
    if (room := _with_padding(found, narrower[-1], names)) is None:
        return None
    copies, data = room
    vectors_across = vectors_side_by_side(tile.vectors, lanes, found.weight.buffer.dtype.bytes)
    pack, weight = packed_outputs(found, lanes, vectors_across, names)
    old = found.reduction
    around = {*found.fold.axes}
    inner = tuple([at for at, each in enumerate(data.indices) if free_vars(each) - around])
    value = sc.Reduce(old.combiner, old.axes, old.extents, sc.Mul(data, weight), old.runs)
    if reassociates:
        value = in_equal_runs(value, names)
    total = Each(found.fold.out, found.fold.axes, value)
    every = [*copies, pack, total, *([] if epilogue is None else [epilogue])]
    outputs = (*[each.out for each in copies], pack.out, of.result)
    whole = joined(of.inputs, every, outputs)
    return OpenTile(
        whole,
        found.lane,
        found.column,
        lanes,
        tile.vectors,
        tile.steps,
        narrower,
        bool(copies),
        vectors_across,
        data.buffer,
        _tiles_together(found, tile.steps, inner, machine) if image and not copies else 0,
        inner,
        pays(machine, terms * count * USUAL[0] ** 2, ()),
    )


def _tiles_together(of: ConstantProduct, steps: int, inner: Sequence[int], machine: Machine) -> int:
    """How many tiles of columns go together for each block of outputs: one if the nearest cache
    holds all weights beside it, or the data is not one column after another; else as many as a
    part of the second one holds."""
    places, shape = of.data.indices, of.data.buffer.shape
    terms = of.weight.buffer.dtype.bytes * prod(known(each) or 0 for each in of.reduction.extents)
    outputs = known(of.fold.out.shape[of.fold.axes.index(of.lane)]) or 0
    apart = all(free_vars(places[at]) <= {*of.reduction.axes} and known(shape[at]) for at in inner)
    in_rows = places[-1] is of.column and all(of.column not in free_vars(e) for e in places[:-1])
    if terms * (outputs + steps) <= machine.cache(1) or not (apart and in_rows):
        return 1
    return max(1, machine.cache(2) // PARTS_OF_CACHE // (terms * steps))


def _is_last(of: ConstantProduct, epilogue: Each | None) -> bool:
    """Whether neighbours along the lanes are neighbours in the result."""
    if _long_axes(of.fold)[-1] is not of.lane or epilogue is None:
        return _long_axes(of.fold)[-1] is of.lane
    (read,) = [load for load in loads(epilogue.value) if load.buffer is of.fold.out]
    return read.indices[of.fold.axes.index(of.lane)] is _long_axes(epilogue)[-1]


def _long_axes(of: Each) -> list[sc.ScalarVar]:
    """The axes of a stage that are not of length 1 for sure, or all where none is."""
    both = zip(of.axes, of.out.shape, strict=True)
    return [axis for axis, size in both if known(size) != 1] or [*of.axes]


def without_units(of: Stages) -> Stages:
    """The stages without terms of length 1, which make no difference to the runs of a product."""
    fold = of.stages[0]
    if (
        not isinstance(fold, Each)
        or not isinstance(fold.value, sc.Reduce)
        or fold.value.runs == "row"
    ):
        return of
    old = fold.value
    single = [axis for axis, n in zip(old.axes, old.extents, strict=True) if known(n) == 1]
    single = single[len(single) == len(old.axes) :]
    left = [(a, n) for a, n in zip(old.axes, old.extents, strict=True) if a not in single]
    zero: dict[Term, Term] = dict.fromkeys(single, sc.index(0))

    def put(of: sc.Scalar) -> sc.Scalar:
        if free_vars(of).isdisjoint(single):
            return of
        return dim(substitute(of, zero))

    def change(node: Term) -> Term:
        match node:
            case sc.Load(buffer, indices):
                return sc.Load(buffer, tuple([put(each) for each in indices]))
            case sc.Le(low, high) if sc.dtype_of(low) is i64:
                return sc.Le(put(low), put(high))
            case sc.Lt(low, high) if sc.dtype_of(low) is i64:
                return sc.Lt(put(low), put(high))
            case _:
                return node

    body = map_bottom_up(change, old.body) if single else old.body
    if not free_vars(body).isdisjoint(single):
        return of
    axes, extents = tuple([a for a, _ in left]), tuple([n for _, n in left])
    value = sc.Reduce(old.combiner, axes, extents, body, old.runs)
    return joined(of.inputs, (Each(fold.out, fold.axes, value), *of.stages[1:]), of.outputs)


def flat_columns(of: Stages) -> Stages:
    """The stages with their last two axes as one, where all tensors walk through both together.

    y[n, o, i, j] = sum over c of x[n, c, i, j] * w[o, c]  -->  p in the place of i, j
    """
    views: dict[sc.Buffer, sc.Buffer] = {}
    size: tuple[sc.Scalar, ...] | None = None
    made: list[Each] = []
    for each in of.stages:
        if not isinstance(each, Each) or len(each.axes) < 2:
            return of
        size = size or each.out.shape[-2:]
        ends, both = each.axes[-2:], set(each.axes[-2:])
        if size != each.out.shape[-2:]:
            return of
        views[each.out] = _view(each.out)
        for load in loads(each.value):
            if not both.isdisjoint(free_vars(load)):
                apart = any(not both.isdisjoint(free_vars(at)) for at in load.indices[:-2])
                if apart or load.indices[-2:] != ends or load.buffer.shape[-2:] != size:
                    return of
                views[load.buffer] = _view(load.buffer)
    for each in of.stages:
        assert isinstance(each, Each)
        ends = each.axes[-2:]

        def viewed(node: Term, ends: tuple[sc.ScalarVar, ...] = ends) -> Term:
            if isinstance(node, sc.Load) and node.buffer in views and node.indices[-2:] == ends:
                return sc.Load(views[node.buffer], (*node.indices[:-2], ends[-1]))
            return node

        value = map_bottom_up(viewed, each.value)
        again = {load.buffer for load in loads(value)}
        if not again.isdisjoint(views) or ends[0] in free_vars(value) or _asks(value, ends[1]):
            return of
        made.append(Each(views[each.out], (*each.axes[:-2], ends[1]), value))
    inputs = [views.get(each, each) for each in of.inputs]
    return joined(inputs, made, [views.get(each, each) for each in of.outputs])


def _view(of: sc.Buffer) -> sc.Buffer:
    """A buffer with its last two dims as one."""
    return sc.Buffer(of.name, (*of.shape[:-2], dim(of.shape[-2] * of.shape[-1])), of.dtype)


def _asks(of: sc.Scalar, axis: sc.ScalarVar) -> bool:
    """Whether a term asks where it is along an axis, other than to read there."""
    hidden = map_bottom_up(
        lambda node: sc.Lit(0, node.buffer.dtype) if isinstance(node, sc.Load) else node, of
    )
    return axis in free_vars(hidden)


def constant_product(of: Stages, constant: Sequence[bool]) -> ConstantProduct | None:
    """What stages sum, None where it is no product with a constant of known size."""
    every = pairs(of) if all(isinstance(each, Each) for each in of.stages) else []
    if len(every) != 1:
        return None
    fold = every[0][0]
    body = fold.value
    if not isinstance(body, sc.Reduce) or body.combiner != "sum" or sc.dtype_of(body) is not f32:
        return None
    axes = dict(zip(fold.axes, fold.out.shape, strict=True))
    terms = dict(zip(body.axes, body.extents, strict=True))
    sizes = {var: n for var, size in {**axes, **terms}.items() if (n := known(size))}
    if any(var not in sizes for var in terms) or prod(sizes[var] for var in terms) < TERMS:
        return None
    if (product := product_of(body, sizes)) is None:
        return None
    data, guards, fill, weight = product
    if weight is None or weight.buffer is data.buffer or weight.buffer not in of.inputs:
        return None
    if not constant[of.inputs.index(weight.buffer)] or fill.value != 0:
        return None
    if not all(says_inside(each, data) for each in guards):
        return None
    for place in data.indices:
        for atoms, factor in polynomial(place).values():
            if atoms and (len(atoms) > 1 or factor < 0 or atoms[0] not in {*axes, *terms}):
                return None
    mine, theirs = free_vars(data), free_vars(weight)
    lanes = [axis for axis in axes if axis in theirs and axis not in mine and axis in sizes]
    columns = [axis for axis in axes if axis in mine and axis not in theirs]
    columns = [axis for axis in columns if sizes.get(axis) != 1] or columns
    if not lanes or not columns:
        return None
    return ConstantProduct(fold, body, data, guards, fill, weight, lanes[-1], columns[-1])


def _with_padding(
    of: ConstantProduct, rest: int, names: Names
) -> tuple[list[Each], sc.Load] | None:
    """The data in a buffer that has all places that are read by whole tiles, if it has a border;
    None where that might be smaller than nothing."""
    if not of.guards:
        return [], of.data
    sizes: dict[Term, sc.Scalar] = {
        **dict(zip(of.fold.axes, of.fold.out.shape, strict=True)),
        **dict(zip(of.reduction.axes, of.reduction.extents, strict=True)),
    }
    sizes[of.column] = sizes[of.column] + (rest - 1)
    shape: list[sc.Scalar] = []
    places: list[sc.Scalar] = []
    axes: list[sc.ScalarVar] = []
    sources: list[sc.Scalar] = []
    condition: sc.Scalar | None = None
    for place, size in zip(of.data.indices, of.data.buffer.shape, strict=True):
        low, high = sc.Le(sc.index(0), place), sc.Lt(place, size)
        axis = names.var("a")
        axes.append(axis)
        if low not in of.guards and high not in of.guards and of.column not in free_vars(place):
            shape.append(size)
            places.append(place)
            sources.append(axis)
            continue
        start, least, reach = 0, 1, sc.index(1)
        for atoms, factor in polynomial(place).values():
            if not atoms:
                start += factor
                continue
            reach = reach + (sizes[atoms[0]] - 1) * factor
            least += ((known(sizes[atoms[0]]) or 0) - 1) * factor
        if least < 0:
            return None
        there = axis + start
        shape.append(dim(reach))
        places.append(place - start)
        sources.append(there)
        for test, old in ((sc.Le(sc.index(0), there), low), (sc.Lt(there, size), high)):
            if old in of.guards or old is high:
                condition = test if condition is None else sc.And(condition, test)
    assert condition is not None
    room = sc.Buffer(names.name("pad"), tuple(shape), of.data.buffer.dtype)
    copied = sc.Select(condition, sc.Load(of.data.buffer, tuple(sources)), of.fill)
    moved = tuple([dim(place) for place in places])
    return [Each(room, tuple(axes), copied)], sc.Load(room, moved)


def packed_outputs(
    of: ConstantProduct, lanes: int, vectors_across: int, names: Names
) -> tuple[Each, sc.Load]:
    """The stage that packs the weight so that vectors of outputs are read at once, and that read:
    w[o, c, k]  -->  packed[o // 32, c, k, o // 16 % 2, o % 16], or without `% 2` for one vector."""
    places, shape = of.weight.indices, of.weight.buffer.shape
    at = places.index(of.lane)
    count = known(shape[at]) or 0
    outer, beside, inner = names.var("b"), names.var("s"), names.var("v")
    rest = [n for n in range(len(places)) if n != at]
    terms = of.reduction.axes
    shared = [n for n in rest if places[n] not in terms]
    inside = sorted([n for n in rest if places[n] in terms], key=lambda n: terms.index(places[n]))
    axes = {n: names.var("u") for n in rest}
    order = [*shared, -1, *inside]
    wide = lanes * vectors_across
    some = vectors_across > 1
    sizes = [sc.index(-(-count // wide)) if n < 0 else shape[n] for n in order]
    last = (sc.index(vectors_across), sc.index(lanes)) if some else (sc.index(lanes),)
    buffer = sc.Buffer(names.name("packed"), (*sizes, *last), of.weight.buffer.dtype)
    there = outer * wide + (beside * lanes if some else 0) + inner
    source: sc.Scalar = sc.Load(
        of.weight.buffer, tuple([there if n == at else axes[n] for n in range(len(places))])
    )
    if count % wide:
        source = sc.Select(sc.Lt(there, sc.index(count)), source, sc.Lit(0, buffer.dtype))
    ends = (beside, inner) if some else (inner,)
    made = Each(buffer, (*[outer if n < 0 else axes[n] for n in order], *ends), source)
    read = [of.lane // wide if n < 0 else places[n] for n in order]
    ends_read = [of.lane // lanes % vectors_across] if some else []
    return made, sc.Load(buffer, (*read, *ends_read, of.lane % lanes))
