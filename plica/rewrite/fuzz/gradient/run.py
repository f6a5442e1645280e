"""Fuzzing of gradients: random programs, whose slopes are what differences in f64 say they are.

Reverse mode is held to central differences along a random direction; forward mode, which is made of
reverse mode twice, to reverse mode; native code of a gradient, where it can be made, to the
interpreter.

>>> fuzz(examples=3).finding is None
True
"""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import attrs
import numpy as np

from plica.core.diagnostic import CompilerBug
from plica.ir.graph.module import Module
from plica.ir.interpret.interpreter import interpret
from plica.rewrite.check.report import as_comment, literal, text
from plica.rewrite.check.slope import Slope, WrongSlope
from plica.rewrite.fuzz.driver import ENDLESS, TOO_LONG, Skipped, campaign, least
from plica.rewrite.fuzz.gradient.case import GradientCase, gradient_case, operators_of
from plica.rewrite.fuzz.gradient.table import differentiable
from plica.rewrite.gradient import grad, jvp
from plica.runtime.error import PlicaError

CRASHES: Final = (
    PlicaError, CompilerBug, AssertionError, TypeError, ValueError, LookupError, AttributeError,
    ArithmeticError, RecursionError,
)  # fmt: skip
"""What a gradient with a mistake in it ends with."""

Compiled = Callable[[Module, tuple[Any, ...]], Any]
"""Compiles a module and runs it; None where it can't be compiled for now."""

TRIES: Final = 3
"""How many programs are drawn for each that has a slope, at most."""
FORWARD: Final = 2
"""Every so many-th is derived in forward mode as well."""
NEAR: Final = 1e-6
"""How far native code may be from the interpreter, of the largest number."""


@attrs.frozen
class GradientFinding:
    """A smallest program whose gradient is wrong, and a test."""

    case: int
    op: str
    reason: str
    pytest: str

    def to_data(self) -> dict[str, Any]:
        return attrs.asdict(self)


@attrs.frozen
class GradientFuzzReport:
    """How many programs there were, the operators in them, and what was found."""

    examples: int
    seed: int
    ops: tuple[str, ...]
    """The operators whose turn it was."""
    operators: dict[str, int]
    """How many programs each operator is in."""
    forward: int
    compiled: int
    skipped: dict[str, int]
    finding: GradientFinding | None

    def to_data(self) -> dict[str, Any]:
        return attrs.asdict(self)


def fuzz(
    examples: int = 200,
    seed: int = 0,
    *,
    first: int = 0,
    native: Compiled | None = None,
    every: int = 0,
    ops: tuple[str, ...] = (),
    say: Callable[[str], None] | None = None,
) -> GradientFuzzReport:
    """So many programs, the operators in turn, until the first finding.

    With `native` every so many-th gradient is compiled and run as well.
    """
    turn = ops or differentiable()
    counts: Counter[str] = Counter()
    operators: Counter[str] = Counter()

    def one(number: int) -> GradientFinding | Skipped | None:
        case = gradient_case(seed, number, turn)
        forward = number % FORWARD == 0
        code = native if native is not None and every and number % every == 0 else None
        if isinstance(found := judged(case, forward, code), bool):
            if not found:
                return Skipped(f"no slope: {', '.join(case.ops)}")
            slope = case.slope()
            assert slope is not None  # it was judged
            operators.update(set(operators_of(slope.program)))
            counts.update(forward=forward, compiled=code is not None)
            return None

        def fails(each: GradientCase) -> bool:
            return isinstance(judged(each, forward, code), str | WrongSlope)

        small = least(case, GradientCase.smaller, fails)
        wrong = judged(small, forward, code)
        assert not isinstance(wrong, bool)
        reason = wrong if isinstance(wrong, str) else wrong.reason
        return GradientFinding(number, " ".join(small.ops), reason, _as_pytest(small, wrong))

    def endless(number: int) -> GradientFinding:
        return GradientFinding(number, ENDLESS, TOO_LONG, "")

    done = campaign(one, examples, hangs=endless, first=first, tries=TRIES, say=say)
    return GradientFuzzReport(
        done.ran,
        seed,
        turn,
        dict(sorted(operators.items())),
        counts["forward"],
        counts["compiled"],
        done.skipped,
        done.finding,
    )


def judged(case: GradientCase, forward: bool, native: Compiled | None) -> WrongSlope | str | bool:
    """Whether a case has a slope as its gradient says, or what is wrong."""
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
        # Whatever is raised is what is looked for here: it is reported with its place.
        last = traceback.extract_tb(error.__traceback__)[-1]
        said = " ".join(str(error).split())
        return f"{type(error).__name__}: {said} ({Path(last.filename).name}, {last.name})"


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
    """Whether native code of the gradient gives what the interpreter does."""
    module = grad(of.program, of.chosen)
    if (found := native(module, tuple(of.args))) is None:
        return True
    expected: Any = interpret(module, *of.args)
    pairs = zip(_several(found), _several(expected), strict=True)
    for at, (mine, other) in enumerate(pairs):
        one, two = np.asarray(mine), np.asarray(other)
        if one.shape != two.shape or not np.allclose(
            one, two, rtol=NEAR, atol=NEAR * float(np.abs(two).max(initial=1.0)), equal_nan=True
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
    arrays = "".join(f"        {literal(each)},\n" for each in slope.args)
    return f'''import numpy as np

import plica

{as_comment(wrong)}
SOURCE = """
{text(slope.program)}
"""


def test_gradient() -> None:
    inputs = [
{arrays}    ]
    module = plica.grad(plica.from_text(SOURCE), {slope.chosen})
    expected = plica.interpret(module, *inputs)
    found = plica.compile(module, cache=False)(*inputs)
    pairs = [each if isinstance(each, tuple) else (each,) for each in (found, expected)]
    for one, two in zip(*pairs, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-5, atol=1e-6)
'''
