"""Forms of products on a GPU: tiles of threads and of tensor cores, and what each would cost.

Tables list the tiles; a form enumerates those that suit a product, with estimated cycles.

>>> [each.tile for each in WARPS[:2]]
[(128, 256, 32), (128, 128, 32)]
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

from attrs import evolve

from plica.ir.loop.stages import Stages, reductions
from plica.ir.type import f32
from plica.schedule.default.gpu.cost import (
    blocks_at_once,
    is_enough,
    is_window,
    pad_cost,
    product_part_cost,
    tile_cost,
    turn_ways,
    warps_cost,
)
from plica.schedule.default.gpu.form import NEITHER, Sides, tiled
from plica.schedule.default.gpu.machine import Gpu
from plica.schedule.default.gpu.narrow_read import BYTES, NARROW
from plica.schedule.default.gpu.octet import in_octets, is_plain
from plica.schedule.default.gpu.operand import Operands, operands
from plica.schedule.default.gpu.product import ProductTile
from plica.schedule.default.gpu.tensor_core import Warps
from plica.schedule.default.gpu.tensor_core_meaning import Along
from plica.schedule.default.gpu.window_box import box_for, can_be_box, in_channel_slices, is_boxed
from plica.schedule.form import Facts, Made

FEWEST: Final = 1 << 16  # fewer products than that are spread over threads, one sum each
LEAST: Final = 8  # rows and columns of matrices that are worth tiles, at least
PANEL: Final = 64  # rows or columns that the copy engine fetches side by side
BESIDE: Final = 2
"""The minimum number of blocks per processor if threads wait for loads: others work meanwhile."""

PARTS: Final = (1, 2, 4, 8, 16, 32)  # in how many parts the terms of a sum go

TILES: Final = (
    ProductTile(128, 128, 16, 8, 16, ahead=1),
    ProductTile(64, 128, 16, 8, 16, ahead=1),
    ProductTile(64, 64, 16, 8, 16, ahead=1),
    ProductTile(32, 64, 16, 8, 16, ahead=1),
)

FEW_COLUMNS: Final = ProductTile(128, 32, 8, 8, 8, ahead=1)
"""For windows that few channels are made of."""

HIGH: Final = ProductTile(256, 128, 16, 16, 16, ahead=2, kept=True)
"""For matrix products with few tiles."""


def _groups(*shapes: tuple[int, int, int, int]) -> tuple[Warps, ...]:
    """Groups of four warps down, 64 rows and columns in eights of each, and slices under way."""
    return tuple([
        Warps(down, 1, high, wide, 4, ahead=ahead, together=True, near=8)
        for down, high, wide, ahead in shapes
    ])  # fmt: skip


PANELS: Final = _groups((2, 1, 32, 2), (2, 1, 16, 3), (1, 1, 16, 4), (2, 1, 8, 4))
"""Tiles of warps that multiply together, whose columns may be neighbours: panels of 64."""

GROUPS: Final = PANELS + _groups(
    (2, 1, 24, 3), (2, 1, 12, 4), (2, 1, 4, 5), (1, 1, 24, 3), (1, 1, 12, 5), (1, 1, 8, 5),
    (2, 2, 12, 2), (2, 2, 8, 2), (2, 2, 4, 3), (3, 1, 16, 3), (3, 1, 24, 2), (1, 1, 4, 5),
)  # fmt: skip
"""The same with others: of 31 products by 16 tiles each on one H200 the best of fourteen more would
take as long as the best of these, on average, and those that are priced lowest 1.046 times."""

WARPS: Final = (
    Warps(2, 4, 4, 8, 2, ahead=3), Warps(2, 2, 4, 8, 2, ahead=3), Warps(2, 2, 4, 4, 2, ahead=3),
    Warps(2, 2, 2, 4, 2, ahead=3), Warps(2, 2, 1, 4, 4, ahead=3), Warps(2, 2, 1, 2, 4, ahead=3),
)  # fmt: skip
"""Tiles from large to small."""

NARROW_WARPS: Final = (
    Warps(4, 1, 2, 2, 4, ahead=3), Warps(4, 1, 2, 4, 2, ahead=3),
    Warps(1, 4, 1, 4, 4, ahead=3), Warps(1, 4, 2, 4, 2, ahead=3),
)  # fmt: skip
"""Tiles of few columns, or of few rows."""

BYTE_WARPS: Final = tuple([evolve(warp, octet=16) for warp in WARPS])
"""The same of bytes: an instruction has twice as many terms."""

PART_WARPS: Final = (
    Warps(2, 4, 4, 4, 4, ahead=2, octet=4), Warps(2, 2, 4, 4, 4, ahead=2, octet=4),
    Warps(2, 2, 2, 4, 4, ahead=2, octet=4), Warps(2, 2, 1, 4, 4, ahead=2, octet=4),
    Warps(2, 2, 1, 2, 8, ahead=2, octet=4),
    *[evolve(warp, steps=4, ahead=2, octet=4) for warp in NARROW_WARPS],
)  # fmt: skip
"""The same of f32, whose numbers are two in registers: an instruction has half as many terms."""

BYTE_GROUPS: Final = tuple([evolve(panel, octet=16) for panel in PANELS])
"""The same of bytes by warps that multiply together."""

EXACT: Final = Facts(())  # nothing is known


def product_of(of: Stages, facts: Facts = EXACT, few: int = LEAST) -> Operands | None:
    """The product some stages are, if it is worth tiles; of f32 that has not too `few` rows."""
    found = operands(of, facts.fits_i8)
    if found is None:
        return None
    sizes = [found.size(each) for each in ("rows", "columns", "terms", "batch")]
    many = sizes[0] * sizes[1] * sizes[2] * sizes[3]
    least = few if found.dtype is f32 else LEAST // 2  # tensor cores wait for memory anyhow
    return None if min(sizes[:2]) < least or many < FEWEST else found


def _constant(of: Stages, found: Operands, facts: Facts) -> tuple[bool, bool]:
    """Which sides are known before the program runs."""
    known_ = {buffer.name for buffer, told in zip(of.inputs, facts.constant, strict=True) if told}
    return found.left.buffer.name in known_, found.right.buffer.name in known_


def along_of(of: Stages, found: Operands, facts: Facts) -> Along:
    """For which operands slices are fetched along the terms; operands gathered in advance are.

    So do bytes, as tensor cores read them in no other order.
    """
    if found.dtype in BYTES:
        return True, True
    left, right = _constant(of, found, facts)
    return left or found.along(found.left), right or found.along(found.right)


def in_warps(  # noqa: PLR0917  # what a form is made of
    of: Stages,
    facts: Facts,
    found: Operands,
    warps: Warps,
    parts: int = 1,
    pads: tuple[bool, bool] = (False, False),
) -> Stages:
    """A product in tiles of some warps."""
    return tiled(found, warps.layout(along_of(of, found, facts)), parts, pads)


def held_sides(of: Stages, facts: Facts, found: Operands) -> Sides:
    """Sides that threads hold on the way to shared memory: their terms are neighbours."""
    left, right = _constant(of, found, facts)
    return not left and found.along(found.left), not right and found.along(found.right)


def in_tiles(  # noqa: PLR0917  # what a form is made of
    of: Stages, facts: Facts, found: Operands, tile: ProductTile, parts: int = 1,
    turns: Sides = NEITHER,
) -> Stages:  # fmt: skip
    """A product in thread tiles, after transposing some operands."""
    left, right = held_sides(of, facts, found)
    along = (left and not turns[0], right and not turns[1])
    return tiled(found, tile.layout(along), parts, turns=turns)


def warp_tiles(of: Stages, facts: Facts, gpu: Gpu, together: bool) -> Iterator[Made]:
    """Products of f16, bf16 or bytes in tiles of warps, which multiply `together` or by each."""
    found = product_of(of, facts)
    if found is None or found.dtype not in (*NARROW, *BYTES) or (together and not gpu.groups):
        return
    known_: tuple[Warps, ...] = GROUPS if together else (*WARPS, *NARROW_WARPS)
    if found.dtype in BYTES:
        known_ = BYTE_GROUPS if together else BYTE_WARPS
    constant = _constant(of, found, facts)
    along = along_of(of, found, facts)
    sides = [*zip((found.left, found.right), constant, along, strict=True)]
    whole = [told or in_octets(found, side, near) for side, told, near in sides]
    can_pad = [is_plain(found, side, near) for side, _, near in sides]
    every = [(not whole[0], not whole[1])] if all(
        one or pad for one, pad in zip(whole, can_pad, strict=True)
    ) else []  # fmt: skip
    if not together and (False, False) not in every:  # elements may come one by one
        every.append((False, False))
    for pads in every:
        left, right = (not one and not pad for one, pad in zip(whole, pads, strict=True))
        gathers = (left and not can_pad[0], right and not can_pad[1])
        shifts = (left and can_pad[0], right and can_pad[1])
        copies = sum(pad_cost(found, side, gpu) for (side, _, _), pad in
                     zip(sides, pads, strict=True) if pad)  # fmt: skip
        for warps in known_:
            if together and not _in_panels(warps, along, constant):
                continue
            if (
                together
                and is_window(found)
                and not (constant[0] or can_be_box(found, warps.tile[0]))
            ):
                continue  # the copy engine could not fetch it
            if any(shifts) and blocks_at_once(warps, gpu, found.dtype.bytes, 1) < BESIDE:
                continue
            for parts in PARTS:
                if parts > 1 and -(-found.depth // parts) < 4 * warps.tile[2]:
                    break
                cycles = warps_cost(found, warps, parts, gathers, gpu, shifts=shifts) + copies
                yield cycles, partial(in_warps, of, facts, found, warps, parts, pads)


def box_tiles(of: Stages, facts: Facts, gpu: Gpu) -> Iterator[Made]:
    """Windows of f16 or bf16 over channels that are neighbours, in tiles that are boxes."""
    found = product_of(of, facts) if gpu.groups else None
    if found is None or found.dtype not in NARROW or not is_boxed(found):
        return
    left, right = _constant(of, found, facts)
    if left or not (right or in_octets(found, found.right, along=True)):
        return
    sizes = tuple([found.sizes[axis] for axis in found.groups["rows"]])
    for warps in GROUPS:
        rows, _, terms = warps.tile
        box = box_for(sizes, rows)
        sliced = in_channel_slices(found, box, terms)
        slices = sliced.depth // terms
        for parts in range(1, PARTS[-1] + 1):
            if slices % parts or (parts > 1 and slices // parts < 4):
                continue
            cycles = warps_cost(sliced, warps, parts, NEITHER, gpu, box.tiles * rows)
            yield cycles, partial(tiled, sliced, warps.layout((True, True)), parts, box=box)


def part_tiles(of: Stages, facts: Facts, gpu: Gpu) -> Iterator[Made]:
    """f32 products in tiles with contiguous terms: otherwise elements are fetched one by one."""
    found = product_of(of, facts, LEAST // 2)
    if found is None or {found.kind(load) for load in (found.left, found.right)} != {f32}:
        return
    constant = _constant(of, found, facts)
    sides = [*zip((found.left, found.right), constant, strict=True)]
    gathers = [not told and not (found.along(side) and in_octets(found, side, True))
               for side, told in sides]  # fmt: skip
    if any(gathers) and is_window(found) and product_of(of, facts) is not None:
        return  # where each element of a window is takes longer than threads multiply
    for warps in PART_WARPS:
        for parts in PARTS:
            if parts > 1 and -(-found.depth // parts) < 4 * warps.tile[2]:
                break
            products = product_part_cost(found, warps, parts, (gathers[0], gathers[1]), gpu)
            yield products, partial(tiled, found, warps.layout((True, True)), parts)


def _in_panels(warps: Warps, along: Along, constant: tuple[bool, bool]) -> bool:
    """Whether the copy engine can fetch tiles: of rows or columns that are neighbours, panels."""
    rows, columns, _ = warps.tile
    return all(
        near or told or count % PANEL == 0
        for count, near, told in zip((rows, columns), along, constant, strict=True)
    )


def thread_tiles(of: Stages, facts: Facts, gpu: Gpu, parts: tuple[int, ...]) -> Iterator[Made]:
    """Products of f32 in tiles of threads, the terms in a given number of parts."""
    found = product_of(of, facts)
    if found is None or found.dtype is not f32:
        return
    if not facts.reassociates and any(reduction.runs for reduction in reductions(of)):
        return  # totals of runs are kept apart
    plain = not is_window(found) and found.size("batch") == 1
    held = held_sides(of, facts, found)
    for turns, copying in turn_ways(found, held, gpu):
        copied = not is_window(found) and turns == held
        for tile in _tiles_for(found, plain=plain and not any(turns)):
            for count in parts:
                if count > 1 and is_enough(found, tile, count, gpu):
                    break
                cycles = tile_cost(found, tile, count, gpu, copied=copied) + copying
                yield cycles, partial(in_tiles, of, facts, found, tile, count, turns)


def _tiles_for(of: Operands, *, plain: bool) -> tuple[ProductTile, ...]:
    """Tiles that may suit a product; a `plain` one has two matrices, as they lie."""
    if plain:
        return (*TILES, HIGH)
    return (*TILES, FEW_COLUMNS) if is_window(of) else TILES
