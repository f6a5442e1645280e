"""Timing: the duration of calls, of two functions alternately, and whether the machine was busy.

    print(plica.time(exe, x))
    print(plica.time(exe, x, against=other))

A round calls each function until its time is measurable, one after the other, with the order
alternating between rounds, so that disturbances affect both.

>>> other = CallTiming("g", (4e-6, 6e-6, 3e-6, 4e-6))
>>> found = CallTiming("f", (2e-6, 3e-6, 1e-6, 2e-6), other)
>>> found.min, found.median, found.ratio
(1e-06, 2e-06, 2.0)
>>> print(found)
       min     median   spread
f    1.0 us    2.0 us      25%
g    3.0 us    4.0 us      19%
f takes 0.50 of the time of g: it is 2.00 times as fast.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any, Final

import numpy as np

from plica.runtime.error import Diagnostic, InputError
from plica.runtime.host import cores
from plica.runtime.notebook import ShownAsText

MIN_ROUND_NS: Final = 2_000_000
"""The minimum duration of a round per function: overheads of the clock and of Python calls are
negligible."""

MAX_CALLS: Final = 100_000  # so often a function is called in a round, at most
BUSY: Final = 0.5
"""With this many others at work for each core, times are longer than they would be."""


@dataclass(frozen=True, slots=True)
class CallTiming(ShownAsText):
    """The seconds per call in each round; `against` was called alternately."""

    name: str
    rounds: tuple[float, ...]
    against: CallTiming | None = None
    warning: str = ""  # why the times are not to be trusted, where something is known

    @property
    def min(self) -> float:
        """The seconds of a call in the best round."""
        return min(self.rounds)

    @property
    def median(self) -> float:
        """The seconds of a call in the round in the middle."""
        return median(self.rounds)

    @property
    def spread(self) -> float:
        """How far the middle half of the rounds is spread, as a part of the median."""
        return spread_of(self.rounds)

    @property
    def ratio(self) -> float | None:
        """How many times as fast it is as the other: the median over rounds; None without one."""
        if self.against is None:
            return None
        pairs = zip(self.rounds, self.against.rounds, strict=True)
        return median([other / own if own else 1.0 for own, other in pairs])

    def to_data(self) -> dict[str, object]:
        """The times as JSON data."""
        other = None if self.against is None else self.against.to_data()
        return {
            "name": self.name, "rounds": list(self.rounds), "min": self.min,
            "median": self.median, "spread": self.spread, "ratio": self.ratio,
            "against": other, "warning": self.warning,
        }  # fmt: skip

    def __str__(self) -> str:
        every = [self] if self.against is None else [self, self.against]
        width = max(len(call_timing.name) for call_timing in every)
        lines = [f"{'':{width}}      min     median   spread"]
        for call_timing in every:
            times = f"{seconds_text(call_timing.min)}  {seconds_text(call_timing.median)}"
            lines.append(f"{call_timing.name:{width}}  {times}  {call_timing.spread:7.0%}")
        ratio, how = self.ratio, ""
        if self.against is not None and self.warning and self.min and self.against.min:
            ratio, how = self.against.min / self.min, "By the least times "
        if self.against is not None and ratio is not None:
            names = f"{how}{self.name} takes {1 / ratio:.2f} of the time of {self.against.name}"
            lines.append(f"{names}: it is {ratio:.2f} times as fast.")
        return "\n".join([*lines, *([self.warning] if self.warning else [])])


def time(
    f: Callable[..., Any],  # Any: whatever is called
    *args: Any,
    against: Callable[..., Any] | None = None,
    rounds: int = 7,
    **named: Any,
) -> CallTiming:
    """The duration of `f` with these arguments, alternating with `against` if given.

    Each is called once before, which is not counted: that is when things are compiled.
    """
    for each in (f,) if against is None else (f, against):
        if not callable(each):
            message = "What is timed must be a function, or an executable."
            raise InputError(Diagnostic("input-type", message, None, "a function", repr(each)[:80]))
    if type(rounds) is not int or rounds < 1:
        message = "There is one round at least."
        raise InputError(Diagnostic("input-type", message, None, "1 or more", repr(rounds)))
    every = [f] if against is None else [f, against]
    for each in every:
        each(*args, **named)
    calls = [_calls(each, args, named) for each in every]
    before = load()
    found: list[list[float]] = [[] for _ in every]
    for turn in range(rounds):
        order = range(len(every)) if turn % 2 == 0 else reversed(range(len(every)))
        for at in order:
            found[at].append(_once(every[at], args, named, calls[at]) / calls[at] / 1e9)
    warning = busy(before, [spread_of(each) for each in found])
    other = None if against is None else CallTiming(_named(against, "the other"), tuple(found[1]))
    return CallTiming(_named(f, "f"), tuple(found[0]), other, warning)


def _once(f: Callable[..., Any], args: Any, named: Any, calls: int) -> int:  # as `time`
    start = perf_counter_ns()
    for _ in range(calls):
        f(*args, **named)
    return perf_counter_ns() - start


def _calls(f: Callable[..., Any], args: Any, named: Any) -> int:  # as `time`
    """How often a function is called in a round."""
    calls = 1
    while calls < MAX_CALLS:
        spent = _once(f, args, named, calls)
        if spent >= MIN_ROUND_NS:
            return calls
        calls = min(MAX_CALLS, max(2 * calls, round(calls * MIN_ROUND_NS / max(1, spent))))
    return calls


def _named(of: object, otherwise: str) -> str:
    found = getattr(of, "__name__", None) or getattr(of, "name", None)
    return found if isinstance(found, str) and found.isprintable() and found else otherwise


def median(times: Sequence[float]) -> float:
    """The time in the middle."""
    return float(np.median(times))


def spread_of(times: Sequence[float]) -> float:
    """The middle half of some times, from its least to its most, as a part of the median."""
    middle = median(times) if times else 0.0
    if len(times) < 2 or not middle:
        return 0.0
    low, high = np.quantile(times, (0.25, 0.75))
    return float(high - low) / middle


def load() -> float:
    """How many processes were at work in the last minute, as the system says; 0 where it does
    not."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0


def busy(before: float, spreads: Sequence[float] = ()) -> str:
    """A warning if the machine was busy during a measurement, or an empty text."""
    count = cores()
    if before > BUSY * count + 0.5:
        return f"The machine is busy (load {before:.1f} on {count} cores): look at the least times."
    if spreads and max(spreads) > BUSY:
        return f"The rounds differ by {max(spreads):.0%}: something disturbed them."
    return ""


def seconds_text(seconds: float) -> str:
    """A time as a person reads it, always as wide.

    >>> seconds_text(1.5e-6), seconds_text(0.0123), seconds_text(3)
    ('  1.5 us', ' 12.3 ms', '  3.00 s')
    """
    if seconds < 1e-3:
        return f"{seconds * 1e6:5.1f} us"
    return f"{seconds * 1e3:5.1f} ms" if seconds < 1 else f"{seconds:6.2f} s"
