"""Bisecting and minimising traces."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, log2
from random import Random

import pytest
from hypothesis import given, settings, strategies as st

from plica.analysis.site import map_of
from plica.ir.graph.module import Module
from plica.ir.loop.statement import Kernel
from plica.runtime.error import InputError
from plica.schedule import Handle, Step, Trace, bisect, blame, loops, minimise, unannotate
from plica.schedule.minimise import simpler, without
from plica.schedule.primitive.look_up import GetBlock
from plica.schedule.problem import Problem
from plica.schedule.replay import ReplayState, begin, kernel_of, taken
from plica.schedule.trace import renumbered
from tests.schedule.foreign import Note, Spoil
from tests.schedule.kernel import matmul, same_function
from tests.schedule.walk import moves, walked

FEW = settings(max_examples=max(5, settings().max_examples // 2))


def kernel_in(module: Module) -> Kernel:
    return kernel_of(module)[2]


def wrong(module: Module) -> bool:
    return not same_function(matmul(), kernel_in(module))


def spoiled(trace: Trace, place: int) -> Trace:
    """The trace with a wrong step at a place after the first, and handles that follow it."""
    later = {at: at if at < place else at + 1 for at in range(len(trace))}
    after = [renumbered(step, later) for step in trace.steps[place:]]
    return Trace((*trace.steps[:place], Step(Spoil(Handle(0, 0, "block"))), *after))


def test_bad_is_what_computes_something_else() -> None:
    first = Step(GetBlock(0, "ssr+init"))
    trace = spoiled(Trace((first, Step(Note("a")), Step(Note("b")))), 1)
    culprit = bisect(trace, matmul())
    assert culprit is not None
    assert culprit.number == 1
    assert bisect(trace.prefix(1), matmul()) is None


def test_the_bad_step_is_found_in_few_replays() -> None:
    random = Random(0)
    for _ in range(200):
        length = random.randint(5, 60)
        place = random.randrange(length)
        words = [f"w{at}" for at in range(length)]
        trace = Trace(tuple(Step(Note(word)) for word in words))
        asked: list[None] = []

        def bad(module: Module, word: str = words[place], asked: list[None] = asked) -> bool:
            asked.append(None)
            return word in dict(kernel_in(module).annotations)

        found = bisect(trace, matmul(), bad)
        assert found is not None
        assert found.number == place
        assert found.step is trace.steps[place]
        assert found.asked == len(asked) <= ceil(log2(length)) + 1
        assert words[place] in dict(kernel_in(found.after).annotations)
        assert words[place] not in dict(kernel_in(found.before).annotations)


@FEW
@given(moves, st.integers(0, 20))
def test_a_wrong_primitive_is_found_by_what_it_computes(
    choices: list[tuple[int, int]], at: int
) -> None:
    trace = walked(matmul(), choices)
    place = 1 + at % len(trace)
    found = bisect(spoiled(trace, place), matmul(), wrong)
    assert found is not None
    assert found.number == place
    assert not wrong(found.before)
    assert wrong(found.after)


def test_nothing_is_bad() -> None:
    assert bisect(walked(matmul(), [(0, 0)]), matmul(), lambda module: False) is None
    assert bisect(Trace(()), matmul(), lambda module: True) is None


def legal(trace: Trace) -> Kernel | None:
    state = begin(matmul(12))
    for step in trace.steps:
        after = taken(state, step)
        if isinstance(after, Problem):
            return None
        state = after
    assert isinstance(state, ReplayState)
    return state.kernel


def smaller(trace: Trace) -> list[Trace]:
    """Every trace one step or one decision away."""
    found = [without(trace, {number}) for number in range(len(trace))]
    for number, decision in trace.decisions().items():
        found += [trace.with_decision(number, each) for each in simpler(decision)]
    return found


# fmt: off
GOOD: list[Callable[[Kernel], bool]] = [
    lambda kernel: True,
    lambda kernel: len(map_of(kernel).loops) != 3,
    lambda kernel: any(site.node.kind != "serial" for site in map_of(kernel).loops.values()),
    lambda kernel: any(site.node.annotations for site in map_of(kernel).loops.values()),
]
# fmt: on


@given(moves, st.sampled_from(range(len(GOOD))))
def test_minimal_traces(choices: list[tuple[int, int]], which: int) -> None:
    good = GOOD[which]
    trace = walked(matmul(12), choices)
    kernel = legal(trace)
    assert kernel is not None
    if not good(kernel):
        with pytest.raises(InputError, match="not-good"):
            minimise(trace, matmul(12), lambda module: good(kernel_in(module)))
        return
    least = minimise(trace, matmul(12), lambda module: good(kernel_in(module)))
    kernel = legal(least)
    assert kernel is not None
    assert good(kernel)
    assert len(least) <= len(trace)
    for each in smaller(least):
        kernel = legal(each)
        assert kernel is None or not good(kernel)


def test_what_is_needed_stays() -> None:
    trace = spoiled(walked(matmul(), [(0, 0), (2, 1), (4, 1), (6, 0), (10, 0)]), 5)
    least = minimise(trace, matmul(), wrong)
    assert [step.instruction.kind for step in least.steps] == ["block", "foreign_spoil"]


def test_decisions_become_simple() -> None:
    trace = walked(matmul(12), [(2, 0)])
    (number,) = trace.decisions()
    trace = trace.with_decision(number, (3, 4))

    def good(module: Module) -> bool:
        return len(map_of(kernel_in(module)).loops) == 4

    assert list(minimise(trace, matmul(12), good).decisions().values()) == [(12, 1)]


def test_simpler_decisions_are_simpler() -> None:
    assert list(simpler((3, 4, 2))) == [(24, 1, 1), (6, 4, 1), (12, 1, 2)]
    assert list(simpler((5,))) == [(0,), (1,), (2,), (4,)]
    assert list(simpler((0,))) == []
    assert list(simpler((7, 1, 1))) == []


def test_the_share_of_each_step() -> None:
    trace = walked(matmul(), [(0, 0), (6, 1), (7, 3)])

    def loops_in(module: Module) -> float:
        return float(len(map_of(kernel_in(module)).loops))

    shares = blame(trace, matmul(), loops_in, repeats=2)
    assert [each.number for each in shares] == list(range(len(trace)))
    assert [each.gone for each in shares] == [5, 4, 2, 1, 1]
    assert [each.more for each in shares] == [-1.0, -1.0, -1.0, 0.0, 0.0]
    assert str(shares[2]).endswith("split loop 1.0 (None, 2): -1 ± 0")
    again = Trace((*trace.steps, Step(unannotate(Handle(1, 2, "loop"), "pragma"))))
    assert [each.more for each in blame(again, matmul(), loops_in)][4:] == [None, 0.0]


def test_an_empty_trace_is_minimal() -> None:
    assert minimise(Trace(()), matmul(), lambda module: True) is Trace(())
    with pytest.raises(InputError, match="not-good"):
        minimise(Trace(()), matmul(), lambda module: False)


def test_a_culprit_prints_as_the_step_and_what_it_did() -> None:
    trace = spoiled(Trace((Step(GetBlock(0, "ssr+init")), Step(loops(Handle(0, 0, "block"))))), 1)
    text = str(bisect(trace, matmul(), wrong))
    assert text.startswith("Step 1 is the first bad one: foreign_spoil")
    assert "\n+" in text
    assert "Module(" not in text
