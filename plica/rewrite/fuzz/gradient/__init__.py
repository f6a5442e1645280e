"""gradient: random programs of differentiable operators, their gradients held to differences."""

from plica.rewrite.fuzz.gradient.run import fuzz

__all__ = ["fuzz"]
