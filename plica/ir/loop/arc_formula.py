"""Formulas of arcs and hyperbolas, for numbers of any carrier (`plica.ir.loop.formula`).

asin acos atan  sinh cosh asinh acosh atanh
"""

from __future__ import annotations

from typing import Final

from plica.ir.loop import formula

QUARTER_REST: Final = -4.371139000186241e-08  # the difference from its nearest f32
LOG_2: Final = 0.6931471805599453
SQUARE_ABSORBS_ONE: Final = 2.0**25  # a number whose square, and one more, are the same in f32

# fmt: off
ASIN     = (0.16666753590106964, 0.0749523937702179, 0.04547740891575813, 0.02414594776928425,
            0.042221564799547195)                     # (asin(r) - r) / r^3 in r^2, |r| <= 1/2
ATAN     = (-0.33333316445350647, 0.19998489320278168, -0.1424383819103241, 0.10595915466547012,
            -0.06083223596215248)                     # (atan(r) - r) / r^3 in r^2, |r| <= tan(pi/8)
# fmt: on


def _arc(x: formula.N) -> tuple[formula.N, formula.N]:
    """asin(|x|); where |x| is far from 0, which is said too, (pi/2 - asin(|x|)) / 2."""
    size = x.size()
    far = size.is_("ogt", 0.5)
    square = far.choose(formula.fma(size, size.number(-0.5), 0.5), size * size)
    r = far.choose(square.root(), size)
    return formula.fma(r * square, formula.polynomial(square, ASIN), r), far


def asin(x: formula.N) -> formula.N:
    angle, far = _arc(x)
    rest = formula.fma(angle, angle.number(-2.0), QUARTER_REST) + formula.QUARTER
    return far.choose(rest, angle).with_sign(x)


def acos(x: formula.N) -> formula.N:
    angle, far = _arc(x)
    below = x.is_("olt", 0.0)
    twice = angle + angle
    beyond = below.choose((angle.number(2 * QUARTER_REST) - twice) + 2 * formula.QUARTER, twice)
    near = (angle.number(QUARTER_REST) - angle.with_sign(x)) + formula.QUARTER
    return far.choose(beyond, near)


def atan(x: formula.N) -> formula.N:
    size = x.size()
    far, mid = size.is_("ogt", 2.414213562373095), size.is_("ogt", 0.4142135623730950)
    over = far.choose(size.number(-1.0), mid.choose(size - 1.0, size))
    under = far.choose(size, mid.choose(size + 1.0, size.number(1.0)))
    r = over / under
    square = r * r
    angle = formula.fma(r * square, formula.polynomial(square, ATAN), r)
    rest = far.choose(size.number(QUARTER_REST), mid.choose(size.number(QUARTER_REST / 2), 0.0))
    base = far.choose(
        size.number(formula.QUARTER), mid.choose(size.number(formula.QUARTER / 2), 0.0)
    )
    return ((angle + rest) + base).with_sign(x)


def _quarter_of_exp(size: formula.N) -> formula.N:
    """A quarter of exp(|x|): finite wherever a half is, although 2^128 is not representable."""
    less_one, n = formula.reduced(size.at_most(89.7))
    quarter = formula.power_of_two(n - 2)
    return formula.fma(quarter, less_one, quarter)


def sinh(x: formula.N) -> formula.N:
    size = x.size()
    half = formula.expm1_inside(size.at_most(2.0))
    near = half + half / (half + half + 1.0)
    quarter = _quarter_of_exp(size)
    far = quarter + quarter - size.number(0.125) / quarter
    return size.is_("olt", 1.0).choose(near, far).with_sign(x)


def cosh(x: formula.N) -> formula.N:
    quarter = _quarter_of_exp(x.size())
    return quarter + quarter + quarter.number(0.125) / quarter


def asinh(x: formula.N) -> formula.N:
    size = x.size()
    many = size.is_("ogt", SQUARE_ABSORBS_ONE)
    square = size * size
    more = size + square / ((square + 1.0).root() + 1.0)
    found = formula.log1p(many.choose(size, more)) + many.choose(size.number(LOG_2), 0.0)
    return found.with_sign(x)


def acosh(x: formula.N) -> formula.N:
    many, less = x.is_("ogt", SQUARE_ABSORBS_ONE), x - 1.0
    more = less + (less * (less + 2.0)).root()
    found = formula.log1p(many.choose(x, more)) + many.choose(x.number(LOG_2), 0.0)
    return x.is_("olt", 1.0).choose(x.number(float("nan")), found)


def atanh(x: formula.N) -> formula.N:
    size = x.size()
    return (formula.log1p((size + size) / (size.number(1.0) - size)) * 0.5).with_sign(x)
