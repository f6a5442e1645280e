"""Choices: which schedule each kernel of a model gets from the records of a database, and why.

records_of(database, target)         the best few records of all work, on one machine
choice(records, target, of, facts)   the schedule of one function, and why
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Final

from attrs import evolve, frozen

from plica.codegen.backend import AnyTarget
from plica.codegen.choices import ChoiceRow
from plica.codegen.lower.scheduled import ChosenSchedule
from plica.codegen.lower.workload import USUAL
from plica.core import Malformed
from plica.ir.contract import Contract
from plica.ir.graph import Function, Module
from plica.rewrite.fuse.to_stages import to_stages
from plica.schedule.form import Facts
from plica.schedule.problem import ScheduleRefused
from plica.schedule.replay import scheduled
from plica.schedule.trace import Trace
from plica.schedule.transport import transport
from plica.search.record import Database, Record, RecordSource
from plica.search.record.order import in_order
from plica.search.record.package import unpacked
from plica.search.sketch.template import closed
from plica.search.sketch_rule import hoisted_kernel
from plica.search.space import loops_digest
from plica.search.target import tuning_of
from plica.search.task import Task, tasks_of

OTHER_DEFAULT: Final = "It was tuned beside another default than that of today."

MAX_RECORDS_PER_WORK: Final = (
    4  # records of one work: the next best is tried where one does not apply
)


@frozen(eq=False)
class Records:
    """The fastest records of each work on a machine, and which works were tuned only on others."""

    target: str
    best: Mapping[str, tuple[Record, ...]]
    elsewhere: frozenset[str] = frozenset()
    unasked: bool = False
    """Whether they are built-in: such a record counts only against the default it was compared
    with, because defaults improve over time."""

    def whole(self) -> Records:
        """Itself: nothing of it is still to be read."""
        return self

    def may_know(self, key: str) -> bool:
        """Whether some are of the work with a key."""
        return key in self.best

    @property
    def digest(self) -> str:
        """What tells these records from others."""
        named = [[key, *[each.identity for each in of]] for key, of in sorted(self.best.items())]
        text = json.dumps([self.target, named, sorted(self.elsewhere)])
        return hashlib.sha256(text.encode()).hexdigest()


def records_of(database: RecordSource, target: str) -> Records:
    """The best records of a database for a machine, by its fingerprint."""
    found: dict[str, list[Record]] = {}
    elsewhere = set[str]()
    for record in database.all():
        if record.cost is None:
            continue
        if record.target != target:
            elsewhere.add(record.key)
            continue
        found.setdefault(record.key, []).append(record)
    best = {key: in_order(of)[:MAX_RECORDS_PER_WORK] for key, of in found.items()}
    return Records(target, best, frozenset(elsewhere - best.keys()))


@lru_cache(maxsize=16)
def default_records(text: str, fingerprint: str) -> Records:
    """The shipped records of one machine, used without a database: schedules that beat a default,
    each with that default.

    A package is a file in `record/package_files`, named by a digest of its machine
    (`plica.pipeline.option.package_name`); `PLICA_RECORDS=off` disables all of them.
    """
    with Database() as database:
        database.put_all(unpacked(text))
        return evolve(records_of(database, fingerprint), unasked=True)


@lru_cache(maxsize=1024)
def choice(
    records: Records, target: AnyTarget, function: Function, facts: Facts
) -> tuple[ChosenSchedule | None, ChoiceRow]:
    """The schedule of a function, or None if the default is as good as any known one, with the
    reason."""
    task = Task(function, facts, 1, to_stages(function).source)
    reasons: list[str] = []
    mine = (*records.best.get(task.key, ()), *_by_anchor(task, records))
    if records.unasked and mine and not _has_default(mine, task, target):
        mine, reasons = (), [OTHER_DEFAULT]
    for each in mine:
        if isinstance(found := applied(each, task, target), ChosenSchedule):
            return found, ChoiceRow(task.name, 1, "tuned", _said(each))
        reasons.append(found)
    if reasons:
        why = reasons[0]
    elif task.key in records.elsewhere:
        why = "It was tuned, but for another machine or another number of threads."
    else:
        why = "It was never tuned."
    return None, ChoiceRow(task.name, 1, "default", why)


def schedule_by(
    records: Callable[[], Records], target: AnyTarget, function: Function, facts: Facts
) -> ChosenSchedule | None:
    """The schedule that records have for a function."""
    return choice(records(), target, function, facts)[0]


def rows_by(
    records: Callable[[], Records], target: AnyTarget, contract: Contract, module: Module
) -> tuple[ChoiceRow, ...]:
    """The report rows of the kernels of a module with fused operators."""
    return tuple([
        evolve(choice(records(), target, task.function, task.facts)[1], weight=task.weight)
        for task in tasks_of(module, target, contract)
    ])  # fmt: skip


def applied(record: Record, task: Task, target: AnyTarget) -> ChosenSchedule | str:
    """The schedule of a record, or why it no longer is one."""
    named = tuning_of(target).form
    form = None if named is None else named(record.form, task, target)
    if form is None:
        return f"Its record begins with {record.form!r}, which is there no longer."
    try:
        trace = Trace.from_json(record.trace_json)
    except Malformed as error:
        return f"The trace of its record cannot be read: {error.diagnostics[0].message}"
    begins = hoisted_kernel(form, task.facts.constant).kernel
    if record.equality == "anchor":  # what is done before and after may be another
        trace = transport(trace, begins).trace
    try:
        kernel = scheduled(trace, begins)
    except ScheduleRefused as refused:
        return f"The trace of its record is refused: {refused.diagnostics[0].message}"
    return ChosenSchedule(form, trace, kernel)


def _has_default(records: Sequence[Record], task: Task, target: AnyTarget) -> bool:
    """Whether a record has today's default: its trace, or a digest of loops that a form wrote."""
    tuning = tuning_of(target)
    usual = None if tuning.untuned is None else tuning.untuned(task, target)
    if usual is None:
        return False
    assert tuning.form is not None  # what has schedules without tuning names where they begin
    form, trace = usual[0], closed(usual[1])
    told = loops_digest(form)
    return any(
        record.message == told
        and _closed_of(record) is trace
        and tuning.form(record.form, task, target) is form
        for record in records
    )


def _closed_of(record: Record) -> Trace | None:
    """The closed trace of a record, or None if it is unreadable."""
    try:
        return closed(Trace.from_json(record.trace_json))
    except Malformed:
        return None


def _by_anchor(task: Task, records: Records) -> tuple[Record, ...]:
    """Records of works whose first reduction is the same, whatever is around it."""
    return records.best.get(task.key_by("anchor"), ())


def _said(of: Record) -> str:
    micro = 1e6 * (of.cost or 0.0)
    other = "" if of.equality == USUAL else f", by the equality {of.equality}"
    return f"{micro:.4g} us as {of.form}{other}"
