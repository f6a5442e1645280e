"""Slopes: the gradient of a program of one number against central differences in f64."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from attrs import frozen

from plica.core import EvaluationError, IllTyped
from plica.core.extension import said
from plica.ir.graph.module import Module
from plica.ir.interpret.interpreter import interpret
from plica.rewrite.check.report import failing_test
from plica.rewrite.gradient import grad

Array = np.ndarray[Any, Any]

STEP: Final = 1e-6  # of a central difference
SLACK: Final = 1e-5  # how far a slope may be from a difference, in relation to the sum of the parts


@frozen
class WrongSlope:
    """A gradient that is not what differences say: how, and what they say."""

    reason: str
    near: float = 0.0


@frozen(eq=False)
class Slope:
    """A program of one number, a point of it and a direction; only floats are moved."""

    program: Module
    args: Sequence[Array]
    ways: Sequence[Array]
    chosen: tuple[int, ...]

    def judged(self) -> WrongSlope | bool:
        """Whether the slope exists and agrees with the gradient, or how it differs."""
        try:
            slopes: Any = interpret(grad(self.program, self.chosen), *self.args)
        except (IllTyped, EvaluationError) as error:
            return WrongSlope(f"the gradient fails: {said(error)}")
        parts = slopes if isinstance(slopes, tuple) else (slopes,)
        for part, n in zip(parts, self.chosen, strict=True):
            if np.shape(part) != self.args[n].shape:
                shapes = f"{np.shape(part)} instead of {self.args[n].shape}"
                return WrongSlope(f"the gradient of argument {n} has the shape {shapes}")
        along = [part * self.ways[n] for part, n in zip(parts, self.chosen, strict=True)]
        found, scale = (float(sum(np.sum(f(each)) for each in along)) for f in (np.asarray, np.abs))
        near, far = (self.difference(step) for step in (STEP, 2 * STEP))
        slack = SLACK * (1 + scale + abs(near))
        if not np.isfinite(near) or abs(near - far) > slack / 2:  # no slope, or a kink nearby
            return False
        if abs(found - near) <= slack:
            return True
        reason = f"the slope along a direction is {found:.6g}, by differences {near:.6g}"
        return WrongSlope(reason, near)

    def difference(self, step: float) -> float:
        """The central difference along the direction."""
        ends = []
        for sign in (1, -1):
            moved = [arg + sign * step * self.ways[n] if n in self.chosen else arg
                     for n, arg in enumerate(self.args)]  # fmt: skip
            ends.append(float(interpret(self.program, *moved)))
        return (ends[0] - ends[1]) / (2 * step)

    def as_pytest(self, wrong: WrongSlope) -> str:
        """A test that fails as long as the gradient is wrong."""
        body = f"""
    slopes = plica.interpret(plica.grad(plica.from_text(SOURCE), {self.chosen}), *inputs)
    several = slopes if isinstance(slopes, tuple) else (slopes,)
    found = sum(np.sum(one * two) for one, two in zip(several, directions, strict=True))
    np.testing.assert_allclose(found, {wrong.near!r}, rtol=1e-4, atol=1e-5)
"""
        arrays = {"inputs": self.args, "directions": [self.ways[n] for n in self.chosen]}
        return failing_test("gradient", wrong.reason, {"SOURCE": self.program}, arrays, body)
