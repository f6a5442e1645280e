"""Tuning for a GPU that is not here: whoever measures is made up, records are kept and used."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from plica.codegen.cuda.target import GpuTarget
from plica.codegen.cuda.toolchain import path_of
from plica.pipeline import assemble, contract_of, lower, read_records
from plica.runtime.error import InputError
from plica.search.gpu.target import gpu_policy
from plica.search.gpu.worker import GPU, gpu_built, gpu_reference_of, launches_of
from plica.search.measure import Measured, SpaceWork, TrialLimits, job_of
from plica.search.measure.frame import MessageFrame
from plica.search.measure.local import Arrived
from plica.search.measure.worker import build
from plica.search.record import Database, fingerprint, versions
from plica.search.sketch import gpu as sketches
from plica.search.space import Point, Space
from plica.search.tune import tuned_module
from plica.search.tuned import TuneOptions
from tests.search.work import multiplied

TARGET = GpuTarget("sm_90")
WINNER = "threads-128"


class MadeUp:
    """A measurer that likes one form, and of which another crashes."""

    def measure(
        self, task: SpaceWork, space: Space, points: Sequence[Point], arrived: Arrived | None = None
    ) -> tuple[Measured, ...]:
        found = []
        for each in points:
            name = space.sketches[each.sketch].name
            if "threads-64" in name:
                found.append(Measured("crash", message="an illegal address", point=each))
            else:
                found.append(Measured("ok", (1e-6 if WINNER in name else 1e-5,), point=each))
            if arrived is not None:
                arrived(found[-1])
        return tuple(found)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sketches, "TILES", 2)
    monkeypatch.setattr(sketches, "MADE", 2)
    sketches._space.cache_clear()


@pytest.mark.usefixtures("few")
def test_what_is_found_is_used(tmp_path: Path) -> None:
    module, contract = multiplied(64), contract_of(None)
    with Database(tmp_path / "tune.db") as database:
        found = tuned_module(
            module, contract, (), TARGET, database, TuneOptions(20, progress=False), MadeUp()
        )
        (course,) = found.courses
        assert course.errors == {"crash": 1}
        assert course.best is not None
        assert WINNER in course.subject.space.sketches[course.best.point.sketch].name
        lowered = lower(module, contract, (), TARGET, read_records(database, TARGET))
        assert [row.status for row in lowered.tuning] == ["tuned"]
        assert WINNER in lowered.tuning[0].why
        plain = lower(module, contract, (), TARGET)
        assert plain.program.kernels != lowered.program.kernels
        elsewhere = lower(module, contract, (), TARGET, read_records(database, GpuTarget("sm_80")))
        assert "another machine" in elsewhere.tuning[0].why
    if path_of() is not None:
        assert assemble(lowered, TARGET).objects


def test_machines_and_compilers_are_told_apart() -> None:
    names = {fingerprint(GpuTarget(each)) for each in ("sm_80", "sm_90", "sm_90a")}
    assert len(names) == 3
    assert all(each.startswith("cuda-sm_") for each in names)
    assert [name for name, _ in versions(TARGET)] == ["nvrtc", "plica"]


def test_a_policy_that_learned_from_processors_is_refused() -> None:
    with pytest.raises(InputError, match="for GPUs"):
        gpu_policy("evolution")


@pytest.mark.usefixtures("few")
@pytest.mark.skipif(path_of() is None, reason="NVRTC is not installed: plica[cuda]")
def test_candidates_are_built_without_a_gpu() -> None:
    from plica.search.space_of import query_of
    from plica.search.task import tasks

    (task,) = tasks(multiplied(64), contract_of(None), (), TARGET)
    space = sketches.gpu_space_of(query_of(task), TARGET.gpu)
    job = job_of(task, space, space.default, TARGET)
    code, told = gpu_built(job).objects
    launches, _ = launches_of(told)
    assert code.startswith(b"\x7fELF")
    assert all(each.function.startswith("candidate") for each in launches)
    answer = build(GPU, MessageFrame({"job": job.to_json()}), TrialLimits())
    assert answer.blobs[1] == told
    reference = gpu_reference_of(job)
    left, right = reference.inputs
    assert (reference.expected == left @ right).all()
