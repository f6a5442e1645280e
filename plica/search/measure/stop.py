"""Stopping: processes of ours that do nothing while something is timed.

What is called two cores is often one, whose units two threads share: code that is timed beside a
compiler takes up to twice as long.  The process that times stops the others and lets them go on;
if it dies, whoever asked it does.

>>> with stopped(()):
...     pass
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager


@contextmanager
def stopped(processes: Sequence[int]) -> Iterator[None]:
    """Hold processes while something else goes on."""
    if os.name == "posix":
        _tell(processes, signal.SIGSTOP)
    try:
        yield
    finally:
        resume(processes)


def resume(processes: Sequence[int]) -> None:
    """Let processes go on that somebody may have stopped."""
    if os.name == "posix":
        _tell(processes, signal.SIGCONT)


def give_way(patience: int = 19) -> None:
    """Let this thread have what others leave, from now on: it goes on while something is timed, for
    its process cannot be stopped.  Elsewhere than on Linux threads have no number of their own."""
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), patience)


def _tell(processes: Sequence[int], what: signal.Signals) -> None:
    for each in processes:
        try:
            os.kill(each, what)
        except ProcessLookupError:
            continue  # it is gone, and will be started again
