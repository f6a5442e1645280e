"""Deadlines: long work is given up when its time is over.

What takes long calls `check_deadline` between its steps; whoever limits it says when it ends.  What
was being made is lost, so a caller is asked for nothing that is half done.

>>> with deadline(monotonic() - 1.0):
...     check_deadline()
Traceback (most recent call last):
plica.core.deadline.DeadlinePassed
>>> check_deadline()
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from math import inf
from time import monotonic
from typing import Final

_END: Final[ContextVar[float]] = ContextVar("plica-deadline", default=inf)


class DeadlinePassed(Exception):  # nothing went wrong
    """The time of what is under way is over."""


@contextmanager
def deadline(end: float) -> Iterator[None]:
    """Limits what is done inside to a time of the monotonic clock, or to an earlier limit outside.

    A thread has no limit of its own: run it in a copy of the context.
    """
    token = _END.set(min(end, _END.get()))
    try:
        yield
    finally:
        _END.reset(token)


def seconds_left() -> float:
    """The seconds until the deadline, infinitely many without one, less than 0 after it."""
    return _END.get() - monotonic()


def check_deadline() -> None:
    """Raise `DeadlinePassed` after the deadline."""
    if seconds_left() < 0:
        raise DeadlinePassed
