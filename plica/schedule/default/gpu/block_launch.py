"""A launch whose blocks have threads along rows and optionally across them.

>>> from plica.core.name import Name
>>> from plica.ir.loop.statement import NOTHING, statements
>>> from plica.ir.type.dtype import i64
>>> block, thread, lane = (sc.ScalarVar(Name(each), i64) for each in ("b", "t", "l"))
>>> made = block_launch(NOTHING, (block, 7), (thread, 32), (lane, 4))
>>> [each.kind for each in statements(made) if isinstance(each, For)]
['blockIdx.x', 'threadIdx.x', 'threadIdx.y']
>>> made = block_launch(NOTHING, (block, 7), (thread, 8), (lane, 4), beside=False)
>>> [each.kind for each in statements(made) if isinstance(each, For)]
['blockIdx.x', 'threadIdx.y', 'threadIdx.x']
>>> made = block_launch(NOTHING, (block, 7), (thread, 32), (lane, 1))
>>> [each.kind for each in statements(made) if isinstance(each, For)]
['blockIdx.x', 'threadIdx.x']
"""

from __future__ import annotations

from typing import TypeAlias

from plica.core import substitute
from plica.ir.loop import For, Stmt, scalar as sc

Counted: TypeAlias = tuple[sc.ScalarVar, int]  # a variable and its extent


def block_launch(
    body: Stmt, blocks: Counted, along: Counted, across: Counted, *, beside: bool = True
) -> Stmt:
    """A per-thread body as a launch; contiguous elements belong to the threads of a warp: across
    rows if several are `beside` one another, else along the row."""
    (block, count), (thread, rows), (lane, columns) = blocks, along, across
    if columns == 1:
        body = substitute(body, {lane: sc.index(0)})
        body = For(thread, sc.index(rows), "threadIdx.x", body)
    elif not beside:
        body = For(thread, sc.index(rows), "threadIdx.x", body)
        body = For(lane, sc.index(columns), "threadIdx.y", body)
    else:
        body = For(thread, sc.index(rows), "threadIdx.y", body)
        body = For(lane, sc.index(columns), "threadIdx.x", body)
    return For(block, sc.index(count), "blockIdx.x", body)
