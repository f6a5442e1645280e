"""Stopping processes of ours, and placing threads, while something is timed.

Two logical cores may share execution units: code timed while a compiler runs takes up to twice as
long.

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
from typing import Final


@contextmanager
def stopped(processes: Sequence[int]) -> Iterator[None]:
    """Suspends processes during the enclosed work."""
    if os.name == "posix":
        _tell(processes, signal.SIGSTOP)
    try:
        yield
    finally:
        resume(processes)


def resume(processes: Sequence[int]) -> None:
    """Resumes processes that may be suspended."""
    if os.name == "posix":
        _tell(processes, signal.SIGCONT)


_QUIET: Final = threading.Lock()


@contextmanager
def quiet(wanted: bool = True) -> Iterator[None]:
    """While something is timed, threads of this process wait in `wait_for_noise`."""
    if not wanted:
        yield
        return
    with _QUIET:
        yield


def wait_for_noise() -> None:
    """Waits while something is timed: for threads that estimate in the background, between two
    steps."""
    with _QUIET:
        pass


@contextmanager
def placed(threads: int) -> Iterator[None]:
    """Pins each thread of this process to a core if the code has as many threads as there are
    cores: two on one core, with another idle, take twice as long. With more cores, the system
    places them better.

    Existing threads are pinned: those of a pool exist after its first region.
    """
    every = sorted(os.sched_getaffinity(0)) if sys.platform == "linux" else []
    if threads < 2 or len(every) != threads:
        yield
        return
    mine = threading.get_native_id()
    others = [each for each in sorted(map(int, os.listdir("/proc/self/task"))) if each != mine]
    _place(mine, every[:1])
    for number, each in enumerate(others):
        _place(each, [every[1 + number % (threads - 1)]])
    try:
        yield
    finally:
        for each in (mine, *others):
            _place(each, every)


def _place(thread: int, where: Sequence[int]) -> None:
    try:
        os.sched_setaffinity(thread, where)
    except ProcessLookupError:
        return  # it has ended


def give_way(patience: int) -> None:
    """Lower the priority of this thread from now on; on Linux alone."""
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), patience)


def _tell(processes: Sequence[int], what: signal.Signals) -> None:
    for process in processes:
        try:
            os.kill(process, what)
        except ProcessLookupError:
            continue  # it is gone, and will be started again
