"""gradient: reverse-mode automatic differentiation as a rewrite."""

from plica.rewrite.gradient.derive import checkpoint, grad, jvp, value_and_grad, vjp

__all__ = ["checkpoint", "grad", "jvp", "value_and_grad", "vjp"]
