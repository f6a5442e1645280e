"""Traces: schedules as data.

    Trace ::= Trace(steps)        Step ::= Step(instruction, decision)

A trace is a term, so it is immutable, compared by identity and has a digest.  A step that decides
something carries its decision.

>>> from plica.schedule.primitive import block, loops
>>> Trace(()).append(Step(loops(Handle(0, 0, "block")))).decisions()
{}
"""

from __future__ import annotations

from typing import Any, TypeAlias

from attrs import frozen

from plica.core import Term, map_bottom_up
from plica.ir.graph.module import Module
from plica.ir.loop.statement import Kernel
from plica.runtime.error import InputError, wrong_argument
from plica.runtime.late import late, lazy_imports
from plica.schedule.handle import Handle
from plica.schedule.instruction import Decision, Instruction

with lazy_imports(__name__):
    from plica.ir.text.script.mark import Scripted

Program: TypeAlias = "Module | Kernel | Scripted"
"""A schedulable program: a kernel, or a module that contains one."""


@frozen(eq=False)
class Step(Term):
    """An instruction, and what it decided."""

    instruction: Instruction
    decision: Decision | None = None


@frozen(eq=False)
class Trace(Term):
    """Steps in order; handles in them count from the first."""

    steps: tuple[Step, ...]

    def __len__(self) -> int:
        return len(self.steps)

    def append(self, step: Step) -> Trace:
        """The trace with one more step."""
        return Trace((*self.steps, step))

    def prefix(self, length: int) -> Trace:
        """The first steps alone."""
        return Trace(self.steps[:length])

    def decisions(self) -> dict[int, Decision]:
        """The decisions by step number."""
        return {i: s.decision for i, s in enumerate(self.steps) if s.decision is not None}

    def with_decision(
        self, number: int, decision: Decision, program: Program | None = None
    ) -> Trace:
        """The trace with exactly that decision changed.

        A trace does not know the extents of its loops; with a `program` the step is checked there,
        and an invalid decision raises `ScheduleRefused` at once.
        """
        if type(number) is not int or not 0 <= number < len(self.steps):
            expected = f"the number of one of the {len(self.steps)} steps, from 0"
            raise wrong_decision(f"There is no step {number!r}.", expected, number)
        step = self.steps[number]
        if step.decision is None:
            message = f"Step {number} ({step.instruction.kind}) decides nothing."
            deciding = ", ".join(map(str, self.decisions())) or "none there is"
            raise wrong_decision(message, f"a step that decides: {deciding}", number)
        check_decision(decision)
        changed = Trace((*self.steps[:number], Step(step.instruction, decision)))
        if program is not None:
            late("plica.schedule.replay:replay")(changed, program)
        return Trace((*changed.steps, *self.steps[number + 1 :]))

    def only(self, kept: tuple[int, ...]) -> Trace | None:
        """Some of the steps, in order, with renumbered handles; None if one needs a removed
        step."""
        place = {old: new for new, old in enumerate(kept)}
        steps = []
        for number in kept:
            step = self.steps[number]
            if any(h.step not in place for h in handles(step.instruction)):
                return None
            steps.append(renumbered(step, place))
        return Trace(tuple(steps))

    def __str__(self) -> str:
        return self.to_python()

    # The texts stand on traces, so their readers and printers are found late.

    def to_json(self) -> str:
        """The trace as versioned JSON; `Trace.from_json` reads it."""
        return str(late("plica.schedule.json:to_json")(self))

    @staticmethod
    def from_json(text: str | bytes) -> Trace:
        """The trace of a JSON text; raises `Malformed`."""
        found = late("plica.schedule.json:from_json")(text)
        assert isinstance(found, Trace)
        return found

    def to_python(self, program: Program | None = None, kernel: str | None = None) -> str:
        """The trace as a do-block; with a program, in the names of its loops and blocks."""
        return str(late("plica.schedule.python_text:to_python")(self, program, kernel))

    @staticmethod
    def from_python(text: str, file: str = "<trace>") -> Trace:
        """The trace that a printed do-block makes, without running it; raises `Malformed`."""
        found = late("plica.schedule.python_text:from_python")(text, file)
        assert isinstance(found, Trace)
        return found


def check_traces(*given: Trace) -> None:
    """Refuses objects that are no traces."""
    for trace in given:
        if not isinstance(trace, Trace):
            hint = "trace_of(do-block, program) gives one, and so does Trace.from_json(text)."
            raise wrong_argument("This is no trace.", "a Trace", trace, hint)


class DecisionError(InputError, ValueError):
    """A decision that no step can have, or that is given to a step that decides nothing."""


def wrong_decision(message: str, expected: str, found: object) -> DecisionError:
    """The error for an invalid decision, with its value."""
    return DecisionError(*wrong_argument(message, expected, found).diagnostics)


def is_decision(what: Any) -> bool:
    """Whether something is a decision: integers, of which a truth value is none."""
    return type(what) is tuple and all(type(each) is int for each in what)


def check_decision(what: Any) -> None:  # Any: whatever was given for one
    """Refuses invalid decisions."""
    if not is_decision(what):
        raise wrong_decision("This is no decision.", "a tuple of integers", what)


def handles(instruction: Instruction) -> tuple[Handle, ...]:
    """The handles an instruction uses."""
    return tuple(kid for kid in instruction._children if isinstance(kid, Handle))


def renumbered(step: Step, place: dict[int, int]) -> Step:
    """The step with its handles pointing to where their steps are now."""

    def move(node: Term) -> Term:
        if isinstance(node, Handle):
            return Handle(place[node.step], node.output, node.sort)
        return node

    moved = map_bottom_up(move, step.instruction)
    return Step(moved, step.decision)
