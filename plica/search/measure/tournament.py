"""Tournaments: which of a few good candidates is the best, beyond the noise of the machine.

The candidates are timed in turns, round by round, so that two of them are compared within each
round.  One is better than another if the mean of their differences is far from 0 for how much the
differences vary: Student's test for pairs, at about 5 %.

>>> clearly_less((1.0, 1.1, 1.05, 1.0), (1.2, 1.3, 1.2, 1.25))
True
>>> clearly_less((1.0, 1.3, 1.0, 1.3), (1.1, 1.2, 1.2, 1.1))
False
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

from plica.search.measure.outcome import Measured


def clearly_less(one: Sequence[float], other: Sequence[float]) -> bool:
    """Whether times taken round by round are less than others, and not by chance."""
    differences = [b - a for a, b in zip(one, other, strict=True)]
    count = len(differences)
    if count < 2:
        return False
    mean = sum(differences) / count
    variance = sum((each - mean) ** 2 for each in differences) / (count - 1)
    if variance == 0:
        return mean > 0
    # Student's 97.5 % point is near 1.96 + 2.8 / degrees of freedom from 4 of them on.
    return mean / math.sqrt(variance / count) > 1.96 + 2.8 / (count - 1)


def ranked(finals: Sequence[Measured]) -> tuple[Measured, ...]:
    """Those that were timed, the fastest first; an earlier one stays before a later one that is
    not clearly faster."""
    timed = [each for each in finals if each.times]
    order: list[Measured] = []
    for each in timed:
        at = len(order)
        while at and _beats(each, order[at - 1]):
            at -= 1
        order.insert(at, each)
    return tuple(order)


def _beats(one: Measured, other: Measured) -> bool:
    return median(one.times) < median(other.times) and clearly_less(one.times, other.times)
