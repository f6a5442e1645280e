"""Tuned kernels are held to their network: what is not faster there goes back to its default."""

from __future__ import annotations

import numpy as np

import plica
from plica import op
from plica.codegen.backend import backend_of, find_target
from plica.codegen.lower.processor import machine_of
from plica.codegen.target import Target
from plica.core.name import Name
from plica.ir.graph.expression import Var, const
from plica.ir.text.script import from_text
from plica.ir.type.term import tensor
from plica.rewrite.optimise import DEFAULT_CONTRACT
from plica.runtime.executable import Executable
from plica.search.course import Course, TuningSubject
from plica.search.in_place import held
from plica.search.observation import Observation
from plica.search.record import Database, fingerprint
from plica.search.record.order import IN_PLACE
from plica.search.record.record import record
from plica.search.space_of import space_of
from plica.search.task import tasks
from plica.search.tuned import Tuned
from tests.search.work import of_main

TWO = from_text("""
import plica
from plica import op
from plica.script import Tensor, f32

@plica.function
def main(
    x: Tensor[(16, 24), f32], w: Tensor[(24, 32), f32], v: Tensor[(32, 40), f32]
) -> Tensor[(16, 40), f32]:
    return op.matmul(op.matmul(x, w), v)
""")


def test_records_say_how_schedules_are_in_their_network() -> None:
    here = find_target("cpu")
    target = backend_of(here).with_threads(here, 1)
    assert isinstance(target, Target)
    into, where = Database(), fingerprint(target)
    courses: list[Course] = []
    for task in tasks(TWO, DEFAULT_CONTRACT, (), target):
        space = space_of(task, machine_of(target))
        plain = next(n for n, each in enumerate(space.sketches) if each.name.startswith("tiling"))
        point = space.defaults()[plain]
        form, trace = space.sketches[plain].name, space.trace(point).to_json()
        into.put(record(task.key, where, trace, form, (1e-9,)))
        found = Observation(point, 1e-9)
        courses.append(Course(TuningSubject(task, space), (found,), winner=found))

    def compiled(database: Database) -> Executable:
        made = plica.compile(TWO, threads=1, database=database, cache=False)
        assert isinstance(made, Executable)
        return made

    tuned = held(TWO, Tuned(tuple(courses)), compiled, into, where, ())
    assert tuned.in_place is not None
    assert tuned.in_place.untuned > 0
    assert "in the network" in str(tuned)
    for course in courses:
        key, space = course.subject.task.key, course.subject.space
        best = into.best(key, where)
        assert best is not None
        assert best.policy == IN_PLACE  # the time alone, which was made up, no longer counts
        went_back = best.trace_json == space.trace(space.default).to_json()
        assert went_back == (len(_in_place(into, key)) == 1)


def test_other_plans_are_held_to_their_network() -> None:
    here = find_target("cpu")
    target = backend_of(here).with_threads(here, 1)
    assert isinstance(target, Target)
    x = Var(Name("x"), tensor((1, 32, 12, 12), "f32"))
    weight = const(np.random.default_rng(0).standard_normal((32, 32, 3, 3)).astype(np.float32))
    border = ((1, 1), (1, 1))
    made = of_main(op.nn.relu(op.nn.conv2d(op.nn.conv2d(x, weight, padding=border), weight,
                                           padding=border)), x)  # fmt: skip
    into, where = Database(), fingerprint(target)
    courses: list[Course] = []
    for task in tasks(made, DEFAULT_CONTRACT, (), target):
        space = space_of(task, machine_of(target))
        plan = [n for n, each in enumerate(space.sketches) if each.name.startswith("plan/")][-1]
        point = space.defaults()[plan]
        sketch, trace = space.sketches[plan], space.trace(point).to_json()
        assert trace != space.trace(space.default).to_json()
        into.put(record(task.key, where, trace, sketch.name, (1e-9,)))
        found = Observation(point, 1e-9)
        courses.append(Course(TuningSubject(task, space), (found,), winner=found))

    def compiled(database: Database) -> Executable:
        program = plica.compile(made, threads=1, database=database, cache=False)
        assert isinstance(program, Executable)
        return program

    held(made, Tuned(tuple(courses)), compiled, into, where, ())
    for course in courses:
        space = course.subject.space
        timed = [e for e in into.all(course.subject.task.key) if e.policy == IN_PLACE]
        assert space.trace(space.default).to_json() in [each.trace_json for each in timed]


def _in_place(of: Database, key: str) -> list[object]:
    return [each for each in of.all(key) if each.policy == IN_PLACE]


def test_one_kernel_is_all_of_its_network() -> None:
    target = find_target("cpu")
    assert isinstance(target, Target)
    (task,) = tasks(from_text(ONE), DEFAULT_CONTRACT, (), target)
    found = Tuned((Course(TuningSubject(task, space_of(task, machine_of(target)))),))
    assert held(from_text(ONE), found, _never, Database(), "", ()) is found


def _never(database: Database) -> Executable:
    raise AssertionError


ONE = """
import plica
from plica import op
from plica.script import Tensor, f32

@plica.function
def main(x: Tensor[(8, 8), f32]) -> Tensor[(8, 8), f32]:
    return op.matmul(x, x)
"""
