"""GPUs of AMD's as targets: an architecture, and the few facts schedules ask for.

>>> parse("rocm:gfx942").gpu.processors, str(parse("rocm"))
(304, 'rocm:gfx90a')
"""

from __future__ import annotations

from typing import ClassVar, Final

from attrs import frozen

from plica.codegen.target import unknown_target
from plica.schedule.default.gpu.machine import Gpu

PROCESSORS: Final = {"gfx90a": 110, "gfx942": 304, "gfx1030": 80, "gfx1100": 96, "gfx1201": 64}
"""Compute units of the largest machines of an architecture."""

SHARED_BYTES: Final = 64 * 1024
"""What a work group has of local data share, on all of them."""

SPELLINGS: Final = ("rocm", *[f"rocm:{each}" for each in PROCESSORS])


@frozen
class RocmTarget:
    """An architecture of AMD's GPUs."""

    architecture: str = "gfx90a"

    backend: ClassVar[str] = "rocm"

    @property
    def gpu(self) -> Gpu:
        """What schedules ask for.  Threads exchange values in groups of 32: wavefronts are one such
        group or two."""
        return Gpu(PROCESSORS[self.architecture], shared=SHARED_BYTES)

    def describe(self) -> str:
        """A line that `parse` reads."""
        return str(self)

    def __str__(self) -> str:
        return f"rocm:{self.architecture}"


def parse(text: str) -> RocmTarget:
    """The target that a text means."""
    if text.strip() not in SPELLINGS:
        raise unknown_target(text, SPELLINGS)
    architecture = text.strip().partition(":")[2]
    return RocmTarget(architecture) if architecture else RocmTarget()
