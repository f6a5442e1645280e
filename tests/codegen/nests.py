"""The plain loops of a tensor expression."""

from __future__ import annotations

from plica.codegen.lower.nest import nest as nest_of_stages
from plica.ir.loop.stages import stages_of
from plica.ir.loop.statement import Kernel
from plica.ir.loop.tensor import Compute


def nest(of: Compute) -> Kernel:
    """The kernel of a tensor expression that nothing was decided about."""
    return nest_of_stages(stages_of(of))
