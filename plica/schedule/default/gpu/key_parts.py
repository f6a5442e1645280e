"""Attention with keys read in parts: the alternatives for rows that share keys.

    one or two rows        by threads: nothing takes longer than reading does
    some of f16 or bf16    by threads, or by tensor cores, whatever is reckoned to be faster: up to
                           eight from registers, others from tiles in shared memory
    some of anything else  by threads
    many                   not in parts: `plica.schedule.default.gpu.attention_tile`

All ways leave the same triples of parts, which are joined by the same launch.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from plica.ir.loop.stages import Stages
from plica.schedule.default.gpu.attention_parts import attention_parts, part_cost, part_tile
from plica.schedule.default.gpu.decode_chain import DecodeChain, decode_chain
from plica.schedule.default.gpu.decode_quad import quad_cost, quad_parts, quad_tile
from plica.schedule.default.gpu.decode_tile import decode_cost, decode_tile
from plica.schedule.default.gpu.decode_writer import decode_tiles
from plica.schedule.default.gpu.machine import Gpu
from plica.schedule.default.summed import in_free_order
from plica.schedule.form import Made
from plica.schedule.online_softmax import online_softmax


def shared_keys(of: Stages) -> DecodeChain | None:
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
