"""States: the memory that a call of a dynamic program works in, and its stack.

    code      what went wrong, 0 if nothing did
    live      how many objects there are
    ...       free lists by size, memory that was not used yet, the stack

Words of a state are numbered here, for the code that is made and for those who call it.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from typing import Any, Final

import numpy as np

from plica.runtime.link import LinkedCode

LAYOUT: Final = 1  # raised when the words mean something else
RUN: Final = f"plica_dynamic_run_{LAYOUT}"
RELEASE: Final = f"plica_dynamic_release_{LAYOUT}"
RESET: Final = f"plica_dynamic_reset_{LAYOUT}"

# fmt: off
CODE, LIVE, LOWEST, TOP          = 0, 1, 2, 3
BUMP, BUMP_END, CHUNKS, HELD     = 4, 5, 6, 7
MOST, CONSTANTS, ARGS, RESULTS   = 8, 9, 10, 11
FREE                             = 16
# fmt: on
CLASSES: Final = 44  # sizes of objects: class `k` has `64 << k` bytes
MORE: Final = FREE + CLASSES  # where arguments are that find no register
ARGUMENTS: Final = 4096  # how many of those a routine may have
WORDS: Final = MORE + ARGUMENTS

DEEP: Final = -1
FULL: Final = -2  # status codes: recursion too deep, out of memory
STACK: Final = 256 << 20  # the bytes of a stack; only touched pages take memory
RESERVE: Final = 16 << 20
"""Bytes of it that are left for what routines call: kernels, and the library of C."""

KEEP: Final = 64 << 20  # the bytes of objects that a state keeps between calls
_RESET: Final = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class CallMemory:
    """The memory of one call at a time; releases it when collected."""

    def __init__(self, code: LinkedCode, constants: int) -> None:
        self.words = np.zeros(WORDS, np.int64)
        self.address: int = self.words.__array_interface__["data"][0]
        self._code = code  # what resets it must be there as long as it is
        self._reset: Any = _RESET(code.address(RESET))
        self.stack = _stack()
        hold = (ctypes.c_char * len(self.stack)).from_buffer(self.stack)
        base = ctypes.addressof(hold)
        self._hold = hold
        self.words[LOWEST] = base + RESERVE
        self.words[TOP] = base + len(self.stack) - 64
        self.words[CONSTANTS] = constants
        self.words[MOST] = _memory()

    @property
    def live(self) -> int:
        """The number of live objects."""
        return int(self.words[LIVE])

    @property
    def held(self) -> int:
        """How many bytes of memory it has for objects."""
        return int(self.words[HELD])

    def reset(self) -> None:
        """Give all memory of objects and of the stack back; nothing is alive any more."""
        self._reset(self.address)
        self.stack.madvise(mmap.MADV_DONTNEED)

    def __del__(self) -> None:
        if getattr(self, "_hold", None) is not None:  # it was made as a whole
            self._reset(self.address)


def _stack() -> mmap.mmap:
    """Memory for a stack, smaller if the system does not overcommit."""
    size = STACK
    while True:
        try:
            return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except OSError:
            if size <= 2 * RESERVE:
                raise
            size //= 2


def _memory() -> int:
    """How many bytes this machine has."""
    names = os.sysconf_names
    if "SC_PHYS_PAGES" in names and "SC_PAGE_SIZE" in names:
        return max(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), 1 << 30)
    return 1 << 46
