"""Comparisons: one model timed in Plica and in other systems, on the same inputs.

>>> plica = SystemTiming("plica", "1", 0.5, (2e-3, 1e-3, 3e-3), 0.0)
>>> plica.least, plica.median
(0.001, 0.002)
>>> SystemComparison((plica, SystemTiming("other", "2", 0.1, (4e-3,), 1e-6)), ()).ratio("other")
4.0
"""

from __future__ import annotations

import json
import statistics
import subprocess
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import Any, Final

import numpy as np

from plica.bench.peer import PEERS, PeerOptions, difference, why_missing
from plica.runtime.late import python_here
from plica.runtime.port import Array
from plica.runtime.timing import spread_of

OURS: Final = "plica"


@dataclass(frozen=True, slots=True)
class SystemTiming:
    """One system: seconds of preparation, seconds of each call, and the largest difference of its
    outputs from the reference, relative to the largest output."""

    name: str
    version: str
    ready: float
    times: tuple[float, ...]
    difference: float

    @property
    def least(self) -> float:
        """The shortest time."""
        return min(self.times)

    @property
    def median(self) -> float:
        """The median time."""
        return statistics.median(self.times)

    @property
    def spread(self) -> float:
        """The interquartile range as a fraction of the median."""
        return spread_of(self.times)


@dataclass(frozen=True, slots=True)
class AbsentSystem:
    """A system that could not be timed, and why."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class SystemComparison:
    """The timed systems in the order they were asked for, Plica first, and the others."""

    timings: tuple[SystemTiming, ...]
    absent: tuple[AbsentSystem, ...]

    def find(self, name: str) -> SystemTiming | None:
        """The times of a system."""
        return next((system for system in self.timings if system.name == name), None)

    def ratio(
        self, name: str, of: Callable[[SystemTiming], float] = lambda system: system.least
    ) -> float:
        """How many times as fast Plica is as another system."""
        ours, theirs = self.find(OURS), self.find(name)
        assert ours is not None
        assert theirs is not None
        return of(theirs) / of(ours)

    @property
    def best(self) -> SystemTiming | None:
        """The fastest of the others."""
        others = [system for system in self.timings if system.name != OURS]
        return min(others, key=lambda system: system.least, default=None)


Progress = Callable[[str], None]


def compare_systems(
    model: Path,
    inputs: Sequence[Array],
    peers: Sequence[str],
    *,
    how: PeerOptions | None = None,
    rounds: int = 5,
    seconds: float = 0.3,
    progress: Progress = lambda word: None,
) -> SystemComparison:
    """Time a model in Plica and in `peers`; the first peer that runs gives the reference."""
    failed: list[AbsentSystem] = []
    wanted = json.dumps(asdict(how or PeerOptions()))
    with TemporaryDirectory() as folder, ExitStack() as stack:
        given = Path(folder) / "inputs.npz"
        np.savez(given, *inputs)
        ready: dict[str, tuple[_Worker, dict[str, Any]]] = {}
        for name in (OURS, *peers):
            progress(f"{name}: making the model ready")
            if (absent := why_missing(PEERS[name])) is not None:
                failed.append(AbsentSystem(name, absent))
                continue
            words = (model, given, Path(folder) / f"{name}.npz", wanted)
            worker = stack.enter_context(_Worker(name, *words))
            answer = worker.answer()
            if "ready" in answer:
                ready[name] = worker, answer
            else:
                failed.append(AbsentSystem(name, answer.get("refused") or answer["died"]))
        times: dict[str, list[float]] = {name: [] for name in ready}
        for round_ in range(rounds):
            for name, (worker, _) in list(ready.items()):
                progress(f"{name}: round {round_ + 1} of {rounds}")
                answer = worker.ask(seconds)
                if "times" in answer:
                    times[name] += answer["times"]
                else:
                    failed.append(AbsentSystem(name, answer["died"]))
                    del ready[name]
        outputs = {name: _arrays(Path(folder) / f"{name}.npz") for name in ready}
    others = [name for name in ready if name != OURS]
    reference = outputs[others[0]] if others else None
    timings = [
        SystemTiming(
            name,
            answer["version"],
            answer["ready"],
            tuple(times[name]),
            0.0 if reference is None else difference(outputs[name], reference),
        )
        for name, (_, answer) in ready.items()
    ]
    return SystemComparison(tuple(timings), tuple(failed))


def _arrays(path: Path) -> list[Array]:
    with np.load(path) as stored:
        return [stored[f"arr_{at}"] for at in range(len(stored))]


class _Worker:
    """A process that runs one peer; leaving it ends the process."""

    def __init__(self, name: str, *words: object) -> None:
        command, environment = python_here("-m", "plica.bench.worker", name, *map(str, words))
        self._stderr = TemporaryFile("w+")  # noqa: SIM115  # closed with the process; a pipe would fill
        self._process = subprocess.Popen(
            command, env=environment, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._stderr,
        )  # fmt: skip

    def __enter__(self) -> _Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()
        self._stderr.close()

    def ask(self, seconds: float) -> dict[str, Any]:
        """The times of a burst of calls."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{seconds}\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # it has died: the answer says why
        return self.answer()

    def answer(self) -> dict[str, Any]:
        """One line of JSON; of a process that ended, `died` with the last line of its stderr."""
        assert self._process.stdout is not None
        if line := self._process.stdout.readline():
            message: dict[str, Any] = json.loads(line)
            return message
        code = self._process.wait()
        self._stderr.seek(0)
        lines = self._stderr.read().strip().splitlines()
        return {"died": lines[-1] if lines else f"It ended with exit code {code}."}
