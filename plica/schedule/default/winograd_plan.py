"""Winograd plans: the parameters of a convolution, and the machine's choices.

A block has as many tile rows, or part of one, as keep its data and products in a cache; but weights
larger than any cache are reloaded for every block. The register tile of the products is weighed
against that.

>>> from plica.ir.loop.tensor import buffer
>>> x, w = buffer("x", (1, 64, 56, 56), f32), buffer("w", (36, 64, 64), f32)
>>> made = conv_winograd.compute({"tile": 4, "padding": 1}, x, w)
>>> fold = Each(buffer("y", made.shape, f32), made.axes, made.body)
>>> of = extents_of(found_open(fold), fold)
>>> of.tiles, planned(of, Machine(512, 32, (48 << 10, 2 << 20))).rows
((14, 14), 2)
"""

from __future__ import annotations

from functools import lru_cache
from math import inf
from typing import Final

from attrs import evolve, frozen

from plica.core.binding import substitute
from plica.core.digest import digest
from plica.core.fold import post_order
from plica.core.term import Term
from plica.ir.loop.scalar import Buffer, Load, Reduce, Scalar, index
from plica.ir.loop.stage import Each
from plica.ir.loop.stages import compute_of
from plica.ir.loop.tensor import Compute
from plica.ir.op.winograd import TILES, WinogradMatrices, conv_winograd
from plica.ir.type.dim import dim, known, polynomial
from plica.ir.type.dtype import DType, f32
from plica.schedule.default.machine import MIN_LANES, Machine
from plica.schedule.default.share import pays
from plica.schedule.default.tile import RegisterTile, fits, most_steps

__all__ = [
    "AnyWinograd", "TileExtents", "WinogradPlan", "collides", "extents_of", "f32", "found_open",
    "padded_grid", "planned", "planned_open", "plans",
]  # fmt: skip


USUAL_BLOCK: Final = 48  # tiles of a block of an image whose size is open, about
USUAL_TILES: Final = tuple(n * across for n in (1, 2, 3, 4, 6, 9, 14, 20) for across in (n, n + 1))
"""Those of some images, deep in a network and near its input."""

FAR: Final = 10  # approximate bytes per cycle from beyond a core's caches


MAX_MULTIPLY_ADDS_UNROLLED: Final = 32  # multiply-adds in the text of the innermost loop, about
MAX_LANES_UNROLLED: Final = 4
"""The maximum number of channels of a vector that are unrolled: a loop over them would be
as long."""

MAX_STACK_BYTES: Final = 1 << 20  # the data and products of a block, per core, on stacks
RAGGED: Final = 1.2  # the cost factor of a shorter last pass over the tiles
TRANSFORM_CYCLES: Final = 4
"""Cycles for each place of a tile and vector of channels or outputs in the transforms, about."""

MAX_PADDED_ROWS, MAX_PADDED_COLUMNS = 1, 3
"""Rows and columns of tiles without results that a grid may have so that blocks divide it."""


@frozen(eq=False)
class AnyWinograd:
    """A Winograd convolution that was found in some work, of images of any size."""

    x: Buffer
    weight: Buffer
    of: WinogradMatrices
    before: tuple[int, int]
    channels: int
    outputs: int

    @property
    def batch(self) -> Scalar:
        """The number of images."""
        return self.x.shape[0]

    def extents(self, rows: int = 0, columns: int = 0) -> TileExtents:
        """The extents of so many tiles, none where they are open."""
        of, dtype = self.of, self.x.dtype
        return TileExtents(dtype, of.span, of.size, self.channels, self.outputs, (rows, columns))


@frozen
class TileExtents:
    """The extents of a Winograd convolution of a known size, as far as its plan depends on them."""

    dtype: DType
    span: int  # places of the data that a tile is made from, along one axis
    size: int  # results of a tile, along one axis
    channels: int
    outputs: int
    tiles: tuple[int, int]  # rows and columns of tiles

    @property
    def weight_bytes(self) -> int:
        """The bytes of the transformed weight."""
        return self.span**2 * self.channels * self.outputs * self.dtype.bytes


def extents_of(of: AnyWinograd, fold: Each) -> TileExtents | None:
    """The extents of a Winograd convolution, or None if a size is open."""
    sizes = [known(scalar) for scalar in (*of.x.shape, *fold.out.shape[2:])]
    if not all(sizes):
        return None
    return of.extents(*[-(-(size or 0) // of.of.size) for size in sizes[4:]])


@lru_cache(maxsize=64)
def found_open(of: Each) -> AnyWinograd | None:
    """The Winograd convolution of a stage, or None."""
    body = of.value
    if not isinstance(body, Reduce) or body.combiner != "sum" or len(body.axes) != 3:
        return None
    loads = [node for node in post_order(body) if isinstance(node, Load)]
    data = [load for load in loads if len(load.buffer.shape) == 4]
    weights = {load.buffer: None for load in loads if len(load.buffer.shape) == 3}
    if len(data) != 1 or len(weights) != 1 or len(of.axes) != 4:
        return None
    x, (weight,) = data[0].buffer, weights
    tile = next((each for each in TILES.values() if each.span**2 == known(weight.shape[0])), None)
    channels, outputs = (known(each) for each in (x.shape[1], weight.shape[2]))
    if tile is None or not channels or not outputs or known(weight.shape[1]) != channels:
        return None  # a prefix of the channels, which a slice leaves, is another tensor
    before = tuple([-_offset(each) for each in data[0].indices[2:]])
    pads = []
    for size, left, result in zip(x.shape[2:], before, of.out.shape[2:], strict=True):
        after = known(dim(result + 2 - size - left))
        if after is None or min(left, after) < 0 or known(size) == 0:
            return None
        pads.append((left, after))
    if not _is(compute_of(of), x, weight, tile, tuple(pads)):
        return None
    return AnyWinograd(x, weight, tile, (before[0], before[1]), channels, outputs)


def _offset(place: Scalar) -> int:
    """The number in an affine index."""
    return sum(factor for atoms, factor in polynomial(place).values() if not atoms)


def _is(
    of: Compute, x: Buffer, weight: Buffer, tile: WinogradMatrices, pads: tuple[object, ...]
) -> bool:
    """Whether a tensor expression is that of the operator: the same up to names."""
    assert conv_winograd.compute is not None
    made = conv_winograd.compute({"tile": tile.size, "padding": pads}, x, weight)
    assert isinstance(made, Compute)
    bare = Compute((x, weight), of.axes, of.shape, of.body)
    return digest(_without_units(bare)) == digest(_without_units(made))


def _without_units(of: Compute) -> Compute:
    """The same with 0 for axes of length 1."""
    units: dict[Term, Term] = {
        axis: index(0) for axis, size in zip(of.axes, of.shape, strict=True) if known(size) == 1
    }
    body = substitute(of.body, units)
    return Compute(of.inputs, of.axes, of.shape, body)


# --- decisions ------------------------------------------------------------------------------------


@frozen
class WinogradPlan:
    """Lanes over channels and over outputs, rows and columns of tiles of a block, the tile of the
    products.

    `whole` is how many lanes a vector has, `teams` how many parts of the blocks cores go through at
    once.
    """

    whole: int
    inner: int
    outer: int
    rows: int
    columns: int
    tile: RegisterTile
    shares: bool
    fetches: bool
    """Whether weights come from beyond the cache."""
    teams: int = 1
    copies_blocks: bool = False
    """Whether the data of a block is copied, not that of an image at once."""
    rest: int = 0
    """Tiles of a short pass over the rest of an open image, if passes are whole."""
    left: int = 0
    """The maximum number of tiles for short passes: for more, a whole pass is faster."""
    masks: bool = True
    """Whether vectors can be read and written in part."""

    def strip(self, size: int) -> int:
        """Tiles of such a size side by side that go together at the end: a vector at most."""
        return power(min(self.columns, max(1, self.whole // size)))

    def unrolled(self, steps: int) -> int:
        """Channels that are written out in the innermost loop of a tile of so many steps."""
        if self.inner <= MAX_LANES_UNROLLED:
            return self.inner
        most = MAX_MULTIPLY_ADDS_UNROLLED // (self.tile.vectors * steps)
        return max([n for n in (8, 4, 2) if self.inner % n == 0 and n <= most], default=1)


def planned(of: TileExtents, machine: Machine) -> WinogradPlan | None:
    """The plan for a machine, or None if channels fill no vectors."""
    return next(iter(plans(of, machine)), None)


def padded_grid(of: TileExtents, machine: Machine) -> TileExtents:
    """The extents with the rows and columns of tiles, some perhaps without results, whose best plan
    is reckoned to take the least: a grid of 37 x 37 tiles has no blocks that divide it.

    Weights larger than any cache are reloaded for each block, so more blocks gain nothing.
    """
    if of.weight_bytes > machine.cache(2):
        return of
    down, across = of.tiles
    grids = [
        evolve(of, tiles=(down + rows, across + columns))
        for rows in range(MAX_PADDED_ROWS + 1)
        for columns in range(MAX_PADDED_COLUMNS + 1)
    ]

    def cycles(grid: TileExtents) -> float:
        return next((cost for cost, _ in ranked_plans(grid, machine)), inf)

    return min(grids, key=cycles)


def plans(of: TileExtents, machine: Machine) -> tuple[WinogradPlan, ...]:
    """All plans for a machine, cheapest estimate first."""
    return tuple([plan for _, plan in ranked_plans(of, machine)])


@lru_cache(maxsize=256)
def ranked_plans(of: TileExtents, machine: Machine) -> tuple[tuple[float, WinogradPlan], ...]:
    """Plans with the cycles that they are reckoned to take, the least first."""
    lanes = machine.lanes(of.dtype)
    inner, outer = (_dividing(lanes, each) for each in (of.channels, of.outputs))
    if min(inner, outer) < MIN_LANES:
        return ()
    down, across = of.tiles
    places, size = of.span**2, of.dtype.bytes
    weights = of.weight_bytes
    row = places * across * (of.channels + of.outputs) * size
    vectors, near = of.outputs // outer, machine.cache(2)
    wide = outer * size / FAR if weights > near // 2 else 0.0
    products = places * down * across * of.channels * of.outputs
    shares = pays(machine, products, ())
    cores = machine.cores if shares else 1
    # If cores share each step, one reads what another wrote.
    exchanged = row * down / FAR if cores > 1 else 0.0
    choices: list[tuple[float, WinogradPlan]] = []
    room, far = near - min(weights, near // 2), weights > near // 2
    for rows, columns in _blocks(down, across, whole=row <= room):
        count, blocks = rows * columns, down * across // (rows * columns)
        spilt = 2 * row * down / FAR if count * row // across > room else 0.0
        for tile in _tiles(vectors, count, machine):
            if count % tile.steps and blocks > 1:
                continue  # a short pass is the last of all: its places are not one block's alone
            # Weights larger than any cache are prefetched while others are used, if they are
            # reused.
            passes, waits = -(-count // tile.steps), tile.vectors * wide
            work = passes * tile.cycles(rates=machine.rates)
            work *= RAGGED if count % tile.steps else 1
            even = passes > 1 and count % tile.steps == 0
            each = max(work, waits) if even else work + waits
            alone = places * of.channels * blocks * (vectors // tile.vectors) * each + spilt
            teams = {1: alone / cores + exchanged}
            if 1 < cores <= blocks:  # of one core, while others have no more
                teams[cores] = alone * -(-blocks // cores) / blocks
            for team, cycles in teams.items():
                by_block = columns == across and rows < down and (team > 1 or not shares)
                plan = WinogradPlan(
                    lanes, inner, outer, rows, columns, tile, shares, far, team, by_block
                )
                overlaps = columns < across and columns % plan.strip(of.size) > 0
                if team > 1 and (overlaps or count * row // across > MAX_STACK_BYTES):
                    continue  # where strips overlap it is not seen that teams write apart
                choices.append((cycles, plan))
    vectors_of_tile = places * (of.channels // inner + of.outputs // outer)
    transforms = TRANSFORM_CYCLES * vectors_of_tile * down * across / cores
    ranked = sorted(choices, key=lambda choice: choice[0])
    return tuple([(cycles + transforms, plan) for cycles, plan in ranked])


def collides(apart: int, places: int, machine: Machine) -> bool:
    """Whether places at this distance in bytes evict each other from the nearest cache, so that a
    line is loaded for each of its vectors."""
    most = most_steps(apart, machine.caches[0])
    return most is not None and places > most


def _blocks(down: int, across: int, *, whole: bool) -> list[tuple[int, int]]:
    """Rows and columns of tiles that blocks may have: whole rows, or where a cache does not hold
    one parts of it as well."""
    parts = [] if whole else [part for part in range(across - 1, 0, -1) if across % part == 0]
    rows = [(rows, across) for rows in range(down, 0, -1) if down % rows == 0]
    return rows + [(1, part) for part in parts]


def planned_open(of: AnyWinograd, machine: Machine) -> tuple[WinogradPlan, int] | None:
    """The same for images of open size, with the tiles of a block: as many as fit in half of a
    cache, through which the image passes as well, or, if it does not hold the weights, as many as
    take as much as these."""
    lanes, places = machine.lanes(of.x.dtype), of.of.span**2
    inner, outer = (_dividing(lanes, each) for each in (of.channels, of.outputs))
    if min(inner, outer) < MIN_LANES:
        return None
    near, weights = machine.cache(2), of.extents().weight_bytes
    far, tile_bytes = weights > near // 2, places * (of.channels + of.outputs) * of.x.dtype.bytes
    most = (near if far else near - weights) // 2 // tile_bytes
    if far:
        most = max(most, weights // tile_bytes)
    tiles = _tiles(of.outputs // outer, 0, machine)
    choices = [(tile, rest) for tile in tiles for rest in range(1, tile.steps + 1)]
    tile, rest = min(choices, key=lambda each: _open_cost(each[0], each[1], machine))
    shares = pays(machine, places * USUAL_BLOCK * of.channels * of.outputs, ())
    left = _left(tile, rest, machine)
    # Short vectors gain nothing by it, and layers of more channels can be one function with others.
    fetches = far and machine.masks
    plan = WinogradPlan(
        lanes, inner, outer, 1, 1, tile, shares, fetches=fetches, rest=rest, left=left,
        masks=machine.masks,
    )  # fmt: skip
    return plan, max(1, most // tile.steps) * tile.steps


def _open_cost(tile: RegisterTile, rest: int, machine: Machine) -> float:
    """The cost of a vector of outputs for a tile of a typical image, with remainders in passes of
    this length."""
    short, whole = _cycles(tile.vectors, rest, machine), _cycles(tile.vectors, tile.steps, machine)
    left, total = _left(tile, rest, machine), 0.0
    for count in USUAL_TILES:
        passes = (count + (tile.steps - 1 - left)) // tile.steps
        over = -(-max(0, count - passes * tile.steps) // rest)
        total += (passes * whole + over * short) / count
    return total / tile.vectors


def _left(tile: RegisterTile, rest: int, machine: Machine) -> int:
    """How many tiles go in passes over this many, of those that fill no whole pass."""
    short, whole = _cycles(tile.vectors, rest, machine), _cycles(tile.vectors, tile.steps, machine)
    return min(int(whole / short) * rest, tile.steps - 1)


@lru_cache(maxsize=256)
def _cycles(vectors: int, steps: int, machine: Machine) -> float:
    return RegisterTile(vectors, steps).cycles(rates=machine.rates)


def _tiles(vectors: int, steps: int, machine: Machine) -> list[RegisterTile]:
    """The tiles that registers hold, of vectors that divide this many, of steps this many at most
    (0 for any).  Short vectors of channels are read whole, one for each step."""
    registers = machine.registers
    return [
        tile
        for m in range(1, min(vectors, registers) + 1)
        if vectors % m == 0
        for r in range(1, min(steps or registers, registers) + 1)
        if fits(tile := RegisterTile(m, r), registers if machine.masks else registers - r)
    ]


def _dividing(lanes: int, count: int) -> int:
    while count % lanes:
        lanes //= 2
    return lanes


def power(most: int) -> int:
    """The greatest power of two that is not more."""
    return 1 << most.bit_length() - 1
