"""A watch on cases: one that takes too long is told so, wherever it is, and the next can run.

What counts is the time of the processor in this process, so that a busy machine makes nobody late.
Code of others that does not come back to Python is not told; who runs shares in processes of their
own ends those (`plica.cli.fuzz.jobs`).

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

CASE_SECONDS: Final = 60.0
"""So long a case may take, and as long again whoever makes it smaller or tells of it."""


class TimeUp(KeyboardInterrupt):
    """A case takes too long: an interrupt, which the code that it is raised in must not catch.

    Hypothesis lets go at once of what an interrupt ends.
    """


@contextmanager
def watched(seconds: float) -> Iterator[None]:
    """Raise `TimeUp` in what is done here after a given number of seconds, and again after as many
    more.

    Only the main thread can be told; elsewhere, and where there are no such clocks, nobody is.
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
