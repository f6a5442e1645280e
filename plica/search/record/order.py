"""Order: which of the records of some work is the best, though not all were timed alike.

    what was timed in its network, the fastest first
    what was compared in turns: the default first, but for those that are clearly faster
    what was timed alone, the fastest first; but the default (the first trial) before all that are
        faster by no more than the placement of memory explains

A schedule occurs in it once, with the best of its records, and chance differences never beat the
default.

>>> from plica.search.record.record import record
>>> lucky, sound = [record("w", "m", t, "f", (c,)) for t, c in (("1", 0.99), ("2", 1.0))]
>>> compared = record("w", "m", "2", "f", (1.0,), noise=0.02, policy="guided/final")
>>> [each.trace_json for each in in_order([lucky, sound, compared])]
['2', '1']
>>> turns = [record("w", "m", t, "f", costs, policy="guided/final", trial=n) for n, (t, costs)
...     in enumerate((("default", (1.0, 1.1, 1.05, 1.0)), ("even", (0.9, 1.2, 1.0, 1.05))))]
>>> [each.trace_json for each in in_order(turns)]
['default', 'even']
>>> alone = [record("w", "m", t, "f", (c, c), trial=n) for n, (t, c) in
...     enumerate((("default", 1.0), ("lucky", 0.95), ("fast", 0.8)))]
>>> [each.trace_json for each in in_order(alone)]
['fast', 'default', 'lucky']
>>> there = record("w", "m", "1", "f", (3.0,), policy=IN_PLACE)
>>> [each.trace_json for each in in_order([lucky, sound, compared, there])]
['1', '2']
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from statistics import median
from typing import Final, TypeVar

from plica.search.record.record import Record

T = TypeVar("T")

IN_PLACE: Final = "in-place"  # the policy of a record timed in a network, beside its default
FINAL: Final = "/final"  # how the policy of a record ends that was timed in turns


MAX_SEPARATE_RUN_RATIO: Final = (
    0.9  # of the default's time at most, where times are of separate runs
)


def in_order(records: Iterable[Record]) -> tuple[Record, ...]:
    """The records of one work on one machine that have costs, one for each schedule."""
    usable = sorted([record for record in records if record.cost is not None], key=_cost)
    there = {(e.form, e.trace_json): e for e in reversed(usable) if e.policy == IN_PLACE}
    if there:
        apart = [e for e in usable if (e.form, e.trace_json) not in there]
        return (*sorted(there.values(), key=_cost), *in_order(apart))
    singles: dict[tuple[str, str], Record] = {}
    finals: dict[tuple[str, str], Record] = {}
    for record in usable:
        kind = finals if record.policy.endswith(FINAL) else singles
        kind.setdefault((record.form, record.trace_json), record)
    compared = ranked_by(sorted(finals.values(), key=lambda of: (of.trial, _cost(of))), _beats)
    alone = [record for place, record in singles.items() if place not in finals]
    return (*compared, *_default_first(alone))


def _default_first(alone: Sequence[Record]) -> Sequence[Record]:
    """Records of separate runs, the default before those that are not clearly faster."""
    defaults = [record for record in alone if record.trial == 0 and len(record.costs) > 1]
    if not defaults or len(defaults) == len(alone):
        return alone
    first, most = defaults[0], MAX_SEPARATE_RUN_RATIO * (defaults[0].cost or 0.0)
    ahead = [record for record in alone if record is not first and (record.cost or 0.0) <= most]
    return (*ahead, first, *[each for each in alone if each is not first and each not in ahead])


def _beats(one: Record, other: Record) -> bool:
    """Whether one record beats another: by times measured alternately, or else by the minimum."""
    if len(one.costs) != len(other.costs) or len(one.costs) < 2:
        return _cost(one) < _cost(other)
    return is_faster_in_turns(one.costs, other.costs)


def ranked_by(items: Iterable[T], beats: Callable[[T, T], bool]) -> list[T]:
    """The items, best first; stable unless a later one beats an earlier one."""
    order: list[T] = []
    for item in items:
        at = len(order)
        while at and beats(item, order[at - 1]):
            at -= 1
        order.insert(at, item)
    return order


def is_faster_in_turns(one: Sequence[float], other: Sequence[float]) -> bool:
    """Whether the median of alternately measured times is significantly less."""
    return median(one) < median(other) and clearly_less(one, other)


def clearly_less(one: Sequence[float], other: Sequence[float]) -> bool:
    """Whether times measured round by round are significantly less: Student's paired t-test at
    about 1 %.

    >>> clearly_less((1.0, 1.1, 1.05, 1.0), (1.2, 1.3, 1.2, 1.25))
    True
    >>> clearly_less((1.0, 1.3, 1.0, 1.3), (1.1, 1.2, 1.2, 1.1))
    False
    """
    differences = [b - a for a, b in zip(one, other, strict=True)]
    count = len(differences)
    if count < 2:
        return False
    mean = sum(differences) / count
    variance = sum((difference - mean) ** 2 for difference in differences) / (count - 1)
    if variance == 0:
        return mean > 0
    # Student's 99.5 % point is near 2.58 + 5.8 / degrees of freedom from 8 of them on.
    return mean / math.sqrt(variance / count) > 2.58 + 5.8 / (count - 1)


def _cost(of: Record) -> tuple[float, str]:
    return (0.0 if of.cost is None else of.cost), of.identity
