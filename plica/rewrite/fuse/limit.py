"""How far fusion goes: the sizes and kinds of groups that a target takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from attrs import frozen

from plica.ir.graph.expression import Function


@frozen
class FusionLimits:
    """Operators of a group, operators after one another, and those that stay alone."""

    size: int = 48
    depth: int = 32
    stop: tuple[str, ...] = ()
    tiles: bool = False
    """Whether products are made of tiles that read narrow floats, in any order, as they lie."""
    bytes_stay: bool = False
    """Whether bytes that are read as wider integers stay bytes in memory, whoever reads them."""
    windows: bool = False
    """Whether windows over a channel, channels last, make wider numbers of bytes where they read
    them."""
    chains: Callable[[Function], bool] | None = None
    """Which functions may be a product, rows of its result, and a product of those, in one."""
    row_bytes: int = 1 << 20
    """What all stages keep of one row, at most: it should stay in a near cache."""
    columns: Callable[[Function], bool] | None = None
    """Which functions may be stages of rows that lie along other axes than the last ones."""
    open_rows: bool = False
    """Whether rows along the last axes may have any length: nothing of them need be kept."""
    gates: Callable[[Function], bool] | None = None
    """Which functions may be a product and what is made of parts of it, in one."""
    unpacks: bool = False
    """Whether products make numbers of fields of bytes where they read them."""
    joins: bool = True
    """Whether parts of a tensor may be written into its memory, each by a kernel of its own."""


DEFAULT_LIMITS: Final = FusionLimits()
