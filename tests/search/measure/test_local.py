"""Measuring here: what is right is timed, and whatever is not costs one trial and says why."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

import pytest

from plica.codegen.llvm import toolchain
from plica.runtime.error import UnsupportedError
from plica.search.measure import LocalMeasurer, Measured, TrialLimits, build, job_of, local
from plica.search.measure.frame import MessageFrame
from plica.search.measure.outcome import STAGES
from plica.search.measure.process import Lost, Worker
from plica.search.measure.timing import REPEAT_FACTOR
from plica.search.space import Point
from tests.search.measure.work import (
    BEYOND,
    DOUBLED,
    ENDLESS,
    OUTSIDE,
    SQUARED,
    TARGET,
    TASK,
    pretended,
    product_space,
)

LIMITS = TrialLimits(repeats=3, least=1e-4, run_seconds=2.0)


@pytest.fixture(scope="module")
def measurer() -> Iterator[LocalMeasurer]:
    with LocalMeasurer(limits=LIMITS) as made:
        yield made


def test_points_are_validated_and_timed(measurer: LocalMeasurer) -> None:
    space = product_space()
    points = [space.default, *islice(space.points(), 2)]
    told: list[Measured] = []
    found = measurer.measure(TASK, space, points, told.append)
    assert [each.point for each in found] == points
    assert told == list(found)
    for each in found:
        assert each.status == "ok", each.message
        assert 2 <= len(each.times) <= REPEAT_FACTOR * LIMITS.repeats  # two where it is hopeless
        assert each.cost == min(each.times) > 0
        assert each.noise >= 0
        assert set(each.stages) == set(STAGES)


def test_finals_are_timed_in_turns(measurer: LocalMeasurer) -> None:
    space = product_space()
    found = measurer.finals(TASK, space, list(islice(space.points(), 2)), rounds=4)
    assert [each.status for each in found] == ["ok", "ok"]
    assert [len(each.times) for each in found] == [4, 4]


def test_an_illegal_schedule_is_refused(measurer: LocalMeasurer) -> None:
    space = product_space()
    (found,) = measurer.measure(TASK, space, [Point(0, ((3, 5), (1, 16)))])
    assert (found.status, found.cost) == ("refused", None)
    assert "sample_perfect_tile" in found.message


def test_failures_cost_one_trial_each(measurer: LocalMeasurer) -> None:
    kernels = (DOUBLED, SQUARED, BEYOND, OUTSIDE, ENDLESS, DOUBLED)
    outcomes = list(measurer.outcomes([pretended(each) for each in kernels]))
    found = ["ok", "wrong", "wrong", "build", "timeout", "ok"]
    assert [each.status for each in outcomes] == found
    _, differs, beyond, outside, late, _ = [each.message for each in outcomes]
    assert "validate: Element" in differs
    assert "outside the buffer" in beyond
    assert "build: CompilerBug" in outside
    assert "run: It took longer than it may" in late
    assert all("compile" in each.stages for each in outcomes if each.status != "build")


def test_code_that_crashes_costs_one_trial(
    measurer: LocalMeasurer, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "\n".join(
        (
            f'target triple = "{TARGET.triple}"',
            f"define i64 @{build.REPEAT}(ptr %table, i64 %count) {{",
            "  store volatile i64 0, ptr inttoptr (i64 8 to ptr)",
            "  ret i64 0",
            "}",
        )
    )
    ready = local.BuiltObjects((toolchain.emit(text, TARGET),), {"compile": 0.1})
    with monkeypatch.context() as patched:
        patched.setattr(measurer, "_build", lambda job: ready)
        (found,) = measurer.outcomes([pretended(DOUBLED)])
    assert (found.status, found.times, found.stages) == ("crash", (), {"compile": 0.1})
    assert "run: SIGSEGV" in found.message
    (after,) = measurer.outcomes([pretended(DOUBLED)])
    assert after.status == "ok"


def test_code_beyond_reason_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "MAX_LLVM_TEXT_CHARACTERS", 100)
    with pytest.raises(UnsupportedError, match="too long") as refused:
        build.built(pretended(DOUBLED))
    assert refused.value.code == "target-limit"


def test_building_is_limited_by_the_time_of_the_processor_and_who_is_killed_started_again() -> None:
    """A builder is stopped while something is timed: that is no time of its own."""
    space = product_space()
    job = job_of(TASK, space, space.default, TARGET)
    asked = MessageFrame({"do": "build", "job": job.to_json()})
    worker = Worker(LIMITS)
    assert worker.ask(asked, 1e-3, of_processor=True) == Lost(True, "It took longer than it may.")
    assert isinstance(worker.ask(asked, 30.0, of_processor=True), MessageFrame)
    assert worker.number is not None
    os.kill(worker.number, signal.SIGSTOP)
    with ThreadPoolExecutor(1) as beside:
        answer = beside.submit(worker.ask, asked, 1.0, of_processor=True)
        with pytest.raises(TimeoutError):
            answer.result(timeout=1.5)
        os.kill(worker.number, signal.SIGCONT)
        assert isinstance(answer.result(), MessageFrame)
    assert worker.started == 2
    os.kill(worker.number, signal.SIGKILL)
    lost = worker.ask(asked, 30.0)
    assert lost == Lost(False, "SIGKILL: it took too long, or too much memory")
    assert isinstance(worker.ask(asked, 30.0), MessageFrame)
    assert worker.started == 3
    worker.close()
    assert worker.number is None
