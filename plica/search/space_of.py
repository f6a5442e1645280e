"""The space of some work: every schedule that a search may try, the default one first.

    space_of(task, machine) -> Space

Schedule rules say which kernels do the work and how each may be scheduled; a sketch is one kernel
with one trace, and is named by rule, form and trace: `thumb/blocked/turned-written`.  The default
point of the space is the schedule of a build that was never tuned.

>>> from plica.core.name import Name
>>> from plica.ir.graph import Apply, Function, Var
>>> from plica.ir.type import tensor
>>> from plica.search.task import Task
>>> x, w = Var(Name("x"), tensor((64, 64), "f32")), Var(Name("w"), tensor((64, 64), "f32"))
>>> product = Function((), (), (x, w), tensor((64, 64), "f32"), Apply("matmul", (x, w)))
>>> space = space_of(Task(product, (False, True), True), Machine(512, 32))
>>> [each.name for each in space.sketches][:2]
['thumb/blocked/default', 'thumb/blocked/written']
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Final, Protocol

from plica.core.collector import paused
from plica.core.digest import digest
from plica.ir.graph import Function
from plica.ir.loop import Kernel
from plica.schedule.default import Formed, Machine
from plica.schedule.problem import ScheduleRefused
from plica.schedule.trace import Trace
from plica.search.rule import Asked, Rule, installed
from plica.search.sketch.general import EACH, NEST, ROWS, TILING
from plica.search.sketch.near import NEARBY
from plica.search.sketch.thumb import NARROW, PADDED, THUMB
from plica.search.space import Sketch, Space, sketch

RULES: Final = (THUMB, NEST, NEARBY, PADDED, NARROW, ROWS, EACH, TILING)
"""Plica's own rules; the default schedule comes from the first that has one."""


class Subject(Protocol):
    """A task, as far as its space goes."""

    @property
    def function(self) -> Function: ...

    @property
    def constant(self) -> tuple[bool, ...]: ...

    @property
    def reassociates(self) -> bool: ...

    @property
    def bytes_(self) -> tuple[int, ...]: ...

    @property
    def approximates(self) -> bool: ...


def space_of(task: Subject, machine: Machine) -> Space:
    """The space of a task; it has no sketches where nothing about the work can be decided."""
    return _space(asked_of(task), machine)


def asked_of(task: Subject) -> Asked:
    """What rules are asked about a task."""
    return Asked(task.function, task.constant, task.reassociates, task.bytes_, task.approximates)


def space_of_kernel(kernel: Kernel, machine: Machine) -> Space:
    """The space of a kernel as somebody wrote it: general rules alone."""
    form = Formed(kernel, (), ())
    found = [
        made
        for rule in (EACH, TILING)
        for name, trace in rule.traces(form, machine)
        if (made := _sketch(f"{rule.name}/kernel/{name}", form, trace)) is not None
    ]
    plain = _sketch("nest/kernel/as_is", form, Trace(()))
    assert plain is not None
    return Space((plain, *found))


def form_named(name: str, task: Subject, machine: Machine) -> Formed | None:
    """The kernel that a sketch of that name begins with, None where there is none any more."""
    word, _, rest = name.partition("/")
    form = rest.partition("/")[0]
    asked = asked_of(task)
    for rule in (*RULES, *installed()):
        if rule.name == word:
            for known, found in rule.forms(asked, machine):
                if known == form:
                    return found
    return None


@lru_cache(maxsize=64)
def _space(asked: Asked, machine: Machine) -> Space:
    with paused():
        found: dict[object, Sketch] = {}
        for name, form, trace in _drafts(asked, machine):
            # Two traces that differ only in what they decide are one sketch.
            structure = tuple([step.instruction for step in trace.steps])
            key = (digest(form.kernel), form.packings, structure)
            made = None if key in found else _sketch(name, form, trace)
            if made is not None:
                found[key] = made
    return Space(tuple(found.values()))


def _drafts(asked: Asked, machine: Machine) -> Iterator[tuple[str, Formed, Trace]]:
    by_thumb = False
    for rule in (*RULES, *installed()):
        if rule is NEST and by_thumb:
            continue  # the default is another
        for form, found in rule.forms(asked, machine):
            for name, trace in rule.traces(found, machine):
                by_thumb |= rule is THUMB
                yield f"{rule.name}/{form}/{name}", found, trace


def _sketch(name: str, form: Formed, trace: Trace) -> Sketch | None:
    """The sketch of a trace, None where the trace itself is refused."""
    try:
        return sketch(name, form.kernel, trace, form)
    except ScheduleRefused:
        return None


__all__ = ["RULES", "Rule", "Subject", "form_named", "space_of", "space_of_kernel"]
