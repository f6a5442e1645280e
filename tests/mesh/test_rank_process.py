"""Ranks as processes, over Gloo and MPI: the numbers of simulated devices; faults end all ranks."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from plica.mesh import Mesh, simulate
from plica.runtime.late import python_here
from tests.mesh.rank_script import results

SCRIPT = str(Path(__file__).with_name("rank_script.py"))
BIN = Path(sys.executable).parent
MPIRUN = shutil.which("mpirun", path=f"{BIN}{os.pathsep}{os.environ.get('PATH', '')}")
LIMIT = 100
"""Seconds after which a test gives up, on the busiest machine."""

needs_mpi = pytest.mark.skipif(MPIRUN is None, reason="no mpirun on this machine")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port: int = probe.getsockname()[1]
    return port


def environment(**more: object) -> dict[str, str]:
    _, inherited = python_here()
    return {**inherited, "OMP_NUM_THREADS": "1", **{name: str(each) for name, each in more.items()}}


def gloo(out: Path, ranks: int, mesh: str, fault: str = "", timeout: float = 20) -> list[Any]:
    """What ranks say that are started one by one, as `torchrun` starts them."""
    port = free_port()
    started = []
    for rank in range(ranks):
        if fault == "missing" and rank == 1:
            continue
        said: dict[str, object] = {
            "RANK": rank, "WORLD_SIZE": ranks, "MASTER_ADDR": "localhost", "MASTER_PORT": port,
        }  # fmt: skip
        if rank == 1:
            match fault:
                case "twice":
                    said["RANK"] = 0 if ranks == 1 else 2
                case "size":
                    said["WORLD_SIZE"] = ranks + 1
                case "port":
                    said["MASTER_PORT"] = free_port()
                case "no-number":
                    said["RANK"] = "one"
        words = [sys.executable, SCRIPT, "gloo", str(out), mesh, fault, str(timeout)]
        started.append(
            subprocess.Popen(words, env=environment(**said), stdout=subprocess.DEVNULL)
        )  # fmt: skip
    return ended(started, out)


def mpi(out: Path, ranks: int, mesh: str, fault: str = "", timeout: float = 20) -> list[Any]:
    """What the ranks say that `mpirun` starts."""
    assert MPIRUN is not None
    words = [MPIRUN, "--allow-run-as-root", "--oversubscribe", "--continuous", "-n", str(ranks)]
    words += [sys.executable, SCRIPT, "mpi", str(out), mesh, fault, str(timeout)]
    return ended([subprocess.Popen(words, env=environment(), stdout=subprocess.DEVNULL)], out)


def ended(started: list[subprocess.Popen[bytes]], out: Path) -> list[Any]:
    """What ranks wrote; a rank that hangs fails the test."""
    try:
        for each in started:
            each.wait(LIMIT)
    finally:
        for each in started:
            each.kill()
            each.wait()
    return [json.loads(path.read_text()) for path in sorted(out.iterdir())]


ENGINES = [gloo, pytest.param(mpi, marks=needs_mpi)]


@pytest.mark.parametrize("start", ENGINES)
@pytest.mark.parametrize(
    ("ranks", "mesh"),
    [
        (2, "data=2"),
        pytest.param(4, "data=2,model=2", marks=pytest.mark.slow),
        pytest.param(4, "model=4", marks=pytest.mark.slow),
    ],
)
def test_ranks_have_the_plans_and_numbers_of_simulated_devices(
    start: Any, ranks: int, mesh: str, tmp_path: Path
) -> None:
    said = start(tmp_path, ranks, mesh)
    assert [each["found"] for each in said] == [results(Mesh.parse(mesh), simulate)] * ranks


@pytest.mark.slow
def test_torchrun_starts_ranks(tmp_path: Path) -> None:
    words = [str(BIN / "torchrun"), "--nproc-per-node", "2", SCRIPT, "gloo", str(tmp_path), "a=2"]
    said = ended([subprocess.Popen(words, env=environment(), stdout=subprocess.DEVNULL)], tmp_path)
    assert [each["found"] for each in said] == [results(Mesh.parse("a=2"), simulate)] * 2


FAULTS = {
    "killed": "rank 1 died",
    "exits": "rank 1 died",
    "dies-first": "rank 1 d",
    "raises": "rank 1 failed: ZeroDivisionError",
    "hangs": "rank 1 ",
    "leaves": "rank 1",
    "one-more": "rank 1",
    "version": "rank 1 differs from rank 0: program",
    "plan": "rank 1 differs from rank 0: the plan",
    "mesh": "rank 1 differs from rank 0: the plan",
    "inputs": "rank 1 failed: InputError",
    "devices": "has 8 devices, and there are 4 ranks",
}
STARTS = {
    "missing": "rank 1 did not start within 4 s",
    "twice": "two processes say that they are rank 2",
    "size": "rank 1 counts 5 ranks",
    "port": "rank 1",
    "no-number": "did not start within 4 s",
}


def check(said: list[Any], fault: str, reason: str, ranks: int) -> None:
    print(fault, [(f"{each['seconds']:.1f}", each["error"].splitlines()[0]) for each in said])
    assert len(said) == ranks
    for each in said:
        own = "This is rank 1 of 4" in each["error"] or fault in {"port", "no-number"}
        assert reason in each["error"] or own, each


@pytest.mark.slow
@pytest.mark.parametrize("start", ENGINES)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_ends_every_rank_with_its_reason(start: Any, fault: str, tmp_path: Path) -> None:
    said = start(tmp_path, 4, "data=2,model=2", fault, 4)
    survivors = 3 if fault in {"killed", "exits", "dies-first"} else 4
    check(said, fault, FAULTS[fault], survivors)


@pytest.mark.slow
@pytest.mark.parametrize("fault", STARTS)
def test_a_fault_of_the_start_ends_every_rank(fault: str, tmp_path: Path) -> None:
    said = gloo(tmp_path, 4, "data=2,model=2", fault, 4)
    check(said, fault, STARTS[fault], 3 if fault == "missing" else 4)
