"""Accelerators as targets: the machine that runs int8 layers, alongside a processor.

>>> str(parse_accel("accel")), parse_accel("accel:osdi").machine.timing.megahertz
('accel:vta', 200)
>>> parse_accel("cpu") is None
True
"""

from __future__ import annotations

from functools import lru_cache
from typing import ClassVar, Final

from attrs import frozen

from plica.codegen.accel.declaration import Accelerator
from plica.core import ExtensionGroup, did_you_mean
from plica.runtime.error import Diagnostic, UnsupportedError

DEFAULT: Final = "vta"

OWN: Final[dict[str, str]] = {
    "vta": "plica.codegen.accel.vta:vta",
    "osdi": "plica.codegen.accel.vta:osdi",
}
"""Where Plica's own are, as pyproject.toml registers them: two configurations of one machine."""


@lru_cache(maxsize=64)
def _made(held: object) -> object:
    """The object of an entry point; for a function, the machine it returns, cached."""
    return held() if callable(held) else held


ACCELERATORS: Final = ExtensionGroup(
    "plica.accelerators", "machine", Accelerator, OWN, made=_made, error=UnsupportedError
)
"""The machines by name; a library ships one, or a function that makes one."""


def machine_named(name: str) -> Accelerator:
    """The declaration of that name; a wrong name is refused with the nearest right one."""
    if name not in OWN and name not in (known := ACCELERATORS.points()):
        message = f"There is no accelerator {name!r} among the targets."
        expected, near = f"one of {', '.join(known)}", did_you_mean(name.lower(), known)
        raise UnsupportedError(
            Diagnostic("unsupported", message, None, expected, f"accel:{name}", near)
        )
    return ACCELERATORS.load(name)


@frozen
class AccelTarget:
    """An accelerator by name, or as declared; what it cannot do runs on the processor here."""

    name: str = DEFAULT
    declared: Accelerator | None = None

    backend: ClassVar[str] = "accel"

    @property
    def machine(self) -> Accelerator:
        """Its declaration."""
        return machine_named(self.name) if self.declared is None else self.declared

    def describe(self) -> str:
        """A line that `parse_accel` reads."""
        return str(self)

    def __str__(self) -> str:
        return f"accel:{self.name}"


def settled(of: AccelTarget | Accelerator) -> AccelTarget:
    """The target that a declaration is, or the one given."""
    return AccelTarget(of.name, of) if isinstance(of, Accelerator) else of


def parse_accel(text: str) -> AccelTarget | None:
    """The accelerator of a text, or None for other texts."""
    name, colon, machine = text.partition(":")
    if not colon and name == "accel":
        return AccelTarget(DEFAULT)
    if name == "accel" and machine:
        machine_named(machine)
        return AccelTarget(machine)
    if not text.lower().startswith("accel"):
        return None
    message = f"There is no target {text!r}."
    words = ("accel", *(f"accel:{point}" for point in ACCELERATORS.points()))
    meant = ":".join(["accel", *text.lower().replace(":", " ").split()[1:]])
    hint = f"Did you mean {meant!r}?" if meant in words else did_you_mean(text, words)
    expected = f"one of {', '.join(words)}"
    raise UnsupportedError(Diagnostic("unsupported", message, None, expected, repr(text), hint))
