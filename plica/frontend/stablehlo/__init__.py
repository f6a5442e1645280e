"""StableHLO: modules in MLIR's text or bytecode, as JAX and others export them, in and out."""

from plica.frontend.stablehlo.importer import from_stablehlo
from plica.frontend.stablehlo.writer import to_stablehlo

__all__ = ["from_stablehlo", "to_stablehlo"]
