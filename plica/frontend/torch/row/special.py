"""Rows of special functions: the gamma function and its slope, the error function and back.

They are computed in f64 whatever the type, and have slopes everywhere torch has them: what is not
chosen is computed at a place where it is finite.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

from plica.frontend.torch.node import TorchNode
from plica.frontend.torch.row.word import Row, casted, operands
from plica.ir.graph.expression import Expr, const
from plica.ir.op import comparison as compare
from plica.ir.op import elementwise as ew
from plica.ir.op.index import where
from plica.ir.op.mark import stop_gradient
from plica.ir.type.dtype import f64

_SHIFT: Final = 8
"""Expansions at infinity are used from here on; below, recurrences lead here."""

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
    for each in reversed(factors[:-1]):
        total = ew.add(ew.multiply(total, x), _n(each))
    return total


def _far(x: Expr) -> tuple[Expr, Expr, list[Expr]]:
    """For x of 1/2 or more: a place from which expansions hold, whether x is before it, and the
    steps there."""
    near = compare.less(x, _n(_SHIFT))
    steps = [where(near, ew.add(x, _n(k)), _n(1.0)) for k in range(_SHIFT)]
    return where(near, ew.add(x, _n(_SHIFT)), x), near, steps


def _left(x: Expr) -> tuple[Expr, Expr, Expr]:
    """Whether x is reflected, where it is then, and its distance from the nearest whole number."""
    left = compare.less(x, _n(0.5))
    apart = where(left, ew.subtract(x, ew.round_(x)), _n(0.25))
    return left, where(left, ew.subtract(_n(1.0), x), x), apart


def _log_gamma(x: Expr) -> Expr:
    left, right, apart = _left(x)
    endless = compare.equal(ew.absolute(x), _n(math.inf))
    z, _, steps = _far(where(endless, _n(1.0), right))
    product = steps[0]
    for each in steps[1:]:
        product = ew.multiply(product, each)
    inverse = ew.reciprocal(z)
    tail = ew.multiply(inverse, _series(_LGAMMA, ew.square(inverse)))
    whole = ew.subtract(ew.multiply(ew.subtract(z, _n(0.5)), ew.log(z)), z)
    whole = ew.add(ew.add(whole, _n(0.5 * math.log(2 * math.pi))), tail)
    found = ew.subtract(whole, ew.log(product))
    sine = ew.absolute(ew.sin(ew.multiply(apart, _n(math.pi))))
    reflected = ew.subtract(ew.log(ew.divide(_n(math.pi), sine)), found)
    return where(endless, _n(math.inf), where(left, reflected, found))


def _digamma(x: Expr) -> Expr:
    left, right, apart = _left(x)
    z, near, steps = _far(right)
    square = ew.square(ew.reciprocal(z))
    found = ew.subtract(ew.log(z), ew.multiply(_n(0.5), ew.reciprocal(z)))
    found = ew.add(found, ew.multiply(square, _series(_DIGAMMA, square)))
    before = ew.reciprocal(steps[0])
    for each in steps[1:]:
        before = ew.add(before, ew.reciprocal(each))
    found = where(near, ew.subtract(found, before), found)
    whole = compare.logical_and(left, compare.equal(apart, _n(0.0)))
    slope = ew.tan(ew.multiply(where(whole, _n(0.25), apart), _n(math.pi)))
    reflected = ew.subtract(found, ew.divide(_n(math.pi), slope))
    pole = where(compare.equal(x, _n(0.0)), ew.copysign(_n(math.inf), ew.negative(x)), _n(math.nan))
    return where(whole, pole, where(left, reflected, found))


def _rest(x: Expr) -> Expr:
    """What erf is short of 1, to its own precision."""
    away = ew.minimum(ew.absolute(x), _n(40.0))  # beyond it is 0
    t = ew.divide(_n(2.0), ew.add(_n(2.0), away))
    twice = ew.subtract(ew.multiply(_n(4.0), t), _n(2.0))
    before, here = _n(0.0), _n(0.0)
    for each in reversed(_REST[1:]):
        before, here = here, ew.add(ew.subtract(ew.multiply(twice, here), before), _n(each))
    half = ew.multiply(_n(0.5), twice)
    sum_ = ew.add(ew.subtract(ew.multiply(half, here), before), _n(_REST[0]))
    found = ew.multiply(t, ew.exp(ew.subtract(sum_, ew.square(away))))
    positive = where(compare.less(x, _n(0.0)), ew.subtract(_n(2.0), found), found)
    return where(ew.isnan(x), x, positive)


def _inverse_error(x: Expr) -> Expr:
    """Newton's steps, corrected for the bend, on the side where erfc is small."""
    away = ew.absolute(x)
    inside = compare.less(away, _n(1.0))
    short = where(inside, ew.subtract(_n(1.0), away), _n(0.5))
    side = ew.log(ew.multiply(short, ew.subtract(_n(2.0), short)))  # of 1 - x^2
    # A first guess from erf(y)^2 near 1 - exp(-y^2 (4/pi + a y^2) / (1 + a y^2)).
    bend = 0.147
    head = ew.add(_n(2 / (math.pi * bend)), ew.multiply(_n(0.5), side))
    inner = ew.subtract(ew.square(head), ew.divide(side, _n(bend)))
    y = ew.sqrt(ew.maximum(ew.subtract(ew.sqrt(inner), head), _n(0.0)))
    for _ in range(3):
        y = stop_gradient(y)  # the last step has the slope of what it leads to
        slope = ew.multiply(_n(2 / math.sqrt(math.pi)), ew.exp(ew.negative(ew.square(y))))
        step = ew.divide(ew.subtract(_rest(y), short), slope)
        bent = stop_gradient(ew.add(_n(1.0), ew.multiply(y, step)))
        y = ew.add(y, ew.divide(step, bent))
    end = where(compare.equal(away, _n(1.0)), _n(math.inf), _n(math.nan))
    found = where(inside, y, end)
    return where(compare.less(x, _n(0.0)), ew.negative(found), found)


def _in_f64(function: Callable[[Expr], Expr]) -> Row:
    def row(node: TorchNode) -> Expr:
        (x,) = operands(node, "self", kind="INT_TO_FLOAT")
        return casted(function(casted(x, f64)), node.dtype())

    return row


# fmt: off
TABLE: Final[dict[str, Row]] = {
    "lgamma.default":  _in_f64(_log_gamma),
    "digamma.default": _in_f64(_digamma),
    "erfc.default":    _in_f64(_rest),
    "erfinv.default":  _in_f64(_inverse_error),
}
# fmt: on
