"""Bisect: the step of a trace that makes a program bad.

    found = bisect(trace, matmul)             the first step that changes what it computes
    found = bisect(trace, matmul, bad)        bad: Module -> bool, whatever is not wanted
    found.number, found.step                  the first step after which it is bad

For a trace of n steps, `bad` is called at most ceil(log2 n) + 1 times, assuming that the
unscheduled program is good and that later steps do not repair a broken one.

The oracle of traces: whether two kernels write the same values in the interpreter.

Inputs are small integers, so that sums are exact in any order. A kernel with uninitialised reads,
accesses out of bounds or races differs from one without; barriers and buffer placements that
lowering will introduce are applied before (`unlowered`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import unified_diff
from typing import Final

import numpy as np
from attrs import frozen

from plica.core import Term
from plica.ir.graph.module import Module
from plica.ir.interpret.value import Array
from plica.ir.loop.statement import Kernel
from plica.ir.type import shape_of
from plica.runtime.error import Diagnostic, EvaluationError, InputError
from plica.runtime.late import late
from plica.runtime.notebook import ShownAsText
from plica.schedule.diff import described
from plica.schedule.replay import ReplayState, begin, kernel_of, states, with_kernel
from plica.schedule.trace import Program, Step, Trace, check_traces
from plica.schedule.unlowered import run_unlowered


@frozen(eq=False)
class Culprit(ShownAsText):
    """The first step after which a program is bad, the programs before and after, and the cost of
    the search."""

    number: int
    step: Step
    before: Module
    after: Module
    asked: int

    @property
    def changes(self) -> list[str]:
        """The step's effect as a unified diff of the program's text."""
        old, new = (str(each).splitlines() for each in (self.before, self.after))
        return list(unified_diff(old, new, "before", "after", lineterm="", n=2))

    def __str__(self) -> str:
        head = f"Step {self.number} is the first bad one: {described(self.step)}"
        return "\n".join([f"{head} (asked {self.asked} times).", *self.changes])


def bisect(
    trace: Trace,
    program: Program,
    bad: Callable[[Module], bool] | None = None,
    kernel: str | None = None,
) -> Culprit | None:
    """The step that makes the program bad, or None if it is not bad at the end.

    By default, bad means different results. Raises `ScheduleRefused` if the trace does not replay.
    """
    check_traces(trace)
    whole, name, found = kernel_of(program, kernel)
    if bad is None:
        bad = _differing(found, str(name.name))
    # One replay gives the program after every step: they share all that did not change.
    reached: list[ReplayState] = [begin(found), *states(trace, found)]

    def after(steps: int) -> Module:
        return with_kernel(whole, name, reached[steps].kernel)

    low, high = 0, len(trace)
    if high == 0 or not bad(after(high)):
        return None
    asked = 1
    while high - low > 1:
        middle = (low + high) // 2
        asked += 1
        if bad(after(middle)):
            high = middle
        else:
            low = middle
    return Culprit(low, trace.steps[low], after(low), after(high), asked)


def _differing(found: Kernel, name: str) -> Callable[[Module], bool]:
    agree = late("plica.schedule.bisect:agree")
    return lambda module: not agree(found, kernel_of(module, name)[2])


# --- the oracle of traces ----------------------------------------------------------------------


SIZE: Final = 5  # the default value of a symbolic size: small and prime


def agree(
    before: Kernel, after: Kernel, sizes: Mapping[str, int] | None = None, seed: int = 0
) -> bool:
    """Whether both write the same, bit by bit, for sizes by the name of their dims."""
    given = sizes or {}
    known: dict[Term, int] = {var: given.get(str(var.name), SIZE) for var in before.dims}
    random = np.random.default_rng(seed)
    arrays: list[Array] = []
    for param in before.params[: before.inputs]:
        if (shape := shape_of(param.shape, known)) is None:
            message = "The shape of an input does not follow from the sizes that are given."
            raise InputError(Diagnostic("input-shape", message, found=str(param.name)))
        arrays.append(random.integers(-4, 5, shape).astype(param.dtype.numpy))
    expected = run_unlowered(before, arrays, known)
    try:
        found = run_unlowered(after, arrays, known)
    except EvaluationError:
        return False
    return all(np.array_equal(x, y) for x, y in zip(expected, found, strict=True))
