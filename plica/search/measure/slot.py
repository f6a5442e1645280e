"""The slot: on one machine one kernel is timed at a time, whoever asks.

It is a lock on a file, which the system lets go of when its holder dies.

>>> with slot():
...     pass
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def slot_path() -> Path:
    """The file of this user and this machine."""
    who = os.getuid() if hasattr(os, "getuid") else 0
    return Path(tempfile.gettempdir()) / f"plica-measuring-{who}.lock"


@contextmanager
def slot() -> Iterator[None]:
    """Hold the slot; wait for it where somebody else does."""
    if os.name != "posix":
        yield  # there is no such lock, and no pool of processes either
        return
    import fcntl

    flags = os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0)
    file = os.open(slot_path(), flags, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)
