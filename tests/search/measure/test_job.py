"""Jobs and outcomes: what travels comes back equal, and what is damaged is refused."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plica.core.diagnostic import Malformed
from plica.schedule.default import Packing
from plica.search.measure import Job, Limits, Outcome, job_of
from plica.search.measure.outcome import STATUSES, ok
from tests.search.measure.work import DOUBLED, TARGET, TASK, pretended, product_space


def test_a_job_comes_back() -> None:
    space = product_space()
    for point in space.points():
        job = job_of(TASK, space, point, TARGET)
        again = Job.from_json(job.to_json())
        assert again.function is job.function
        assert again.kernel is job.kernel
        assert again.trace is job.trace
        assert again.identity == job.identity
    jobs = [job_of(TASK, space, each, TARGET).identity for each in space.points()]
    assert len(set(jobs)) == space.size


def test_packings_travel() -> None:
    job = pretended(DOUBLED)
    packed = Job(
        job.function, job.constant, True, job.kernel, (Packing(0, 0, 4, (1, 0)),), job.trace, "cpu"
    )
    assert Job.from_json(packed.to_json()).packings == packed.packings


CUT_IN_NOTHING = ["cut", 0, [[0, 0]], [0, 1], "i8"]
CUT_IN_FLOATS = ["cut", 0, [[0, 4]], [0, 1], "f32"]

# fmt: off
DAMAGED = (
    ("no JSON",        lambda given: "{"),
    ("a part missing", lambda given: json.dumps({k: v for k, v in given.items() if k != "trace"})),
    ("other terms",    lambda given: json.dumps({**given, "kernel": given["function"]})),
    ("a bad packing",  lambda given: json.dumps({**given, "packings": [[0, 0, 0, [0]]]})),
    ("a bad order",    lambda given: json.dumps({**given, "packings": [[0, 0, 4, [0, 0]]]})),
    ("a bad sum",      lambda given: json.dumps({**given, "derived": [["sums", 0, -1, 4]]})),
    ("a bad cut",      lambda given: json.dumps({**given, "derived": [CUT_IN_NOTHING]})),
    ("another kind",   lambda given: json.dumps({**given, "derived": [CUT_IN_FLOATS]})),
    ("a bad flag",     lambda given: json.dumps({**given, "constant": [1]})),
)
# fmt: on


@pytest.mark.parametrize(("name", "damage"), DAMAGED, ids=[name for name, _ in DAMAGED])
def test_a_damaged_job_is_refused(name: str, damage: object) -> None:
    given = json.loads(pretended(DOUBLED).to_json())
    assert callable(damage)
    with pytest.raises(Malformed):
        Job.from_json(damage(given))


times = st.floats(1e-9, 1e3).map(float)


@given(st.lists(times, min_size=1, max_size=12), st.dictionaries(st.text(max_size=8), times))
def test_outcomes_come_back(seconds: list[float], stages: dict[str, float]) -> None:
    outcome = ok(tuple(seconds), stages)
    assert Outcome.from_json(outcome.to_json()) == outcome
    assert outcome.cost == min(seconds)
    assert outcome.noise >= 0


@pytest.mark.parametrize(
    "text",
    ["", "[]", '{"status": "fine"}', Outcome("ok", (float("nan"),)).to_json()],
)
def test_what_is_no_outcome_is_refused(text: str) -> None:
    with pytest.raises(Malformed, match="no outcome"):
        Outcome.from_json(text)


def test_limits_come_back() -> None:
    limits = Limits(flush=True, threads=2)
    assert Limits.from_json(limits.to_json()) == limits
    assert "ok" in STATUSES
