"""Devices of OpenCL as targets: how wide the vectors are that kernels are written with.

>>> parse("opencl:256").vector, str(parse("opencl:256"))
(256, 'opencl:256')
"""

from __future__ import annotations

from typing import ClassVar, Final

from attrs import frozen

from plica.codegen.target import Target, unknown_target
from plica.runtime.opencl.device import vector_bits_here

WIDTHS: Final = (128, 256, 512)
"""Bits of a vector; other widths than those of a device work, and are slower."""

REGISTERS: Final = {128: 16, 256: 16, 512: 32}
"""How many vectors processors with such ones hold."""

ITEMS: Final = 8
"""Work items that schedules share the work among, at least: a device says how many run at once only
when it is there, and code is the same wherever it is made."""

SPELLINGS: Final = ("opencl", *[f"opencl:{each}" for each in WIDTHS])


@frozen
class OpenclTarget:
    """A device of OpenCL whose vectors have a given number of bits."""

    vector: int = 128

    backend: ClassVar[str] = "opencl"

    @property
    def machine(self) -> Target:
        """What schedules ask for."""
        return Target(
            "cpu", "generic", "generic", vector=self.vector, registers=REGISTERS[self.vector],
            cores=ITEMS,
        )  # fmt: skip

    def describe(self) -> str:
        """A line that `parse` reads."""
        return str(self)

    def __str__(self) -> str:
        return f"opencl:{self.vector}"


def parse(text: str) -> OpenclTarget:
    """The target that a text means; without a width, that of the device that is here."""
    name, _, width = text.strip().partition(":")
    if name != "opencl" or text.strip() not in SPELLINGS:
        raise unknown_target(text, SPELLINGS)
    if width:
        return OpenclTarget(int(width))
    here = vector_bits_here() or WIDTHS[0]
    return OpenclTarget(max(WIDTHS[0], min(WIDTHS[-1], here)))
