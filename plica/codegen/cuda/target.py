"""GPUs as targets: an architecture, and the parameters of schedules.

>>> parse_gpu("cuda:sm_80").architecture, str(parse_gpu("cuda"))
('sm_80', 'cuda:sm_90')
>>> parse_gpu("cpu") is None
True
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import ClassVar, Final

from attrs import frozen

from plica.core import did_you_mean
from plica.runtime.cuda.code import ARCHITECTURES, suited
from plica.runtime.error import Diagnostic, UnsupportedError
from plica.schedule.default.gpu.machine import Gpu

DEFAULT: Final = "sm_90"  # the default architecture if no GPU is present
PROCESSORS: Final = {"sm_80": 108, "sm_86": 84, "sm_89": 128, "sm_90": 132, "sm_90a": 132}
"""How many blocks the largest machines of an architecture run at once."""

SHARED: Final = {"sm_80": 163, "sm_86": 99, "sm_89": 99, "sm_90": 227, "sm_90a": 227}
"""KiB that the threads of a block can share."""

GROUPS: Final = frozenset({"sm_90a"})  # where warps multiply together


@frozen
class GpuTarget:
    """An architecture of NVIDIA's GPUs; with `debug`, code has line tables, and that folder the
    texts of kernels that they refer to."""

    architecture: str = DEFAULT
    debug: str = ""

    backend: ClassVar[str] = "cuda"

    @property
    def gpu(self) -> Gpu:
        """The parameters of schedules."""
        name = self.architecture
        return Gpu(PROCESSORS[name], shared=SHARED[name] * 1024, groups=name in GROUPS)

    def describe(self) -> str:
        """A line that `parse_gpu` reads."""
        return f"{self} debug={self.debug}" if self.debug else str(self)

    def __str__(self) -> str:
        return f"cuda:{self.architecture}"


def parse_gpu(text: str, here: Callable[[], str | None] | None = None) -> GpuTarget | None:
    """The GPU of a text, or None for other texts; `here` returns this machine's architecture, if
    the text does not name one."""
    text, _, debug = text.partition(" debug=")
    name, _, architecture = text.partition(":")
    if name != "cuda":
        return None
    if not architecture:
        found = None if here is None else here()
        best = DEFAULT if found is None else suited(found)
        if best is not None:
            return GpuTarget(best, debug)
        message = f"The GPU of this machine is a {found}, on which no code of the targets runs."
        expected = f"one of {', '.join(ARCHITECTURES)}"
        said = "Use target='cpu', or name the GPU that the code is for: 'cuda:sm_80'."
        raise UnsupportedError(Diagnostic("unsupported", message, None, expected, text, said))
    if architecture not in ARCHITECTURES:
        message = f"There is no architecture {architecture!r} among the targets."
        expected = f"one of {', '.join(ARCHITECTURES)}"
        other = suited(architecture)
        hint = None if other is None else f"Code for {other} runs on it: 'cuda:{other}'."
        if not re.fullmatch(r"sm_\d+a?", architecture):  # another GPU is no slip of the pen
            hint = did_you_mean(architecture, ARCHITECTURES)
        raise UnsupportedError(Diagnostic("unsupported", message, None, expected, text, hint))
    return GpuTarget(architecture, debug)
