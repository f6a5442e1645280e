"""fuzz: random programs written as StableHLO, compared with XLA and with what is read back."""

from plica.frontend.stablehlo.fuzz.run import fuzz

__all__ = ["fuzz"]
