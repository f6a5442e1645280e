"""Timing on a clock of our own: how many runs make a repeat, and who goes first."""

from __future__ import annotations

import os
import sys
import threading
from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from plica.search.measure import Measured, TrialLimits, clearly_less, ranked
from plica.search.measure.stop import placed, quiet, wait_for_noise
from plica.search.measure.timing import REPEAT_FACTOR, USUAL_REPEATS, KernelTiming, interleaved
from plica.search.space import Point


class Machine:
    """A kernel that takes a given number of nanoseconds, and the clock that shows it."""

    def __init__(self, takes: int) -> None:
        self.takes, self.now, self.runs = takes, 0, 0

    def run(self, count: int) -> None:
        self.now += self.takes * count
        self.runs += count

    def clock(self) -> int:
        return self.now


@given(st.integers(1, 10**9), st.integers(1, 12))
def test_a_repeat_is_long_enough(takes: int, repeats: int) -> None:
    machine = Machine(takes)
    limits = TrialLimits(repeats=repeats)
    timing = KernelTiming(machine.run, machine.clock, limits)
    before = machine.now
    times = timing.repeats()
    assert len(times) == min(repeats, USUAL_REPEATS)
    assert all(abs(each - takes / 1e9) < 1e-12 for each in times)
    assert (machine.now - before) / 1e9 >= len(times) * limits.least * 0.999


def test_what_is_slower_than_the_best_is_repeated_less() -> None:
    for bar, runs, kept in ((0.001, 2, 2), (0.0009, 2, 2), (0.005, 4, 2), (0.0095, 7, 5)):
        machine = Machine(10_000_000)
        times = KernelTiming(machine.run, machine.clock, TrialLimits(), None, bar).repeats()
        assert (machine.runs, len(times)) == (runs, kept)


def test_what_is_about_as_fast_as_the_best_is_repeated_until_it_is_tight() -> None:
    machine = Machine(10_000_000)
    timing = KernelTiming(machine.run, machine.clock, TrialLimits(), None, 0.0095)
    assert len(timing.repeats()) == USUAL_REPEATS

    class Noisy(Machine):
        def run(self, count: int) -> None:
            super().run(count)
            self.now += self.takes * (64 - self.runs) // 100 * count  # each is a percent faster

    for bar, kept in ((0.0165, REPEAT_FACTOR * TrialLimits().repeats), (0.0145, USUAL_REPEATS)):
        noisy = Noisy(10_000_000)
        timing = KernelTiming(noisy.run, noisy.clock, TrialLimits(), None, bar)
        assert len(timing.repeats()) == kept


def test_with_a_flush_each_repeat_is_one_run() -> None:
    machine = Machine(1000)
    flushed: list[int] = []
    timing = KernelTiming(
        machine.run, machine.clock, TrialLimits(), lambda: flushed.append(machine.runs)
    )
    flushed.clear()
    assert timing.repeats() == (1e-6,) * USUAL_REPEATS
    assert [b - a for a, b in pairwise(flushed)] == [1] * (USUAL_REPEATS - 1)


def test_rounds_go_there_and_back() -> None:
    order: list[int] = []
    machine = Machine(10_000_000)
    made = []
    for number in range(3):

        def run(count: int, number: int = number) -> None:
            order.append(number)
            machine.run(count)

        made.append(KernelTiming(run, machine.clock, TrialLimits()))
    order.clear()
    rounds = list(interleaved(made, 2))
    assert order == [0, 1, 2, 2, 1, 0]
    assert rounds == [(0.01, 0.01, 0.01)] * 2


near = st.floats(0.9, 1.1)


@given(st.lists(near, min_size=2, max_size=12))
def test_nothing_is_clearly_less_than_itself(times: list[float]) -> None:
    assert not clearly_less(times, times)
    assert clearly_less(times, [each + 1.0 for each in times])
    assert not clearly_less([each + 1.0 for each in times], times)


def test_a_tournament_keeps_the_order_of_equals() -> None:
    def made(number: int, times: tuple[float, ...]) -> Measured:
        return Measured("ok", times, point=Point(0, ((number,),)))

    first, same = made(0, (2.0, 2.1, 2.0, 2.1)), made(1, (2.1, 2.0, 2.1, 2.0))
    fast, broken = made(2, (1.0, 1.1, 1.0, 1.1)), Measured("crash", point=Point(0, ((3,),)))
    assert ranked([first, same, broken, fast]) == (fast, first, same)


@pytest.mark.skipif(sys.platform != "linux", reason="threads have no number elsewhere")
def test_threads_are_placed_one_to_a_core_and_set_free_again() -> None:
    every = os.sched_getaffinity(0)
    stop, number = threading.Event(), list[int]()

    def beside() -> None:
        number.append(threading.get_native_id())
        stop.wait()

    thread = threading.Thread(target=beside)
    thread.start()
    try:
        while not number:
            pass
        with placed(len(every) + 1):
            assert os.sched_getaffinity(0) == every
        with placed(len(every)):
            mine, other = os.sched_getaffinity(0), os.sched_getaffinity(number[0])
        assert len(every) < 2 or (len(mine) == len(other) == 1 and mine != other)
        assert os.sched_getaffinity(0) == os.sched_getaffinity(number[0]) == every
    finally:
        stop.set()
        thread.join()


def test_what_reckons_beside_waits_while_something_is_timed() -> None:
    order: list[str] = []

    def beside() -> None:
        wait_for_noise()
        order.append("reckoned")

    with quiet():
        thread = threading.Thread(target=beside)
        thread.start()
        thread.join(0.02)
        order.append("timed")
    thread.join()
    assert order == ["timed", "reckoned"]
