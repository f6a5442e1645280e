"""In place: tuned kernels timed in their network, launch by launch, beside the untuned ones.

A kernel alone finds what it reads in the nearest cache; in its network it finds what the kernel
before left there, and weights in none.  So at the end of a search both programs are run in turns,
and a kernel that is not faster in its network goes back to its default: the times of its two
schedules there are records, and count for more than those of the kernel alone
(`plica.search.record.order`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np
from attrs import evolve, frozen

from plica.ir.graph.module import Module
from plica.ir.type.dim import known
from plica.ir.type.term import TensorType
from plica.runtime.executable import Executable
from plica.runtime.port import Array
from plica.runtime.profile import ProfileRow
from plica.search.record import Database
from plica.search.record.order import IN_PLACE
from plica.search.record.record import record
from plica.search.tune import InPlace, Tuned

ROUNDS: Final = 8
"""How often the programs take turns."""

RUNS: Final = 4
"""Calls of a turn."""

CLEARLY: Final = 0.99
"""A tuned kernel takes at most so much of its default's time, or goes back to it."""

Compile = Callable[[Database], Executable]
"""The model compiled with the records of a database."""


@frozen(eq=False)
class LaunchPair:
    """One launch of both programs: its traces, and the least seconds of each."""

    traces: tuple[str, str]
    seconds: tuple[float, float]


def held(  # noqa: PLR0917  # what a search was, and where it goes
    module: Module,
    found: Tuned,
    compiled: Compile,
    into: Database,
    target: str,
    versions: tuple[tuple[str, str], ...],
) -> Tuned:
    """What was tuned, held to its network: kernels that are not faster there have records that say
    so.  Nothing where no kernel was tuned, or programs differ in more than schedules."""
    winners = {
        each.subject.space.trace(each.best.point).to_json(): (each, each.best.point)
        for each in found.courses
        if each.best is not None and each.best.point != each.subject.space.default
    }
    if len(found.courses) < 2 or not winners or (values := _inputs(module)) is None:
        return found  # one kernel alone is all of its network
    programs = compiled(Database()), compiled(into)
    pairs = _launches(programs, values)
    back: list[str] = []
    for trace, (course, point) in winners.items():
        mine = [each.seconds for each in pairs if each.traces[1] == trace != each.traces[0]]
        if not mine:
            continue
        space, work = course.subject.space, course.subject.task
        untuned, tuned = (sum(each[n] for each in mine) / len(mine) for n in (0, 1))
        timed = [(space.default, untuned)]
        if tuned <= CLEARLY * untuned:
            timed.append((point, tuned))
        else:
            back.append(work.name)
        for at, seconds in timed:
            form, steps = space.sketches[at.sketch].name, space.trace(at).to_json()
            into.put(
                record(
                    work.key, target, steps, form, (seconds,), versions=versions, policy=IN_PLACE
                )
            )
    untuned, tuned = (sum(each.seconds[n] for each in pairs) for n in (0, 1))
    return evolve(found, in_place=InPlace(untuned, tuned, tuple(back)) if pairs else None)


def _launches(programs: tuple[Executable, Executable], values: Sequence[Array]) -> list[LaunchPair]:
    """The launches of both programs, side by side; none where they are not as many."""
    traces = [{each.kernel: each.json for each in one.artefact.record().traces} for one in programs]
    rows: list[list[tuple[ProfileRow, ...]]] = [[], []]
    for number in range(ROUNDS):
        for at in (0, 1) if number % 2 == 0 else (1, 0):
            shown = programs[at].profile(*values, runs=RUNS, peak=1.0, bandwidth=1.0)
            rows[at].append(shown.rows)
    if len(rows[0][0]) != len(rows[1][0]):
        return []
    found = []
    for launch in range(len(rows[0][0])):
        least = [min(each[launch].least for each in rows[at]) for at in (0, 1)]
        names = [_trace_of(traces[at], rows[at][0][launch].kernel) for at in (0, 1)]
        found.append(LaunchPair((names[0], names[1]), (least[0], least[1])))
    return found


def _trace_of(traces: Mapping[str, str], kernel: str) -> str:
    return traces.get(kernel, "")


def _inputs(module: Module) -> list[Array] | None:
    """Numbers for a model of known sizes, None where they are not."""
    random = np.random.default_rng(0)
    found: list[Array] = []
    for each in module.main_function().params:
        if not isinstance(of := each.type, TensorType):
            return None
        sizes = [known(size) for size in of.shape]
        if None in sizes:
            return None
        shape = tuple([size for size in sizes if size is not None])
        numbers = random.standard_normal(shape) if of.dtype.is_float else np.zeros(shape)
        found.append(numbers.astype(of.dtype.numpy))
    return found
