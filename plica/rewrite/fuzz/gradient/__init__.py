"""gradient: random programs of differentiable operators, with gradients compared to finite
differences."""

from plica.rewrite.fuzz.gradient.run import fuzz

__all__ = ["fuzz"]
