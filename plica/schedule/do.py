"""Do-blocks: schedules written as generators that yield instructions and receive handles.

    @do
    def tiled(factor):
        c = yield block("C")
        i, j, k = yield loops(c)
        i0, i1 = yield split(i, (None, factor))
        yield other(c)                            # a do-block is an instruction, too

    trace_of(tiled(16), matmul)

An instruction with exactly one result returns it (`block`, `fuse`, `cache_read`), one with several
possible results always returns a tuple (`loops`, `split`), one without returns None. A refused step
raises `ScheduleRefused` at its `yield`; a block that catches it continues from the state before.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from inspect import CO_GENERATOR
from pathlib import Path
from random import Random
from types import GeneratorType
from typing import Any, Final, TypeAlias

from attrs import evolve, frozen

from plica.core.collector import paused
from plica.core.extension import raised_at
from plica.ir.graph.module import Module
from plica.ir.loop.statement import Kernel
from plica.runtime.error import ArgumentError, Place, wrong_argument
from plica.schedule.handle import Handle
from plica.schedule.instruction import Decision, Gives, Instruction, Sampling, Scene
from plica.schedule.launch import unsafe
from plica.schedule.problem import Problem, ScheduleRefused
from plica.schedule.replay import (
    ReplayState,
    begin,
    explained,
    kernel_of,
    refused_step,
    taken,
    with_kernel,
)
from plica.schedule.trace import Program, Step, Trace, check_decision, wrong_decision

Request: TypeAlias = "Instruction | Step | Find | DoBlock"
# Any: the value a do-block receives depends on what it yields.
Body: TypeAlias = Generator["Request", Any, Any]

HERE: Final = str(Path(__file__).parent)  # where the do-blocks of this package are


@frozen
class Find:
    """An instruction that depends on its context: names are resolved here."""

    resolve: Callable[[Scene], Instruction | Problem]
    kind: str


@frozen
class DoBlock:
    """A do-block, with its arguments once it was called."""

    body: Callable[..., Body]
    args: tuple[Any, ...] = ()
    named: Mapping[str, Any] = {}

    def __call__(self, /, *args: Any, **named: Any) -> DoBlock:
        """The do-block with these arguments."""
        return evolve(self, args=args, named=named)

    def start(self) -> Body:
        started = self.body(*self.args, **self.named)
        if not isinstance(started, Generator):
            message = "A do-block is a function that yields instructions."
            hint = "Write yield before each instruction."
            raise wrong_argument(message, "a generator", started, hint)
        return started


@frozen(eq=False)
class Recorded:
    """The result of a do-block: the trace, the scheduled module, and the return value."""

    trace: Trace
    module: Module
    result: Any = None


def do(body: Callable[..., Body]) -> DoBlock:
    """A do-block from a generator function."""
    if not callable(body):
        raise wrong_argument("do marks functions that yield instructions.", "a function", body)
    return DoBlock(body)


def decided(instruction: Sampling, *decision: int) -> Step:
    """A step whose decision is given, in a do-block: nothing is drawn."""
    if not isinstance(instruction, Sampling):
        message = "What samples nothing has nothing to decide."
        raise wrong_decision(message, "an instruction that samples", instruction)
    check_decision(decision)
    return Step(instruction, decision)


def trace_of(
    schedule: DoBlock,
    program: Program,
    *,
    kernel: str | None = None,
    seed: int = 0,
    decisions: Mapping[int, Decision] | None = None,
) -> Trace:
    """The instructions a do-block yields on a program, and its decisions.

    Samples are determined by `seed`; `decisions` overrides some, by step number.
    """
    return record(schedule, program, kernel=kernel, seed=seed, decisions=decisions).trace


def record(
    schedule: DoBlock,
    program: Program,
    *,
    kernel: str | None = None,
    seed: int = 0,
    decisions: Mapping[int, Decision] | None = None,
) -> Recorded:
    """Run a do-block on a program; raises `ScheduleRefused` where it does not catch it."""
    if not isinstance(schedule, DoBlock):
        hint = "Write @do above a function that yields instructions."
        raise wrong_argument("This is no do-block.", "a do-block", schedule, hint)
    _decidable(decisions or {})
    whole, name, found = kernel_of(program, kernel)
    with paused():
        steps, state, result = run(schedule, found, seed, decisions or {})
    for number in decisions or {}:
        if number >= len(steps) or steps[number].decision is None:
            kind = steps[number].instruction.kind if number < len(steps) else "there is none"
            message = f"Step {number} ({kind}) samples nothing, yet a decision is given."
            raise wrong_decision(message, "the number of a step that samples", number)
    return Recorded(Trace(steps), with_kernel(whole, name, state.kernel), result)


def trace_if_legal(schedule: DoBlock, kernel: Kernel) -> Trace | None:
    """The trace of a do-block without sampling, or None if a step is refused."""
    with paused():
        try:
            steps, _, _ = run(schedule, kernel, 0, {})
        except ScheduleRefused:
            return None
    return Trace(steps)


def run(
    schedule: DoBlock,
    kernel: Kernel,
    seed: int,
    decisions: Mapping[int, Decision],
    *,
    late: bool = False,
) -> tuple[tuple[Step, ...], ReplayState, Any]:
    """The steps of a do-block, the resulting state, and the return value.

    Each step is checked for serial execution of the loops; with `late`, parallel execution is
    checked on the final kernel only.
    """
    state, steps = evolve(begin(kernel), late=late), list[Step]()
    stack = [schedule.start()]
    answer: Any = None
    error: ScheduleRefused | None = None
    while stack:
        try:
            asked = stack[-1].send(answer) if error is None else stack[-1].throw(error)
        except ValueError as wrong:
            if (unpacked := _unpacked(wrong, answer, steps)) is None:
                raise
            raise unpacked from wrong
        except ArgumentError as wrong:
            place = raised_at(wrong)
            placed = wrong if place is None else wrong.placed(place)
            raise placed.with_traceback(wrong.__traceback__) from None
        except StopIteration as end:
            stack.pop()
            answer, error = end.value, None
            continue
        except ScheduleRefused as refused:
            stack.pop()
            if not stack:
                raise
            answer, error = None, refused
            continue
        answer, error = None, None
        if isinstance(asked, DoBlock):
            stack.append(asked.start())
            continue
        given = decisions
        if isinstance(asked, Step):
            given = decisions if asked.decision is None else {len(steps): asked.decision}
            asked = asked.instruction
        instruction = asked.resolve(state.scene) if isinstance(asked, Find) else asked
        if isinstance(instruction, Problem):
            error = ScheduleRefused(instruction, asked.kind, len(steps), line=line_of(stack))
            continue
        if not isinstance(instruction, Instruction):
            raise _no_instruction(asked, line_of(stack))
        step = _decided(instruction, state, len(steps), seed, given)
        after = step if isinstance(step, Problem) else taken(state, step)
        if isinstance(after, Problem):
            error = refused_step(after, instruction, len(steps), state, line_of(stack))
            continue
        assert isinstance(step, Step)
        answer = _given(after.latest, instruction.gives)
        steps.append(step)
        state = after
    problem = unsafe(state.scene) if late and steps else None
    if problem is not None:
        raise refused_step(problem, steps[-1].instruction, len(steps) - 1, state)
    return tuple(steps), state, answer


def _no_instruction(asked: object, line: Place | None) -> ArgumentError:
    """The error for other objects yielded by a do-block."""
    error = wrong_argument(
        "A do-block yields instructions.", "an instruction, as split(loop, (None, 8))", asked
    )
    return ArgumentError(replace(error.diagnostics[0], place=line))


def line_of(stack: Sequence[Body]) -> Place | None:
    """The line at which a do-block waits: the innermost outside this package, including delegated
    generators."""
    own = [each for body in stack for each in _taken_from(body)]
    theirs = [each for each in own if not each.gi_code.co_filename.startswith(HERE)]
    for each in reversed(theirs or own):
        if each.gi_frame is not None:
            return Place(each.gi_code.co_filename, each.gi_frame.f_lineno)
    return None


def _taken_from(body: Body) -> list[Any]:  # Any: the types know no `gi_yieldfrom`
    """A generator and those it delegates to, outermost first."""
    found: list[Any] = [body]
    while isinstance(getattr(found[-1], "gi_yieldfrom", None), GeneratorType):
        found.append(found[-1].gi_yieldfrom)
    return found


def _unpacked(wrong: ValueError, answer: object, steps: Sequence[Step]) -> ScheduleRefused | None:
    """The refusal if a block unpacks another number of handles than returned.

    Python raises its own error for this in the block's frame; other errors are the block's own.
    """
    trace = wrong.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None or not isinstance(answer, tuple) or "values to unpack" not in str(wrong):
        return None
    code = trace.tb_frame.f_code
    if not code.co_flags & CO_GENERATOR:
        return None
    kind = steps[-1].instruction.kind
    expected, found = f"{len(answer)} names for what it gave", str(wrong)
    problem = Problem("unpacked", f"what {kind} gave", expected, found)
    line = Place(code.co_filename, trace.tb_lineno)
    return ScheduleRefused(problem, kind, len(steps) - 1, line=line)


def _decidable(decisions: Any) -> None:  # Any: whatever was given for them
    if not isinstance(decisions, Mapping):
        message = "Decisions are given by the number of the step."
        raise wrong_decision(message, "a map from numbers to tuples of integers", decisions)
    for number, decision in decisions.items():
        if type(number) is not int or number < 0:
            message = "Decisions are given by the number of the step."
            raise wrong_decision(message, "a number from 0", number)
        check_decision(tuple(decision) if isinstance(decision, list) else decision)


def _decided(
    instruction: Instruction,
    state: ReplayState,
    number: int,
    seed: int,
    given: Mapping[int, Decision],
) -> Step | Problem:
    if not isinstance(instruction, Sampling):
        return Step(instruction)
    scene = state.scene
    problem = scene.missing(instruction) or instruction.check(scene)
    if problem is not None:
        return explained(problem, instruction, state)
    if number in given:
        return Step(instruction, tuple(given[number]))
    # A separate random generator per step: an inserted step does not affect later decisions.
    return Step(instruction, instruction.decide(scene, Random(f"{seed}/{number}")))


def _given(handles: tuple[Handle, ...], gives: Gives) -> Any:
    if gives == "one":
        return handles[0]
    return handles if handles or gives == "several" else None
