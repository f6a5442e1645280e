"""Lowered candidates: a schedule replayed and lowered once, whoever asks.

Whoever proposes a candidate has lowered it for its features; whoever builds it in another process
is given what was made, if it is still there.

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
        self._lock = threading.Lock()

    def of(self, trace: Trace, kernel: Kernel) -> Kernel | None:
        """A schedule of a kernel, lowered; None where it is illegal or cannot be lowered."""
        if (found := self.known(trace, kernel)) is not None:
            return found
        wait_for_noise()
        try:
            with paused():
                made = lower(scheduled(trace, kernel), "cpu")
        except PlicaError:
            return None
        with self._lock:
            self._kept[trace, kernel] = made
            while len(self._kept) > self._capacity:
                del self._kept[next(iter(self._kept))]
        return made

    def known(self, trace: Trace, kernel: Kernel) -> Kernel | None:
        """What was made of a schedule a while ago, None where that is not known any more."""
        with self._lock:
            return self._kept.get((trace, kernel))


LOWERED: Final = LoweredCandidates(512)  # those of this process: a few rounds of a few searches
