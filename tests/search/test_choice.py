"""Choices: the best record that applies, the default elsewhere, and why."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from attrs import evolve

import plica
from plica.codegen.choices import ChoiceRow, table
from plica.codegen.llvm.toolchain import host
from plica.codegen.lower.processor import machine_of
from plica.ir.graph.expression import const
from plica.rewrite.optimise import DEFAULT_CONTRACT
from plica.search.choice import Records, choice, records_of
from plica.search.record import (
    Database,
    FunctionDatabase,
    JsonDatabase,
    OrderedUnion,
    Record,
    UnionDatabase,
    fingerprint,
    record,
)
from plica.search.space import Point, Space
from plica.search.space_of import space_of
from plica.search.task import Task, tasks
from tests.search.work import multiplied

MODULE = multiplied(48)
TARGET = evolve(host(), cores=1)
HERE = fingerprint(TARGET)


def subject() -> tuple[Task, Space]:
    (task,) = tasks(MODULE, DEFAULT_CONTRACT, (), TARGET)
    return task, space_of(task, machine_of(TARGET))


def recorded(
    task: Task, space: Space, point: Point, cost: float, *, target: str = HERE, policy: str = ""
) -> Record:
    trace, form = space.trace(point).to_json(), space.sketches[point.sketch].name
    return record(task.key, target, trace, form, (cost,), policy=policy)


def test_the_best_record_is_used_and_the_numbers_stay() -> None:
    task, space = subject()
    others = [each for each in space.defaults() if each != space.default]
    with Database() as database:
        for number, point in enumerate(others):
            database.put(recorded(task, space, point, 1e-3 + number * 1e-4))
        exe = plica.compile(MODULE, TARGET, 1, database)
        plain = plica.compile(MODULE, TARGET, 1)
        best = space.sketches[others[0].sketch].name
        assert exe.tuning.splitlines()[1].split()[:3] == ["matmul", "1", "tuned"]
        assert best in exe.tuning
        again = plica.compile(MODULE, TARGET, 1, database)
        assert again is exe
    x = np.random.default_rng(0).integers(-3, 4, (48, 48)).astype(np.float32)
    np.testing.assert_array_equal(exe(x), plain(x))
    assert exe.source("kernel") != plain.source("kernel")
    assert "no tuning database was given" in plain.tuning


def rows_of(*records: Record) -> tuple[ChoiceRow, ...]:
    with Database() as database:
        database.put_all(records)
        found = records_of(database, HERE)
    task, _ = subject()
    return (choice(found, TARGET, task.function, task.facts)[1],)


def test_what_is_not_there_has_its_default() -> None:
    assert [(each.status, each.why) for each in rows_of()] == [("default", "It was never tuned.")]


def test_records_of_another_machine_are_not_used() -> None:
    task, space = subject()
    (row,) = rows_of(recorded(task, space, space.default, 1e-3, target="cpu-elsewhere"))
    why = "It was tuned, but for another machine or another number of threads."
    assert (row.status, row.why) == ("default", why)


@pytest.mark.parametrize(
    ("form", "trace", "why"),
    [
        ("thumb/other/default", None, "there no longer"),
        (None, "no trace", "cannot be read"),
        (None, "of another", "refused"),
    ],
)
def test_records_that_no_longer_apply_say_why(
    form: str | None, trace: str | None, why: str
) -> None:
    task, space = subject()
    kept = recorded(task, space, space.default, 1e-3)
    if form is not None:
        kept = evolve(kept, form=form)
    elif trace == "of another":
        last = len(space.sketches) - 1
        tiled = space.trace(Point(last, space.sketches[last].default))
        broken = tiled.append(tiled.steps[-1]).append(tiled.steps[-1])
        kept = evolve(kept, trace_json=broken.to_json())
    else:
        kept = evolve(kept, trace_json="no trace")
    (row,) = rows_of(kept)
    assert row.status == "default"
    assert why in row.why
    good = recorded(task, space, space.default, 2e-3)
    (row,) = rows_of(kept, good)
    assert row.status == "tuned"


def test_times_taken_in_turns_decide_among_the_fastest() -> None:
    task, space = subject()
    one, other = space.defaults()[:2]
    first = [recorded(task, space, one, 1.0e-3), recorded(task, space, other, 1.1e-3)]
    finals = [
        recorded(task, space, one, 3.0e-3, policy="p/final"),
        recorded(task, space, other, 2.9e-3, policy="p/final"),
    ]
    for records, best in ((first, one), ((*first, *finals), other), ((*first, finals[0]), one)):
        with Database() as database:
            database.put_all(records)
            found = records_of(database, HERE).best[task.key][0]
        assert found.form == space.sketches[best.sketch].name


def test_failures_are_no_records_of_speed() -> None:
    task, space = subject()
    good = recorded(task, space, space.default, 1e-3)
    (row,) = rows_of(evolve(good, costs=(), error="crash"))
    assert row.why == "It was never tuned."


def test_the_digest_tells_records_apart() -> None:
    task, space = subject()
    kept = recorded(task, space, space.default, 1e-3)
    one, other = Records(HERE, {task.key: (kept,)}), Records(HERE, {})
    assert one.digest != other.digest
    assert one.digest == Records(HERE, {task.key: (kept,)}).digest


def test_a_table_has_a_line_for_each_kernel() -> None:
    rows = (
        ChoiceRow("matmul", 2, "tuned", "it is"),
        ChoiceRow("exp", 1, "default", "It was never tuned."),
    )
    assert len(table(rows).splitlines()) == 3


def test_other_kinds_of_databases_are_read(tmp_path: Path) -> None:
    task, space = subject()
    point = next(each for each in space.defaults() if each != space.default)
    known = recorded(task, space, point, 1e-3)
    text = JsonDatabase(tmp_path / "tune.jsonl")
    text.put(known)
    for each in (str(text.path), text, UnionDatabase(text), OrderedUnion(Database(), text),
                 FunctionDatabase(lambda key, target: [known], [(known.key, HERE)])):  # fmt: skip
        assert "tuned" in plica.compile(MODULE, TARGET, 1, each, cache=False).tuning


ADDED = """
import plica
from plica import op

@plica.function
def main(x: Tensor[(48, 48), f32], y: Tensor[(48, 48), f32]) -> Tensor[(48, 48), f32]:
    return op.matmul(x, y){after}
"""


def test_equalities_of_works() -> None:
    """The same product is one work by its anchor, whatever follows it."""
    (bare,), (relu,) = (
        tasks(plica.from_text(ADDED.format(after=after)), DEFAULT_CONTRACT, (), TARGET)
        for after in ("", " * 2.0")
    )
    assert bare.key != relu.key
    assert bare.key_by("anchor") == relu.key_by("anchor")
    one, two = (const(np.full(3, each, np.float32)) for each in (1, 2))
    assert bare.key_by("structural", [one]) != bare.key_by("structural", [two])
    assert len({bare.key, bare.key_by("anchor"), bare.key_by("structural")}) == 3
    space = space_of(bare, machine_of(TARGET))
    point = next(each for each in space.defaults() if each != space.default)
    found = evolve(recorded(bare, space, point, 1e-3), key=bare.key_by("anchor"))
    with Database() as database:
        database.put(found)
        schedule, row = choice(records_of(database, HERE), TARGET, relu.function, relu.facts)
    assert row.status == "tuned"
    assert "by the equality anchor" in row.why
    assert schedule is not None
