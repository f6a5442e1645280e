"""Applies records: whether an earlier trial is still a schedule of this space, and if not, why.

A record outlives the compiler that made it.  Its trace is read again and replayed on the kernel of
today; a record that no longer applies says at which step, and the others are as good as ever.

    Applies(kernel, trace)        Stale(reason)
"""

from __future__ import annotations

from typing import TypeAlias

from attrs import frozen

from plica.core import Malformed
from plica.ir.loop.statement import Kernel
from plica.schedule.problem import ScheduleRefused
from plica.schedule.replay import scheduled
from plica.schedule.trace import Trace
from plica.search.record.record import Record
from plica.search.space import Point, Sketch, Space


@frozen(eq=False)
class Applies:
    """A record's sketch, trace and kernel, and its point if that is still in the space."""

    sketch: Sketch
    trace: Trace
    kernel: Kernel
    point: Point | None


@frozen
class Stale:
    """Why a record is of no use now."""

    reason: str


Applied: TypeAlias = Applies | Stale


def applied(record: Record, space: Space) -> Applied:
    """A record's meaning in the current space of its work."""
    names = [each.name for each in space.sketches]
    if record.form not in names:
        return Stale(f"There is no sketch {record.form!r} any more, only {', '.join(names)}.")
    number = names.index(record.form)
    sketch = space.sketches[number]
    try:
        trace = Trace.from_json(record.trace_json)
    except Malformed as error:
        return Stale(f"Its trace cannot be read: {error.diagnostics[0].message}")
    try:
        kernel = scheduled(trace, sketch.kernel)
    except ScheduleRefused as refused:
        return Stale(f"Its trace is refused: {refused.diagnostics[0].message}")
    return Applies(sketch, trace, kernel, _point(number, sketch, trace))


def _point(number: int, sketch: Sketch, trace: Trace) -> Point | None:
    """The point of a trace in a space, or None if only its sketch is there."""
    decided = trace.decisions()
    if not all(step in decided for step in sketch.steps):
        return None
    decisions = tuple([decided[step] for step in sketch.steps])
    same = sketch.decided(decisions) is trace
    holds = all(of.holds(d) for of, d in zip(sketch.supports, decisions, strict=True))
    return Point(number, decisions) if same and holds else None
