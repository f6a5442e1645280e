"""Accelerators as targets: the machine that layers of int8 run on, beside a processor.

>>> str(parse_accel("accel")), parse_accel("accel:osdi").machine.timing.megahertz
('accel:vta', 200)
>>> parse_accel("cpu") is None
True

The device is the simulator of the runtime; its cycles are those of the cycle simulator.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Final

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

    backend: ClassVar[str] = "accel"

    @property
    def machine(self) -> Machine:
        """Its declaration."""
        return MACHINES[self.name]()

    def describe(self) -> str:
        """A line that `parse_accel` reads."""
        return str(self)

    def __str__(self) -> str:
        return f"accel:{self.name}"


def parse_accel(text: str) -> AccelTarget | None:
    """The accelerator a text means, None where it means something else."""
    name, colon, machine = text.partition(":")
    if not colon and name == "accel":
        return AccelTarget(DEFAULT)
    if name == "accel" and machine in MACHINES:
        return AccelTarget(machine)
    if name == "accel" and machine:
        message = f"There is no accelerator {machine!r} among the targets."
        expected, near = f"one of {', '.join(MACHINES)}", did_you_mean(machine.lower(), MACHINES)
        raise UnsupportedError(Diagnostic("unsupported", message, None, expected, text, near))
    if not text.lower().startswith("accel"):
        return None
    message = f"There is no target {text!r}."
    words = ("accel", *(f"accel:{each}" for each in MACHINES))
    meant = ":".join(["accel", *text.lower().replace(":", " ").split()[1:]])
    hint = f"Did you mean {meant!r}?" if meant in words else did_you_mean(text, words)
    expected = f"one of {', '.join(words)}"
    raise UnsupportedError(Diagnostic("unsupported", message, None, expected, repr(text), hint))
