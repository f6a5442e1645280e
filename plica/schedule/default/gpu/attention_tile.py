"""Attention tiles: their sizes, warp requirements, and naming.

Not here: the statements of a tile (`attention_writer`).

>>> AttentionTile(4, 2, 64).rows
128
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from attrs import frozen

from plica.ir.loop import Buffer, For, Names, Region, Scalar, Stmt, index
from plica.ir.loop.invocation import TensorIntrinsic
from plica.ir.loop.statement import LoopKind
from plica.ir.type import DType, f32
from plica.schedule.default.gpu.tensor_core_meaning import mma

LANES: Final = 32  # threads of a warp
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


class TileNames(Names):
    """Names for loops and buffers of a tile."""

    def buffer(self, like: str, shape: Sequence[int], dtype: DType, scope: str) -> Buffer:
        return Buffer(self.name(like), tuple(map(index, shape)), dtype, scope)


def nest(
    names: Names,
    axes: Mapping[str, int],
    body: Callable[..., Stmt],
    kind: LoopKind = "serial",
    around: LoopKind = "serial",
) -> Stmt:
    """A nest of loops; the last is of a kind, those around it of another."""
    own = [names.var(word) for word in axes]
    whole = body(*own)
    for number, (var, size) in enumerate(reversed([*zip(own, axes.values(), strict=True)])):
        whole = For(var, index(size), kind if number == 0 else around, whole)
    return whole


def region_of(of: Buffer, starts: Mapping[int, Scalar], extents: Mapping[int, int]) -> Region:
    """A region that has all of a buffer but along some axes."""
    begin = [starts.get(at, index(0)) for at in range(len(of.shape))]
    count = [index(extents[at]) if at in extents else size for at, size in enumerate(of.shape)]
    return Region(of, tuple(begin), tuple(count))


def scores_mma(high: int, keys: int, dtype: DType) -> TensorIntrinsic:
    """Products of a tile of queries and keys: rows of both are short."""
    return mma(high, keys, (True, True), dtype, few=dtype is f32)
