"""Guarded memory: arrays next to an inaccessible page.

>>> room = Guarded((3,), np.dtype(np.float32), "end")
>>> room.array[:] = 1
>>> room.is_intact(), room.gap
(True, 0)

Being stopped means the end of the process: run it apart (`plica.runtime.process`).
"""

from __future__ import annotations

import ctypes
import mmap
import os
from functools import lru_cache
from typing import Any, Final, Literal

import numpy as np

from plica.runtime.error import Diagnostic, UnsupportedError
from plica.runtime.port import Array

Side = Literal["end", "start"]
SIDES: Final[tuple[Side, ...]] = ("end", "start")

PATTERN: Final = 0xA5
_NONE: Final = 0
_READ: Final = 1


class Guarded:
    """An array with an inaccessible page at one side."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any], side: Side, align: int = 1):
        if not can_guard():
            message, expected = "Memory cannot be guarded on this system.", "a POSIX system"
            raise UnsupportedError(Diagnostic("unsupported", message, None, expected, os.name))
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        page = mmap.PAGESIZE
        inner = max(1, -(-size // page)) * page
        # Private: a child's writes are not visible here.
        self._map = mmap.mmap(-1, inner + 2 * page, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        room: Array = np.frombuffer(self._map, np.uint8)
        self._first = room.__array_interface__["data"][0] + page
        self._inner = inner
        align = max(align, dtype.itemsize)
        place = (inner - size) // align * align if side == "end" else 0
        whole = room[page : page + inner]
        whole[:] = PATTERN
        self.gap = inner - size - place if side == "end" else 0
        """The bytes between the array and the page, due to alignment."""
        self.array: Array = whole[place : place + size].view(dtype).reshape(shape)
        self._around = (whole[:place], whole[place + size :])
        for at in (self._first - page, self._first + inner):
            _protect(at, page, _NONE)

    def freeze(self) -> None:
        """Makes the array read-only."""
        _protect(self._first, self._inner, _READ)

    def is_intact(self) -> bool:
        """Whether the memory around the array is unchanged."""
        return all(bool((array == PATTERN).all()) for array in self._around)


def can_guard() -> bool:
    """Whether this system lets pages be protected, as all but Windows do."""
    return os.name == "posix"


@lru_cache(maxsize=1)
def _library() -> Any:  # a library of C has no types
    found = ctypes.CDLL(None, use_errno=True)
    found.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return found


def _protect(address: int, size: int, how: int) -> None:
    if _library().mprotect(address, size, how):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
