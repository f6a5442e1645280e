"""The table of fuzzers: each kind by its name."""

from __future__ import annotations

from typing import Final

from plica.cli.fuzz import graph, loop, peer, program
from plica.cli.fuzz.kind import FuzzKind

KINDS: Final[tuple[FuzzKind, ...]] = (
    graph.KIND, loop.KERNEL, loop.SCHEDULE, peer.ONNX, program.GRADIENT, peer.TORCH, loop.FORM,
    program.OPEN, program.MESH, program.PROVE, peer.STABLEHLO,
)  # fmt: skip
"""Every kind, the most frequent first."""


def kind_named(name: str) -> FuzzKind:
    """The kind of a name that is in the table."""
    return next(kind for kind in KINDS if kind.name == name)
