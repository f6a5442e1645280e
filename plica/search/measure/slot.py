"""The timing slot: at most one kernel is timed on the same cores at a time, across processes.

It is a file lock per core that this process may use, released by the system if its holder dies.
Locks are taken in a fixed order, so there is no deadlock.

A deadline of who waits ends the wait.

>>> with slot():
...     pass
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from math import inf
from pathlib import Path
from time import sleep
from typing import Final

from plica.core.deadline import check_deadline, seconds_left

POLL_SECONDS: Final = 0.02


def slot_paths() -> list[Path]:
    """The files of this user and of the cores that this process may use."""
    who = os.getuid() if hasattr(os, "getuid") else 0
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
    return [Path(tempfile.gettempdir()) / f"plica-measuring-{who}-{each}.lock" for each in cores]


@contextmanager
def slot() -> Iterator[None]:
    """Holds the slot, waiting for it if necessary."""
    if os.name != "posix":
        yield  # there is no such lock, and no pool of processes either
        return
    with ExitStack() as held:
        for each in slot_paths():
            held.enter_context(_held(each))
        yield


@contextmanager
def _held(path: Path) -> Iterator[None]:
    import fcntl

    flags = os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0)
    file = os.open(path, flags, 0o600)
    try:
        if seconds_left() == inf:
            fcntl.flock(file, fcntl.LOCK_EX)
        while seconds_left() < inf:
            with suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            check_deadline()
            sleep(POLL_SECONDS)
        yield
    finally:
        os.close(file)
