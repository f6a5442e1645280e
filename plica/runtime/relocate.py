"""Relocation: how machine code is told where something is.

A `RelocationRecipe` says what address is wanted (the symbol itself, a small jump to it that is
near, or a
cell that holds its address), and how it is written into the instruction at that place.

>>> image = bytearray(8)
>>> RECIPES["x86_64"][2].write(image, 4, 0x1000, 0x1010)    # 32 bits, counted from the place
>>> image.hex()
'0000000010000000'
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from plica.runtime.error import damaged

Image: TypeAlias = bytearray | memoryview
Write: TypeAlias = Callable[[Image, int, int, int], None]
"""Write into the image at an offset, which is the address `place`, that something is at `value`."""


@dataclass(frozen=True, slots=True)
class RelocationRecipe:
    """Which address a relocation asks for, how it is written, and in how many bytes."""

    wants: Literal["symbol", "near", "cell"]
    write: Write
    bytes: int = 4


def _fits(value: int, bits: int) -> int:
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise damaged("A piece of code is too far from what it refers to.", hex(value))
    return value


def _absolute(image: Image, at: int, place: int, value: int) -> None:
    struct.pack_into("<Q", image, at, value % (1 << 64))


def _relative32(image: Image, at: int, place: int, value: int) -> None:
    struct.pack_into("<i", image, at, _fits(value - place, 32))


def _relative64(image: Image, at: int, place: int, value: int) -> None:
    struct.pack_into("<q", image, at, _fits(value - place, 64))


def _field(image: Image, at: int, value: int, bits: int, shift: int) -> None:
    """Put a number into some bits of an instruction of 32."""
    (word,) = struct.unpack_from("<I", image, at)
    mask = (1 << bits) - 1
    struct.pack_into("<I", image, at, word & ~(mask << shift) | (value & mask) << shift)


def _branch(bits: int, shift: int) -> Write:
    """A jump over a number of instructions."""

    def write(image: Image, at: int, place: int, value: int) -> None:
        _field(image, at, _fits(value - place, bits + 2) >> 2, bits, shift)

    return write


def _page(image: Image, at: int, place: int, value: int) -> None:
    """The distance between pages of 4096 bytes, in the two fields of `adrp`."""
    pages = _fits((value & ~0xFFF) - (place & ~0xFFF), 33) >> 12
    _field(image, at, pages, 2, 29)
    _field(image, at, pages >> 2, 19, 5)


def _near(image: Image, at: int, place: int, value: int) -> None:
    """A distance in bytes, in the two fields of `adr`."""
    distance = _fits(value - place, 21)
    _field(image, at, distance, 2, 29)
    _field(image, at, distance >> 2, 19, 5)


def _within_page(scale: int) -> Write:
    """The place within its page, in units of what is loaded there."""

    def write(image: Image, at: int, place: int, value: int) -> None:
        if value & (1 << scale) - 1:
            raise damaged("A piece of data is not aligned as the code that loads it asks.")
        _field(image, at, (value & 0xFFF) >> scale, 12, 10)

    return write


# fmt: off
RECIPES: Final[dict[str, dict[int, RelocationRecipe]]] = {
    "x86_64": {
        1:  RelocationRecipe("symbol", _absolute, 8),
        2:  RelocationRecipe("near",   _relative32),
        4:  RelocationRecipe("near",   _relative32),
        9:  RelocationRecipe("cell",   _relative32),
        24: RelocationRecipe("symbol", _relative64, 8),
        41: RelocationRecipe("cell",   _relative32),
        42: RelocationRecipe("cell",   _relative32),
    },
    "aarch64": {
        257: RelocationRecipe("symbol", _absolute, 8),
        260: RelocationRecipe("symbol", _relative64, 8),
        261: RelocationRecipe("near",   _relative32),
        274: RelocationRecipe("near",   _near),
        275: RelocationRecipe("near",   _page),
        276: RelocationRecipe("near",   _page),
        277: RelocationRecipe("near",   _within_page(0)),
        278: RelocationRecipe("near",   _within_page(0)),
        279: RelocationRecipe("near",   _branch(14, 5)),
        280: RelocationRecipe("near",   _branch(19, 5)),
        282: RelocationRecipe("near",   _branch(26, 0)),
        283: RelocationRecipe("near",   _branch(26, 0)),
        284: RelocationRecipe("near",   _within_page(1)),
        285: RelocationRecipe("near",   _within_page(2)),
        286: RelocationRecipe("near",   _within_page(3)),
        299: RelocationRecipe("near",   _within_page(4)),
        311: RelocationRecipe("cell",   _page),
        312: RelocationRecipe("cell",   _within_page(3)),
    },
}
"""What each kind of relocation asks for, by ELF's numbers; kinds that are not here are refused."""

JUMP: Final[dict[str, bytes]] = {
    "x86_64":  bytes.fromhex("ff2500000000"),      # jmp [rip]; the address follows
    "aarch64": bytes.fromhex("5000005800021fd6"),  # ldr x16, .+8; br x16; the address follows
}
"""A jump to the address that follows it, as far as need be."""
# fmt: on

JUMP_SIZE: Final = 16
