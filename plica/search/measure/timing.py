"""Kernel timing: the time of a kernel, per repetition.

A kernel on one thread is timed by the processor time of that thread, which does not count while
another process has the core; one on several threads by the clock on the wall.

>>> now = iter(range(0, 10_000, 5))
>>> taken = KernelTiming(lambda count: None, lambda: next(now) * 1_000_000, TrialLimits(repeats=3))
>>> taken.repeats()
(0.005, 0.005, 0.005)

Tournaments: which of a few good candidates is the best, beyond the noise of the machine.

The candidates are timed alternately, round by round, so that two of them are compared within each
round. One is better if the mean of their differences is large relative to its variation
(`clearly_less`, which also orders records).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from statistics import median
from typing import Final

import numpy as np

from plica.runtime.port import Array
from plica.search.measure.outcome import Measured, TrialLimits
from plica.search.record.order import clearly_less, is_faster_in_turns, ranked_by

MIN_REPEATS: Final = 3  # how often a kernel is repeated that is much slower than the best
HOPELESS: Final = 10.0  # a kernel this many times slower than the best is run twice
USUAL_REPEATS: Final = 5  # after this many repeats a tight least, or one beyond the bar, ends them
TIGHT: Final = 0.004  # a least is tight if the next is no farther above it than this part of it
REPEAT_FACTOR: Final = (
    2  # how many times as often a kernel is repeated whose least is not tight by then
)
CLEAR: Final = 1.1  # times slower than the best is clear after two repeats: memory alone makes 10 %
MAX_RUNS_PER_REPEAT: Final = 1 << 24  # how many runs one repeat has at most
Clock = Callable[[], int]  # nanoseconds since some time


def clock_for(threads: int) -> Clock:
    """The clock by which code on a given number of threads is timed."""
    if threads > 1 or not hasattr(time, "CLOCK_THREAD_CPUTIME_ID"):
        return time.perf_counter_ns
    return lambda: time.clock_gettime_ns(time.CLOCK_THREAD_CPUTIME_ID)


class KernelTiming:
    """A kernel that is timed: how many runs make a repeat is found out first."""

    def __init__(
        self,
        run: Callable[[int], None],
        clock: Clock,
        limits: TrialLimits,
        flush: Callable[[], None] | None = None,
        bar: float = math.inf,
    ) -> None:
        self._run, self._clock, self._limits, self._flush = run, clock, limits, flush
        self._bar, self._count = bar, 1
        self._known: tuple[float, ...] = ()
        self.first = self.once()
        if self.first > max(limits.least, bar * limits.slow):
            self._known = (self.first,)  # so long that what is touched for the first time is little
            return
        self.first = self.once()
        if flush is None:
            while self.first * self._count < limits.least and self._count < MAX_RUNS_PER_REPEAT:
                wanted = limits.least / max(self.first, 1e-9)
                self._count = min(MAX_RUNS_PER_REPEAT, max(self._count * 2, math.ceil(wanted)))
                self.first = self.once()

    def once(self) -> float:
        """The seconds of one run, from one repeat."""
        if self._flush is not None:
            self._flush()
        start = self._clock()
        self._run(self._count)
        return (self._clock() - start) / 1e9 / self._count

    def again(self) -> float:
        """The seconds of one run after others had their turn.  Threads of this kernel sleep by
        then, and wake up on whichever core: with several the first repeat of a turn is no time."""
        if self._limits.threads > 1:
            self.once()
        return self.once()

    def repeats(self) -> tuple[float, ...]:
        """The seconds of one run, repeat by repeat, until the least is tight; few of them if it is
        beyond the bar."""
        usual = self._limits.repeats
        count = REPEAT_FACTOR * usual
        if self.first > self._bar * self._limits.slow:
            count = min(usual, 2 if self.first > self._bar * HOPELESS else MIN_REPEATS)
        found = [*self._known]
        while len(found) < count:
            found.append(self.once())
            enough = len(found) >= min(usual, USUAL_REPEATS)
            if len(found) > 1 and low_end(found) > self._bar * (1.0 if enough else CLEAR):
                break
            if enough and is_tight(found):
                break
        return tuple(found)


def is_tight(times: Sequence[float]) -> bool:
    """Whether the least of some repeats is near what it would be if nothing came between.

    Delays only add.  Where they are independent, the least of n is above that by about as much as
    the next is above the least, so the distance of these two is the length of the interval.

    >>> is_tight((1.0, 1.2, 1.001)), is_tight((1.0, 1.2, 1.01))
    (True, False)
    """
    return min(times) - low_end(times) <= TIGHT * min(times)


def low_end(times: Sequence[float]) -> float:
    """The low end of the interval in which the least of many more repeats would lie.

    >>> low_end((1.0, 1.2, 1.125)), low_end((1.0,))
    (0.875, 1.0)
    """
    least, *others = sorted(times)
    return 2 * least - others[0] if others else least


def interleaved(of: Sequence[KernelTiming], rounds: int) -> Iterator[tuple[float, ...]]:
    """The seconds of several kernels per round, in forward and backward order.

    What slows the machine down for a while slows all of them down, and none is always the first.
    """
    for number in range(rounds):
        order = range(len(of)) if number % 2 == 0 else range(len(of) - 1, -1, -1)
        times = {at: of[at].again() for at in order}
        yield tuple([times[at] for at in range(len(of))])


@lru_cache(maxsize=1)
def _flushed(size: int) -> Array:
    return np.ones(size, np.uint8)


def flusher(last_cache: int) -> Callable[[], None]:
    """What empties the caches: it reads and writes more than they hold."""
    flushed = _flushed(2 * last_cache + (1 << 20))

    def flush() -> None:
        np.add(flushed, 1, out=flushed)

    return flush


# --- tournaments -------------------------------------------------------------------------------


def ranked(finals: Sequence[Measured]) -> tuple[Measured, ...]:
    """The timed candidates, fastest first; a stable order."""
    timed = [final for final in finals if final.times]
    return tuple(ranked_by(timed, lambda one, other: is_faster_in_turns(one.times, other.times)))


def is_decided(rounds: Sequence[Sequence[float]]) -> bool:
    """Whether more rounds would change nothing: whatever seems faster than the first clearly is.

    >>> is_decided([(1.0, 0.5), (1.1, 0.6)] * 4), is_decided([(1.0, 0.9), (1.0, 1.05)] * 4)
    (True, False)
    """
    first, *others = zip(*rounds, strict=True)
    return all(median(each) >= median(first) or clearly_less(each, first) for each in others)
