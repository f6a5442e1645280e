"""In place: tuned kernels timed in their network, launch by launch, against the untuned ones."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import mean, median, stdev
from typing import Final, TypeAlias

import numpy as np
from attrs import evolve, frozen

from plica.codegen.record import as_script
from plica.core.deadline import check_deadline
from plica.ir.graph.module import Module
from plica.ir.type import TensorType, known
from plica.runtime.artefact import aligned_array
from plica.runtime.executable import Executable
from plica.runtime.load import executable
from plica.runtime.port import Array
from plica.runtime.profile import ProfileRow
from plica.search.course import Course
from plica.search.measure.stop import placed
from plica.search.record import Database, Record
from plica.search.record.order import IN_PLACE
from plica.search.record.record import record
from plica.search.space import Point
from plica.search.tuned import InPlace, Tuned

ROUNDS: Final = 8  # how often the programs take turns
COPIES: Final = 4  # how often each program is there, at most
MAX_COPIED_BYTES: Final = (
    1 << 30
)  # bytes of constants in all copies of a program, but for two of them
RUNS: Final = 4  # calls of a turn
CLEARLY: Final = 0.99  # of its default's time at most, or a tuned kernel goes back to it
SURE: Final = 2.0  # standard errors between the means of what is surely less

KernelSchedule: TypeAlias = tuple[str, str]  # the kernel as text, and its trace

Compile = Callable[[Database], Executable]  # the model compiled with the records of a database


@frozen(eq=False)
class LaunchPair:
    """One launch of both programs: how each schedules it, and the seconds of each copy."""

    schedules: tuple[KernelSchedule, KernelSchedule]
    untuned: tuple[float, ...]
    tuned: tuple[float, ...]


def held(  # noqa: PLR0917  # what a search was, and where it goes
    module: Module,
    found: Tuned,
    compiled: Compile,
    into: Database,
    target: str,
    versions: tuple[tuple[str, str], ...],
    before: Executable | None = None,
    graph: Sequence[Record] = (),
) -> Tuned:
    """Validates tuned kernels in their network; those that are not faster there get records that
    say so. Empty if no kernel was tuned, or if the programs differ in more than schedules.

    The untuned program may have been compiled `before`; all programs are in the form that records
    of the `graph` say.
    """
    winners: dict[KernelSchedule, list[tuple[Course, Point]]] = {}
    for each in found.courses:
        if each.best is not None and each.best.point != each.subject.space.default:
            space, point = each.subject.space, each.best.point
            begins = as_script(space.sketches[point.sketch].kernel)
            winners.setdefault((begins, space.trace(point).to_json()), []).append((each, point))
    if len(found.courses) < 2 or not winners or (values := drawn_inputs(module)) is None:
        return found  # one kernel alone is all of its network
    untuned = copies(before or compiled(database_of(graph)))
    pairs = _launches(untuned, copies(compiled(into)), values)
    if not pairs:
        return found

    def timed(course: Course, point: Point, seconds: float) -> Record:
        space, key = course.subject.space, course.subject.task.key
        sketch, steps = space.sketches[point.sketch], space.trace(point).to_json()
        return record(key, target, steps, sketch.name, (seconds,), versions=versions,
                      policy=IN_PLACE, message=sketch.loops_digest)  # fmt: skip

    defaults: list[Record] = []
    faster: list[Record] = []
    back: list[str] = []
    for schedule, of in winners.items():
        mine = [e for e in pairs if e.schedules[1] == schedule != e.schedules[0]]
        if not mine:
            continue
        usual = _mean([launch_pair.untuned for launch_pair in mine])
        after = _mean([launch_pair.tuned for launch_pair in mine])
        defaults += [timed(each, each.subject.space.default, mean(usual)) for each, _ in of]
        if is_less(after, usual) and mean(after) <= CLEARLY * mean(usual):
            faster += [timed(each, point, mean(after)) for each, point in of]
        else:
            back += [each.subject.task.name for each, _ in of]
    programs: list[Executable] = []
    if faster:
        programs = copies(compiled(database_of((*graph, *defaults, *faster))))
    whole = calls(untuned, programs, values)
    if faster and not is_less(whole[1], whole[0]):
        back = [each.subject.task.name for of in winners.values() for each, _ in of]
        faster = []
    for kept in (*defaults, *faster):
        into.put(kept)
    call = mean(whole[0])
    tuned = mean(whole[1]) if faster else call  # all went back: it is the same program
    return evolve(found, in_place=InPlace(call, tuned, tuple(back)))


def database_of(records: Sequence[Record]) -> Database:
    """A database of a few records, in memory."""
    database = Database()
    for each in records:
        database.put(each)
    return database


def copies(of: Executable) -> list[Executable]:
    """Several copies of a program, each with its own memory."""
    bytes_ = sum([constant.nbytes for constant in of.artefact.constants])
    count = max(2, min(COPIES, MAX_COPIED_BYTES // max(1, bytes_)))
    return [of, *[_copy(of) for _ in range(count - 1)]]


def _copy(of: Executable) -> Executable:
    constants = tuple([_moved(constant) for constant in of.artefact.constants])
    return executable(replace(of.artefact, constants=constants), externs=of.externs)


def _moved(array: Array) -> Array:
    """The same numbers elsewhere."""
    copy = aligned_array(array.nbytes).view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def is_less(some: Sequence[float], others: Sequence[float]) -> bool:
    """Whether the mean of some times is less than that of others, and not by chance.

    >>> is_less((0.9, 0.92, 0.88), (1.0, 1.01, 1.02)), is_less((0.9, 1.1, 0.9), (1.0, 0.95, 1.05))
    (True, False)
    """
    error = math.sqrt(sum([stdev(each) ** 2 / len(each) for each in (some, others)]))
    return mean(others) - mean(some) > SURE * error


def _mean(of: Sequence[tuple[float, ...]]) -> list[float]:
    """The mean over launches of each copy."""
    return [sum(each) / len(of) for each in zip(*of, strict=True)]


def _in_turns(of: Sequence[Executable]) -> Iterator[int]:
    """The indices of programs in alternating order, forwards and backwards."""
    for number in range(ROUNDS):
        for at in range(len(of)) if number % 2 == 0 else reversed(range(len(of))):
            check_deadline()
            yield at


def calls(
    untuned: Sequence[Executable], tuned: Sequence[Executable], values: Sequence[Array]
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The median seconds of a call of each copy of two programs."""
    programs = (*untuned, *tuned)
    times: list[list[float]] = [[] for _ in programs]
    for program in programs:
        program(*values)  # its threads are there
    with placed(programs[0].artefact.threads):
        for at in _in_turns(programs):
            programs[at](*values)
            for _ in range(RUNS):
                start = time.perf_counter()
                programs[at](*values)
                times[at].append(time.perf_counter() - start)
    found = [median(each) for each in times]
    return tuple(found[: len(untuned)]), tuple(found[len(untuned) :])


def _launches(
    untuned: Sequence[Executable], tuned: Sequence[Executable], values: Sequence[Array]
) -> list[LaunchPair]:
    """The launches of both programs in pairs, with median times; none if their numbers differ."""
    programs = (*untuned, *tuned)
    schedules = [
        {trace.kernel: (trace.before, trace.json) for trace in one[0].artefact.record().traces}
        for one in (untuned, tuned)
    ]
    rows: list[list[tuple[ProfileRow, ...]]] = [[] for _ in programs]
    for program in programs:
        program(*values)  # its threads are there
    with placed(programs[0].artefact.threads):
        for at in _in_turns(programs):
            shown = programs[at].profile(*values, runs=RUNS, peak=1.0, bandwidth=1.0)
            rows[at].append(shown.rows)
    first, other = rows[0][0], rows[len(untuned)][0]
    if len(first) != len(other):
        return []
    found = []
    for launch in range(len(first)):
        times = [median([profile_rows[launch].least for profile_rows in mine]) for mine in rows]
        names = (
            _schedule_of(schedules[0], first[launch].kernel),
            _schedule_of(schedules[1], other[launch].kernel),
        )
        found.append(LaunchPair(names, tuple(times[: len(untuned)]), tuple(times[len(untuned) :])))
    return found


def _schedule_of(schedules: Mapping[str, KernelSchedule], kernel: str) -> KernelSchedule:
    return schedules.get(kernel, ("", ""))


def drawn_inputs(module: Module) -> list[Array] | None:
    """Random inputs for a model of static sizes, or None."""
    random = np.random.default_rng(0)
    arrays: list[Array] = []
    for param in module.main_function().params:
        if not isinstance(of := param.type, TensorType):
            return None
        sizes = [known(size) for size in of.shape]
        if None in sizes:
            return None
        shape = tuple([size for size in sizes if size is not None])
        numbers = random.standard_normal(shape) if of.dtype.is_float else np.zeros(shape)
        arrays.append(numbers.astype(of.dtype.numpy))
    return arrays
