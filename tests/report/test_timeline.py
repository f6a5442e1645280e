"""Timelines: every step is there, its state is found, and forks go on as they should."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given, settings, strategies as st

from plica.codegen.program import kernel_name
from plica.core import rebuild
from plica.ir.graph.module import Module
from plica.ir.loop import Kernel
from plica.report.future import compared
from plica.report.timeline import LEVELS, Timeline
from plica.rewrite.derivation import at
from plica.runtime.error import InputError, PlicaError
from plica.runtime.link import can_link
from tests.report.model import compiled_small

pytestmark = pytest.mark.skipif(not can_link(), reason="objects are not loaded here")


@cache
def timeline() -> Timeline:
    return Timeline(compiled_small("dqn"))


def test_all_levels_lead_to_what_was_compiled() -> None:
    program = timeline().of.lowered.program
    assert {each.level for each in timeline().steps} == set(LEVELS)
    assert [each.number for each in timeline().steps] == [*range(1, len(timeline().steps) + 1)]
    last = {each.kernel: each.number for each in timeline().steps}
    for number, kernel in enumerate(program.kernels):
        if program.origins[number] is not None:
            assert timeline().at(last[kernel_name(number, program)]) is kernel
    assert timeline().at(last[""]) is timeline().of.lowered.final
    assert timeline().at(0) is timeline().of.lowered.module


@settings(max_examples=10)
@given(st.data())
def test_a_state_comes_from_the_one_before_by_its_edits(data: st.DataObject) -> None:
    step = data.draw(st.sampled_from(timeline().steps))
    history = timeline().histories[step.kernel]
    before, after = at(history, step.within), timeline().at(step.number)
    assert step.changes or before is after
    assert bool(timeline().edits(step.number)) == step.changes
    assert all(old is not new for old, new in timeline().edits(step.number))
    assert rebuild(after, after._children) is after


def test_the_first_state_for_which_a_predicate_holds() -> None:
    final = timeline().of.lowered.final
    found = timeline().first(lambda state: state is final)
    assert found is not None
    assert isinstance(timeline().at(found.number), Module)
    assert timeline().first(lambda state: isinstance(state, Kernel)) is not None
    assert timeline().first(lambda state: False) is None


def test_a_fork_with_the_same_decision_gives_the_same_code() -> None:
    origins = timeline().histories
    for step in timeline().steps:
        if step.level == "schedule" and not step.changes and step.kernel in origins:
            made = timeline().fork(step.number)
            found = compared(timeline().of, made)
            assert found.output <= 1e-4
            return
    raise AssertionError("No step changes nothing.")


@pytest.mark.parametrize("level", LEVELS)
def test_forks_at_every_level_keep_the_numbers(level: str) -> None:
    for step in timeline().steps:
        if step.level == level and step.changes:
            try:
                made = timeline().fork(step.number)
            except PlicaError:
                continue  # a step that others need
            found = compared(timeline().of, made)
            assert found.output <= 1e-3
            assert found.first.digest == compared(timeline().of, timeline().of).other.digest
            return
    raise AssertionError(f"No step of the level {level} can be left out.")


def test_refusals() -> None:
    graph = next(each.number for each in timeline().steps if each.level == "graph")
    schedule = next(each.number for each in timeline().steps if each.level == "schedule")
    for call in (
        lambda: timeline().at(len(timeline().steps) + 1),
        lambda: timeline().fork(schedule, rule="relu-relu"),
        lambda: timeline().fork(graph, decision=(1,)),
        lambda: timeline().fork(graph, rule="no-such-rule"),
        lambda: timeline().fork(graph, rule="relu-relu"),
    ):
        with pytest.raises(InputError):
            call()
