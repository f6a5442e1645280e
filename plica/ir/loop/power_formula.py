"""The formula of powers, for numbers of any carrier (`plica.ir.loop.formula`).

    x ** y = 2 ** (y * log2(x))

In f64 with errors below 2^-34, so that nearly all results are the nearest f32, and all powers that
are f32s are exact.  Special values are those of IEEE 754's `pow`.
"""

from __future__ import annotations

from typing import Final

from plica.ir.loop.formula import HALVES_64, N, biased, fma, normal, parts, polynomial, scaled

# fmt: off
LOG2_64: Final = (
    1.4426950408889634, -0.7213475195890743, 0.4808983461624031, -0.36067397503253135,
    0.2885392092154406, -0.24043384189982597, 0.20608494395275082, -0.18080231601297725,
    0.1607349572696111, -0.1374949345626878, 0.124816639367347, -0.16599428813932715,
    0.15377125307658862)                              # log2(1 + f) / f,          |f| <= 1/3
EXP2_64: Final = (
    0.9999999999595618, 0.6931471805568324, 0.24022651213498092, 0.055504109063258665,
    0.009618025613318034, 0.0013333478473685416, 0.00015469729214118296,
    1.5303700711365693e-05)                           # 2^r,                      |r| <= 1/2
# fmt: on

MAX_ODD: Final = 2.0**30  # no f32 from here on is odd, and all are integers


def power(x: N, y: N) -> N:
    size = x.size()
    f, exponent = parts(*normal(size))
    exponent = size.is_("olt", float("inf")).choose(exponent, size)  # infinity and nan as well
    exponent = size.is_("oeq", 0.0).choose(x.number(float("-inf")), exponent)
    exponent = y.is_("oeq", 0.0).choose(x.number(0.0), exponent)  # nan ** 0 is 1
    times = size.is_("oeq", 1.0).choose(x.number(0.0), y)  # and so is 1 ** nan
    wide = f.widened()
    product = times.widened() * fma(wide, polynomial(wide, LOG2_64), exponent.widened())
    return _signed(x, y, size, _exp2(product.at_most(129.0).at_least(-151.0)))


def _exp2(x: N) -> N:
    moved = x + HALVES_64
    found = polynomial(x - (moved - HALVES_64), EXP2_64).narrowed()
    return scaled(found, biased(moved.low_word()))


def _signed(x: N, y: N, size: N, found: N) -> N:
    """The power of |x| with its sign; nan for negative finite x, unless y is an integer."""
    near = y.at_most(MAX_ODD).at_least(-MAX_ODD).widened()
    moved = near + HALVES_64
    sign = moved.low_word().bitwise("shl", 31).bitwise("and", x.bits())
    signed = found.bits().bitwise("xor", sign).real()
    root = size.is_("olt", float("inf")).choose(x.number(float("nan")), found)
    return (
        (moved - HALVES_64).is_("oeq", near).choose(signed, x.is_("olt", 0.0).choose(root, found))
    )
