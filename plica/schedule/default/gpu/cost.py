"""What tiles of a product cost on a GPU, in cycles of the processor that has most to do.

    turns * slices * max(multiply, fetch)  +  beginning and end  +  joining the parts of the terms

A slice takes the maximum of multiplying and fetching it, and at least the memory latency divided by
the number of slices in flight. The figures are for an H200; only their ratios matter.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd, prod
from typing import Final

from attrs import evolve, frozen

from plica.ir.loop import Load, Stages, Store
from plica.ir.type import f32, known
from plica.schedule.default.general import counted, counts
from plica.schedule.default.gpu.attention_chain import Chain, seen_keys
from plica.schedule.default.gpu.attention_tile import AttentionTile
from plica.schedule.default.gpu.form import NEITHER, Sides, can_transpose
from plica.schedule.default.gpu.machine import Gpu
from plica.schedule.default.gpu.operand import Group, Operands
from plica.schedule.default.gpu.product import ProductTile
from plica.schedule.default.gpu.tensor_core import Warps
from plica.schedule.default.gpu.tensor_core_meaning import OCTET

PRODUCTS: Final = 1024
"""Products of f16 that the tensor cores of a processor do in a cycle, each asked by a warp."""

GROUPED: Final = 2048  # the same where four warps multiply together
BYTES: Final = 40  # bytes per cycle and processor from the second-level cache
FETCHED: Final = 48
"""The same by the copy engine.  Of ten large products by the tiles that are priced lowest on one
H200 those of 384 rows and columns take as long as they take to multiply."""

STREAM: Final = 12  # bytes that a processor reads or writes in a cycle where all do
GATHER: Final = 8  # the cost factor of fetching elements one by one instead of eight at once
LATENCY: Final = 800  # cycles until memory answers
LAUNCH: Final = 2500  # cycles of an additional launch
JOIN: Final = 0.5  # cycles of a processor for each element of a part that is written and added up
MEASURED: Final = {True: 1.5, False: 2.7}
"""The measured cost of slices relative to the estimate, for products with few tiles: of warp
groups, and of single warps. Of 55 f16 products by 579 tiles on an H200, the tiles with the lowest
estimate take 1.034 times the best, on average; 1.11 times without it."""

EPILOGUE: Final = 2.35
"""Cycles of a thread for each operation that follows the sum, of each element that it has."""

ISSUED: Final = 109
"""Such operations that a processor does in a cycle: more threads do no more of them."""

ANYWHERE: Final = 16  # bytes per cycle and processor for unaligned rows, whose words are shifted
HELD_LATENCY: Final = 1900
"""Cycles of a slice in such rows, until threads have asked for it, stored and multiplied it."""

MULTIPLYING: Final = 1.5
"""The cost factor of multiplying a slice then. This and the four figures around it are from 55
pairs of a product and a tile on an H200, with an average error factor of 1.15."""

STORED: Final = {1: 0.22, 2: 0.25, 4: 0.25}
"""Cycles of a processor for an element of a tile that is stored, where rows have no whole octets:
by how many are neighbours in all rows."""

ENDS: Final = 1500  # cycles before the first slice arrives and after the last one is multiplied


def ends_of(parts: int) -> float:
    """The prologue and epilogue cycles of a single launch, or of parts joined by another one."""
    return 3 * ENDS if parts == 1 else 3 * ENDS + LAUNCH


def warps_cost(  # noqa: PLR0917  # what a product in tiles is made of
    of: Operands,
    warps: Warps,
    parts: int,
    gathers: tuple[bool, bool],
    gpu: Gpu,
    boxed: int = 0,
    shifts: Sides = NEITHER,
) -> float:
    """The cost of a product on tensor cores; `gathers` lists operands fetched element by element,
    `shifts` those with unaligned rows, `boxed` the rows of box-shaped tiles."""
    rows, columns, terms = warps.tile
    m, n, lots = boxed or of.size("rows"), of.size("columns"), of.size("batch")
    tiles = -(-m // rows) * -(-n // columns) * lots * parts
    slices = -(-of.depth // (parts * terms))
    turns = -(-tiles // gpu.processors)
    at_once = (GROUPED if warps.together else PRODUCTS) * 2 // of.dtype.bytes
    multiply = rows * columns * terms / at_once
    left, right = (GATHER if each else 1 for each in gathers)
    fetch = of.dtype.bytes * terms * (rows + columns) / (FETCHED if warps.together else BYTES)
    # Terms beyond the last are not read, which matters for element-wise fetches.
    inside = of.depth / (parts * slices * terms)
    gather = inside * of.dtype.bytes * terms * (rows * left + columns * right) / BYTES
    wait = LATENCY / (warps.ahead + 1)
    rounds = -(-turns // blocks_at_once(warps, gpu, of.dtype.bytes, slices))
    waiting = rounds * slices * wait
    joining = LAUNCH + JOIN * parts * m * n * lots / gpu.processors if parts > 1 else 0.0
    whole = MEASURED[warps.together] * max(turns * slices * max(multiply, fetch), waiting)
    after = 0.0
    if parts == 1:
        _, operations = counts(of.value)
        after = operations * rows * columns * max(EPILOGUE * rounds / warps.threads, turns / ISSUED)
        after += STORED.get(gcd(n, OCTET), 0.0) * turns * rows * columns
    if any(shifts):
        held = evolve(warps, ahead=min(warps.ahead, 1))
        rounds = -(-turns // blocks_at_once(held, gpu, of.dtype.bytes, slices))
        moved = sum(count for count, told in zip((rows, columns), shifts, strict=True) if told)
        shifted = inside * of.dtype.bytes * terms * moved / ANYWHERE
        whole = turns * slices * max(MULTIPLYING * multiply, fetch, shifted)
        whole += rounds * slices * HELD_LATENCY
    return max(whole, turns * slices * gather) + after + ENDS + joining


def pad_cost(of: Operands, side: Load, gpu: Gpu) -> float:
    """A copy of a side with rows of whole octets."""
    elements = prod(known(size) or 0 for size in side.buffer.shape)
    return LAUNCH + 2 * elements * of.dtype.bytes / (gpu.processors * STREAM)


def blocks_at_once(warps: Warps, gpu: Gpu, size: int, slices: int) -> int:
    """The number of blocks per processor that memory and registers allow, for a given element size
    and number of slices."""
    rows, columns, terms = warps.tile
    shared = size * warps.versions(slices) * terms * (rows + columns)
    sums = rows * columns // warps.threads
    registers = warps.threads * min(255, sums + 64)
    return max(1, min(gpu.shared // shared, gpu.registers // registers))


EXPONENT: Final = 6 / 128
"""Cycles of a processor for a score: scale, greatest, exponential, sum, rounding."""

WAITING: Final = 1.4  # the measured cost of such tiles relative to their products and exponentials


def shared_bytes(of: Chain, tile: AttentionTile, step: int) -> int:
    """The shared memory of a tile's block, with widths rounded up to a step."""
    deep, wide = (-(-of.size(axis) // step) * step for axis in (of.depth, of.column))
    versions = 2 if of.size(of.key) > tile.span else 1
    sides = of.dtype.bytes * (tile.rows * deep + versions * tile.span * (deep + wide))
    joined = f32.bytes * tile.parts * tile.rows * (wide + 2) if tile.parts > 1 else 0
    return sides + joined


def turns_of(of: Chain, tile: AttentionTile) -> tuple[float, int]:
    """The number of iterations over the keys that rows attend to: average and maximum."""
    slices, tiles = -(-of.size(of.key) // tile.span), -(-of.size(of.row) // tile.rows)
    below, above = seen_keys(of)
    if below is None and above is None:
        return slices, slices

    def turns(first: int) -> int:
        last = slices if above is None else (first + tile.rows - 1 + above) // tile.span + 1
        begin = 0 if below is None else (first + below) // tile.span
        return max(1, min(slices, last) - max(0, begin))

    each = [turns(number * tile.rows) for number in range(tiles)]
    return sum(each) / tiles, max(each)


@frozen
class AttentionCost:
    """What tiles of a kind take, in cycles; fitted to drawn tiles of small attentions on one H200.

    Products are those of a quarter of a processor, which has one warp of four at a time.
    """

    begin: float
    """Cycles before the first slice is requested."""
    products: float
    """Products in a cycle."""
    score: float
    """For a score: scale, greatest, exponential, sum, rounding."""
    turn: float
    """In which a turn waits for others and for itself."""
    fetched: float
    """Bytes per cycle and processor."""
    join: tuple[float, float]
    """Of warps with the same rows: at once, and for 128 numbers of a part."""
    registers: tuple[float, float, float]
    """Of a thread: at least, for a column of its squares, and for a key."""


def tiles_cost(of: Chain, tile: AttentionTile, gpu: Gpu, by: AttentionCost, step: int) -> float:
    """Two products around a softmax in tiles: blocks that a processor has at once share it."""
    deep, wide = (-(-of.size(axis) // step) * step for axis in (of.depth, of.column))
    tiles = of.size(*of.lots) * -(-of.size(of.row) // tile.rows)
    warps, squares = tile.warps * tile.parts, tile.high * 16
    work = squares * tile.keys * ((deep + wide) / by.products + by.score)
    fetch = of.dtype.bytes * tile.span * (deep + wide) / by.fetched
    begin = fetch + of.dtype.bytes * tile.rows * deep / by.fetched
    once, each = by.join
    join = once + each * tile.parts * tile.rows * wide / 128 if tile.parts > 1 else 0.0
    least, column, key = by.registers
    held = min(255.0, least + tile.high * (column * wide + key * tile.keys))
    room = min(gpu.shared // shared_bytes(of, tile, step), gpu.registers / (tile.threads * held),
               RESIDENT / warps)  # fmt: skip

    mean, most = turns_of(of, tile)
    beside, many = max(1, int(room)), -(-tiles // gpu.processors)
    turns = mean if many > beside else most  # what is done at once takes as long as its longest

    def at_once(blocks: int) -> float:
        if not blocks:
            return 0.0
        turn = max(work * max(1.0, blocks * warps / 4), blocks * fetch) + by.turn
        return by.begin + blocks * begin + turns * turn + join

    whole = many // beside * at_once(beside) + at_once(many % beside)
    # Tiles of few rows do little with keys that are read once: memory is what they wait for.
    bytes_once = (
        of.dtype.bytes * of.size(*of.lots, of.key) * (of.size(of.depth) + of.size(of.column))
    )
    return max(whole, bytes_once / (TILE_STREAM * gpu.processors))


TILE_STREAM: Final = 9  # bytes per cycle and processor in tiles that all read new data
RESIDENT: Final = 64  # warps that a processor runs at once
BY_WARPS: Final = AttentionCost(700, 256, 0.14, 1630, 23, (570, 4.8), (21, 0.62, 0.63))
"""Tiles of f16 and bf16 by single warps: from 56 tiles and attention shapes, with an average error
of 9 %."""

BY_GROUPS: Final = AttentionCost(2500, 512, 0.19, 540, 60, (1150, 6), (40, 0.33, 0.75))
"""The same of four warps together, to which the copy engine brings what they need: 31 of these,
within 13 %."""

IN_F32: Final = AttentionCost(2420, 30.5, 0.0, 1290, 20, (0, 0), (60, 0.44, 0.03))
"""Tiles of f32, of which a product is three: 40 of these, within 8 %."""


# --- products of f32 ------------------------------------------------------------------------------

IN_PARTS: Final = 170
"""Products of f32 that tensor cores do in a cycle: each is three of half as many terms."""

HELD: Final = {16: 1.6, 8: 1.5, 4: 1.55, 2: 2.2}
"""The cost of a product in parts, by squares of a warp, relative to tensor cores alone, in the unit
below: from 15 products by 60 kernels on an H200. Fewer squares read more for each."""

NARROW_TILE: Final = 2.4  # the same if all warps are side by side, or below each other
SCATTERED: Final = 2  # the cost factor of fetching f32 elements one by one instead of four at once


def product_part_cost(
    of: Operands, warps: Warps, parts: int, gathers: tuple[bool, bool], gpu: Gpu
) -> float:
    """A product of f32 on tensor cores, in products of the processor that has most to do."""
    rows, columns, terms = warps.tile
    m, n, lots = of.size("rows"), of.size("columns"), of.size("batch")
    tiles = -(-m // rows) * -(-n // columns) * lots * parts
    slices, turns = -(-of.depth // (parts * terms)), -(-tiles // gpu.processors)
    left, right = (SCATTERED if gather else 1 for gather in gathers)
    fetch = of.dtype.bytes * terms * (rows * left + columns * right) / BYTES
    held = NARROW_TILE if 1 in (warps.down, warps.across) else HELD[warps.high * warps.wide]
    multiply = held * rows * columns * terms / IN_PARTS
    rounds = -(-turns // blocks_at_once(warps, gpu, of.dtype.bytes, slices))
    waiting = rounds * LATENCY / (1 if any(gathers) else warps.ahead + 1)
    joining = LAUNCH + JOIN * parts * m * n * lots / gpu.processors if parts > 1 else 0.0
    return FMAS * (slices * max(turns * max(multiply, fetch), waiting) + joining)


NEAR: Final = 8  # tiles below one another that run at once: they read the same columns
FMAS: Final = 128  # products of f32 that a processor does in a cycle
ROW: Final = 8  # what fetching an element of a row costs, in products
COPIED: Final = {128: 1.06, 64: 0.97, 32: 1.09, 16: 1.35}
"""The cost of a product with overlapped slice copies, by sums per thread: from six products by 54
kernels on an H200, in the unit below."""

FILLED: Final = 4  # warps in whose time one that is alone waits once more, where slices are copied
STALL: Final = 0.8
"""How much of its time a warp that is alone waits, of that in which it multiplies."""

UNEVEN: Final = 1.25
"""How much longer tiles take that reach beyond a side which threads hold: each read asks."""

AT_ONCE: Final = {128: 3, 256: 1}
"""The number of blocks of this many threads that a processor's registers allow."""

WINDOW: Final = 20  # the cost of fetching a window element: its address takes divisions
JOINED: Final = 24  # what writing and adding up an element of a part costs


def is_window(of: Operands) -> bool:
    """Whether data addresses take divisions."""
    return len(of.groups["terms"]) > 1 or of.bordered is not None


def turn_ways(of: Operands, held: Sides, gpu: Gpu) -> Iterator[tuple[Sides, float]]:
    """Which operands may be transposed first, with the cost in product units: none, or all that
    threads would hold."""
    yield NEITHER, 0.0
    groups: tuple[Group, Group] = ("rows", "columns")
    sides = [
        (side, group)
        for side, group, told in zip((of.left, of.right), groups, held, strict=True)
        if told
    ]
    if sides and not is_window(of) and all(can_transpose(of, *each) for each in sides):
        yield held, FMAS * sum(pad_cost(of, side, gpu) for side, _ in sides)


def tile_cost(
    of: Operands, tile: ProductTile, parts: int, gpu: Gpu, *, copied: bool = False
) -> float:
    """A product of f32 in tiles, in products of the processor that has most to do.

    Slices of both sides may be `copied` while others are multiplied.
    """
    rows, columns, lots = (of.size(each) for each in ("rows", "columns", "batch"))
    plain = not is_window(of) and lots == 1
    tiles = -(-rows // tile.rows) * -(-columns // tile.columns) * lots
    deep = -(-of.depth // parts)
    turns = -(-tiles * parts // gpu.processors)
    slices = -(-deep // tile.terms) * tile.terms
    near, far = tile.rows, tile.columns
    if of.bordered is of.left:  # an element of it is multiplied by all columns
        near, far = far, near
    fetching = 1 + (WINDOW if is_window(of) else ROW) / near + ROW / far
    if copied:
        sums, warps = tile.rows * tile.columns // tile.threads, tile.threads // gpu.warp
        alone = turns % 2 if sums >= max(COPIED) else 0  # its warps keep half of a processor busy
        work = (turns + alone) * tile.rows * tile.columns * slices * COPIED.get(sums, fetching)
        beside = max(1, gpu.registers // (tile.threads * (sums + 64)))
        work *= (1 + FILLED / (warps * min(beside, turns))) / (1 + FILLED / (warps * beside))
    else:
        work = turns * tile.rows * tile.columns * slices * fetching
    if is_window(of):  # a slice is stored when memory has answered, then multiplied
        sums = tile.rows * tile.columns // tile.threads
        beside = max(1, gpu.registers // (tile.threads * (sums + 64)))
        waited = tile.rows * tile.columns * tile.terms * fetching + FMAS * LATENCY
        work = max(work, -(-turns // beside) * slices // tile.terms * waited)
    if plain and not copied:
        warps = tile.threads // gpu.warp * min(AT_ONCE.get(tile.threads, 1), turns)
        work *= 1 + STALL / warps
        if rows % tile.rows or columns % tile.columns or of.depth % tile.terms:
            work *= UNEVEN
    if parts > 1:
        work += FMAS * LAUNCH + JOINED * prod((parts, rows, columns, lots)) / gpu.processors
    return work


def is_enough(of: Operands, tile: ProductTile, parts: int, gpu: Gpu) -> bool:
    """Whether more parts of the terms would only have to be joined."""
    rows, columns, lots = (of.size(each) for each in ("rows", "columns", "batch"))
    tiles = -(-rows // tile.rows) * -(-columns // tile.columns) * lots
    plain = not is_window(of) and lots == 1
    return -(-of.depth // parts) < 4 * tile.terms or (plain and tiles >= 2 * gpu.processors)


# --- anything else --------------------------------------------------------------------------------


def element_cost(of: Stages, gpu: Gpu) -> float:
    """Stages by a thread for each element, in products of a processor: all that is read is
    fetched."""

    def price(store: Store) -> float:
        reads, operations = counts(store.value)
        return 1 + ROW * reads + operations

    return counted(of, price) / gpu.processors
