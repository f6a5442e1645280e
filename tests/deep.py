"""What every run tries of a family of cases, and what is left to the deep run."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import pytest
from _pytest.mark.structures import ParameterSet

CHECKED = re.compile(r"(plica\.check\(.*\bexamples=)(\d{1,2})\b")
"""A check on a page, of less than a hundred instances: a good rule.  Wrong ones ask for more."""


def fewer(page: str) -> str:
    """The examples of a page, where a good rule is tried on a quarter of its instances.

    That the line runs and what it says is looked at; profiles but `ci` try as many as it says.
    """
    return CHECKED.sub(lambda found: f"{found[1]}{max(2, int(found[2]) // 4)}", page)


def spread(cases: Iterable[Any], count: int) -> list[ParameterSet]:
    """All cases, for `parametrize`: this many, evenly spread and always the same, run every time.

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
