"""gradient: random programs of differentiable operators, their gradients held to differences."""

from plica.rewrite.fuzz.gradient.run import GradientFuzzReport, fuzz

__all__ = ["GradientFuzzReport", "fuzz"]
