"""Attention tiles: their sizes, warp requirements, and naming.

Not here: the statements of a tile (`attention_writer`).

>>> AttentionTile(4, 2, 64).rows
128
"""

from __future__ import annotations

from typing import Final

from attrs import frozen

from plica.ir.loop.invocation import TensorIntrinsic
from plica.ir.type import DType, f32
from plica.schedule.default.gpu.machine import LANES
from plica.schedule.default.gpu.tensor_core_meaning import mma

STEP: Final = 16  # terms of two bytes that tensor cores multiply at once


@frozen
class AttentionTile:
    """Warps per block, squares of 16 rows of each, keys of a slice, and warps that share rows with
    separate keys: parts of a slice, joined at the end."""

    warps: int = 4
    high: int = 2
    keys: int = 64
    parts: int = 1

    @property
    def rows(self) -> int:
        return self.warps * self.high * STEP

    @property
    def threads(self) -> int:
        return self.warps * self.parts * LANES

    @property
    def span(self) -> int:
        """Keys that a block looks at in a turn."""
        return self.keys * self.parts


def scores_mma(high: int, keys: int, dtype: DType) -> TensorIntrinsic:
    """Products of a tile of queries and keys: rows of both are short."""
    return mma(high, keys, (True, True), dtype, few=dtype is f32)
