"""Outcomes: what came of a trial, in plain data, and the limits under which it was tried.

    status   ok        built, right, and timed
             refused   the schedule is illegal, or lowering cannot make it
             build     no code came out: a bug, LLVM gave up, or no memory was left
             wrong     the code gives other numbers than the reference
             crash     the code ended its process
             timeout   building or running took longer than allowed

A failed trial costs one trial: its kind, stage and message are recorded.

>>> done = Outcome("ok", (3e-3, 2e-3, 2.2e-3), stages={"time": 0.1})
>>> done.cost, done.median, Outcome.from_json(done.to_json()) == done
(0.002, 0.0022, True)
"""

from __future__ import annotations

import json
import math
from statistics import median
from typing import Final, Literal, get_args

from attrs import asdict, evolve, field, frozen

from plica.core import Malformed
from plica.runtime.error import Diagnostic
from plica.search.space import Point

Status = Literal["ok", "refused", "build", "wrong", "crash", "timeout"]
STATUSES: Final[tuple[str, ...]] = get_args(Status)
STAGES: Final = ("replay", "lower", "compile", "validate", "time")
"""The stages of a trial, in order; `compile` covers emitting and running LLVM."""

LONGEST_MESSAGE: Final = 1000


@frozen
class TrialLimits:
    """How much a trial may take, and how carefully it is timed."""

    build_seconds: float = 30.0  # of the processor: what is built waits while something is timed
    run_seconds: float = 20.0
    memory: int = 4 << 30  # bytes a process may have; 0 for any, as GPU drivers need
    repeats: int = 10
    least: float = 0.005  # seconds a repeat takes at least: short kernels run several times
    slow: float = 3.0  # times slower than the best of its work is repeated 3 times only
    flush: bool = False  # whether the caches are emptied before each repeat, which is then one run
    threads: int = 1
    alone: bool = True  # whether builds wait while something is timed: cores share units

    def to_json(self) -> str:
        """The limits as text."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> TrialLimits:
        """The limits of a text."""
        return TrialLimits(**json.loads(text))


@frozen
class Outcome:
    """What came of a trial: the seconds of each repeat, and those of each stage."""

    status: Status
    times: tuple[float, ...] = ()
    noise: float = 0.0  # how far the median is above the least, as a part of it
    stages: dict[str, float] = field(factory=dict[str, float])
    message: str = ""

    @property
    def cost(self) -> float | None:
        """The minimum time, or None if the trial failed."""
        return min(self.times) if self.times else None

    @property
    def median(self) -> float | None:
        """The median time, or None if the trial failed."""
        return median(self.times) if self.times else None

    def to_json(self) -> str:
        """The outcome as text."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Outcome:
        """The outcome of a text; raises `Malformed`."""
        try:
            given = json.loads(text)
        except (ValueError, RecursionError):
            given = None
        match given:
            case {
                "status": str(status),
                "times": [*times],
                "noise": float(noise),
                "stages": dict(stages),
                "message": str(message),
            } if status in STATUSES and all(map(_is_time, (*times, noise, *stages.values()))):
                named = {str(name): float(value) for name, value in stages.items()}
                said = message[:LONGEST_MESSAGE]
                return Outcome(status, tuple(times), noise, named, said)  # type: ignore[arg-type]  # status is one of them
            case _:
                broken = "A device answers with something that is no outcome of a trial."
                raise Malformed(Diagnostic("bad-record", broken, found=text[:80]))


def _is_time(value: object) -> bool:
    return type(value) is float and math.isfinite(value) and value >= 0


def ok(times: tuple[float, ...], stages: dict[str, float]) -> Outcome:
    """The outcome of a trial that was timed."""
    least = min(times)
    noise = (median(times) - least) / least if least > 0 else 0.0
    return Outcome("ok", times, noise, stages)


def failed(status: Status, stage: str, message: str, stages: dict[str, float]) -> Outcome:
    """The outcome of a trial that was not."""
    return Outcome(status, (), 0.0, stages, f"{stage}: {message}"[:LONGEST_MESSAGE])


@frozen
class Measured(Outcome):
    """The outcome of the trial of a point of a space."""

    point: Point = field(kw_only=True)


def measured(point: Point, of: Outcome) -> Measured:
    """The outcome of a point."""
    return Measured(of.status, of.times, of.noise, of.stages, of.message, point=point)


def with_stages(of: Outcome, before: dict[str, float]) -> Outcome:
    """The outcome with the seconds of earlier stages."""
    return evolve(of, stages={**before, **of.stages})
