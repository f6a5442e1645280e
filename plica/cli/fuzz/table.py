"""The table of fuzzers: each kind by its name."""

from __future__ import annotations

from typing import Final

from plica.cli.fuzz import (
    form,
    gradient,
    graph,
    kernel,
    mesh,
    onnx,
    open,
    prove,
    schedule,
    stablehlo,
    torch,
)
from plica.cli.fuzz.kind import FuzzKind

KINDS: Final[tuple[FuzzKind, ...]] = (
    graph.KIND, kernel.KIND, schedule.KIND, onnx.KIND, gradient.KIND, torch.KIND, form.KIND,
    open.KIND, mesh.KIND, prove.KIND, stablehlo.KIND,
)  # fmt: skip
"""Every kind, the most frequent first."""


def kind_named(name: str) -> FuzzKind:
    """The kind of a name that is in the table."""
    return next(kind for kind in KINDS if kind.name == name)
