"""Forms of two products around a softmax: which tiles they may have, and what each should take.

    y = softmax(q * k + …) * v    -->    tiles of rows, each of which goes through the keys once

Sides of f16 and bf16 are multiplied as they are; those of f32 in parts
(see `plica.schedule.default.gpu.tensor_core_meaning`).

>>> [tile.rows for tile in ATTENTION]
[256, 128, 64]
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

from plica.ir.loop.stages import Stages
from plica.ir.type.dtype import f32
from plica.rewrite.contract import approx
from plica.schedule.default.gpu.attention_chain import Chain, chain_of
from plica.schedule.default.gpu.attention_group import (
    PANEL,
    group_attention_intrinsics,
    group_attention_tiles,
    is_in_panels,
)
from plica.schedule.default.gpu.attention_parts import WIDEST
from plica.schedule.default.gpu.attention_tile import (
    STEP,
    AttentionTile,
    attention_intrinsics,
)
from plica.schedule.default.gpu.attention_writer import attention_tiles
from plica.schedule.default.gpu.cost import (
    attention_cost,
    group_attention_cost,
    part_attention_cost,
)
from plica.schedule.default.gpu.machine import Gpu
from plica.schedule.default.gpu.narrow_read import NARROW
from plica.schedule.default.summed import in_free_order
from plica.schedule.form import Made
from plica.schedule.online_softmax import online_softmax

PARTS_CONTRACT: Final = approx(4e-6)
"""How far off products of f32 are that tensor cores make of parts of their sides."""

LEAST_ROWS: Final = 8
"""Rows and keys that are worth tiles, at least."""

ATTENTION: Final[tuple[AttentionTile, ...]] = (
    AttentionTile(8, 2, 64), AttentionTile(4, 2, 64), AttentionTile(2, 2, 64),
)  # fmt: skip
"""Tiles of two products around a softmax."""

GROUP_ATTENTION: Final[tuple[AttentionTile, ...]] = (
    AttentionTile(8, 1, 128), AttentionTile(8, 1, 64), AttentionTile(4, 1, 64),
)  # fmt: skip
"""The same, of warps that multiply together."""

WIDE_ATTENTION: Final[tuple[AttentionTile, ...]] = (
    AttentionTile(4, 2, 32), AttentionTile(4, 1, 64), AttentionTile(4, 1, 32),
    AttentionTile(2, 1, 32),
)  # fmt: skip
"""The same of f32: each number is two in registers."""

ATTENTION_INTRINSICS: Final = tuple(
    [
        each.name
        for tiles, dtypes in ((ATTENTION, NARROW), (WIDE_ATTENTION, (f32,)))
        for tile in tiles
        for dtype in dtypes
        for columns in range(STEP, WIDEST + 1, STEP)
        for each in attention_intrinsics(tile, columns, dtype)
    ]
    + [
        each.name
        for tile in GROUP_ATTENTION
        for dtype in NARROW
        for columns in range(PANEL, WIDEST + 1, PANEL)
        for each in group_attention_intrinsics(tile, columns, dtype)
    ]
)
"""What all of them ask of the threads of a warp."""


def chained(of: Stages) -> Chain | None:
    """A product, softmax and a product, if tensor cores are to do them in one; else None.

    Weights are rounded to the dtype of the values, which must be that of the result then.
    """
    found = online_softmax(in_free_order(of))
    chain = None if found is None else chain_of(found)
    if chain is None or chain.out.out.dtype is not chain.dtype:
        return None
    wide = max(chain.size(chain.depth), chain.size(chain.column))
    few = min(chain.size(chain.row), chain.size(chain.key))
    return chain if few >= LEAST_ROWS and wide <= WIDEST else None


def online(of: Stages, gpu: Gpu) -> Iterator[Made]:
    """Softmax folded with the product after it, by warps, of f16 or bf16."""
    chain = chained(of)
    if chain is None or chain.dtype is f32:
        return
    for tile in ATTENTION:
        yield attention_cost(chain, tile, gpu), partial(attention_tiles, chain, tile)


def online_in_parts(of: Stages, gpu: Gpu) -> Iterator[Made]:
    """The same of f32."""
    chain = chained(of)
    if chain is None or chain.dtype is not f32:
        return
    for tile in WIDE_ATTENTION:
        if tile.high * chain.size(chain.column) <= WIDEST:  # sums have room in registers
            yield part_attention_cost(chain, tile, gpu), partial(attention_tiles, chain, tile)


def online_together(of: Stages, gpu: Gpu) -> Iterator[Made]:
    """The same of f16 or bf16 by four warps together."""
    chain = chained(of) if gpu.groups else None
    if chain is None or chain.dtype is f32:
        return
    for tile in GROUP_ATTENTION:
        if is_in_panels(chain, tile):
            cycles = group_attention_cost(chain, tile, gpu)
            yield cycles, partial(group_attention_tiles, chain, tile)
