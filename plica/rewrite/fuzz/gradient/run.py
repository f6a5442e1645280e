"""Fuzzing of gradients: random programs, whose slopes are what differences in f64 say they are.

>>> fuzz(examples=3).finding is None
True
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from plica.ir.graph.module import Module
from plica.ir.interpret.interpreter import interpret
from plica.rewrite.check.report import as_comment, failing_test
from plica.rewrite.check.slope import Slope, WrongSlope
from plica.rewrite.fuzz.driver import ByNumber, Campaign, Say, Skipped, Tally, least
from plica.rewrite.fuzz.gradient.case import (
    GradientCase,
    differentiable,
    gradient_case,
    operators_of,
)
from plica.rewrite.fuzz.judge import CRASHES, crash
from plica.rewrite.fuzz.report import CASES, SKIPPED, Finding, FuzzReport
from plica.rewrite.gradient import grad, jvp

Compiled = Callable[[Module, tuple[Any, ...]], Any]
"""Compiles a module and runs it; None if it is unsupported."""

MAX_DRAWS: Final = 3  # how many programs are drawn for each that has a slope, at most
FORWARD_EVERY: Final = 2  # every such case is derived in forward mode as well
COUNTERS: Final = {CASES: ("forward", "compiled"), "operators": (), SKIPPED: ()}
TOLERANCE: Final = 1e-6  # how far native code may be from the interpreter, of the largest number


def fuzz(
    examples: int = 200,
    seed: int = 0,
    *,
    first: int = 0,
    native: Compiled | None = None,
    every: int = 0,
    ops: tuple[str, ...] = (),
    say: Say | None = None,
) -> FuzzReport[Finding]:
    """Runs a number of programs, cycling through the operators, until the first finding.

    With `native`, every such gradient is compiled and run as well.
    """
    turn = ops or differentiable()

    def oracle(case: GradientCase, number: int, tally: Tally) -> Finding | Skipped | None:
        forward = number % FORWARD_EVERY == 0
        code = native if native is not None and every and number % every == 0 else None
        wrong = judged(case, forward, code)
        if isinstance(wrong, bool):
            if not wrong:
                return Skipped(f"no slope: {', '.join(case.ops)}")
            slope = case.slope()
            assert slope is not None  # it was judged
            tally["operators"].update(set(operators_of(slope.program)))
            tally[CASES].update(forward=forward, compiled=code is not None)
            return None
        reason = wrong if isinstance(wrong, str) else wrong.reason
        return Finding("slope", " ".join(case.ops), reason, _as_pytest(case, wrong))

    def smaller(case: GradientCase, fails: Callable[[GradientCase], bool]) -> GradientCase:
        return least(case, GradientCase.smaller, fails)

    generator = ByNumber(lambda number: gradient_case(seed, number, turn), smaller)
    campaign = Campaign(
        Finding, generator, oracle, MAX_DRAWS, counters=COUNTERS, settings={"ops": turn}
    )
    return campaign.run(examples, seed, first=first, say=say)


def judged(case: GradientCase, forward: bool, native: Compiled | None) -> WrongSlope | str | bool:
    """Whether a case's slope agrees with its gradient, or how it differs."""
    try:
        with np.errstate(all="ignore"):
            if (slope := case.slope()) is None:
                return False
            found = slope.judged()
            if found is True and forward:
                found = _forward(slope)
            if found is True and native is not None:
                return _native(slope, native)
            return found
    except CRASHES as error:
        return crash(error)


def _forward(of: Slope) -> WrongSlope | bool:
    """Whether forward mode gives along the direction what reverse mode does."""
    slopes: Any = interpret(grad(of.program, of.chosen), *of.args)
    parts = slopes if isinstance(slopes, tuple) else (slopes,)
    ways = [of.ways[n] for n in of.chosen]
    along = [part * way for part, way in zip(parts, ways, strict=True)]
    reverse, scale = (float(sum(np.sum(f(each)) for each in along)) for f in (np.asarray, np.abs))
    moved: Any = interpret(jvp(of.program, of.chosen), *of.args, *ways)
    if abs(float(moved[1]) - reverse) <= 1e-8 * (1 + scale):
        return True
    reason = f"forward mode says {float(moved[1]):.9g}, reverse mode {reverse:.9g}"
    return WrongSlope(reason, float(moved[1]))


def _native(of: Slope, native: Compiled) -> str | bool:
    """Whether native code of the gradient agrees with the interpreter."""
    module = grad(of.program, of.chosen)
    if (found := native(module, tuple(of.args))) is None:
        return True
    expected: Any = interpret(module, *of.args)
    pairs = zip(_several(found), _several(expected), strict=True)
    for at, (mine, other) in enumerate(pairs):
        one, two = np.asarray(mine), np.asarray(other)
        if one.shape != two.shape or not np.allclose(
            one,
            two,
            rtol=TOLERANCE,
            atol=TOLERANCE * float(np.abs(two).max(initial=1.0)),
            equal_nan=True,
        ):
            return f"native code of gradient {at} gives {one.tolist()} instead of {two.tolist()}"
    return True


def _several(of: Any) -> tuple[Any, ...]:
    return of if isinstance(of, tuple) else (of,)


def _as_pytest(case: GradientCase, wrong: WrongSlope | str) -> str:
    slope = case.slope()
    if slope is None:  # it fails before there is a program
        return as_comment(f"{case}: {wrong}")
    if isinstance(wrong, WrongSlope):
        return slope.as_pytest(wrong)
    body = f"""
    module = plica.grad(plica.from_text(SOURCE), {slope.chosen})
    expected = plica.interpret(module, *inputs)
    found = plica.compile(module, cache=False)(*inputs)
    pairs = [each if isinstance(each, tuple) else (each,) for each in (found, expected)]
    for one, two in zip(*pairs, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-5, atol=1e-6)
"""
    return failing_test("gradient", wrong, {"SOURCE": slope.program}, {"inputs": slope.args}, body)
