"""fuzz: random programs of torch, compiled, held against torch itself."""

from plica.frontend.torch.fuzz.run import TorchFuzzReport, fuzz

__all__ = ["TorchFuzzReport", "fuzz"]
