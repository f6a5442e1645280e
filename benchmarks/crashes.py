"""Searches that are killed: what is lost, and what is proposed afterwards.

    python benchmarks/crashes.py [--kills 20] [--seed 0] [killed] [interrupted] [together] [pool]

`killed`: a search of real kernels is killed with SIGKILL at a given number of drawn moments, and
asked for again after each.  What it reported must be there every time, and a search that nobody
killed, given the same times, must propose the same trials in the same order.

`interrupted`: `plica tune` of a model gets what Ctrl-C sends at a quarter as many drawn moments.
Each time it must end with the status of a shell, leave none of its processes behind, and have lost
none of the records that were there; asked for again it goes on to its end.

`together`: two `plica tune` of one model have one database at once, and other seeds.  Both must end
well, and have all of their trials there.

`pool`: a search uses a pool of two workers on this machine; one of them is killed, and every trial
must be there once.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import Any

from attrs import evolve
from searching import gemm

from plica.codegen.llvm import toolchain
from plica.codegen.lower.processor import machine_of
from plica.ir.contract import reassociates
from plica.search.course import TuningSubject
from plica.search.measure import LocalMeasurer, Measured, Measurer, SpaceWork, TrialLimits
from plica.search.measure.local import Arrived
from plica.search.policy.named import guided
from plica.search.record.database import Database
from plica.search.space import Point, Space
from plica.search.space_of import space_of
from plica.search.target import fingerprint, versions
from plica.search.task import TWICE, tasks
from plica.search.tune_loop import Run, tuned

TARGET = evolve(toolchain.host(), cores=1)
LIMITS = TrialLimits(repeats=3, least=1e-3)
TRIALS = 32
KILLED = 13
"""After this many trials a worker of a pool is killed."""
PARTS = ("killed", "interrupted", "together", "pool")
KILLS = 20
"""How often a search is killed, at drawn moments."""
BEGUN = 8.0
"""Seconds in which a command has begun, about."""
AHEAD, PAUSE = 5, 0.4
"""A search is killed before this many more trials, and a given number of seconds, are over."""


def subject() -> TuningSubject:
    """A small product."""
    (found,) = tasks(gemm(96), reassociates, (), TARGET)
    return TuningSubject(found, space_of(found, machine_of(TARGET)))


def run_of(measurer: Measurer, database: Database) -> Run:
    """The run that is killed, and the one that is not."""
    return Run(guided(machine_of(TARGET)), measurer, database, fingerprint(TARGET), 0, versions())


def search(path: Path, trials: int) -> None:
    """Search, and say how many trials are on the disk after each."""
    with LocalMeasurer(TARGET, LIMITS) as measurer, Database(path) as database:

        def listener(_: object, __: int, spent: int) -> None:
            print(spent, flush=True)

        tuned([subject()], run_of(measurer, database), trials, listener=listener, finals=False)


class Recorded:
    """A measurer that answers what records say."""

    def __init__(self, database: Database) -> None:
        self.known = {(each.form, each.trace_json): each for each in database}
        self.asked = list[tuple[str, str]]()

    def measure(
        self, task: SpaceWork, space: Space, points: Sequence[Point], arrived: Arrived | None = None
    ) -> tuple[Measured, ...]:
        """What came of points; a point of which there is no record fails."""
        found = list[Measured]()
        for each in points:
            place = space.sketches[each.sketch].name, space.trace(each).to_json()
            self.asked.append(place)
            of = self.known.get(place)
            status: Any = "build" if of is None else of.error or "ok"
            found.append(Measured(status, () if of is None else of.costs,
                                  0.0 if of is None else of.noise, point=each))  # fmt: skip
            if arrived is not None:
                arrived(found[-1])
        return tuple(found)


def killed(kills: int, seed: int) -> dict[str, Any]:
    """Kill a search at drawn moments, ask for it again after each, and let it end at last."""
    random = Random(seed)
    moments = list[tuple[int, int]]()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "killed.db"
        trials = TRIALS + AHEAD * kills  # so that it is never over before it is killed
        command = [sys.executable, __file__, "--search", str(path), "--trials", str(trials)]
        for _ in range(kills):
            moments.append(_killed(command, path, random))
        subprocess.run(command, check=True, timeout=600, stdout=subprocess.DEVNULL)
        with Database(path) as database, Database() as other:
            resumed = [(e.form, e.trace_json) for e in sorted(database, key=lambda e: e.trial)]
            recorded = Recorded(database)
            tuned([subject()], run_of(recorded, other), trials, finals=False)
    return {
        "kills": len(moments),
        "trials at each": [left for _, left in moments],
        "lost": sum(max(0, reported - left) for reported, left in moments),
        "trials": len(resumed),
        "same": resumed == recorded.asked,
    }


def _killed(command: Sequence[str], path: Path, random: Random) -> tuple[int, int]:
    """The trials that a search had reported when it was killed, and those that are on the disk."""
    before = 0
    if path.exists():
        with Database(path) as database:
            before = len(database)
    more, pause = random.randrange(AHEAD), PAUSE * random.random()
    reported = 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        if before + more:  # else it is killed while it begins
            for line in running.stdout:
                reported = int(line)
                if reported >= before + more:
                    break
        time.sleep(pause)
        running.send_signal(signal.SIGKILL)
        for line in running.stdout:  # what it said meanwhile
            reported = int(line) if line.endswith("\n") else reported
    with Database(path) as database:
        return reported, len(database)


def interrupted(times: int, seed: int) -> dict[str, Any]:
    """Interrupt the command at drawn moments, and let it end at last."""
    random = Random(seed)
    codes, fewer, left = list[int](), 0, 0
    with tempfile.TemporaryDirectory() as folder:
        path, command = _tune_command(Path(folder))
        before = 0
        for _ in range(times):
            asked = [*command, "--trials", str(before + TRIALS)]
            with subprocess.Popen(asked, start_new_session=True, stderr=subprocess.DEVNULL) as one:
                moment = time.monotonic() + BEGUN * random.random()
                while not _records(path) > before and time.monotonic() < moment + BEGUN:
                    time.sleep(0.05)  # some moments are before the first trial, some after it
                    if time.monotonic() > moment and random.random() < 0.1:
                        break
                time.sleep(PAUSE * random.random())
                os.killpg(one.pid, signal.SIGINT)
                codes.append(one.wait(timeout=60))
            left += _is_there(one.pid)
            fewer += _records(path) < before
            before = _records(path)
        ended = subprocess.run([*command, "--trials", str(before + 8)], check=False, timeout=600)
        return {
            "interrupted": times,
            "status": sorted(set(codes)),
            "processes left": left,
            "lost": fewer,
            "goes on": ended.returncode == 0 and _records(path) >= before + 8,
        }


def together() -> dict[str, Any]:
    """Two commands that write one database at once."""
    with tempfile.TemporaryDirectory() as folder:
        path, command = _tune_command(Path(folder))
        asked = [*command, "--trials", str(TRIALS)]
        both = [subprocess.Popen([*asked, "--seed", str(seed)]) for seed in (1, 2)]
        codes = [each.wait(timeout=600) for each in both]
        with Database(path) as database:
            trials = {
                seed: sorted({each.trial for each in database if each.seed == seed})
                for seed in (1, 2)
            }
        whole = all(each == list(range(TRIALS)) for each in trials.values())
        return {"status": codes, "trials": [len(each) for each in trials.values()], "whole": whole}


def _tune_command(folder: Path) -> tuple[Path, list[str]]:
    """A database, and the command that tunes a small product for it."""
    module, path = folder / "product.py", folder / "tune.db"
    module.write_text(TWICE.replace("8, 8", "96, 96"), encoding="utf-8")
    words = ["tune", str(module), "--threads", "1", "--db", str(path), "--quiet"]
    return path, [sys.executable, "-m", "plica", *words]


def _records(path: Path) -> int:
    if not path.exists():
        return 0
    with Database(path) as database:
        return len(database)


def _is_there(group: int) -> bool:
    """Whether a process of a group is left, after a moment to end."""
    for _ in range(40):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return False
        time.sleep(0.05)
    return True


@contextmanager
def served(*words: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process of a pool, and the first line it says."""
    with subprocess.Popen(
        [sys.executable, "-m", "plica", "pool", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


def pooled() -> dict[str, Any]:
    """Kill one of two workers of a pool."""
    from plica.search.pool import PoolMeasurer  # needs an engine that need not be installed

    with (
        served("start", "--port", "0") as (_, address),
        served("worker", address) as (one, _),
        served("worker", address) as _,
        tempfile.TemporaryDirectory() as folder,
        Database(Path(folder) / "pool.db") as database,
        PoolMeasurer(address, TARGET, LIMITS) as measurer,
    ):
        over = list[int]()

        def listener(_: object, __: int, trials: int) -> None:
            if trials >= KILLED and not over:
                over.append(trials)
                os.kill(one.pid, signal.SIGKILL)

        run = run_of(measurer, database)
        (course,) = tuned([subject()], run, TRIALS, listener=listener, finals=False)
        places = {(each.form, each.trace_json) for each in database}
        return {
            "killed after": over[0],
            "trials": course.trials,
            "records": len(database),
            "distinct": len(places),
            "failed": sum(course.errors.values()),
        }


def main() -> None:
    """All of them, or those that are named, or the search that is to be killed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS])
    parser.add_argument("--kills", type=int, default=KILLS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--search", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--trials", type=int, default=TRIALS, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.search is not None:
        search(asked.search, asked.trials)
        return
    for part in asked.parts or PARTS:
        match part:
            case "killed":
                print("killed and asked again:", killed(asked.kills, asked.seed), flush=True)
            case "interrupted":
                print("interrupted:", interrupted(-(-asked.kills // 4), asked.seed), flush=True)
            case "together":
                print("two at once:", together(), flush=True)
            case _ if find_spec("distributed") is None:
                print("a pool needs Dask, which is not installed")
            case _:
                print("one of two workers killed:", pooled())


if __name__ == "__main__":
    main()
