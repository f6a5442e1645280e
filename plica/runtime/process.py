"""Subprocesses: work that may crash without affecting this process.

>>> apart(lambda: b"done")
b'done'
>>> import signal
>>> print(apart(lambda: os.kill(os.getpid(), signal.SIGSEGV) or b""))
SIGSEGV: memory that is not there
"""

from __future__ import annotations

import faulthandler
import os
import select
import signal
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import Final

from plica.runtime.error import Diagnostic, UnsupportedError

MEANINGS: Final = {
    "SIGSEGV": "memory that is not there",
    "SIGBUS": "memory that is not there",
    "SIGILL": "an instruction this machine does not have",
    "SIGFPE": "a division that has no result",
    "SIGABRT": "the process gave up",
    "SIGKILL": "it took too long, or too much memory",
}
_FAILED: Final = 70


@dataclass(frozen=True, slots=True)
class Died:
    """How a process ended that gave nothing back: the name of a signal, or what it said."""

    how: str

    def __str__(self) -> str:
        meaning = MEANINGS.get(self.how)
        return self.how if meaning is None else f"{self.how}: {meaning}"


def can_part() -> bool:
    """Whether this system copies processes."""
    return hasattr(os, "fork")


def apart(work: Callable[[], bytes], seconds: float = 120.0) -> bytes | Died:
    """What `work` gives in a child of this process, or how that died."""
    if not can_part():
        message = "This system has no way to run a copy of a process."
        raise UnsupportedError(Diagnostic("unsupported", message, None, "a POSIX system", os.name))
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _work(work, writing)
    os.close(writing)
    try:
        found = _read(reading, child, seconds)
    finally:
        os.close(reading)
        _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return Died(signal.Signals(os.WTERMSIG(status)).name)
    return found if os.WEXITSTATUS(status) == 0 else Died(found.decode("utf-8", "replace"))


def _work(work: Callable[[], bytes], writing: int) -> None:
    """The child's work; never returns, so nothing else runs twice."""
    code = _FAILED
    try:
        faulthandler.disable()  # its death is told by its parent
        found = work()
        code = 0
    except BaseException:  # noqa: BLE001  # whatever it was, the parent is told
        found = traceback.format_exc(limit=-6).encode()
    try:
        with os.fdopen(writing, "wb") as file:
            file.write(found)
    finally:
        os._exit(code)


def _read(reading: int, child: int, seconds: float) -> bytes:
    """The child's output; kills a child that takes too long."""
    end = monotonic() + seconds
    parts: list[bytes] = []
    while True:
        ready, _, _ = select.select([reading], [], [], max(0.0, end - monotonic()))
        if not ready:
            os.kill(child, signal.SIGKILL)
            return b""
        if not (part := os.read(reading, 1 << 16)):
            return b"".join(parts)
        parts.append(part)
