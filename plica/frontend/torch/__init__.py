"""torch: programs that torch has exported or traced become modules of the graph language."""

from plica.frontend.torch.exported import from_torch

__all__ = ["from_torch"]
