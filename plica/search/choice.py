"""Choices: which schedule each kernel of a model gets, and why.

The records of a database say what was fastest on a machine.  The best of them that still is a
schedule of the work is chosen; a record that no longer applies says why, and the next best is
tried.  What was never tuned keeps its default schedule.

    records_of(database, target)       the best few records of all work, on one machine
    choices(tasks, records, machine)   schedules by the key of the work, and a table

Everything but `records_of` is a pure function.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Final, Literal

from attrs import frozen

from plica.codegen.lower.scheduled import Chosen
from plica.core.diagnostic import Malformed
from plica.schedule.default import Machine
from plica.schedule.default.gpu import Gpu
from plica.schedule.problem import ScheduleRefused
from plica.schedule.replay import scheduled
from plica.schedule.trace import Trace
from plica.search.record import Database, Record
from plica.search.record.order import in_order
from plica.search.sketch.gpu import gpu_form_named
from plica.search.space_of import asked_of, form_named
from plica.search.task import Task

KEPT: Final = 4
"""How many records of one work are kept: the next best is tried where one does not apply."""


@frozen(eq=False)
class Records:
    """The fastest records of each work on a machine, and what was only tuned on others."""

    target: str
    best: Mapping[str, tuple[Record, ...]]
    elsewhere: frozenset[str] = frozenset()

    @property
    def digest(self) -> str:
        """What tells these records from others."""
        named = [[key, *[each.identity for each in of]] for key, of in sorted(self.best.items())]
        text = json.dumps([self.target, named, sorted(self.elsewhere)])
        return hashlib.sha256(text.encode()).hexdigest()


def records_of(database: Database, target: str) -> Records:
    """The best records of a database for a machine, by its fingerprint."""
    found: dict[str, list[Record]] = {}
    elsewhere = set[str]()
    for each in database.all():
        if each.cost is None:
            continue
        if each.target != target:
            elsewhere.add(each.key)
            continue
        found.setdefault(each.key, []).append(each)
    best = {key: in_order(of)[:KEPT] for key, of in found.items()}
    return Records(target, best, frozenset(elsewhere - best.keys()))


@frozen
class Row:
    """What was chosen for one kernel, and why."""

    name: str
    weight: int
    status: Literal["tuned", "default"]
    why: str


@frozen(eq=False)
class Choices:
    """Schedules by the key of the work, and what there is to say about each kernel."""

    chosen: Mapping[str, Chosen]
    rows: tuple[Row, ...]


def choices(tasks: Sequence[Task], records: Records, machine: Machine | Gpu) -> Choices:
    """What is chosen for the kernels of a model."""
    chosen: dict[str, Chosen] = {}
    rows: list[Row] = []
    for task in tasks:
        reasons: list[str] = []
        for each in records.best.get(task.key, ()):
            found = applied(each, task, machine)
            if isinstance(found, Chosen):
                chosen[task.key] = found
                rows.append(Row(task.name, task.weight, "tuned", _said(each)))
                break
            reasons.append(found)
        else:
            if reasons:
                why = reasons[0]
            elif task.key in records.elsewhere:
                why = "It was tuned, but for another machine."
            else:
                why = "It was never tuned."
            rows.append(Row(task.name, task.weight, "default", why))
    return Choices(chosen, tuple(rows))


def applied(record: Record, task: Task, machine: Machine | Gpu) -> Chosen | str:
    """The schedule of a record, or why it no longer is one."""
    if isinstance(machine, Gpu):
        form = gpu_form_named(record.form, asked_of(task), machine)
    else:
        form = form_named(record.form, task, machine)
    if form is None:
        return f"Its record begins with {record.form!r}, which is there no longer."
    try:
        trace = Trace.from_json(record.trace_json)
    except Malformed as error:
        return f"The trace of its record cannot be read: {error.diagnostics[0].message}"
    try:
        kernel = scheduled(trace, form.kernel)
    except ScheduleRefused as refused:
        return f"The trace of its record is refused: {refused.diagnostics[0].message}"
    return Chosen(form, trace, kernel)


def _said(of: Record) -> str:
    micro = 1e6 * (of.cost or 0.0)
    return f"{micro:.4g} us as {of.form}"


def table(rows: Sequence[Row]) -> str:
    """The choices as a text, one line a kernel.

    >>> print(table((Row("matmul + relu", 3, "tuned", "12.5 us as thumb/blocked/default"),)))
    kernel         times  schedule  why
    matmul + relu      3  tuned     12.5 us as thumb/blocked/default
    """
    wide = max([6, *[len(each.name) for each in rows]])
    lines = [f"{'kernel':{wide}}  times  schedule  why"]
    for each in rows:
        lines.append(f"{each.name:{wide}}  {each.weight:5}  {each.status:8}  {each.why}")
    return "\n".join(lines)
