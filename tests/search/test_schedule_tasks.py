"""The task scheduler: trials go where the whole model gains."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hypothesis import given, strategies as st

from plica.search.schedule_tasks import Standing, gain, next_task


def after(task: int, batches: int) -> float:
    """The best of a synthetic task after a given number of batches: some improve fast, some
    never."""
    start, rate, floor = 10.0 + task, (0.3, 0.6, 0.9)[task % 3], 1.0 + task % 4
    return floor + (start - floor) * float(rate**batches)


def total(choose: Callable[[Sequence[Standing]], int | None], batches: int) -> float:
    """The seconds of a model of ten tasks after a given number of batches."""
    standings = [Standing(weight=1.0 + 3 * (n % 2)) for n in range(10)]
    for _ in range(batches):
        at = choose(standings)
        assert at is not None
        before = standings[at]
        best = (*before.best, after(at, len(before.best) + 1))
        standings[at] = Standing(before.weight, best)
    return sum(each.weight * (each.best[-1] or 0.0) for each in standings if each.best)


def test_it_beats_taking_turns() -> None:
    def in_turns(standings: Sequence[Standing]) -> int:
        return sum(len(each.best) for each in standings) % 10

    for batches in (20, 40, 60):
        assert total(next_task, batches) < total(in_turns, batches)


@given(st.lists(st.lists(st.floats(1e-6, 1.0), max_size=4), min_size=1, max_size=6))
def test_every_task_begins_before_any_goes_on(histories: list[list[float]]) -> None:
    standings = [Standing(best=tuple(sorted(each, reverse=True))) for each in histories]
    at = next_task(standings)
    assert at is not None
    assert not standings[at].best or all(each.best for each in standings)


def test_what_is_over_is_left_alone() -> None:
    over, slow = Standing(best=(9.0,), finished=True), Standing(best=(1.0,))
    assert next_task([over, slow]) == 1
    assert next_task([over]) is None
    assert next_task([]) is None


def test_work_that_is_far_from_its_roof_has_more_to_gain() -> None:
    dense = Standing(best=(1.0,), operations=100.0, bytes=1.0)
    copied = Standing(best=(1.0,), operations=1.0, bytes=50.0)
    halfway = Standing(best=(1.0,), operations=50.0, bytes=5.0)
    everyone = [dense, copied, halfway]
    gains = [gain(each, everyone) for each in everyone]
    assert 0 < gains[0] < gains[2]
    assert abs(gains[0] - gains[1]) < 1e-12  # each is at a roof of its own
    assert gains[2] < gain(Standing(best=(1.0,)), everyone)  # of which nothing is known


def test_batches_in_vain_halve_the_hope() -> None:
    some, none = Standing(best=(1.0, 0.9, 0.8)), Standing(best=(1.0, 0.8, 0.8))
    assert gain(some, [some]) > gain(none, [none]) > 0
    gains = [gain(Standing(best=(1.0,) * n), []) for n in (1, 2, 3)]
    assert gains[1] <= gains[0] / 4
    assert gains[2] <= gains[1] / 3 + 1e-9


def test_what_has_never_worked_is_tried_less_and_less() -> None:
    known = Standing(best=(1.0,))
    gains = [gain(Standing(best=(None,) * n), [known]) for n in (1, 2, 5)]
    assert gains == sorted(gains, reverse=True)
    assert gains[-1] > 0
