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


_X86_VECTORS: Final = (("avx512f", (512, 32)), ("avx", (256, 16)))


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

    @property
    def vector_bits(self) -> int:
        """How many bits of a vector the machine takes at once."""
        return self._vectors[0]

    @property
    def vector_registers(self) -> int:
        """How many vectors the machine holds in registers."""
        return self._vectors[1]

    @property
    def _vectors(self) -> tuple[int, int]:
        if self.architecture in ("aarch64", "arm64"):
            return 128, 32
        for feature, found in _X86_VECTORS:
            if self.has(feature):
                return found
        return (128, 16) if self.architecture == "x86_64" else (64, 16)

    @property
    def has_fma(self) -> bool:
        """Whether the machine multiplies and adds with one rounding."""
        return self.architecture in ("aarch64", "arm64") or self.has("fma")

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
