"""fuzz: random programs of torch, compiled, held against torch itself."""

from plica.frontend.torch.fuzz.run import fuzz

__all__ = ["fuzz"]
