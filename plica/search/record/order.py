"""Order: which of the records of some work is the best, though not all were timed alike.

A time taken alone compares badly with one taken an hour later; those of a last comparison were
taken in turns, round by round, and compare well with each other.  So the order is

    what was timed in its network, the fastest first
    singles that are faster than the winner of the comparisons by more than noise
    what was compared, the fastest first
    the other singles, the fastest first

and a schedule stands in it once, with the best of its records.

>>> from plica.search.record.record import record
>>> lucky, sound = [record("w", "m", t, "f", (c,)) for t, c in (("1", 0.99), ("2", 1.0))]
>>> compared = record("w", "m", "2", "f", (1.0,), noise=0.02, policy="guided/final")
>>> [each.trace_json for each in in_order([lucky, sound, compared])]
['2', '1']
>>> there = record("w", "m", "1", "f", (3.0,), policy=IN_PLACE)
>>> [each.trace_json for each in in_order([lucky, sound, compared, there])]
['1', '2']
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from plica.search.record.record import Record

IN_PLACE: Final = "in-place"
"""The policy of a record whose times were taken in a network, beside those of the default."""

FINAL: Final = "/final"
"""How the policy of a record ends whose times were taken in turns with those of others."""


def in_order(records: Iterable[Record]) -> tuple[Record, ...]:
    """The records of one work on one machine that have costs, one for each schedule."""
    usable = sorted([each for each in records if each.cost is not None], key=_cost)
    there = {(e.form, e.trace_json): e for e in reversed(usable) if e.policy == IN_PLACE}
    if there:
        apart = [e for e in usable if (e.form, e.trace_json) not in there]
        return (*sorted(there.values(), key=_cost), *in_order(apart))
    singles: dict[tuple[str, str], Record] = {}
    finals: dict[tuple[str, str], Record] = {}
    for each in usable:
        kind = finals if each.policy.endswith(FINAL) else singles
        kind.setdefault((each.form, each.trace_json), each)
    compared = list(finals.values())
    others = [each for place, each in singles.items() if place not in finals]
    if not compared:
        return tuple(others)
    winner = compared[0]
    alone = singles.get((winner.form, winner.trace_json), winner)
    clear = [_beats(each, winner) and _beats(each, alone) for each in others]
    faster = [each for each, is_clear in zip(others, clear, strict=True) if is_clear]
    slower = [each for each, is_clear in zip(others, clear, strict=True) if not is_clear]
    return (*faster, *compared, *slower)


def _beats(single: Record, other: Record) -> bool:
    """Whether a time taken alone is less than another by more than noise."""
    noise = max(single.noise, other.noise)
    return _cost(single)[0] * (1 + noise) < _cost(other)[0]


def _cost(of: Record) -> tuple[float, str]:
    return (0.0 if of.cost is None else of.cost), of.identity
