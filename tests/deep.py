"""What every run tries of a family of cases, and what is left to the deep run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from _pytest.mark.structures import ParameterSet


def spread(cases: Iterable[Any], count: int) -> list[ParameterSet]:
    """All cases, for `parametrize`: so many, evenly spread and always the same, run every time.

    The others are marked slow.  For families whose cases take one road through the code: a mistake
    there shows in several, and the deep run has the rest.  The first and the last are among them.
    """
    every = list(cases)
    last = len(every) - 1
    kept = {round(number * last / max(1, count - 1)) for number in range(count)}
    return [
        pytest.param(
            *(each if isinstance(each, tuple) else (each,)),
            marks=() if number in kept else pytest.mark.slow,
        )
        for number, each in enumerate(every)
    ]
