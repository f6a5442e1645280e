"""Rules of thumb for hypothetical machines: other forms and schedules for the same work."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from typing import Final

from attrs import evolve

from plica.ir.loop.stages import Stages
from plica.ir.loop.statement import Kernel
from plica.schedule.collapse import collapsed
from plica.schedule.default import FORMS, Machine, default_trace, formed
from plica.schedule.default.bilinear_schedule import planned_schedules
from plica.schedule.do import trace_if_legal
from plica.schedule.form import installed
from plica.schedule.problem import ScheduleRefused
from plica.schedule.trace import Trace
from plica.search.sketch.template import opened, scenes_of
from plica.search.sketch.variant import banded, spread, turned, written
from plica.search.sketch_rule import Query, SketchRule

PLANS: Final = 12  # plans of one form, at most
PLANNED_FORM: Final = "winograd-tiles"
NARROWEST: Final = 128  # bits of the shortest vectors
SMALL_CACHE_RATIO: Final = 16  # how many times smaller another cache is
UNLIMITED_CACHE_BYTES: Final = 1 << 40  # bytes of a cache in which everything fits


def forms(of: Query, machine: Machine) -> Iterator[tuple[str, Stages]]:
    """The form of the default schedule, then every other that applies."""
    of = collapsed_query(of)
    if (first := formed(of.stages, of.facts, machine)) is None:
        return
    every = _each(of, machine)
    # A record finds its form by this name, also once another form is the default.
    same = [name for name, stages in every if stages is first.stages]
    yield (same[0] if same else first.form), first.stages
    yield from [each for each in every if each[0] not in same]


def collapsed_query(of: Query) -> Query:
    """The query for which a build chooses a form: with mergeable axes fused."""
    return evolve(of, stages=collapsed(of.stages, of.facts.reassociates, opened=True))


def narrow_forms(of: Query, machine: Machine) -> Iterator[tuple[str, Stages]]:
    """The forms for vectors of half the length."""
    if machine.vector // 2 >= NARROWEST:
        yield from _each(collapsed_query(of), evolve(machine, vector=machine.vector // 2))


def other_forms(of: Query, machine: Machine) -> Iterator[tuple[str, Stages]]:
    """What forms make of some stages for other machines, where that differs."""
    query = collapsed_query(of)
    here = dict(_each(query, machine))
    known = set(here.values())
    for word, other in _others(machine).items():
        for name in here:
            found = formed(query.stages, query.facts, other, name)
            if found is not None and found.stages not in known:
                known.add(found.stages)
                yield f"{name}-{word}", found.stages


def planned_forms(of: Query, machine: Machine) -> Iterator[tuple[str, Stages]]:
    """Forms whose template decides blocks and tiles by a plan."""
    yield from [each for each in _each(collapsed_query(of), machine) if each[0] == PLANNED_FORM]


def planned_traces(of: Kernel, machine: Machine) -> Iterator[tuple[str, Trace]]:
    """The schedules by other plans than the first, in order of their estimates."""
    for name, schedule in islice(planned_schedules(of, machine), 1, PLANS):
        if (trace := trace_if_legal(schedule, of)) is not None:
            yield name, trace


def other_traces(of: Kernel, machine: Machine) -> Iterator[tuple[str, Trace]]:
    """The default schedule, with its numbers open."""
    if (first := default_trace(of, machine)) is not None:
        yield "default", opened(first, of, machine.registers)


def _others(machine: Machine) -> dict[str, Machine]:
    """Machines that might be: with fewer registers, other caches, one core."""
    near, far = machine.caches[0], machine.cache(2)
    found = {
        "fewer": evolve(machine, registers=machine.registers * 3 // 4),
        "fewest": evolve(machine, registers=machine.registers // 2),
        **{
            f"cache{word}": evolve(machine, caches=(near, round(far * factor)))
            for word, factor in (("4th", 0.25), ("half", 0.5), ("2", 2.0), ("4", 4.0))
        },
    }
    if machine.cores > 1:
        found["alone"] = evolve(machine, cores=1)
    return found


def _each(of: Query, machine: Machine) -> tuple[tuple[str, Stages], ...]:
    """What each form makes of some stages by itself."""
    return _by_name(of, machine, tuple([form.name for form in (*FORMS, *installed())]))


@lru_cache(maxsize=64)
def _by_name(of: Query, machine: Machine, names: tuple[str, ...]) -> tuple[tuple[str, Stages], ...]:
    every = [(name, formed(of.stages, of.facts, machine, name)) for name in names]
    return tuple([(name, found.stages) for name, found in every if found is not None])


def traces(of: Kernel, machine: Machine) -> Iterator[tuple[str, Trace]]:
    """The default schedules for machines that might be, and variants of the first."""
    if (first := default_trace(of, machine)) is None:
        return
    yield "default", opened(first, of, machine.registers)
    yield from _open_variants("", first, of, machine)
    for number, each in enumerate(turned(first, of)):
        if _legal((each,), of) is not None:
            yield from _open_variants(f"turned{number or ''}", each, of, machine)
    near, far = machine.caches[0], machine.cache(2)
    others = {
        "fewer": evolve(machine, registers=machine.registers // 2),
        "fewest": evolve(machine, registers=machine.registers // 4),
        "small": evolve(machine, caches=(near // SMALL_CACHE_RATIO, far // SMALL_CACHE_RATIO)),
        "large": evolve(machine, caches=(near, UNLIMITED_CACHE_BYTES)),
    }
    if machine.cores > 1:
        others["alone"] = evolve(machine, cores=1)
    for name, other in others.items():
        trace = default_trace(of, other)
        if trace is not None and trace is not first:
            yield name, opened(trace, of, machine.registers)
    if (fewer := _legal(spread(first, of), of)) is not None:
        yield "spread", opened(fewer, of, machine.registers)


def narrow_traces(of: Kernel, machine: Machine) -> Iterator[tuple[str, Trace]]:
    """The default schedule, with everything open that can be."""
    if (first := default_trace(of, machine)) is not None:
        yield from _open_variants("", first, of, machine)


def _open_variants(
    word: str, trace: Trace, of: Kernel, machine: Machine
) -> Iterator[tuple[str, Trace]]:
    """A trace in bands and with unrolled terms, as far as legal; its decisions start as it was."""
    words = [word] if word else []
    for name, variants in (("banded", banded), ("written", written)):
        if (found := _legal(variants(trace, of), of)) is not None:
            trace = found
            words.append(name)
    if words:
        yield "-".join(words), opened(trace, of, machine.registers)


def _legal(variants: tuple[Trace, ...], of: Kernel) -> Trace | None:
    """The first of some traces that is a schedule."""
    for variant in variants:
        try:
            scenes_of(variant, of)
        except ScheduleRefused:
            continue
        return variant
    return None


HEURISTIC: Final = SketchRule("thumb", forms, traces)
NARROW: Final = SketchRule("narrow", narrow_forms, narrow_traces)
OTHERS: Final = SketchRule("other", other_forms, other_traces)
PLANNED: Final = SketchRule("plan", planned_forms, planned_traces)
