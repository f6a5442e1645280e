"""Special functions of f64: the gamma function and its slope, the error function and back.

Slopes exist wherever torch's do: unselected branches are evaluated at a finite point.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

from plica.ir.graph.expression import Expr, const
from plica.ir.op.namespace import op
from plica.ir.type.dtype import f64

_SHIFT: Final = 8  # expansions at infinity are used from here on; below, recurrences lead here
_LGAMMA: Final = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156)
"""Of 1/z, 1/z^3 …: Bernoulli's numbers, each over 2n (2n - 1)."""

_DIGAMMA: Final = (-1 / 12, 1 / 120, -1 / 252, 1 / 240, -1 / 132, 691 / 32760, -1 / 12)
"""Of 1/z^2, 1/z^4 …: Bernoulli's numbers, each over -2n."""

_REST: Final = (
    -0.6513268598908537, 0.6419697923564882, 0.019476473204187716, -0.009561514786810324,
    -0.0009465953444805985, 0.00036683949785163133, 4.252332480768622e-05, -2.0278578112931094e-05,
    -1.6242900046470222e-06, 1.303655835977369e-06, 1.562644094362218e-08, -8.523809478479979e-08,
    6.529053000720104e-09, 5.059345186905976e-09, -9.913660358311363e-10, -2.2736312717383429e-10,
    9.646587678263565e-11, 2.3960331011156837e-12, -6.887906017439591e-12, 8.961769565998801e-13,
    3.116537086206807e-13, -1.1154992802950382e-13, -5.183795698953538e-16, 7.59752108483844e-15,
)  # fmt: skip
"""log(erfc(x) / t) + x^2 for t = 2 / (2 + x), in Chebyshev polynomials of 2t - 1: to 1e-14."""


def _n(value: float) -> Expr:
    return const(value, f64)


def _series(factors: Sequence[float], x: Expr) -> Expr:
    """A polynomial, the constant first."""
    total = _n(factors[-1])
    for factor in reversed(factors[:-1]):
        total = total * x + _n(factor)
    return total


def _far(x: Expr) -> tuple[Expr, Expr, list[Expr]]:
    """For x of 1/2 or more: a place from which expansions hold, whether x is before it, and the
    steps there."""
    near = x < _n(_SHIFT)
    steps = [op.where(near, x + _n(k), _n(1.0)) for k in range(_SHIFT)]
    return op.where(near, x + _n(_SHIFT), x), near, steps


def _left(x: Expr) -> tuple[Expr, Expr, Expr]:
    """Whether x is reflected, where it is then, and its distance from the nearest whole number."""
    left = x < _n(0.5)
    apart = op.where(left, x - op.round(x), _n(0.25))
    return left, op.where(left, _n(1.0) - x, x), apart


def _log_gamma(x: Expr) -> Expr:
    left, right, apart = _left(x)
    endless = op.equal(op.absolute(x), _n(math.inf))
    z, _, steps = _far(op.where(endless, _n(1.0), right))
    product = steps[0]
    for step in steps[1:]:
        product = product * step
    inverse = op.reciprocal(z)
    tail = inverse * _series(_LGAMMA, op.square(inverse))
    whole = (z - _n(0.5)) * op.log(z) - z
    whole = whole + _n(0.5 * math.log(2 * math.pi)) + tail
    expr = whole - op.log(product)
    sine = op.absolute(op.sin(apart * _n(math.pi)))
    reflected = op.log(_n(math.pi) / sine) - expr
    return op.where(endless, _n(math.inf), op.where(left, reflected, expr))


def _digamma(x: Expr) -> Expr:
    left, right, apart = _left(x)
    z, near, steps = _far(right)
    square = op.square(op.reciprocal(z))
    expr = op.log(z) - _n(0.5) * op.reciprocal(z)
    expr = expr + square * _series(_DIGAMMA, square)
    before = op.reciprocal(steps[0])
    for step in steps[1:]:
        before = before + op.reciprocal(step)
    expr = op.where(near, expr - before, expr)
    whole = op.logical_and(left, op.equal(apart, _n(0.0)))
    slope = op.tan(op.where(whole, _n(0.25), apart) * _n(math.pi))
    reflected = expr - _n(math.pi) / slope
    pole = op.where(op.equal(x, _n(0.0)), op.copysign(_n(math.inf), -x), _n(math.nan))
    return op.where(whole, pole, op.where(left, reflected, expr))


def _rest(x: Expr) -> Expr:
    """erfc, to its own precision."""
    away = op.minimum(op.absolute(x), _n(40.0))  # beyond it is 0
    t = _n(2.0) / (_n(2.0) + away)
    twice = _n(4.0) * t - _n(2.0)
    before, here = _n(0.0), _n(0.0)
    for each in reversed(_REST[1:]):
        before, here = here, twice * here - before + _n(each)
    half = _n(0.5) * twice
    sum_ = half * here - before + _n(_REST[0])
    expr = t * op.exp(sum_ - op.square(away))
    positive = op.where(x < _n(0.0), _n(2.0) - expr, expr)
    return op.where(op.isnan(x), x, positive)


def _inverse_error(x: Expr) -> Expr:
    """Newton's steps, corrected for the bend, on the side where erfc is small."""
    away = op.absolute(x)
    inside = away < _n(1.0)
    short = op.where(inside, _n(1.0) - away, _n(0.5))
    side = op.log(short * (_n(2.0) - short))  # of 1 - x^2
    # A first guess from erf(y)^2 near 1 - exp(-y^2 (4/pi + a y^2) / (1 + a y^2)).
    bend = 0.147
    head = _n(2 / (math.pi * bend)) + _n(0.5) * side
    inner = op.square(head) - side / _n(bend)
    y = op.sqrt(op.maximum(op.sqrt(inner) - head, _n(0.0)))
    for _ in range(3):
        y = op.stop_gradient(y)  # the last step has the slope of what it leads to
        slope = _n(2 / math.sqrt(math.pi)) * op.exp(-op.square(y))
        step = (_rest(y) - short) / slope
        bent = op.stop_gradient(_n(1.0) + y * step)
        y = y + step / bent
    end = op.where(op.equal(away, _n(1.0)), _n(math.inf), _n(math.nan))
    expr = op.where(inside, y, end)
    return op.where(x < _n(0.0), -expr, expr)


SPECIAL: Final[dict[str, Callable[[Expr], Expr]]] = {
    "lgamma": _log_gamma,
    "digamma": _digamma,
    "erfc": _rest,
    "erfinv": _inverse_error,
}
"""Functions of f64, by torch's names."""
