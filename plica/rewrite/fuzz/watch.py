"""A watchdog: interrupts a case that takes too long, so that the next can run.

>>> from contextlib import suppress
>>> with suppress(TimeUp), watched(0.01):
...     while True:
...         pass
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

CASE_SECONDS: Final = 60.0  # the time limit of a case, and again of shrinking or reporting it


class TimeUp(KeyboardInterrupt):
    """A case takes too long: a KeyboardInterrupt, so that tested code does not catch it.

    Hypothesis stops at once on an interrupt.
    """


@contextmanager
def watched(seconds: float) -> Iterator[None]:
    """Raises `TimeUp` inside after the given number of seconds, and repeatedly after that.

    Only the main thread can be interrupted; elsewhere, and without such timers, there is no limit.
    """
    here = threading.current_thread() is threading.main_thread()
    if not here or not hasattr(signal, "setitimer"):
        yield
        return
    before = signal.signal(signal.SIGVTALRM, _up)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def _up(*_: object) -> None:
    raise TimeUp
