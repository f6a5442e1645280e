"""Panels: a contraction whose data is copied, columns at a time, to where it is read in order.

    for groups of columns:
        panel[t, k, q] = data[k, (group + t) * tile + q]       near, line after line
        for tiles of outputs, tiles of columns:
            sum[tile] = 0                                      registers
            for k: sum[tile] += panel[t, k] * weight[k]        vectors x single elements
            out[tile] = f(sum[tile])                           whole vectors, as they lie in memory

Rows of wide data are pages apart, so reading a few columns of each misses the TLB; a panel is read
many times and misses once. Lanes are contiguous in the result, so nothing is transposed.

If both matrices are inputs, the right one is the data, and the left one the weight: its rows are
transposed as they are packed, and tiles are complete, padded with zeros.

>>> from plica.ir.type.dtype import f32
>>> from plica.ir.loop.stage import stage
>>> from plica.ir.loop.tensor import buffer, reduce
>>> from plica.schedule.default.contraction import contraction
>>> x, w = buffer("x", (8, 64), f32), buffer("w", (16, 8), f32)
>>> dense = stage("y", (16, 64), lambda o, p: reduce("sum", (8,), lambda k: x[k, p] * w[o, k]))
>>> made = paneled(contraction(joined((x, w), (dense,))), Panel(RegisterTile(2, 8), 16))
>>> for line in str(made).splitlines()[:2]:
...     print(line)
packed[b < 2, k < 8, s < 8] = w[b * 8 + s, k]
panel[t < 2, a < 8, q < 32] = x[a, t * 32 + q]
"""

from __future__ import annotations

from math import prod

from attrs import frozen

from plica.core import free_vars, substitute
from plica.ir.loop import Each, Kernel, Names, Stages, Store, scalar as sc
from plica.ir.loop.stages import stages as joined, with_element
from plica.ir.type import known
from plica.schedule.default.contraction import Contraction
from plica.schedule.default.form import elements, names_of, packed, packer
from plica.schedule.default.machine import MAX_COPIED_COLUMNS, Machine
from plica.schedule.default.role import contraction_blocks
from plica.schedule.default.summed import summed
from plica.schedule.default.tile import RegisterTile

EACH = 4  # groups for each core, at least, so that all of them end at about the same time
EMPTY = 1 / 64
"""Tiles without a column, of all: so few are worth groups that all have as many tiles."""


@frozen
class Panel:
    """A tile of sums, the lanes of a vector, the number of column tiles copied at once, and the
    total number of tiles: 0 for the minimum."""

    tile: RegisterTile
    lanes: int
    group: int = 1
    tiles: int = 0

    @property
    def columns(self) -> int:
        """The columns of a tile."""
        return self.tile.vectors * self.lanes


def has_panels(of: Contraction) -> bool:
    """Whether the last axis is that of the data's columns, and there are outputs to tile."""
    if of.weight is None or of.guarded or not of.axes or not of.n:
        return False
    row = of.axes[-1]
    places = of.data.indices
    return (
        row in of.m
        and places[-1] is row
        and all(row not in free_vars(place) for place in places[:-1])
        and of.sizes[row] == known(of.data.buffer.shape[-1])
    )


def paneled(
    of: Contraction, panel: Panel, before: tuple[Each, ...] = (), *, copied: bool = False
) -> Stages:
    """The stages `packed`, `panel`, `sum` and `out`.

    Stages `before` make the data, where it is no input.  All columns are `copied` before all else,
    or those of each group where they are read.
    """
    names = names_of(of)
    row, output = of.axes[-1], of.n[-1]
    width, steps = panel.columns, panel.tile.steps
    count = (panel.tiles or -(-of.sizes[row] // width)) * width
    sizes = {**of.sizes, row: count, output: -(-of.sizes[output] // steps) * steps}
    copy, data = _panel(of, sizes, width, names)
    assert of.weight is not None
    outer, inner = names.var("b"), names.var("s")
    there = packed(of, output, (outer, inner), steps, names.name("packed"))
    weight = substitute(there, {outer: output // steps, inner: output % steps})
    stages = [*before, packer(of.weight, output, (outer, inner), steps, there)]
    apart = [a for a in of.axes if a is not row and a is not output]
    axes = (*apart, output, row)
    total, element = summed(of, axes, sizes, data, weight, names)

    value = with_element(of.value, of.reduced, element)
    shape = tuple([sc.index(of.sizes[axis]) for axis in of.axes])
    out = sc.Buffer(names.name("out"), shape, sc.dtype_of(value))
    scratch = tuple([stage.out for stage in (*stages, *([copy] if copied else []))])
    return joined(of.inputs, [*stages, copy, *total, Each(out, of.axes, value)], (*scratch, out))


def _panel(
    of: Contraction, sizes: dict[sc.ScalarVar, int], width: int, names: Names
) -> tuple[Each, sc.Load]:
    """The stage that copies columns, and the load from it."""
    row = of.axes[-1]
    mine = free_vars(of.data)
    around = [a for a in of.axes if a in mine and a is not row]
    terms = [var for var in of.k if var in mine]
    tile, column = names.var("t"), names.var("q")
    place = tile * width + column
    value: sc.Scalar = substitute(of.data, {row: place})
    if sizes[row] > of.sizes[row]:
        value = sc.Select(sc.Lt(place, sc.index(of.sizes[row])), value, of.fill)
    own = {var: names.var("a") for var in (*around, *terms)}
    value = substitute(value, own)
    shape = [*[sizes[a] for a in around], sizes[row] // width, *[sizes[a] for a in terms], width]
    panel = sc.Buffer(
        names.name("panel"), tuple([sc.index(n) for n in shape]), of.data.buffer.dtype
    )
    axes = (*[own[a] for a in around], tile, *[own[a] for a in terms], column)
    return Each(panel, axes, value), sc.Load(panel, (*around, row // width, *terms, row % width))


def panel_of(kernel: Kernel, machine: Machine) -> Panel | None:
    """The panels of a kernel, or None: data columns read contiguously along the last axis of the
    sums, from a copy made here or in advance."""
    blocks = contraction_blocks(kernel, runs=True)
    if blocks is None or blocks.epilogue is not blocks.result:
        return None
    total = blocks.reduction
    row = [var for var, kind in zip(total.vars, total.kinds, strict=True) if kind == "spatial"][-1:]
    if not isinstance(total.body, Store):
        return None
    match total.body.value:
        case sc.Add(
            _, sc.Mul(sc.Load(copied, (*_, sc.FloorMod(near, sc.Lit(wide)))), sc.Load() as weights)
        ) if [near] == row:
            packed = weights.buffer
        case _:
            return None
    shape = [known(size) or 1 for size in copied.shape]
    lanes = machine.lanes(packed.dtype)
    whole = copied in kernel.params
    if blocks.data is None and not whole:
        return None
    if whole and not (_is_packed(weights) and wide == shape[-1] and wide % lanes == 0):
        return None
    steps = known(packed.shape[-1]) or 1
    terms = total.kinds.count("reduce")
    width, tiles = shape[-1], shape[-2 - terms]
    size = packed.dtype.bytes
    bytes_ = prod(shape[-1 - terms :]) * size
    budget = panel_budget(machine, elements(packed) * size, whole=whole)
    group = group_of(tiles, bytes_, width, machine, budget)
    return Panel(RegisterTile(width // lanes, steps), lanes, group)


def _is_packed(of: sc.Load) -> bool:
    """Whether the source is in blocks of its last axis, of the size read together."""
    match of.indices[-1]:
        case sc.FloorMod(_, sc.Lit(steps)):
            return steps == known(of.buffer.shape[-1])
        case _:
            return False


# --- groups ---------------------------------------------------------------------------------------


def panel_budget(machine: Machine, weights: int, *, whole: bool) -> int:
    """The maximum bytes of a group's panels, for weights of a given size, which are read again for
    each group unless they fit in a cache. Panels copied as a `whole` are not on the stack."""
    if whole:
        return machine.cache(2) // 2
    return machine.near if weights > machine.cache(2) // 2 else machine.panel


def group_of(tiles: int, panel: int, width: int, machine: Machine, budget: int) -> int:
    """The number of tiles in a group: a divisor of all whose panels fit into a budget of bytes.

    >>> near = Machine(512, 32, (48 * 1024, 2048 * 1024))
    >>> group_of(168, 24 * 1024, 8, near, near.near), group_of(167, 24 * 1024, 8, near, near.near)
    (8, 1)
    """
    most = _most_tiles(tiles, panel, width, machine, budget)
    return max(each for each in range(1, most + 1) if tiles % each == 0)


def tiles_in_groups(tiles: int, panel: int, width: int, machine: Machine, budget: int) -> int:
    """The number of tiles, increased by a few empty ones where that gives longer groups.

    >>> near = Machine(512, 32, (48 * 1024, 2048 * 1024))
    >>> [tiles_in_groups(tiles, 24 * 1024, 8, near, near.near) for tiles in (167, 37)]
    [168, 37]
    """
    most = _most_tiles(tiles, panel, width, machine, budget)
    for group in range(most, 1, -1):
        count = -(-tiles // group) * group
        if count - tiles <= EMPTY * tiles:
            return count
    return tiles


def _most_tiles(tiles: int, panel: int, width: int, machine: Machine, budget: int) -> int:
    most = max(1, min(budget // panel, MAX_COPIED_COLUMNS // width))
    if machine.cores > 1:
        most = max(1, min(most, tiles // (EACH * machine.cores)))
    return most
