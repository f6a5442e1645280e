"""Object files: reads LLVM's output for Linux (ELF, 64 bits, little endian).

The bytes are untrusted: every offset is checked before use, and unknown features are refused.

>>> header(b"\\x7fELF" + bytes(60))  # doctest: +ELLIPSIS
Traceback (most recent call last):
plica.runtime.error.ArtefactError: The object code is not an object file ...
  expected: ...

Relocations: how machine code receives the address of a symbol.

A `RelocationRecipe` says which address is needed (the symbol, a nearby jump to it, or a cell with
its address), and how it is encoded in the instruction.

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
    """The address a relocation needs, its encoding, and its size in bytes."""

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
    """Writes a number into a bit field of a 32-bit instruction."""
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
    """The offset within a page, scaled by the access size."""

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
"""The recipe of each relocation kind, by ELF's numbers; other kinds are refused."""
JUMP: Final[dict[str, bytes]] = {
    "x86_64":  bytes.fromhex("ff2500000000"),      # jmp [rip]; the address follows
    "aarch64": bytes.fromhex("5000005800021fd6"),  # ldr x16, .+8; br x16; the address follows
}
"""A jump to the address that follows it, as far as need be."""
# fmt: on

JUMP_SIZE: Final = 16


MACHINES: Final = {
    (62, 64): "x86_64", (183, 64): "aarch64", (243, 64): "riscv64", (40, 32): "arm",
    (243, 32): "riscv32",
}  # fmt: skip
"""The machines Plica makes objects for, by ELF's number of them and their bits."""
FAMILIES: Final = {"arm": ("arm", "thumb")}  # triple prefixes that denote one ELF machine
PROGBITS, SYMTAB, STRTAB, RELA, NOBITS, REL = 1, 2, 3, 4, 8, 9
WRITE, ALLOC, EXECUTE, TLS = 0x1, 0x2, 0x4, 0x400
UNDEFINED, ABSOLUTE = 0, 0xFFF1
_MAGIC: Final = b"\x7fELF"
_MAX_SECTIONS: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Header:
    """The header of an object file."""

    machine: str
    bits: int

    def runs(self, architecture: str) -> bool:
        """Whether the code is for an architecture, by the first part of its triple.

        >>> Header("arm", 32).runs("thumbv7em"), Header("riscv64", 64).runs("riscv32")
        (True, False)
        """
        return architecture.startswith(FAMILIES.get(self.machine, (self.machine,)))


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the code or the data; one of kind NOBITS is zeros and has no bytes here."""

    name: str
    kind: int
    flags: int
    align: int
    size: int
    data: memoryview


@dataclass(frozen=True, slots=True)
class Symbol:
    """A name for a place in a section, or one for something outside."""

    name: str
    section: int
    value: int
    is_global: bool


@dataclass(frozen=True, slots=True)
class Relocation:
    """A place in a section that receives the address of a symbol, in some encoding."""

    section: int
    offset: int
    kind: int
    symbol: int
    addend: int


@dataclass(frozen=True, slots=True)
class Object:
    """An object file: `symbols` and `sections` are referred to by number."""

    machine: str
    sections: tuple[Section, ...]
    symbols: tuple[Symbol, ...]
    relocations: tuple[Relocation, ...]


def header(data: bytes) -> Header:
    """The machine an object file is for."""
    if len(data) < 52 or data[:4] != _MAGIC or data[4] not in (1, 2) or data[5] != 1:
        raise damaged("The object code is not an object file of a known kind.")
    kind, machine = struct.unpack_from("<HH", data, 16)
    bits = 64 if data[4] == 2 else 32
    if kind != 1 or (machine, bits) not in MACHINES:
        raise damaged(
            "The object code is for no machine that is known here.", f"kind {kind} of {machine}"
        )
    return Header(MACHINES[machine, bits], bits)


def parse(data: bytes) -> Object:
    """The parts of an object file of 64 bits."""
    machine = header(data)
    if machine.bits != 64:
        raise damaged("Only object code of 64 bits can be loaded.", f"{machine.bits} bits")
    (start,) = struct.unpack_from("<Q", _part(data, 40, 8))
    size, count, names = struct.unpack_from("<HHH", _part(data, 58, 6))
    if size != 64 or not 0 < count < _MAX_SECTIONS or names >= count:
        raise damaged("The table of sections is damaged.")
    rows = list(struct.iter_unpack("<IIQQQQIIQQ", _part(data, start, 64 * count)))
    strings = _part(data, rows[names][4], rows[names][5])
    sections = []
    for name, kind, flags, _, offset, length, _, _, align, _ in rows:
        inside = _part(data, offset, 0 if kind in (0, NOBITS) else length)
        if align & (align - 1) or align > 1 << 16:
            raise damaged("A section has an impossible alignment.", str(align))
        text = _string(strings, name)
        sections.append(Section(text, kind, flags, max(1, align), length, inside))
    symbols: list[Symbol] = []
    relocations: list[Relocation] = []
    for (_, kind, _, _, _, _, link, info, _, entry), section in zip(rows, sections, strict=True):
        if kind == SYMTAB:
            if symbols or entry != 24 or link >= count or len(section.data) % 24:
                raise damaged("The table of symbols is damaged.")
            symbols += _symbols(section.data, sections[link].data, count)
        elif kind == RELA:
            if entry != 24 or info >= count or len(section.data) % 24:
                raise damaged("A table of relocations is damaged.")
            for offset, word, addend in struct.iter_unpack("<QQq", section.data):
                relocations.append(Relocation(info, offset, word & 0xFFFFFFFF, word >> 32, addend))
        elif kind == REL:
            raise damaged("Relocations without addends are not understood.")
    for each in relocations:
        if each.symbol >= len(symbols) or each.offset + 4 > sections[each.section].size:
            raise damaged("A relocation points outside of its section.")
    return Object(machine.machine, tuple(sections), tuple(symbols), tuple(relocations))


def _symbols(table: memoryview, strings: memoryview, count: int) -> list[Symbol]:
    found = []
    for name, info, _, section, value, _ in struct.iter_unpack("<IBBHQQ", table):
        if section >= count and section != ABSOLUTE:
            raise damaged("A symbol is in no section.", str(section))
        found.append(Symbol(_string(strings, name), section, value, info >> 4 != 0))
    return found


def _part(data: bytes, start: int, size: int) -> memoryview:
    if start + size > len(data):
        raise damaged("The object code ends too early.")
    return memoryview(data)[start : start + size]


def _string(table: memoryview, start: int) -> str:
    name, ends, _ = bytes(table[start : start + 4096]).partition(b"\0")
    if not ends:
        raise damaged("A name in the object code does not end.")
    return name.decode("ascii", "backslashreplace")
