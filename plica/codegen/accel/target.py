"""Accelerators as targets: the machine that layers of int8 run on, beside a processor.

>>> str(parse_accel("accel")), parse_accel("accel:osdi").machine.timing.megahertz
('accel:vta', 200)
>>> parse_accel("cpu") is None
True

The device is the simulator of the runtime; its cycles are those of the cycle simulator.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from attrs import frozen

from plica.codegen.accel.declaration import Machine
from plica.codegen.accel.vta import osdi, vta
from plica.core.diagnostic import did_you_mean
from plica.runtime.error import Diagnostic, UnsupportedError

DEFAULT: Final = "vta"

MACHINES: Final[dict[str, Callable[[], Machine]]] = {"vta": vta, "osdi": osdi}
"""The machines that convolutions are made for: configurations of `accel:vta`."""


@frozen
class AccelTarget:
    """An accelerator by name; what it cannot do runs on the processor of this machine."""

    name: str = DEFAULT

    @property
    def machine(self) -> Machine:
        """Its declaration."""
        return MACHINES[self.name]()

    def __str__(self) -> str:
        return f"accel:{self.name}"


def parse_accel(text: str) -> AccelTarget | None:
    """The accelerator a text means, None where it means something else."""
    name, _, machine = text.partition(":")
    if name != "accel":
        return None
    machine = machine or DEFAULT
    if machine not in MACHINES:
        message = f"There is no accelerator {machine!r} among the targets."
        expected, hint = f"one of {', '.join(MACHINES)}", did_you_mean(machine, tuple(MACHINES))
        raise UnsupportedError(Diagnostic("unsupported", message, None, expected, text, hint))
    return AccelTarget(machine)
