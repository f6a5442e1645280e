"""Targets: what code is made for, as data.

>>> plain = Target("cpu", "x86_64-unknown-linux-gnu", "x86-64-v2", ("+sse4.1", "-avx"))
>>> print(plain)
cpu (x86_64-unknown-linux-gnu, x86-64-v2)
>>> plain.has("sse4.1"), plain.has("avx")
(True, False)

Detecting this machine is an effect, and lives with the toolchain (`plica.codegen.llvm.toolchain`).
"""

from __future__ import annotations

from typing import Final

from attrs import frozen

from plica.core.diagnostic import did_you_mean
from plica.runtime.error import Diagnostic, UnsupportedError

NAMES: Final = ("cpu",)
"""The targets Plica makes code for."""

PLANNED: Final = ("cuda", "accel")


@frozen
class Target:
    """A kind of machine: LLVM's triple, its name of the processor, and its features."""

    name: str
    triple: str
    cpu: str
    features: tuple[str, ...] = ()

    def has(self, feature: str) -> bool:
        """Whether the processor has a feature, by LLVM's name of it."""
        return f"+{feature}" in self.features

    @property
    def architecture(self) -> str:
        """The first part of the triple."""
        return self.triple.split("-", maxsplit=1)[0]

    @property
    def has_half(self) -> bool:
        """Whether f16 is converted by the machine; otherwise the code does it bit by bit."""
        return self.architecture in ("aarch64", "arm64") or self.has("f16c")

    def __str__(self) -> str:
        return f"{self.name} ({self.triple}, {self.cpu})"


def unknown_target(given: object) -> UnsupportedError:
    """The refusal of anything that is no target."""
    message = f"There is no target {given!r}."
    hint = did_you_mean(given, NAMES) if isinstance(given, str) else None
    if given in PLANNED:
        message = f"Plica makes no code for the target {given!r} yet."
        hint = "Use target='cpu'."
    return UnsupportedError(
        Diagnostic("unsupported", message, None, " or ".join(NAMES), repr(given), hint)
    )
