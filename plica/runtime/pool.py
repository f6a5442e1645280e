"""Pools: the threads that share the work of compiled code, one set for each number of them.

The pool itself is in the code (`plica.codegen.llvm.pool`): this only says which code uses which,
so that many executables do not each bring threads of their own.  What made a pool is never given
back, since its threads run in it.
"""

from __future__ import annotations

import ctypes
import threading
from typing import Final

from plica.runtime.link import LinkedCode

LAYOUT: Final = 4
"""Raised when the memory of a pool means something else; code of one layout shares pools."""

MAKE: Final = f"plica_pool_make_{LAYOUT}"
USE: Final = f"plica_pool_use_{LAYOUT}"

_pools: Final[dict[int, tuple[int, LinkedCode]]] = {}
_lock: Final = threading.Lock()


def use_threads(code: LinkedCode, threads: int) -> None:
    """Let code run on so many threads, the calling one among them; on one if it has no use."""
    if USE not in code or threads < 2:
        return
    with _lock:
        if threads not in _pools:
            make = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int64)(code.address(MAKE))
            _pools[threads] = make(threads) or 0, code
        pool, _ = _pools[threads]
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(code.address(USE))(pool)
