"""Rules of thumb for machines that might be: other kernels and schedules for the same work.

The default schedule follows from what a machine is said to be like.  Asked for a machine with
shorter vectors, fewer registers, smaller caches or one core, the same rules give other schedules,
each sensible somewhere: these are where a search begins.  Their numbers are opened, and some have
variants with loops in another order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from attrs import evolve

from plica.ir.dtype import f32, f64
from plica.schedule.default import Formed, Machine, default_trace, formed
from plica.schedule.default.contraction import bared, contraction, merged
from plica.schedule.default.estimate import over_outputs
from plica.schedule.default.form import blocked
from plica.schedule.default.row import chain_form
from plica.schedule.problem import ScheduleRefused
from plica.schedule.trace import Trace
from plica.search.rule import Asked, Rule
from plica.search.sketch.opened import opened, scenes_of
from plica.search.sketch.variant import banded, spread, turned, written

FORMS: Final = ("blocked", "rowed", "paneled")
"""The forms of contractions."""

NARROWEST: Final = 128
"""Bits of the shortest vectors."""

SMALL: Final = 16
"""How many times smaller another cache is."""

LARGE: Final = 1 << 40
"""Bytes of a cache in which everything fits."""


def forms(of: Asked, machine: Machine) -> Iterator[tuple[str, Formed]]:
    """The kernel by rule of thumb, then others in which contractions can be done."""
    if of.chain is not None:
        found = None
        if of.reassociates:
            found = chain_form(of.chain, machine, approximates=of.approximates)
        if found is not None:
            yield "default", found
        return
    first = _formed(of, machine)
    if first is None:
        return
    others = [] if first.derived else list(_contractions(of, machine))
    if all(each.kernel is first.kernel for _, each in others):
        others = others[:1] if len(others) < len(FORMS) else []  # all alike: no contraction
    # A record finds its kernel by this name, also once another form is the default.
    same = [name for name, each in others if each.kernel is first.kernel]
    yield (same[0] if same else "default"), first
    yield from [each for each in others if each[0] not in same]


def narrow_forms(of: Asked, machine: Machine) -> Iterator[tuple[str, Formed]]:
    """The forms of contractions with vectors of half the length."""
    if machine.vector // 2 >= NARROWEST and of.work is not None:
        yield from _contractions(of, evolve(machine, vector=machine.vector // 2))


def _contractions(of: Asked, machine: Machine) -> Iterator[tuple[str, Formed]]:
    for form in FORMS:
        found = _formed(of, machine, form)
        if found is not None:
            yield form, found


def padded_forms(of: Asked, machine: Machine) -> Iterator[tuple[str, Formed]]:
    """Lanes over outputs, with room so that tiles of the best size divide the other axis."""
    work = None if of.work is None else contraction(bared(of.work))
    if work is None or work.weight is None or work.reduced.dtype not in (f32, f64):
        return
    work = merged(work) or work
    assert work.weight is not None
    constant = of.constant[work.inputs.index(work.weight.buffer)]
    for each in over_outputs(work, machine):
        if work.pixels and work.sizes[work.pixels[-1]] % each.tile.steps:
            yield f"by{each.tile.steps}", blocked(work, each.lanes, each.tile.steps, constant)


def _formed(of: Asked, machine: Machine, form: str | None = None) -> Formed | None:
    if of.work is None:
        return None
    return formed(
        of.work,
        of.constant,
        machine,
        reassociates=of.reassociates,
        bytes_=of.bytes_,
        form=form,
    )


def traces(of: Formed, machine: Machine) -> Iterator[tuple[str, Trace]]:
    """The default schedules for machines that might be, and variants of the first."""
    first = default_trace(of.kernel, machine)
    if first is None:
        return
    yield "default", opened(first, of.kernel, machine.registers)
    yield from _open_variants("", first, of, machine)
    for number, each in enumerate(turned(first, of.kernel)):
        yield from _open_variants(f"turned{number or ''}", each, of, machine)
    near, far = machine.caches[0], machine.cache(2)
    others = {
        "fewer": evolve(machine, registers=machine.registers // 2),
        "fewest": evolve(machine, registers=machine.registers // 4),
        "small": evolve(machine, caches=(near // SMALL, far // SMALL)),
        "large": evolve(machine, caches=(near, LARGE)),
    }
    if machine.cores > 1:
        others["alone"] = evolve(machine, cores=1)
    for name, other in others.items():
        found = default_trace(of.kernel, other)
        if found is not None and found is not first:
            yield name, opened(found, of.kernel, machine.registers)
    for each in spread(first, of.kernel):
        yield "spread", opened(each, of.kernel, machine.registers)


def narrow_traces(of: Formed, machine: Machine) -> Iterator[tuple[str, Trace]]:
    """The default schedule, with everything open that can be."""
    first = default_trace(of.kernel, machine)
    if first is not None:
        yield from _open_variants("", first, of, machine)


def _open_variants(
    word: str, trace: Trace, of: Formed, machine: Machine
) -> Iterator[tuple[str, Trace]]:
    """A trace in bands and with terms written out, as far as it can be: with the greatest band
    and one term that is as it was."""
    words = [word] if word else []
    for name, variants in (("banded", banded), ("written", written)):
        found = _legal(variants(trace, of.kernel), of)
        if found is not None:
            trace = found
            words.append(name)
    if words:
        yield "-".join(words), opened(trace, of.kernel, machine.registers)


def _legal(variants: tuple[Trace, ...], of: Formed) -> Trace | None:
    """The first of some traces that is a schedule."""
    for each in variants:
        try:
            scenes_of(each, of.kernel)
        except ScheduleRefused:
            continue
        return each
    return None


THUMB: Final = Rule("thumb", forms, traces)
PADDED: Final = Rule("padded", padded_forms, traces)
NARROW: Final = Rule("narrow", narrow_forms, narrow_traces)
