"""GPUs as targets: an architecture, and the few facts schedules ask for.

>>> parse_gpu("cuda:sm_80").architecture, str(parse_gpu("cuda"))
('sm_80', 'cuda:sm_90')
>>> parse_gpu("cpu") is None
True
"""

from __future__ import annotations

from typing import Final

from attrs import frozen

from plica.codegen.cuda.toolchain import ARCHITECTURES
from plica.core.diagnostic import did_you_mean
from plica.runtime.error import Diagnostic, UnsupportedError
from plica.schedule.default.gpu.machine import Gpu

DEFAULT: Final = "sm_90"
"""What code is made for where nothing is said and no GPU is here."""

PROCESSORS: Final = {"sm_80": 108, "sm_86": 84, "sm_89": 128, "sm_90": 132, "sm_90a": 132}
"""How many blocks the largest machines of an architecture run at once."""


@frozen
class GpuTarget:
    """An architecture of NVIDIA's GPUs."""

    architecture: str = DEFAULT

    @property
    def gpu(self) -> Gpu:
        """What schedules ask for."""
        return Gpu(PROCESSORS[self.architecture])

    def __str__(self) -> str:
        return f"cuda:{self.architecture}"


def parse_gpu(text: str, here: str | None = None) -> GpuTarget | None:
    """The GPU a text means, None where it means something else; `here` is what this machine has."""
    name, _, architecture = text.partition(":")
    if name != "cuda":
        return None
    if not architecture:
        return GpuTarget(here if here in ARCHITECTURES else DEFAULT)
    if architecture not in ARCHITECTURES:
        message = f"There is no architecture {architecture!r} among the targets."
        expected = f"one of {', '.join(ARCHITECTURES)}"
        hint = did_you_mean(architecture, ARCHITECTURES)
        raise UnsupportedError(Diagnostic("unsupported", message, None, expected, text, hint))
    return GpuTarget(architecture)
