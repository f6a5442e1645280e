"""Deadlines: long work is given up when its time is over.

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
    """The time limit of the current work has passed."""


@contextmanager
def deadline(end: float) -> Iterator[None]:
    """Limits the enclosed work to a time of the monotonic clock, or to the enclosing limit if that
    is earlier.

    A thread does not inherit the limit: run it in a copy of the context.
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
