"""Object files: what LLVM makes for Linux, taken apart (ELF, 64 bits, little endian).

Nothing in the bytes is believed: every offset is checked before it is followed, and what is not
understood is refused.

>>> header(b"\\x7fELF" + bytes(60))  # doctest: +ELLIPSIS
Traceback (most recent call last):
plica.runtime.error.ArtefactError: The object code is not an object file of a known kind. \
[bad-artefact]
  expected: ...
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from plica.runtime.error import damaged

MACHINES: Final = {
    (62, 64): "x86_64", (183, 64): "aarch64", (243, 64): "riscv64", (40, 32): "arm",
    (243, 32): "riscv32",
}  # fmt: skip
"""The machines Plica makes objects for, by ELF's number of them and their bits."""

FAMILIES: Final = {"arm": ("arm", "thumb")}
"""What the architectures of triples begin with that are one machine to ELF, where several are."""

PROGBITS, SYMTAB, STRTAB, RELA, NOBITS, REL = 1, 2, 3, 4, 8, 9
WRITE, ALLOC, EXECUTE, TLS = 0x1, 0x2, 0x4, 0x400
UNDEFINED, ABSOLUTE = 0, 0xFFF1

_MAGIC: Final = b"\x7fELF"
_MAX_SECTIONS: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Header:
    """What an object file says of itself."""

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
    """A place in a section that must come to hold the address of a symbol, in some encoding."""

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
