"""Modules of WebAssembly: what one imports and exports, read without an engine.

    module  ::= magic version section*
    section ::= id size bytes       2: imports, 7: exports

>>> names_of(b"\\0asm\\1\\0\\0\\0")
ModuleNames(imports=(), exports=())
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from plica.runtime.error import damaged

MAGIC: Final = b"\0asm\1\0\0\0"

_IMPORTS: Final = 2
_EXPORTS: Final = 7
_FUNCTION, _TABLE, _MEMORY, _GLOBAL = range(4)


@dataclass(frozen=True, slots=True)
class ModuleNames:
    """The functions that a module imports, and all that it exports."""

    imports: tuple[tuple[str, str], ...]
    exports: tuple[str, ...]


def names_of(code: bytes) -> ModuleNames:
    """The imports and exports of a module; raises `ArtefactError` for other bytes."""
    if code[: len(MAGIC)] != MAGIC:
        raise damaged("The code is no module of WebAssembly.")
    reader = _Reader(code, len(MAGIC), len(code))
    imports: list[tuple[str, str]] = []
    exports: list[str] = []
    while reader.at < reader.end:
        (kind,) = reader.take(1)
        size = reader.number()
        inside = _Reader(code, reader.at, reader.at + size)
        reader.take(size)
        if kind == _IMPORTS:
            imports = _imports(inside)
        elif kind == _EXPORTS:
            exports = [_export(inside) for _ in range(inside.number())]
    return ModuleNames(tuple(imports), tuple(exports))


def _imports(reader: _Reader) -> list[tuple[str, str]]:
    found = []
    for _ in range(reader.number()):
        pair = reader.name(), reader.name()
        (kind,) = reader.take(1)
        if kind == _MEMORY:  # which threads share
            flags, _ = reader.take(1)[0], reader.number()
            if flags & 1:
                reader.number()
            continue
        if kind != _FUNCTION:  # tables are the module's own
            raise damaged("The code imports what is no function.", ".".join(pair))
        reader.number()
        found.append(pair)
    return found


def _export(reader: _Reader) -> str:
    name = reader.name()
    reader.take(1)
    reader.number()
    return name


class _Reader:
    """A part of some bytes, read from its beginning to its end."""

    def __init__(self, data: bytes, at: int, end: int) -> None:
        self.data, self.at, self.end = data, at, end

    def take(self, count: int) -> bytes:
        """The next bytes."""
        if count > self.end - self.at:
            raise damaged("A section of the module is shorter than it says.")
        found = self.data[self.at : self.at + count]
        self.at += count
        return found

    def number(self) -> int:
        """A number of 32 bits, seven in each byte."""
        found = 0
        for shift in range(0, 35, 7):
            (byte,) = self.take(1)
            found |= (byte & 0x7F) << shift
            if byte < 0x80:
                return found
        raise damaged("A number in the module has no end.")

    def name(self) -> str:
        """A word."""
        return self.take(self.number()).decode("utf-8", "replace")
