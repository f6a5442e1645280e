"""Contests: one model run by several systems in turns, on the same numbers.

Every system has a process of its own; bursts of calls take turns, so that what else the machine
does meets all alike.  A system that is not installed, or cannot run the model, is named with the
reason.

>>> entry = Entry("plica", "1", 0.5, (2e-3, 1e-3, 3e-3), 0.0)
>>> entry.least, entry.median
(0.001, 0.002)
>>> Contest((entry, Entry("other", "2", 0.1, (4e-3,), 1e-6)), ()).ratio("other")
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
class Entry:
    """What one system did: seconds to make the model ready, seconds of each call, and how far its
    numbers are from those of the reference, relative to the greatest of them."""

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
        """The time in the middle."""
        return statistics.median(self.times)

    @property
    def spread(self) -> float:
        """How far the middle half of the times lies apart, as a part of the median."""
        return spread_of(self.times)


@dataclass(frozen=True, slots=True)
class Missing:
    """A system that did not take part, and why."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Contest:
    """All entries in the order they were asked for; Plica's is the first."""

    entries: tuple[Entry, ...]
    missing: tuple[Missing, ...]

    def find(self, name: str) -> Entry | None:
        """The entry of a system."""
        return next((each for each in self.entries if each.name == name), None)

    def ratio(self, name: str, of: Callable[[Entry], float] = lambda each: each.least) -> float:
        """How many times as fast Plica is as another system."""
        ours, theirs = self.find(OURS), self.find(name)
        assert ours is not None
        assert theirs is not None
        return of(theirs) / of(ours)

    @property
    def best(self) -> Entry | None:
        """The fastest of the others."""
        others = [each for each in self.entries if each.name != OURS]
        return min(others, key=lambda each: each.least) if others else None


Progress = Callable[[str], None]


def compete(
    model: Path,
    inputs: Sequence[Array],
    peers: Sequence[str],
    *,
    how: PeerOptions | None = None,
    rounds: int = 5,
    seconds: float = 0.3,
    progress: Progress = lambda word: None,
) -> Contest:
    """Run a model in Plica and in `peers`; the first of those that runs is the reference."""
    missing: list[Missing] = []
    wanted = json.dumps(asdict(how or PeerOptions()))
    with TemporaryDirectory() as folder, ExitStack() as stack:
        given = Path(folder) / "inputs.npz"
        np.savez(given, *inputs)
        ready: dict[str, tuple[_Worker, dict[str, Any]]] = {}
        for name in (OURS, *peers):
            progress(f"{name}: making the model ready")
            if (absent := why_missing(PEERS[name])) is not None:
                missing.append(Missing(name, absent))
                continue
            words = (model, given, Path(folder) / f"{name}.npz", wanted)
            worker = stack.enter_context(_Worker(name, *words))
            answer = worker.answer()
            if "ready" in answer:
                ready[name] = worker, answer
            else:
                missing.append(Missing(name, answer.get("refused") or answer["died"]))
        times: dict[str, list[float]] = {name: [] for name in ready}
        for turn in range(rounds):
            for name, (worker, _) in list(ready.items()):
                progress(f"{name}: round {turn + 1} of {rounds}")
                answer = worker.ask(seconds)
                if "times" in answer:
                    times[name] += answer["times"]
                else:
                    missing.append(Missing(name, answer["died"]))
                    del ready[name]
        outputs = {name: _arrays(Path(folder) / f"{name}.npz") for name in ready}
    others = [name for name in ready if name != OURS]
    reference = outputs[others[0]] if others else None
    entries = [
        Entry(
            name,
            answer["version"],
            answer["ready"],
            tuple(times[name]),
            0.0 if reference is None else difference(outputs[name], reference),
        )
        for name, (_, answer) in ready.items()
    ]
    return Contest(tuple(entries), tuple(missing))


def _arrays(path: Path) -> list[Array]:
    with np.load(path) as stored:
        return [stored[f"arr_{at}"] for at in range(len(stored))]


class _Worker:
    """A process that runs one peer; leaving it ends the process."""

    def __init__(self, name: str, *words: object) -> None:
        command, environment = python_here("-m", "plica.bench.worker", name, *map(str, words))
        self._words = TemporaryFile("w+")  # noqa: SIM115  # closed with the process; a pipe would fill
        self._process = subprocess.Popen(
            command, env=environment, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._words,
        )  # fmt: skip

    def __enter__(self) -> _Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()
        self._words.close()

    def ask(self, seconds: float) -> dict[str, Any]:
        """A burst of calls."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{seconds}\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # it has died, and its last words are the answer
        return self.answer()

    def answer(self) -> dict[str, Any]:
        """One line of JSON; `died` with the last words of a process that ended instead."""
        assert self._process.stdout is not None
        if line := self._process.stdout.readline():
            found: dict[str, Any] = json.loads(line)
            return found
        code = self._process.wait()
        self._words.seek(0)
        words = self._words.read().strip().splitlines()
        return {"died": words[-1] if words else f"It ended with exit code {code}."}
