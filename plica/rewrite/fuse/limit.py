"""Fusion limits: the sizes and kinds of groups that a target accepts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from attrs import frozen

from plica.ir.graph.expression import Function


@frozen
class FusionLimits:
    """Operators per group, operators in sequence, and operators never fused."""

    size: int = 48
    depth: int = 32
    stop: tuple[str, ...] = ()
    tiles: bool = False
    """Whether products are made of tiles that read narrow floats, in any order, as they lie."""
    bytes_stay: bool = False
    """Whether bytes that are read as wider integers stay bytes in memory."""
    windows: bool = False
    """Whether windows over a channel, channels last, make wider numbers of bytes where they read
    them."""
    chains: Callable[[Function], bool] | None = None
    """Which functions may be a product, rows of its result, and a product of those, in one."""
    row_bytes: int = 1 << 20
    """The maximum bytes per row kept by all stages: they should stay in a near cache."""
    columns: Callable[[Function], bool] | None = None
    """Which functions may be stages of rows that lie along other axes than the last ones."""
    open_rows: bool = False
    """Whether rows along the last axes may have any length, because nothing of them is kept."""
    gates: Callable[[Function], bool] | None = None
    """Which functions may combine a product with its sliced uses."""
    unpacks: bool = False
    """Whether products make numbers of fields of bytes where they read them."""
    joins: bool = True
    """Whether parts of a tensor may be written in place by separate kernels."""


DEFAULT_LIMITS: Final = FusionLimits()
