"""Plans for Winograd convolutions: what was found in some work, and how a machine should do it.

As many rows of tiles make a block as keep its data and its products in a cache; but weights that no
cache holds come again for every block.  The tile of the products in registers is weighed with that.

>>> from plica.ir.loop.tensor import buffer
>>> x, w = buffer("x", (1, 64, 56, 56), f32), buffer("w", (36, 64, 64), f32)
>>> made = conv_winograd.compute({"tile": 4, "padding": 1}, x, w)
>>> of = found(Each(buffer("y", made.shape, f32), made.axes, made.body))
>>> of.tiles, planned(of, Machine(512, 32, (48 << 10, 2 << 20))).rows
((14, 14), 2)
"""

from __future__ import annotations

from typing import Final

from attrs import frozen

from plica.core.binding import substitute
from plica.core.digest import digest
from plica.core.fold import post_order
from plica.core.term import Term
from plica.ir.loop.scalar import Buffer, Load, Reduce, Scalar, index
from plica.ir.loop.stage import Each
from plica.ir.loop.stages import compute_of
from plica.ir.loop.tensor import Compute
from plica.ir.op.winograd import TILES, WinogradMatrices, conv_winograd
from plica.ir.type.dim import known, polynomial
from plica.ir.type.dtype import f32
from plica.schedule.default.machine import Machine
from plica.schedule.default.share import pays
from plica.schedule.default.tile import RegisterTile, fits

__all__ = ["WinogradPlan", "WinogradShape", "f32", "found", "planned"]

NARROW: Final = 4
"""Vectors of fewer lanes are none."""

FAR: Final = 10
"""Bytes that come from behind the caches of a core in one cycle, about."""


RAGGED: Final = 1.2
"""How much more it takes where the last tile of the products overlaps the one before it."""


@frozen(eq=False)
class WinogradShape:
    """A Winograd convolution that was found in some work."""

    x: Buffer
    weight: Buffer
    of: WinogradMatrices
    before: tuple[int, int]
    batch: int
    channels: int
    outputs: int
    size: tuple[int, int]
    """Rows and columns of the data."""
    result: tuple[int, int]
    """Rows and columns of the result."""

    @property
    def tiles(self) -> tuple[int, int]:
        """Rows and columns of tiles."""
        rows, columns = (-(-size // self.of.size) for size in self.result)
        return rows, columns


def found(of: Each) -> WinogradShape | None:
    """The Winograd convolution that a stage is, None where it is none."""
    body = of.value
    if not isinstance(body, Reduce) or body.combiner != "sum" or len(body.axes) != 3:
        return None
    loads = [node for node in post_order(body) if isinstance(node, Load)]
    data = [each for each in loads if len(each.buffer.shape) == 4]
    weights = {each.buffer: None for each in loads if len(each.buffer.shape) == 3}
    if len(data) != 1 or len(weights) != 1 or len(of.axes) != 4:
        return None
    x, (weight,) = data[0].buffer, weights
    sizes = [known(each) for each in (*x.shape, *weight.shape, *of.out.shape)]
    tile = next((each for each in TILES.values() if each.span**2 == known(weight.shape[0])), None)
    if tile is None or not all(sizes):
        return None
    n, c, h, w, _, _, o, _, _, rows, columns = (each or 0 for each in sizes)
    before = tuple([-_offset(each) for each in data[0].indices[2:]])
    after = (rows + 2 - h - before[0], columns + 2 - w - before[1])
    if min(*before, *after) < 0:
        return None
    pads = tuple(zip(before, after, strict=True))
    if not _is(compute_of(of), x, weight, tile, pads):
        return None
    return WinogradShape(x, weight, tile, (before[0], before[1]), n, c, o, (h, w), (rows, columns))


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
    """Lanes over channels and over outputs, rows of tiles of a block, the tile of the products.

    `whole` is how many lanes a vector has, `teams` how many parts of the blocks cores go through at
    once.
    """

    whole: int
    inner: int
    outer: int
    rows: int
    tile: RegisterTile
    shares: bool
    fetches: bool
    """Whether weights come from behind the cache."""
    teams: int = 1


def planned(of: WinogradShape, machine: Machine) -> WinogradPlan | None:
    """What to do for a machine, None where channels fill no vectors."""
    lanes = machine.lanes(of.x.dtype)
    inner, outer = (_dividing(lanes, each) for each in (of.channels, of.outputs))
    if min(inner, outer) < NARROW:
        return None
    down, across = of.tiles
    places, size = of.of.span**2, of.x.dtype.bytes
    weights = places * of.channels * of.outputs * size
    row = places * across * (of.channels + of.outputs) * size
    vectors, near = of.outputs // outer, machine.cache(2)
    wide = outer * size / FAR if weights > near // 2 else 0.0
    products = places * down * across * of.channels * of.outputs
    shares = pays(machine, products, ())
    cores = machine.cores if shares else 1
    # Where cores share each step, what one has made another reads.
    exchanged = row * down / FAR if cores > 1 else 0.0
    choices: list[tuple[float, int, RegisterTile, int]] = []
    for rows in range(down, 0, -1):
        if down % rows:
            continue
        count, blocks = rows * across, down // rows
        spilt = 2 * row * down / FAR if rows * row + min(weights, near // 2) > near else 0.0
        for tile in _tiles(vectors, count, machine.registers):
            # Weights that no cache holds come while others are used, if these are used again.
            passes, waits = -(-count // tile.steps), tile.vectors * wide
            work = passes * tile.cycles(rates=machine.rates)
            work *= RAGGED if count % tile.steps else 1
            even = passes > 1 and count % tile.steps == 0
            each = max(work, waits) if even else work + waits
            cycles = places * of.channels * blocks * (vectors // tile.vectors) * each
            alone = cycles + spilt
            choices.append((alone / cores + exchanged, rows, tile, 1))
            if 1 < cores <= blocks:
                most = -(-blocks // cores)  # of one core, while others have no more
                choices.append((alone * most / blocks, rows, tile, cores))
    _, rows, tile, teams = min(choices, key=lambda each: each[0])
    return WinogradPlan(lanes, inner, outer, rows, tile, shares, weights > near // 2, teams)


def _tiles(vectors: int, steps: int, registers: int) -> list[RegisterTile]:
    """The tiles that registers hold: of vectors so many as divide them, of steps any number."""
    return [
        tile
        for m in range(1, min(vectors, registers) + 1)
        if vectors % m == 0
        for r in range(1, min(steps, registers) + 1)
        if fits(tile := RegisterTile(m, r), registers)
    ]


def _dividing(lanes: int, count: int) -> int:
    while count % lanes:
        lanes //= 2
    return lanes
