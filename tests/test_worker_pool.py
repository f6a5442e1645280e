"""The pool of workers: the same result whoever does the work, and nothing is lost with a worker."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from time import sleep
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import plica
from plica.codegen.lower.processor import on_processor
from plica.codegen.workers import Following, GroupTask, together
from plica.ir.text.script import from_text
from plica.pipeline import compiled, worker_pool
from plica.pipeline.worker_pool import WorkerPool, _Line, _tried, jobs_wanted, operators_of, workers
from plica.runtime import archive
from plica.runtime.artefact import Artefact, to_members
from plica.runtime.link import can_link

pytestmark = pytest.mark.skipif(not can_link(), reason="objects are not loaded here")

MODEL = """
import plica

@plica.function
def main(x: Tensor[(6, 40), f32], w: Tensor[(40, 24), f32]) -> Tensor[(6,), f32]:
    y = op.nn.relu(op.matmul(x, w))
    z = op.nn.softmax(y, axis=-1)
    return op.sum(op.cumsum(z, axis=1) * y, axis=(1,))
"""


@pytest.fixture(scope="module")
def started() -> Iterator[WorkerPool]:
    """One worker, which all tests of this file ask."""
    pool = WorkerPool(2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worker_pool, "MIN_TASKS", 2)
        yield pool
    pool.end()


def shared(pool: WorkerPool, tasks: Sequence[GroupTask]) -> tuple[set[int], dict[int, bytes]]:
    """Which tasks were done here, and what was made of the others."""
    here: set[int] = set()
    there: dict[int, bytes] = {}
    together(tasks, here.add, there.__setitem__, pool)
    return here, there


def forgotten(pool: WorkerPool | None, monkeypatch: pytest.MonkeyPatch) -> Artefact:
    """The artefact of the model, made by this process and those of a pool, from nothing."""
    on_processor.cache_clear()
    monkeypatch.setattr(compiled, "workers", lambda: pool)
    return plica.compile(from_text(MODEL), threads=1, cache=False).artefact


def test_all_is_done_once_here_or_there(started: WorkerPool) -> None:
    tasks = [GroupTask(f"k{n}", archive.pack, ({str(n): b"1"},)) for n in range(40)]
    here, there = shared(started, tasks)
    assert here | there.keys() == set(range(40))
    assert not here & there.keys()
    for number, data in there.items():
        assert archive.unpack(data) == {str(number): b"1"}


def test_the_same_bytes_however_many_processes(
    started: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = forgotten(None, monkeypatch)
    beside = forgotten(started, monkeypatch)
    elsewhere = WorkerPool(2)
    monkeypatch.setattr(elsewhere, "share", partial(_all_there, started))
    monkeypatch.setattr(elsewhere, "serves", lambda count: True)
    apart = forgotten(elsewhere, monkeypatch)
    packed = [archive.pack(to_members(each)) for each in (alone, beside, apart)]
    assert packed[0] == packed[1] == packed[2]


def _all_there(pool: WorkerPool, tasks: Sequence[GroupTask], here: Any, there: Any) -> None:
    """Everything is done by the worker."""
    with pool._taken(100) as found:
        for number, task in enumerate(tasks):
            data = found[0].ask(task)
            assert data is not None
            there(number, data)


def test_what_a_worker_refuses_is_done_here(started: WorkerPool) -> None:
    refuses: Any = archive.unpack
    here, there = shared(started, [GroupTask("bad", refuses, (b"",))] * 8)
    assert here == set(range(8))
    assert not there


@pytest.mark.parametrize(("work", "args"), [(os._exit, (3,)), (int, ("no number",))])
def test_a_worker_that_dies_is_told_of(started: WorkerPool, work: Any, args: tuple[Any]) -> None:
    with pytest.warns(RuntimeWarning, match=r"k1: .*'k1' ended; it is made here.*worker-died"):
        here, there = shared(started, [GroupTask("k1", work, args)] * 8)
    assert here == set(range(8))
    assert not there


def test_an_interruption_ends_the_workers(started: WorkerPool) -> None:
    seen: list[Any] = []

    def interrupted(number: int) -> None:
        seen.append(started._server)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        together(
            [GroupTask("k", archive.pack, ({},))] * 4,
            interrupted,
            lambda number, data: None,
            started,
        )
    (server,) = seen
    assert server.process.returncode is not None
    with pytest.raises(ProcessLookupError):  # nobody of its group is left
        _until_gone(server.process.pid)
    assert not started._workers


def _until_gone(group: int) -> None:
    for _ in range(1000):
        os.killpg(group, 0)
        sleep(0.01)


def test_what_follows_tasks_is_done_with_what_came_of_them(started: WorkerPool) -> None:
    got: dict[int, bytes] = {}

    def then(number: int, data: bytes) -> Following:
        work = GroupTask(f"after {number}", archive.pack, ({"of": data},))
        return Following(work, partial(got.__setitem__, number))

    def task(number: int) -> GroupTask:
        return GroupTask(f"k{number}", archive.pack, ({str(number): b""},), partial(then, number))

    tasks = [task(number) for number in range(24)]
    here: set[int] = set()

    def done(number: int) -> bytes | None:
        here.add(number)
        return None if number % 5 == 0 else archive.pack({str(number): b""})

    there: dict[int, bytes] = {}
    together(tasks, done, there.__setitem__, started)
    assert here | there.keys() == set(range(24))
    assert got.keys() == {each for each in range(24) if each in there or each % 5}
    for number, data in got.items():
        assert archive.unpack(data) == {"of": archive.pack({str(number): b""})}


def test_what_follows_and_is_refused_is_nobodys(started: WorkerPool) -> None:
    refuses: Any = archive.unpack

    def then(data: bytes) -> Following:
        return Following(GroupTask("bad", refuses, (b"",)), lambda answer: pytest.fail("told"))

    tasks = [GroupTask(f"k{n}", archive.pack, ({},), then) for n in range(8)]
    together(tasks, lambda number: archive.pack({}), lambda number, data: None, started)


def test_nothing_that_follows_is_told_to_nobody_whoever_made_it(started: WorkerPool) -> None:
    def then(data: bytes) -> Following:
        return Following(GroupTask("empty", bytes, ()), lambda answer: pytest.fail("told"))

    tasks = [GroupTask(f"k{n}", archive.pack, ({},), then) for n in range(8)]
    together(tasks, lambda number: archive.pack({}), lambda number, data: None, started)
    assert _tried(GroupTask("empty", bytes, ())) is None


@given(weights=st.lists(st.integers(0, 3), max_size=12), known=st.integers(0, 12))
def test_what_follows_is_begun_by_its_weight_behind_all_tasks(
    weights: list[int], known: int
) -> None:
    def then(weight: int, data: bytes) -> Following:
        return Following(GroupTask("after", archive.pack, ({},)), lambda answer: None, weight)

    tasks = [GroupTask("k", archive.pack, ({},), partial(then, weight)) for weight in weights]
    line = _Line(tasks, follows=True)
    early = range(min(known, len(weights)))
    for number in early:  # before others are taken
        line.follow(number, b"")
    assert [line.taken() for _ in tasks] == list(range(len(weights)))
    for number in range(len(early), len(weights)):
        line.follow(number, b"")
    found = [line.taken() for _ in tasks]
    assert [each.weight for each in found if isinstance(each, Following)] == sorted(
        weights, reverse=True
    )
    assert line.taken() is None


def test_while_another_thread_has_the_workers_all_is_done_here(started: WorkerPool) -> None:
    with started._busy:
        here, _ = shared(started, [GroupTask("k", archive.pack, ({},))] * 4)
    assert here == set(range(4))


def test_few_tasks_start_no_process() -> None:
    pool = WorkerPool(2)
    here, _ = shared(pool, [GroupTask("k", archive.pack, ({},))])
    assert here == {0}
    assert not pool._workers


@pytest.mark.parametrize(("said", "wanted"), [("1", 1), ("3", 3)])
def test_jobs(monkeypatch: pytest.MonkeyPatch, said: str, wanted: int) -> None:
    monkeypatch.setenv("PLICA_JOBS", said)
    assert jobs_wanted() == wanted
    assert (workers() is None) == (wanted == 1)


@pytest.mark.parametrize("said", ["0", "-1", "many", "1000000", "\N{SUPERSCRIPT TWO}"])
def test_jobs_that_mean_nothing_are_refused(monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    monkeypatch.setenv("PLICA_JOBS", said)
    with pytest.raises(plica.UnsupportedError, match=r"(?s)PLICA_JOBS.*1 to 999999"):
        jobs_wanted()


def test_groups_are_made_once_for_all_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLICA_CACHE", str(tmp_path))
    arrays = [np.ones(shape, np.float32) for shape in ((6, 40), (40, 24))]
    edited = MODEL.replace("nn.relu", "nn.sigmoid")
    before = plica.compile(from_text(MODEL), threads=1)
    wanted = before(*arrays)
    del before
    on_processor.cache_clear()
    plica.compile(from_text(edited), threads=1)
    misses = on_processor.cache_info().misses
    groups = len(plica.compile(from_text(edited), threads=1).artefact.launches)
    assert 0 < misses < groups  # those that the edit is not in were not scheduled again
    assert np.allclose(wanted, plica.interpret(from_text(MODEL), *arrays), rtol=1e-5)


def test_workers_are_started_for_many_operators_alone() -> None:
    pool = WorkerPool(2)
    try:
        pool.expect(worker_pool.MIN_TASKS)
        assert not pool._workers
        pool.begin("cpu")  # the compiler is loaded by the process that forks
        pool.expect(worker_pool.MIN_TASKS * worker_pool.OPERATORS_OF_TASK)
        pool.unneeded()  # somebody else needs them
        (worker,) = pool._workers
        assert archive.unpack(worker.ask(GroupTask("k", archive.pack, ({"a": b"1"},))) or b"") == {
            "a": b"1"
        }
    finally:
        pool.end()


def test_a_model_that_is_kept_needs_no_process() -> None:
    pool = WorkerPool(2)
    pool.begin("cuda")
    server = pool._server
    assert server is not None
    pool.unneeded()
    assert server.process.returncode is not None


def test_where_the_process_that_forks_ends_all_is_done_here() -> None:
    pool = WorkerPool(2)
    pool.begin("cpu")
    assert pool._server is not None
    pool._server.process.kill()
    while pool._server.process.returncode is None:
        pool._server.fork()  # nobody answers
        pool._server.process.poll()
    worker = pool._server.fork()
    with pytest.raises(ConnectionError, match="exit code -9"):
        worker.ask(GroupTask("k", archive.pack, ({},)))
    pool.end()


def test_operators_are_counted() -> None:
    module = from_text(MODEL)
    assert operators_of(module) == 6
    assert operators_of(MODEL) == 0
