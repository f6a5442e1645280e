"""Forms of two products around a softmax: which tiles they may have, and what each should take.

    y = softmax(q * k + …) * v    -->    tiles of rows, each of which goes through the keys once

f16 and bf16 operands are multiplied directly; f32 operands are split (see
`plica.schedule.default.gpu.tensor_core_meaning`).  Rows that share keys read these in parts:

    one or two rows        by threads: nothing takes longer than reading does
    some of f16 or bf16    by threads, or by tensor cores, whatever is reckoned to be faster: up to
                           eight from registers, others from tiles in shared memory
    some of anything else  by threads
    many                   not in parts

All ways leave the same triples of parts, which are joined by the same launch.

>>> [tile.rows for tile in ATTENTION[:3]]
[256, 128, 64]
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

from plica.ir.contract import approx
from plica.ir.loop.stages import Stages
from plica.ir.type import f32
from plica.schedule.default.gpu.attention_chain import Chain, chain_of, decode_chain, rows_of
from plica.schedule.default.gpu.attention_group import PANEL, group_attention_tiles, is_in_panels
from plica.schedule.default.gpu.attention_parts import WIDEST, attention_parts, part_cost, part_tile
from plica.schedule.default.gpu.attention_tile import STEP, AttentionTile
from plica.schedule.default.gpu.attention_writer import attention_tiles
from plica.schedule.default.gpu.cost import BY_GROUPS, BY_WARPS, IN_F32, shared_bytes, tiles_cost
from plica.schedule.default.gpu.decode_quad import quad_cost, quad_parts, quad_tile
from plica.schedule.default.gpu.decode_tile import decode_cost, decode_tile
from plica.schedule.default.gpu.decode_writer import decode_tiles
from plica.schedule.default.gpu.machine import Gpu
from plica.schedule.default.summed import in_free_order
from plica.schedule.form import Made
from plica.schedule.online_softmax import online_softmax

PARTS_CONTRACT: Final = approx(4e-6)
"""How far off products of f32 are that tensor cores make of parts of their sides."""

DOWN: Final = (1, 2, 4, 8)  # warps of a block that have other rows
PARTS: Final = (1, 2, 4, 8)  # warps that have the same rows, and other keys
MOST_WARPS: Final = 16  # warps of a block, at most: of more, each has too few registers


def _tiles(*sizes: tuple[int, int]) -> tuple[AttentionTile, ...]:
    """Tiles of any warps, for squares of rows and keys of a warp."""
    return tuple([
        AttentionTile(down, high, keys, parts)
        for high, keys in sizes for down in DOWN for parts in PARTS
        if down * parts <= MOST_WARPS
    ])  # fmt: skip


ATTENTION: Final[tuple[AttentionTile, ...]] = (
    AttentionTile(8, 2, 64), AttentionTile(4, 2, 64), AttentionTile(2, 2, 64),
    *_tiles((1, 64), (1, 32)),
)  # fmt: skip
"""Tiles of two products around a softmax."""

GROUP_ATTENTION: Final[tuple[AttentionTile, ...]] = (
    AttentionTile(8, 1, 128), AttentionTile(8, 1, 64), AttentionTile(4, 1, 64),
    AttentionTile(4, 1, 64, 2), AttentionTile(4, 1, 64, 4), AttentionTile(8, 1, 64, 2),
)  # fmt: skip
"""The same, of warps that multiply together."""

WIDE_ATTENTION: Final[tuple[AttentionTile, ...]] = (
    AttentionTile(4, 2, 32), *_tiles((1, 64), (1, 32), (1, 16)),
)  # fmt: skip
"""The same of f32: each number is two in registers."""


def chained(of: Stages) -> Chain | None:
    """A product, softmax and a product, if tensor cores are to do them in one; else None.

    Weights are rounded to the dtype of the values, which must be that of the result then.
    """
    stages = online_softmax(in_free_order(of))
    chain = None if stages is None else chain_of(stages)
    return chain if chain is not None and is_tiled(chain) else None


def is_tiled(of: Chain) -> bool:
    """Whether sums of a tile have room in registers, and results the dtype that weights have."""
    wide = max(of.size(of.depth), of.size(of.column))
    return of.out.out.dtype is of.dtype and wide <= WIDEST


def narrow_chains(of: Stages) -> Iterator[Chain]:
    """A chain of f16 or bf16, and the same with rows of all heads that share keys below one
    another."""
    chain = chained(of)
    if chain is not None and chain.dtype is not f32:
        yield chain
    shared = shared_keys(of)
    if shared is not None and (chain is None or len(shared.rows) > 1):
        below = rows_of(shared)
        if below is not None and is_tiled(below):
            yield below


def fits(of: Chain, tile: AttentionTile, gpu: Gpu, step: int = STEP) -> bool:
    """Whether a block has memory for a tile."""
    return shared_bytes(of, tile, step) <= gpu.shared


def online(of: Stages, gpu: Gpu) -> Iterator[Made]:
    """Softmax folded with the product after it, by warps, of f16 or bf16."""
    for chain in narrow_chains(of):
        for tile in ATTENTION:
            if fits(chain, tile, gpu):
                cycles = tiles_cost(chain, tile, gpu, BY_WARPS, STEP)
                yield cycles, partial(attention_tiles, chain, tile)


def online_in_parts(of: Stages, gpu: Gpu) -> Iterator[Made]:
    """The same of f32."""
    chain = chained(of)
    if chain is None or chain.dtype is not f32:
        return
    for tile in WIDE_ATTENTION:
        # Sums have room in registers.
        if tile.high * chain.size(chain.column) <= WIDEST and fits(chain, tile, gpu):
            yield tiles_cost(chain, tile, gpu, IN_F32, STEP), partial(attention_tiles, chain, tile)


def online_together(of: Stages, gpu: Gpu) -> Iterator[Made]:
    """The same of f16 or bf16 by four warps together."""
    chain = chained(of) if gpu.groups else None
    if chain is None or chain.dtype is f32:
        return
    for tile in GROUP_ATTENTION:
        if is_in_panels(chain, tile) and fits(chain, tile, gpu, PANEL):
            cycles = tiles_cost(chain, tile, gpu, BY_GROUPS, PANEL)
            yield cycles, partial(group_attention_tiles, chain, tile)


def shared_keys(of: Stages) -> Chain | None:
    """A product, softmax and a product whose rows read the same keys, or None."""
    stages = online_softmax(in_free_order(of))
    return None if stages is None else decode_chain(stages)


def in_key_parts(of: Stages, gpu: Gpu) -> Iterator[Made]:
    """The alternatives for reading keys in parts, with their costs."""
    if (chain := shared_keys(of)) is None:
        return
    if (tile := decode_tile(chain, gpu)) is not None:
        yield decode_cost(chain, tile, gpu), partial(decode_tiles, chain, tile)
    if (few := quad_tile(chain, gpu)) is not None:
        yield quad_cost(chain, few, gpu), partial(quad_parts, chain, few)
    if (parts := part_tile(chain, gpu)) is not None:
        yield part_cost(chain, parts, gpu), partial(attention_parts, chain, parts)
