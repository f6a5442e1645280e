"""A pool of two workers on this machine: one is killed, and nothing is lost or doubled."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import plica
from plica.cli import main
from plica.core.name import Name
from plica.ir.graph.expression import Var
from plica.ir.graph.module import module
from plica.mesh import Mesh, MeshPlan, pooled, replay, simulate
from plica.runtime.error import ArtefactError, InputError
from plica.search.measure import Measured, TrialLimits
from plica.search.pool import Certificates, PoolError, PoolMeasurer
from plica.search.pool.remote import Remote
from plica.search.record import Database, fingerprint, record
from tests.search.measure.work import TARGET, TASK, product_space

pytest.importorskip("distributed")

LIMITS = TrialLimits(repeats=2, least=1e-4)


class Served:
    """A process of a pool, and the first line it says."""

    def __init__(self, *words: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "plica", "pool", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._line = ""

    @property
    def line(self) -> str:
        if not self._line:
            assert self.process.stdout is not None
            self._line = self.process.stdout.readline().strip()
        return self._line

    def end(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture(scope="module")
def pool() -> Iterator[tuple[str, Served, Served]]:
    scheduler = Served("start", "--port", "0")
    served = [scheduler]
    try:
        served += [Served("worker", scheduler.line) for _ in range(2)]
        assert all(each.line for each in served)
        yield scheduler.line, served[1], served[2]
    finally:
        for each in reversed(served):
            each.end()


def test_a_pool_tells_its_devices(
    pool: tuple[str, Served, Served], capsys: pytest.CaptureFixture[str]
) -> None:
    address, one, other = pool
    assert main(["pool", "status", address, "--json"]) == 0
    devices = json.loads(capsys.readouterr().out)["devices"]
    assert {each["address"] for each in devices} == {one.line.split()[0], other.line.split()[0]}
    assert fingerprint(TARGET) in {each["target"] for each in devices}


def test_an_artefact_runs_there(pool: tuple[str, Served, Served]) -> None:
    main_ = Var(Name("main"), None)
    exe = plica.compile(module({main_: TASK.function}, main_))
    x, w = np.eye(16, dtype=np.float32) * 2, np.ones((16, 16), np.float32)
    with plica.connect(pool[0]) as remote:
        assert isinstance(remote, Remote)
        there = remote.upload(exe)
        assert np.array_equal(np.asarray(there(x, w)), np.asarray(exe(x, w)))
        assert np.array_equal(np.asarray(there(w=w, x=x)), 2 * w)
        assert [each.name for each in there.inputs] == ["x", "w"]
        with pytest.raises(InputError):
            there(x)
        with pytest.raises(PoolError, match="no device"):
            remote.upload(exe, target="cpu-vax")
        with pytest.raises(ArtefactError, match="cannot be read"):
            remote.upload("none.plica")


def test_garbage_and_half_open_connections_harm_nobody_else(
    pool: tuple[str, Served, Served],
) -> None:
    main_ = Var(Name("main"), None)
    exe = plica.compile(module({main_: TASK.function}, main_))
    x, w = np.eye(16, dtype=np.float32), np.ones((16, 16), np.float32)
    addresses = [pool[0], *[each.line.split()[0] for each in pool[1:]]]
    drawn = np.random.default_rng(7)
    half_open = []
    for address in addresses * 5:
        peer = socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])), timeout=10)
        peer.sendall(drawn.choice([drawn.bytes(100), b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 64]))
        half_open.append(peer)
    with plica.connect(pool[0]) as remote:
        there = remote.upload(exe)
        with ThreadPoolExecutor(4) as threads:
            found = threads.map(lambda _: np.asarray(there(x, w)), range(12))
        assert all(np.array_equal(each, w) for each in found)
    for peer in half_open:
        peer.close()


@pytest.mark.slow
def test_a_pool_that_loses_its_devices_and_its_scheduler_is_told(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Neither is waited for without end."""
    monkeypatch.setattr("plica.search.pool.remote.DEVICE_TIMEOUT_SECONDS", 1.0)
    main_ = Var(Name("main"), None)
    exe = plica.compile(module({main_: TASK.function}, main_))
    x, w = np.eye(16, dtype=np.float32), np.ones((16, 16), np.float32)
    scheduler = Served("start", "--port", "0")
    worker = Served("worker", scheduler.line)
    try:
        assert main(["pool", "start", "--port", scheduler.line.rpartition(":")[2]]) == 1
        assert "cannot listen there" in capfd.readouterr().err
        assert worker.line
        with plica.connect(scheduler.line) as remote:
            there = remote.upload(exe)
            assert np.array_equal(np.asarray(there(x, w)), w)
            worker.end()
            with pytest.raises(PoolError, match="no device left"):
                there(x, w)
            scheduler.process.kill()
            with pytest.raises(PoolError, match="lost"):
                there(x, w)
    finally:
        scheduler.end()
        worker.end()


def test_a_machine_nobody_has_is_refused(pool: tuple[str, Served, Served]) -> None:
    from attrs import evolve

    with PoolMeasurer(pool[0], evolve(TARGET, cpu="vax"), LIMITS) as measurer:
        space = product_space()
        with pytest.raises(PoolError, match="no device"):
            measurer.measure(TASK, space, [space.default])


def test_a_worker_dies_and_no_record_is_lost_or_doubled(
    pool: tuple[str, Served, Served], tmp_path: Path
) -> None:
    address, one, _ = pool
    space = product_space()
    points = list(space.points())
    stored: list[Measured] = []
    with Database(tmp_path / "tune.db") as database, PoolMeasurer(address, limits=LIMITS) as many:

        def arrived(of: Measured) -> None:
            stored.append(of)
            text = space.trace(of.point).to_json()
            database.put(record("k", fingerprint(TARGET), text, "tiled", of.times))
            if len(stored) == 3:
                os.kill(one.process.pid, signal.SIGKILL)

        found = many.measure(TASK, space, points, arrived)
        assert [each.point for each in found] == points
        assert {each.status for each in found} == {"ok"}
        assert len(stored) == len(points) == len(database)
        last = many.finals(TASK, space, points[:2], rounds=3)
        assert [(each.status, len(each.times)) for each in last] == [("ok", 3), ("ok", 3)]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("openssl") is None, reason="certificates are made with openssl")
def test_a_pool_with_tls(tmp_path: Path) -> None:
    own, key = tmp_path / "own.pem", tmp_path / "own.key"
    words = "openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=plica -keyout"
    subprocess.run(
        [*words.split(), str(key), "-out", str(own)], check=True, capture_output=True, timeout=60
    )
    files = ("--tls-ca", str(own), "--tls-cert", str(own), "--tls-key", str(key))
    scheduler = Served("start", "--port", "0", *files)
    worker = Served("worker", scheduler.line, *files)
    try:
        assert scheduler.line.startswith("tls://")
        assert worker.line.startswith("tls://")
        space = product_space()
        mine = Certificates(str(own), str(own), str(key))
        with PoolMeasurer(scheduler.line, None, LIMITS, mine) as measurer:
            (found,) = measurer.measure(TASK, space, [space.default])
        assert found.status == "ok"
        with pytest.raises(PoolError, match="certificates"):
            plica.connect(scheduler.line)
    finally:
        worker.end()
        scheduler.end()


def test_a_pool_runs_data_parallel_plans(pool: tuple[str, Served, Served]) -> None:
    layer = plica.from_text("""
@plica.function
def layer(x: Tensor[(8, 16), f32], w: Tensor[(16, 4), f32]) -> Tensor[(8, 4), f32]:
    return nn.softmax(x @ w, axis=1)
""")
    draw = np.random.default_rng(0)
    x, w = (draw.standard_normal(of).astype(np.float32) for of in ((8, 16), (16, 4)))
    with plica.connect(pool[0]) as remote:
        assert isinstance(remote, Remote)
        for plan in ("split x 0 on data", "split x 1 on data"):  # without and with a collective
            sharded = replay(MeshPlan.from_text(plan), layer, Mesh.parse("data=4"))
            found = simulate(sharded, x, w, engine=pooled(remote))
            np.testing.assert_allclose(found, plica.interpret(layer, x, w), rtol=1e-5)
