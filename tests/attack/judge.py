"""The judge: an attack is held where it is refused with a code, or gives a right value."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import numpy as np

from plica.core.diagnostic import CODES
from plica.runtime.error import PlicaError

SECONDS: Final = 20.0
"""After which an attack has succeeded in keeping somebody waiting, on a busy machine too."""


class Hangs(AssertionError):
    """An attack that is still under way."""


@contextmanager
def in_time(seconds: float = SECONDS) -> Iterator[None]:
    """End what hangs."""

    def ring(number: int, frame: Any) -> None:
        raise Hangs(f"still under way after {seconds:.0f} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def outcome(attack: Callable[[], object]) -> object:
    """What an attack gives, or its refusal; anything else that is raised goes on."""
    with in_time():
        try:
            return attack()
        except PlicaError as error:
            for each in error.diagnostics:
                assert each.code in CODES, each
                assert each.message.strip(), each
            str(error)
            return error


def refused(attack: Callable[[], object], *codes: str) -> None:
    """The attack is refused, for one of the reasons if some are given."""
    found = outcome(attack)
    assert isinstance(found, PlicaError), f"it was taken: {found!r}"
    assert not codes or found.diagnostics[0].code in codes, found


def gives(attack: Callable[[], Any], expected: Any) -> None:
    """The attack gives what is meant."""
    found = outcome(attack)
    assert not isinstance(found, PlicaError), found
    np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=1e-5)
