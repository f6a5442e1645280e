"""Lowered candidates: schedules replayed and lowered once, shared by all users.

>>> from plica.ir.loop.statement import NOTHING
>>> kept, nothing = LoweredCandidates(capacity=1), Kernel((), (), 0, NOTHING)
>>> kept.known(Trace(()), nothing) is None, kept.of(Trace(()), nothing) == nothing
(True, True)
>>> kept.known(Trace(()), nothing) == nothing
True
"""

from __future__ import annotations

import threading
from typing import Final

from plica.codegen.lower.passes import lower
from plica.core.collector import paused
from plica.ir.loop.statement import Kernel
from plica.runtime.error import PlicaError
from plica.schedule.replay import scheduled
from plica.schedule.trace import Trace
from plica.search.measure.stop import wait_for_noise


class LoweredCandidates:
    """The last candidates that were lowered; several threads may ask."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._kept: dict[tuple[Trace, Kernel], Kernel] = {}
        self._scheduled: dict[tuple[Trace, Kernel], Kernel] = {}
        self._lock = threading.Lock()

    def of(self, trace: Trace, kernel: Kernel) -> Kernel | None:
        """A schedule of a kernel, lowered, or None if it is illegal or cannot be lowered."""
        if (found := self.known(trace, kernel)) is not None:
            return found
        if (before := self.scheduled(trace, kernel)) is None:
            return None
        try:
            with paused():
                made = lower(before, "cpu")
        except PlicaError:
            return None
        self._keep(self._kept, (trace, kernel), made)
        return made

    def scheduled(self, trace: Trace, kernel: Kernel) -> Kernel | None:
        """A kernel after its schedule and before it is lowered; None where that is illegal."""
        with self._lock:
            known = self._scheduled.get((trace, kernel))
        if known is not None:
            return known
        wait_for_noise()
        try:
            made = scheduled(trace, kernel)
        except PlicaError:
            return None
        self._keep(self._scheduled, (trace, kernel), made)
        return made

    def _keep(
        self, where: dict[tuple[Trace, Kernel], Kernel], key: tuple[Trace, Kernel], made: Kernel
    ) -> None:
        with self._lock:
            where[key] = made
            while len(where) > self._capacity:
                del where[next(iter(where))]

    def known(self, trace: Trace, kernel: Kernel) -> Kernel | None:
        """The cached lowering of a schedule, or None."""
        with self._lock:
            return self._kept.get((trace, kernel))


LOWERED: Final = LoweredCandidates(512)  # those of this process: a few rounds of a few searches
