"""Jobs and outcomes: what travels comes back equal, and what is damaged is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given, strategies as st

from plica.core import encode
from plica.core.diagnostic import Malformed
from plica.core.term import Term
from plica.ir.loop.scalar import Buffer
from plica.ir.loop.stage import placeholder, stage
from plica.ir.loop.stages import Stages, stages
from plica.ir.loop.tensor import reduce
from plica.ir.type.dtype import f32
from plica.schedule.trace import Trace
from plica.search.measure import MeasureJob, Outcome, TrialLimits, job_of
from plica.search.measure.outcome import STATUSES, ok
from tests.search.measure.work import DOUBLED, TARGET, TASK, pretended, product_space
from tests.strategies.text import texts


def test_a_job_comes_back() -> None:
    space = product_space()
    for point in space.points():
        job = job_of(TASK, space, point, TARGET)
        again = MeasureJob.from_json(job.to_json())
        assert (again.work, again.form) == (job.work, job.form)
        assert again.kernel is job.kernel
        assert again.trace is job.trace
        assert again.identity == job.identity
    jobs = [job_of(TASK, space, each, TARGET).identity for each in space.points()]
    assert len(set(jobs)) == space.size


def test_forms_travel() -> None:
    x, w = placeholder("x", (4, 8), f32), placeholder("w", (8, 16), f32)
    turned = stage("t", (16, 8), lambda j, k: w[k, j])
    out = stage("y", (4, 16), lambda i, j: reduce("sum", (8,), lambda k: x[i, k] * turned[j, k]))
    whole = stages((x, w), (turned, out))
    job = MeasureJob(whole, whole, (False, True), True, Trace(()), "cpu")
    again = MeasureJob.from_json(job.to_json())
    assert again.form is whole
    assert again.hoisted.before == (turned,)
    assert again.kernel is job.kernel
    assert [str(each.name) for each in again.kernel.params] == ["x", "t", "y"]


def other(change: Callable[[Stages], Term]) -> Callable[[dict[str, Any]], str]:
    """What a job is with another form."""

    def damaged(given: dict[str, Any]) -> str:
        form = encode.from_json(given["form"])
        assert isinstance(form, Stages)
        return json.dumps({**given, "form": encode.to_json(change(form))})

    return damaged


def copied(of: Buffer, size: int) -> Stages:
    """The first elements of a tensor."""
    return stages((of,), (stage("y", (size,), lambda i: of[i]),))


LONG = placeholder("x", (2048,), f32)
HUGE = placeholder("huge", (1 << 30, 1 << 30), f32)

# fmt: off
DAMAGED = (
    ("no JSON",        lambda given: "{"),
    ("a part missing", lambda given: json.dumps({k: v for k, v in given.items() if k != "trace"})),
    ("another term",   other(lambda form: form.result)),
    ("free names",     other(lambda form: evolve(form, inputs=(LONG,)))),
    ("more inputs",    other(lambda form: evolve(form, inputs=(*form.inputs, HUGE)))),
    ("no result",      other(lambda form: evolve(form, outputs=()))),
    ("another size",   other(lambda form: copied(LONG, 1024))),
    ("another result", other(lambda form: copied(form.inputs[0], 8))),
    ("a bad flag",     lambda given: json.dumps({**given, "constant": [1]})),
    ("too many flags", lambda given: json.dumps({**given, "constant": [True, False]})),
)
# fmt: on


@pytest.mark.parametrize(("name", "damage"), DAMAGED, ids=[name for name, _ in DAMAGED])
def test_a_damaged_job_is_refused(name: str, damage: object) -> None:
    given = json.loads(pretended(DOUBLED).to_json())
    assert callable(damage)
    with pytest.raises(Malformed):
        MeasureJob.from_json(damage(given))


times = st.floats(1e-9, 1e3).map(float)


@given(st.lists(times, min_size=1, max_size=12), st.dictionaries(texts(8), times))
def test_outcomes_come_back(seconds: list[float], stages: dict[str, float]) -> None:
    outcome = ok(tuple(seconds), stages)
    assert Outcome.from_json(outcome.to_json()) == outcome
    assert outcome.cost == min(seconds)
    assert outcome.noise >= 0


@pytest.mark.parametrize(
    "text", ["", "[]", '{"status": "fine"}', Outcome("ok", (float("nan"),)).to_json()]
)
def test_what_is_no_outcome_is_refused(text: str) -> None:
    with pytest.raises(Malformed, match="no outcome"):
        Outcome.from_json(text)


def test_limits_come_back() -> None:
    limits = TrialLimits(flush=True, threads=2)
    assert TrialLimits.from_json(limits.to_json()) == limits
    assert "ok" in STATUSES
