"""Statistics of an executable: calls, compilations and memory.

>>> calls = CallCounter()
>>> calls.add()
>>> Stats(calls.count, 1, 4096)
Stats(calls=1, compilations=1, bytes=4096, at_call=0)
"""

from __future__ import annotations

import threading
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Stats:
    """Counters of an executable.

    `calls` counts started calls; `compilations` those by this process, zero for loaded or cached
    code; `bytes` is the memory of code, constants and workspaces; `at_call` counts compilations
    that a call waited for.
    """

    calls: int
    compilations: int
    bytes: int
    at_call: int = 0


class CallCounter:
    """A number that many threads count up."""

    __slots__ = ("_lock", "count")

    def __init__(self) -> None:
        self.count = 0
        self._lock = threading.Lock()

    def add(self) -> None:
        """One more."""
        with self._lock:
            self.count += 1
