"""Tournaments: which of a few good candidates is the best, beyond the noise of the machine.

The candidates are timed alternately, round by round, so that two of them are compared within each
round. One is better if the mean of their differences is large relative to its variation
(`clearly_less`, which also orders records).
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from plica.search.measure.outcome import Measured
from plica.search.record.order import clearly_less, is_faster_in_turns, ranked_by


def ranked(finals: Sequence[Measured]) -> tuple[Measured, ...]:
    """The timed candidates, fastest first; a stable order."""
    timed = [each for each in finals if each.times]
    return tuple(ranked_by(timed, lambda one, other: is_faster_in_turns(one.times, other.times)))


def is_decided(rounds: Sequence[Sequence[float]]) -> bool:
    """Whether more rounds would change nothing: whatever seems faster than the first clearly is.

    >>> is_decided([(1.0, 0.5), (1.1, 0.6)] * 4), is_decided([(1.0, 0.9), (1.0, 1.05)] * 4)
    (True, False)
    """
    first, *others = zip(*rounds, strict=True)
    return all(median(each) >= median(first) or clearly_less(each, first) for each in others)
