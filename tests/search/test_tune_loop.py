"""The tuning loop: nothing is lost, nothing is measured twice, and going on is beginning again."""

from __future__ import annotations

import math
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from io import StringIO
from pathlib import Path
from random import Random
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given, settings, strategies as st
from rich.console import Console

from plica.core.deadline import check_deadline
from plica.search.course import Course, TuningSubject
from plica.search.measure import Measured, SpaceWork
from plica.search.observation import Observation
from plica.search.policy.fold import ObservedSpace, Policy
from plica.search.policy.model_free import Grid
from plica.search.progress import shown
from plica.search.record.database import Database
from plica.search.record.order import FINAL
from plica.search.record.record import Record
from plica.search.report import page, plot, without_search
from plica.search.space import Point, Space
from plica.search.tune_loop import BARREN, Run, tuned
from plica.search.tuned import Tuned
from tests.search.synthetic import RUN, SUBJECTS, Judged, Synthetic

FEW = settings(max_examples=max(3, settings().max_examples // 5))


def new(seed: int = 0, database: Database | None = None) -> tuple[Run, Synthetic]:
    measurer = Synthetic()
    made = evolve(RUN, measurer=measurer, database=database or Database(), seed=seed)
    return made, measurer


def proposed(courses: Sequence[Course]) -> list[list[Point]]:
    return [[seen.point for seen in each.observations] for each in courses]


def plain(database: Database) -> list[Record]:
    return sorted(database.all(), key=lambda each: each.identity)


def test_every_trial_is_recorded() -> None:
    run, measurer = new()
    courses = tuned(SUBJECTS, run, 40)
    seen = sum(len(each.observations) for each in courses)
    assert len(run.database) == len(measurer.measured) == seen
    assert sum(each.trials for each in courses) == 40
    for each in courses:
        assert each.best is not None
        best = run.database.best(each.subject.task.key, "nowhere")
        assert best is not None
        assert best.cost == each.best.cost == each.curve[-1]
        assert set(each.errors) <= {"refused", "crash"}


def test_the_same_seed_gives_the_same_records_and_another_seed_others() -> None:
    found = []
    for seed in (0, 0, 1):
        run, _ = new(seed)
        found.append(proposed(tuned(SUBJECTS, run, 40)))
    assert found[0] == found[1] != found[2]


@FEW
@given(first=st.integers(1, 39), seed=st.integers(0, 5))
def test_a_run_that_goes_on_measures_only_what_is_missing(first: int, seed: int) -> None:
    whole, _ = new(seed)
    wanted = tuned(SUBJECTS, whole, 40)
    run, one = new(seed)
    tuned(SUBJECTS, run, first)
    run, other = new(seed, run.database)
    found = tuned(SUBJECTS, run, 40)
    assert [each.observations for each in found] == [each.observations for each in wanted]
    assert not set(one.measured) & set(other.measured)
    assert {each.identity for each in run.database} >= {e.identity for e in whole.database}


@FEW
@given(first=st.integers(1, 39), seed=st.integers(0, 5), pause=st.sampled_from((0.0, 0.002)))
def test_one_search_alone_goes_on_as_if_it_had_not_stopped(
    first: int, seed: int, pause: float
) -> None:
    """Its policy proposes beside what is measured; how long that takes changes nothing."""
    whole, _ = new(seed)
    (wanted,) = tuned(SUBJECTS[:1], whole, 40)
    run, _ = new(seed)
    tuned(SUBJECTS[:1], run, first)
    run = evolve(run, measurer=Synthetic(pause))
    (found,) = tuned(SUBJECTS[:1], run, 40)
    assert found.observations == wanted.observations
    points = [each.point for each in found.observations]
    assert len(points) == len(set(points))


def test_a_default_that_is_late_is_tried_again_by_the_next_run() -> None:
    class Late(Synthetic):
        def measure(
            self, task: SpaceWork, space: Space, points: Sequence[Point],
            arrived: Callable[[Measured], None] | None = None,
        ) -> tuple[Measured, ...]:  # fmt: skip
            found = tuple(
                [Measured("timeout", message="build: late", point=each) for each in points]
            )
            for each in found:
                assert arrived is not None
                arrived(each)
            return found

    run, _ = new()
    (late,) = tuned(SUBJECTS[:1], evolve(run, measurer=Late()), 40)
    assert late.errors == {"timeout": 1}
    assert not len(run.database)
    again, _ = new(0, run.database)
    fresh, _ = new()
    (found,), (wanted,) = tuned(SUBJECTS[:1], again, 40), tuned(SUBJECTS[:1], fresh, 40)
    assert found.observations == wanted.observations


@FEW
@given(lost=st.integers(1, 39))
def test_a_run_whose_measurer_fails_goes_on_from_there(lost: int) -> None:
    class Fails(Synthetic):
        def measure(self, *given: object, **named: object) -> tuple[Measured, ...]:
            raise ConnectionError

    class After(Synthetic):
        def measure(
            self, task: SpaceWork, space: Space, points: Sequence[Point], arrived: object = None
        ) -> tuple[Measured, ...]:
            assert callable(arrived)

            def counted(of: Measured) -> None:
                arrived(of)
                if len(self.measured) == lost:
                    raise ConnectionError

            return super().measure(task, space, points, counted)

    run, _ = new()
    with pytest.raises(ConnectionError):
        tuned(SUBJECTS, evolve(run, measurer=After()), 40)
    assert len(run.database) == lost
    tuned(SUBJECTS, run, 40)
    whole, _ = new()
    tuned(SUBJECTS, whole, 40)
    assert plain(run.database) == plain(whole.database)
    with pytest.raises(ConnectionError):
        tuned(SUBJECTS, evolve(whole, measurer=Fails()), 41)


def test_a_run_that_is_killed_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "killed.db"
    command = [sys.executable, "-m", "tests.search.synthetic", str(path), "60", "7"]
    with subprocess.Popen([*command, "0.02"], stderr=subprocess.DEVNULL) as running:
        while running.poll() is None and not (path.exists() and _count(path) >= 20):
            time.sleep(0.01)
        assert running.poll() is None, "it was over before it could be killed"
        running.send_signal(signal.SIGKILL)
    with Database(path) as database:
        left = plain(database)
    assert 20 <= len(left) < 60
    subprocess.run([*command, "0"], check=True, timeout=120)
    run, _ = new(seed=7)
    tuned(SUBJECTS, run, 60)
    with Database(path) as database:
        assert plain(database) == plain(run.database)
        assert set(left) <= set(database.all())


def _count(path: Path) -> int:
    with Database(path) as database:
        return len(database)


def test_records_of_other_runs_are_not_taken_for_its_own() -> None:
    run, _ = new()
    tuned(SUBJECTS, run, 20)
    for other in (
        evolve(run, seed=3),
        evolve(run, versions=(("plica", "1"),)),
        evolve(run, target="elsewhere"),
        evolve(run, policy=Policy(Grid(batch=4))),
    ):
        measurer = Synthetic()
        courses = tuned(SUBJECTS, evolve(other, measurer=measurer), 8)
        assert len(measurer.measured) == sum(len(each.observations) for each in courses)


def test_time_is_a_budget_too() -> None:
    run, _ = new()
    ticks = iter(range(1000))
    courses = tuned(SUBJECTS, run, 10**6, seconds=5, clock=lambda: float(next(ticks)))
    assert 1 <= sum(len(each.batches) for each in courses) <= 5


def test_time_ends_within_a_batch_and_what_was_given_up_is_not_recorded() -> None:
    now = 0.0

    class GivesUp(Synthetic):
        """Of each batch the third is under way when time is up."""

        until = math.inf

        def measure(
            self, task: SpaceWork, space: Space, points: Sequence[Point], arrived: object = None
        ) -> tuple[Measured, ...]:
            nonlocal now
            assert callable(arrived)
            found = []
            for at, each in enumerate(points):
                assert now < 50.0, "nothing is measured when time is up"
                now += 100.0 if at == 2 else 1.0
                late = now > 50.0
                found.append(
                    Measured("timeout" if late else "ok", () if late else (1.0,), point=each)
                )
                arrived(found[-1])
            return tuple(found)

    measurer = GivesUp()
    run, _ = new()
    courses = tuned(
        SUBJECTS[:1], evolve(run, measurer=measurer, policy=Policy(Grid(batch=8))), 10**6,
        seconds=50.0, clock=lambda: now, finals=False,
    )  # fmt: skip
    assert now < 200.0
    assert measurer.until < math.inf
    statuses = [each.error for each in courses[0].observations]
    assert "timeout" not in statuses
    kept = run.database.all(SUBJECTS[0].task.key, run.target)
    assert len(kept) == len(statuses) > 0


@pytest.mark.parametrize("count", [1, 2])
def test_a_proposal_that_takes_longer_than_there_is_time_is_given_up(count: int) -> None:
    class Slow(Grid):
        """Proposes for ever; with several searches it is asked where nobody waits for it, too."""

        def chosen(
            self, known: ObservedSpace, memory: Any, random: Random
        ) -> tuple[Any, Sequence[Point]]:
            while True:
                check_deadline()
                time.sleep(0.01)

    run, _ = new()
    start = time.monotonic()
    courses = tuned(SUBJECTS[:count], evolve(run, policy=Policy(Slow(batch=8))), 100, seconds=0.5)
    assert time.monotonic() - start < 5.0
    assert [each.trials for each in courses] == [1] * count  # their defaults


def test_small_spaces_are_exhausted() -> None:
    run, measurer = new()
    courses = tuned(SUBJECTS[:1], run, 10**6)
    assert len(measurer.measured) == len(set(measurer.measured)) == SUBJECTS[0].space.size
    assert courses[0].trials < len(courses[0].observations)


def test_work_of_which_everything_is_refused_is_given_up() -> None:
    class Refuses(Synthetic):
        def measure(
            self, task: SpaceWork, space: Space, points: Sequence[Point], arrived: object = None
        ) -> tuple[Measured, ...]:
            assert callable(arrived)
            found = tuple([Measured("refused", message="no", point=each) for each in points])
            for each in found:
                arrived(each)
            return found

    run, _ = new()
    courses = tuned(SUBJECTS, evolve(run, measurer=Refuses()), 10)
    assert all(each.best is None and each.trials == 0 for each in courses)
    assert all(len(each.observations) <= BARREN + 16 for each in courses)
    assert "nothing" not in page(courses)


def test_work_about_which_nothing_can_be_decided_is_passed_over() -> None:
    run, measurer = new()
    fixed = TuningSubject(SUBJECTS[1].task, Space(()))
    courses = tuned((fixed, SUBJECTS[0]), run, 12)
    assert [each.trials for each in courses] == [0, 12]
    assert {name for name, _ in measurer.measured} == {"a"}
    assert page(courses).count("<polyline") == 1


class DefaultWrong(Synthetic):
    """A measurer that finds the default of one work wrong."""

    def measure(
        self,
        task: SpaceWork,
        space: Space,
        points: Sequence[Point],
        arrived: Callable[[Measured], None] | None = None,
    ) -> tuple[Measured, ...]:
        if task is not SUBJECTS[0].task or points != [space.default]:
            return super().measure(task, space, points, arrived)
        found = Measured("wrong", message="validate: other numbers", point=space.default)
        if arrived is not None:
            arrived(found)
        return (found,)


def test_work_whose_default_is_wrong_is_left_alone() -> None:
    run, _ = new()
    courses = tuned(SUBJECTS, evolve(run, measurer=DefaultWrong()), 24)
    assert [each.trials for each in courses] == [1, 23]
    assert courses[0].best is None
    said = str(Tuned(courses)).splitlines()
    name = courses[0].subject.task.name
    assert said[-1] == f"{name}: not searched, since its default fails. validate: other numbers"


def test_a_default_that_failed_is_tried_again_by_the_next_run() -> None:
    run, measurer = new()
    tuned(SUBJECTS, evolve(run, measurer=DefaultWrong()), 24)
    again = tuned(SUBJECTS, run, 24)
    assert all(each.best is not None and not each.broken for each in again)
    assert proposed(again) == proposed(tuned(SUBJECTS, new()[0], 24))
    assert measurer.measured


def cost_of(of: Observation) -> float:
    return of.cost or 0.0


def test_the_last_comparison_decides_and_does_not_disturb_the_run() -> None:
    run, _ = new()
    run = evolve(run, measurer=Judged())
    courses = tuned(SUBJECTS, run, 40)
    for each in courses:
        default = each.subject.space.default
        order = sorted([seen for seen in each.observations if seen.cost is not None], key=cost_of)
        first = [seen.point for seen in order if seen.point != default][:3]
        assert each.best is not None
        if order[0].point == default:  # clearly the best: nothing is left to decide
            assert (each.winner, each.best) == (None, order[0])
        else:
            assert each.best.point == first[-1]
    assert [each.winner is not None for each in courses] == [False, True]
    finals = [each for each in run.database if each.policy.endswith(FINAL)]
    assert len(finals) == 4
    assert proposed(tuned(SUBJECTS, run, 40)) == proposed(courses)
    assert all(each.winner is None for each in tuned(SUBJECTS, run, 40, finals=False))


def test_progress_is_shown_or_not() -> None:
    run, _ = new()
    text = StringIO()
    with shown(True, 20, Console(file=text, force_terminal=True, width=120)) as listener:
        tuned(SUBJECTS, run, 20, listener=listener)
    assert "20/20" in text.getvalue()
    assert "(2 of 2)" in text.getvalue()
    assert "% more expected" in text.getvalue()
    with shown(False, 20) as silent:
        assert silent is None


def test_progress_of_a_search_by_time_shows_minutes() -> None:
    run, _ = new()
    text = StringIO()
    now = iter(range(0, 100_000, 3))
    console = Console(file=text, force_terminal=True, width=160)
    with shown(True, 99, console, seconds=600.0, clock=lambda: float(next(now))) as listener:
        tuned(SUBJECTS, run, 20, listener=listener)
    assert " of 10 min, 20 trials" in text.getvalue()
    assert "20/99" not in text.getvalue()


def test_a_report_shows_what_was_found() -> None:
    run, _ = new()
    courses = tuned(SUBJECTS, run, 40)
    text = page(courses, "Tuning <a & b>", ["two tasks"])
    assert "<a & b>" not in text
    assert text.count("<polyline") == 2
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")
    assert "compile" in text
    assert "two tasks" in text
    assert all(without_search(each) for each in courses)
    assert plot({}) == "" == plot({"none": (None, None)})


class Prepared(Judged):
    """A measurer that remembers what it was asked to prepare."""

    def __init__(self) -> None:
        super().__init__()
        self.prepared = list[tuple[SpaceWork, Point]]()

    def prepare(self, task: SpaceWork, space: Space, points: Sequence[Point]) -> None:
        self.prepared += [(task, each) for each in points]


def test_defaults_and_finalists_are_prepared_and_nothing_else_changes() -> None:
    run, _ = new()
    measurer = Prepared()
    plainly = proposed(tuned(SUBJECTS, evolve(run, measurer=Judged()), 40))
    found = tuned(SUBJECTS, evolve(run, measurer=measurer, database=Database()), 40)
    assert proposed(found) == plainly
    second = SUBJECTS[1]
    assert measurer.prepared[0] == (second.task, second.space.default)
    assert all(any(e.winner.point == p for _, p in measurer.prepared) for e in found if e.winner)


def test_what_one_search_proposes_is_built_before_it_is_asked_for() -> None:
    run, _ = new()
    measurer = Prepared()
    plainly = proposed(tuned(SUBJECTS[:1], run, 24))
    alone = evolve(run, measurer=measurer, database=Database())
    (found,) = tuned(SUBJECTS[:1], alone, 24, finals=False)
    assert proposed((found,)) == plainly
    built = {point for _, point in measurer.prepared}
    assert {each.point for each in found.observations[1:]} <= built
    assert found.observations[0].point not in built


def test_a_space_is_made_of_work_that_is_taken() -> None:
    run, _ = new()
    grown = list[str]()

    def subject(of: TuningSubject) -> TuningSubject:
        first = Space(of.space.sketches[:1])

        def grow() -> Space:
            grown.append(of.task.name)
            return of.space

        return TuningSubject(of.task, first, grow)

    lazily = [subject(each) for each in SUBJECTS]
    tuned(lazily, run, 2)
    assert grown == []  # the defaults alone
    found = tuned(lazily, evolve(run, database=Database()), 40)
    whole = tuned(SUBJECTS, evolve(run, database=Database()), 40)
    assert len(grown) == len(set(grown)) > 0
    assert proposed(found) == proposed(whole)
