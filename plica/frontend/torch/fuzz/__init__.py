"""fuzz: random torch programs, compiled and compared with torch."""

from plica.frontend.torch.fuzz.run import fuzz

__all__ = ["fuzz"]
