"""Linking: object files placed in memory, made to know each other, and allowed to run.

It needs no linker and no file: sections are copied into one mapping, relocations are applied, and
code pages become executable and read-only. Undefined symbols are resolved in this process's C and
math libraries.

Memory is released when the `LinkedCode` is collected; callers must hold it.

Linked code may share its work among threads (`use_threads`).  The thread pool is in the code
(`plica.codegen.llvm.pool`), and all executables of one number of threads use one pool.  What made a
pool is never given back, since its threads run in it.
"""

from __future__ import annotations

import ctypes
import mmap
import platform
import struct
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from plica.runtime import elf
from plica.runtime.elf import JUMP, JUMP_SIZE, RECIPES, Object, Section, parse
from plica.runtime.error import ArtefactError, Diagnostic, damaged

LIBRARIES: Final = ("libm.so.6", "libc.so.6", "libpthread.so.0", "libgcc_s.so.1", "libc.so")
"""Where names are looked for that neither the objects nor the process define."""

MAX_CODE_BYTES: Final = 1 << 31
"""The maximum bytes of code and data: anything further away cannot be addressed."""

POOL_LAYOUT: Final = 4
"""Raised when the memory of a thread pool means something else; code of one layout shares pools."""

MAKE: Final = f"plica_pool_make_{POOL_LAYOUT}"
USE: Final = f"plica_pool_use_{POOL_LAYOUT}"

_READ, _WRITE, _EXECUTE = 1, 2, 4
_GROUPS: Final = (_READ | _EXECUTE, _READ, _READ | _WRITE)
_ARCHITECTURES: Final = {"amd64": "x86_64", "arm64": "aarch64"}
_CELL: Final = 8


class LinkedCode:
    """Machine code in this process, and the addresses of its global names."""

    def __init__(self, memory: mmap.mmap, hold: object, names: Mapping[str, int]) -> None:
        self._memory = memory
        self._hold = hold  # a view of the memory: while it lives, nothing unmaps it
        self._names = dict(names)

    def address(self, name: str) -> int:
        """Where a global name is."""
        if name not in self._names:
            raise damaged(f"The object code does not define {name!r}.")
        return self._names[name]

    def __contains__(self, name: str) -> bool:
        return name in self._names


@dataclass(frozen=True, slots=True)
class _Layout:
    """The offset of each section of each object, the beginnings of the groups, and the
    total size."""

    places: dict[tuple[int, int], int]
    starts: tuple[int, ...]
    jumps: int
    cells: int
    size: int


def architecture() -> str:
    """LLVM's name of this machine's architecture."""
    found = platform.machine().lower()
    return _ARCHITECTURES.get(found, found)


def can_link() -> bool:
    """Whether this process can load object files: Linux on a machine with recipes."""
    return sys.platform == "linux" and architecture() in RECIPES


def link(objects: Sequence[bytes], given: Mapping[str, int] | None = None) -> LinkedCode:
    """Load object files into this process; `given` says where names are that they do not define."""
    parsed = [parse(each) for each in objects]
    here = architecture()
    for each in parsed:
        if not can_link() or each.machine != here:
            message = "The object code was made for another kind of machine."
            hint = "Compile the model for this machine."
            raise ArtefactError(
                Diagnostic("other-machine", message, None, here, each.machine, hint)
            )
    outside = _outside(parsed)
    layout = _layout(parsed, len(outside))
    memory = mmap.mmap(-1, layout.size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    hold = (ctypes.c_char * layout.size).from_buffer(memory)
    base = ctypes.addressof(hold)
    image = memoryview(memory)
    names = _fill(parsed, layout, image, base)
    cells = _connect(outside, {**(given or {}), **names}, layout, image, base, here)
    for number, each in enumerate(parsed):
        _relocate(number, each, layout, image, base, names, cells)
    image.release()
    _protect(base, layout)
    return LinkedCode(memory, hold, names)


def _is_loaded(section: Section) -> bool:
    """Whether a section has a place in memory; nothing here unwinds the stack."""
    return bool(section.flags & elf.ALLOC) and not section.name.startswith((".eh_frame", ".note"))


def _outside(objects: Sequence[Object]) -> list[str]:
    """Names that no object defines, and those reached through cells, in order."""
    found: dict[str, None] = {}
    for each in objects:
        for relocation in each.relocations:
            if not _is_loaded(each.sections[relocation.section]):
                continue
            symbol = each.symbols[relocation.symbol]
            recipe = RECIPES[each.machine].get(relocation.kind)
            if symbol.name and (
                symbol.section == elf.UNDEFINED or (recipe and recipe.wants == "cell")
            ):
                found[symbol.name] = None
    return list(found)


def _layout(objects: Sequence[Object], outside: int) -> _Layout:
    """Code first, followed by its jumps, then constants and cells, then writable data."""
    places: dict[tuple[int, int], int] = {}
    starts = []
    end = jumps = cells = 0
    for rights in _GROUPS:
        end = -(-end // mmap.PAGESIZE) * mmap.PAGESIZE
        starts.append(end)
        for number, each in enumerate(objects):
            for index, section in enumerate(each.sections):
                if _is_loaded(section) and _rights(section) == rights:
                    end = -(-end // section.align) * section.align
                    places[number, index] = end
                    end += section.size
        end = -(-end // JUMP_SIZE) * JUMP_SIZE
        if rights & _EXECUTE:
            jumps, end = end, end + JUMP_SIZE * outside
        elif rights == _READ:
            cells, end = end, end + _CELL * outside
    if end > MAX_CODE_BYTES:
        raise damaged("The object code asks for more memory than any code.", str(end))
    return _Layout(places, tuple(starts), jumps, cells, max(end, 1))


def _rights(section: Section) -> int:
    if section.flags & elf.TLS or (section.flags & elf.WRITE and section.flags & elf.EXECUTE):
        raise damaged("A section of the object code has properties that are not loaded.")
    if section.flags & elf.EXECUTE:
        return _READ | _EXECUTE
    return _READ | _WRITE if section.flags & elf.WRITE else _READ


def _fill(
    objects: Sequence[Object], layout: _Layout, image: memoryview, base: int
) -> dict[str, int]:
    """Copy the sections to their places; the addresses of global names."""
    names: dict[str, int] = {}
    for number, each in enumerate(objects):
        for index, section in enumerate(each.sections):
            start = layout.places.get((number, index))
            if start is not None and section.kind != elf.NOBITS:
                image[start : start + section.size] = section.data
        for symbol in each.symbols:
            start = layout.places.get((number, symbol.section))
            if symbol.is_global and symbol.section != elf.UNDEFINED and start is not None:
                if symbol.name in names:
                    raise damaged(f"{symbol.name!r} is defined twice.")
                names[symbol.name] = base + start + symbol.value
    return names


def _connect(  # noqa: PLR0917  # where things are
    outside: Sequence[str],
    names: Mapping[str, int],
    layout: _Layout,
    image: memoryview,
    base: int,
    machine: str,
) -> dict[str, tuple[int, int]]:
    """For names that are far away, or reached indirectly: a jump and a cell each."""
    found: dict[str, tuple[int, int]] = {}
    missing = []
    for number, name in enumerate(outside):
        address = names.get(name) or library_address(name)
        if not address:
            missing.append(name)
            continue
        jump = layout.jumps + JUMP_SIZE * number
        code = JUMP[machine]
        image[jump : jump + len(code)] = code
        struct.pack_into("<Q", image, jump + len(code), address)
        cell = layout.cells + _CELL * number
        struct.pack_into("<Q", image, cell, address)
        found[name] = base + jump, base + cell
    if missing:
        message = "The object code needs functions that this process does not have."
        hint = f"plica.load(path, externs={{{missing[0]!r}: 'libname.so'}}) says who has them."
        raise ArtefactError(
            Diagnostic("other-machine", message, None, None, ", ".join(missing), hint)
        )
    return found


def _relocate(  # noqa: PLR0917  # where things are
    number: int,
    each: Object,
    layout: _Layout,
    image: memoryview,
    base: int,
    names: Mapping[str, int],
    cells: Mapping[str, tuple[int, int]],
) -> None:
    recipes = RECIPES[each.machine]
    for relocation in each.relocations:
        if (start := layout.places.get((number, relocation.section))) is None:
            continue
        recipe = recipes.get(relocation.kind)
        symbol = each.symbols[relocation.symbol]
        if recipe is None:
            raise damaged("A kind of relocation is not understood.", str(relocation.kind))
        if relocation.offset + recipe.bytes > each.sections[relocation.section].size:
            raise damaged("A relocation points outside of its section.")
        if recipe.wants == "cell":
            if symbol.name not in cells:
                raise damaged("A cell is asked for what has no name.")
            value = cells[symbol.name][1]
        elif symbol.section == elf.UNDEFINED:
            jump, _ = cells[symbol.name]
            value = names.get(symbol.name) or jump
            if recipe.wants == "symbol":
                value = names.get(symbol.name) or library_address(symbol.name) or jump
        else:
            inside = layout.places.get((number, symbol.section))
            if inside is None and symbol.section != elf.ABSOLUTE:
                raise damaged("A relocation refers to a section that is not loaded.")
            value = symbol.value if inside is None else base + inside + symbol.value
        at = start + relocation.offset
        recipe.write(image, at, base + at, value + relocation.addend)


@lru_cache(maxsize=1)
def _libraries() -> tuple[Any, ...]:  # Any: ctypes libraries have whatever names one asks for
    found: list[Any] = [ctypes.CDLL(None, use_errno=True)]
    for name in LIBRARIES:
        try:
            found.append(ctypes.CDLL(name))
        except OSError:
            continue  # the next one, or the refusal when a name is missing
    return tuple(found)


def library_address(name: str) -> int | None:
    """The address of a function in the process or a C library, or None."""
    for library in _libraries():
        if (function := getattr(library, name, None)) is not None:
            return ctypes.cast(function, ctypes.c_void_p).value
    return None


def _protect(base: int, layout: _Layout) -> None:
    protect = _libraries()[0].mprotect
    protect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    flush = library_address("__clear_cache")
    if flush:  # on x86-64 the caches agree by themselves, and there is no such function
        ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(flush)(base, base + layout.size)
    ends = (*layout.starts[1:], layout.size)
    for rights, start, end in zip(_GROUPS, layout.starts, ends, strict=True):
        if end > start and protect(base + start, end - start, rights):
            message = "The system does not let this process run code it has loaded."
            raise ArtefactError(Diagnostic("other-machine", message, found=str(ctypes.get_errno())))


_pools: Final[dict[int, tuple[int, LinkedCode]]] = {}
_pools_lock: Final = threading.Lock()


def use_threads(code: LinkedCode, threads: int) -> None:
    """Let code run on a given number of threads, the calling one among them; on one if it has no
    pool."""
    if USE not in code or threads < 2:
        return
    with _pools_lock:
        if threads not in _pools:
            make = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int64)(code.address(MAKE))
            _pools[threads] = make(threads) or 0, code
        pool, _ = _pools[threads]
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(code.address(USE))(pool)
