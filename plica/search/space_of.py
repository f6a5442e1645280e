"""The space of some work: every schedule that a search may try, the default one first.

    space_of(task, machine) -> Space

A sketch is one form with one trace, named by rule, form and trace: `thumb/lanes-over-n/written`.

>>> from plica.core.name import Name
>>> from plica.ir.graph.expression import Apply, Function, Var
>>> from plica.ir.type.term import tensor
>>> from plica.schedule.form import Facts
>>> from plica.search.task import Task
>>> x, w = Var(Name("x"), tensor((64, 64), "f32")), Var(Name("w"), tensor((64, 64), "f32"))
>>> product = Function((), (), (x, w), tensor((64, 64), "f32"), Apply("matmul", (x, w)))
>>> space = space_of(Task(product, Facts((False, True))), Machine(512, 32))
>>> [each.name for each in space.sketches][:2]
['thumb/lanes-over-n/default', 'thumb/lanes-over-n/written']
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import chain, islice
from typing import Final, TypeAlias

from plica.core import digest
from plica.core.collector import paused
from plica.ir.loop import Kernel, Stages
from plica.schedule.default import Machine
from plica.schedule.problem import ScheduleRefused
from plica.schedule.trace import Trace
from plica.search.sketch.general import EACH, GENERAL, LOOPS, ROWS, SUMS, TILING, UNTUNED
from plica.search.sketch.heuristic import HEURISTIC, NARROW, OTHERS, PLANNED
from plica.search.sketch.near import LOCATION, NEARBY, SCALARS
from plica.search.sketch_rule import (
    Query,
    SketchRule,
    SpaceWork,
    drafts_of,
    form_of_rules,
    hoisted_kernel,
    installed,
)
from plica.search.space import Sketch, Space, sketch

RULES: Final = (
    UNTUNED, GENERAL, HEURISTIC, PLANNED, NEARBY, NARROW, OTHERS, ROWS, EACH, SUMS, TILING, LOOPS,
    LOCATION, SCALARS,
)  # fmt: skip
"""Plica's own rules: first the untuned build's schedule, if that is not the first heuristic one."""

Draft: TypeAlias = tuple[str, Stages, Trace]  # the name of a sketch, its form and its trace


def space_of(task: SpaceWork, machine: Machine) -> Space:
    """The space of a task; it has no sketches where nothing about the work can be decided."""
    return _space(query_of(task), machine)


def first_space_of(task: SpaceWork, machine: Machine) -> Space:
    """The first sketch of that space alone, which a search of many pieces of work times first."""
    return Space(tuple(islice(_sketches(query_of(task), machine), 1)))


def query_of(task: SpaceWork) -> Query:
    """The query of a task."""
    return Query(task.stages, task.facts)


def space_of_kernel(kernel: Kernel, machine: Machine) -> Space:
    """The space of a user's kernel: general rules only."""
    sketches = [sketch("nest/kernel/as_is", kernel, Trace(()))]
    for rule in (EACH, TILING):
        for name, trace in rule.traces(kernel, machine):
            try:
                sketches.append(sketch(f"{rule.name}/kernel/{name}", kernel, trace))
            except ScheduleRefused:
                continue
    return Space(tuple(sketches))


def form_named(name: str, task: SpaceWork, machine: Machine) -> Stages | None:
    """The form of a sketch name, or None if it no longer exists."""
    return form_of_rules((*RULES, *installed(machine)), name, query_of(task), machine)


@lru_cache(maxsize=64)
def _space(query: Query, machine: Machine) -> Space:
    return Space(tuple(_sketches(query, machine)))


def _sketches(query: Query, machine: Machine) -> Iterator[Sketch]:
    """All sketches, the default first; traces that differ only in decisions are one."""
    known = set[object]()
    drafts = _drafts(query, machine)
    while True:
        with paused():
            if (draft := next(drafts, None)) is None:
                return
            name, form, trace = draft
            key = (digest(form), tuple([step.instruction for step in trace.steps]))
            if key in known:
                continue
            try:
                found = sketch(name, hoisted_kernel(form, query.facts.constant).kernel, trace, form)
            except ScheduleRefused:
                continue  # no schedule after all
            known.add(key)
        yield found


def _drafts(query: Query, machine: Machine) -> Iterator[Draft]:
    """All drafts, the default first."""
    rules = (*RULES, *installed(machine))
    return chain.from_iterable(drafts_of(rule, query, machine) for rule in rules)


__all__ = [
    "RULES", "SketchRule", "first_space_of", "form_named", "query_of", "space_of",
    "space_of_kernel",
]  # fmt: skip
