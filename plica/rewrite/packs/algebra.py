"""Algebra: identities of arithmetic that hold whatever the shapes are.

Measure: (operators, depth of negations, products of sums): a rule removes an operator, or moves a
negation towards the result, or replaces an operator by a cheaper one of the same arity.

Omitted on purpose: for floats, `x * 0 -> 0` is wrong for NaN, infinity and -0.0; `x - x -> 0` for
NaN and infinity; `x / x -> 1` for 0, NaN and infinity; `log(exp(x)) -> x` and `exp(x) * exp(y) ->
exp(x + y)` if exp overflows; `exp(log(x)) -> x` and `sqrt(x)**2 -> x` below 0; `x ** 0.5 ->
sqrt(x)` at -inf. Integers wrap around, so identities modulo 2^n hold exactly.

>>> from plica.rewrite import rewrite
>>> from plica.ir.graph.expression import Var
>>> from plica.core.name import Name
>>> from plica.ir.type.term import tensor
>>> a = Var(Name("a"), tensor((2,), "i32"))
>>> term, derivation = rewrite(-(-(a - 0)), ALGEBRA)
>>> term is a, [step.rule.name for step in derivation.steps]
(True, ['subtract-zero', 'negative-negative'])
"""

from __future__ import annotations

from typing import Final

from plica.ir.contract import reassociates, signless_zero
from plica.rewrite.closed import are_finite
from plica.rewrite.make import tabled as rule
from plica.rewrite.match import PatternMatch
from plica.rewrite.pack import Pack, pack
from plica.rewrite.packs.word import (
    Evaluated,
    c,
    covers,
    e,
    f,
    g,
    i,
    j,
    m,
    n,
    op,
    s,
    shape,
    spoken,
    spread,
    w,
    x,
    y,
    z,
)

maximum, minimum, fmax, fmin, copysign = map(op, ["maximum", "minimum", "fmax", "fmin", "copysign"])
absolute, sign, square, sqrt, rsqrt = map(op, ["absolute", "sign", "square", "sqrt", "rsqrt"])
reciprocal, negative, exp, expm1, log, log1p = map(
    op, ["reciprocal", "negative", "exp", "expm1", "log", "log1p"]
)
relu, sigmoid, silu = map(op, ["nn.relu", "nn.sigmoid", "nn.silu"])
fmod, trunc_divide = op("fmod"), op("trunc_divide")
left_shift, right_shift, both, either_, one_of, inverted = map(
    op, ["left_shift", "right_shift", "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not"]
)
degrees, radians, zeros_like, ones_like = map(op, ["degrees", "radians", "zeros_like", "ones_like"])

WHOLE: Final = ("floor", "ceil", "round", "trunc")
ODD: Final = (
    "arcsin", "arcsinh", "arctan", "arctanh", "erf", "nn.softsign", "sin", "sinh", "tan", "tanh",
)  # fmt: skip
EVEN: Final = ("cos", "cosh")
NEVER_BELOW_ZERO: Final = (
    "absolute", "exp", "exp2", "nn.relu", "nn.sigmoid", "nn.softplus", "square",
)  # fmt: skip


def joined(match: PatternMatch) -> bool:
    """Whether the combined constant is no larger than one of the two."""
    a, b = shape(match.c), shape(match.e)
    return covers(a, b) or covers(b, a)


def summed(match: PatternMatch) -> bool:
    """Whether two constants can be one, and neither their sum nor their difference overflows."""
    return joined(match) and are_finite(match.c + match.e) and are_finite(match.c - match.e)


def multiplied(match: PatternMatch) -> bool:
    """Whether two constants can be combined and neither square overflows: then a value below the
    square root of the largest number overflows with neither, nor do they with each other."""
    return joined(match) and are_finite(match.c, match.c) and are_finite(match.e, match.e)


# fmt: off
# ruff: noqa: E501  # a rule is one line
SUMS: Final = (
    rule("add-zero",                 x + 0,                           x,                            float=signless_zero),
    rule("integer-add-zero",         n + 0,                           n),
    rule("zero-add",                 0 + x,                           x,                            float=signless_zero),
    rule("zero-subtract",            0 - x,                           -x,                           float=signless_zero),
    rule("integer-zero-subtract",    0 - n,                           -n),
    rule("subtract-zero",            x - 0,                           x),
    rule("subtract-same",            n - n,                           zeros_like(n)),
    rule("negative-negative",        negative(-x),                    x),
    rule("subtract-negative",        x - (-y),                        x + y),
    rule("add-negative",             x + (-y),                        x - y),
    rule("negative-add",             (-x) + y,                        y - x),
    rule("negative-subtract",        negative(x - y),                 y - x,                        float=signless_zero),
    rule("integer-add-back",         *spread((n - m) + m,             n)),
    rule("integer-subtract-back",    *spread((n + m) - m,             n)),
    rule("add-constants",            (x + c) + e,                     Evaluated(x + w, c + e),      float=reassociates, when=summed),
    rule("constant-minus-sum",       c - (x + e),                     Evaluated(w - x, c - e),      float=reassociates, when=summed),
    rule("constant-minus-minus",     c - (e - x),                     Evaluated(x + w, c - e),      float=reassociates, when=summed),
    rule("add-to-constant-minus",    (c - x) + e,                     Evaluated(w - x, c + e),      float=reassociates, when=summed),
)
PRODUCTS: Final = (
    rule("multiply-one",             x * 1,                           x),
    rule("one-multiply",             1 * x,                           x),
    rule("multiply-minus-one",       x * -1,                          -x),
    rule("multiply-zero",            n * 0,                           zeros_like(n)),
    rule("multiply-same",            x * x,                           square(x)),
    rule("multiply-negatives",       (-x) * (-y),                     x * y),
    rule("negative-multiply",        (-x) * y,                        -(x * y)),
    rule("multiply-negative",        x * (-y),                        -(x * y)),
    rule("divide-one",               x / 1,                           x),
    rule("divide-minus-one",         f / -1,                          -f),
    rule("one-divide",               1 / f,                           reciprocal(f)),
    rule("divide-negatives",         (-f) / (-g),                     f / g),
    rule("negative-divide",          (-f) / g,                        -(f / g)),
    rule("divide-negative",          f / (-g),                        -(f / g)),
    rule("negative-reciprocal",      reciprocal(-f),                  -reciprocal(f)),
    rule("multiply-reciprocal",      f * reciprocal(g),               f / g,                        float=reassociates),
    rule("multiply-constants",       (x * c) * e,                     Evaluated(x * w, c * e),      float=reassociates, when=multiplied),
    rule("mul-distribute",           x * y + x * z,                   x * (y + z),                  float=reassociates),
    rule("mul-distribute-right",     y * x + z * x,                   (y + z) * x,                  float=reassociates),
    rule("floor-divide-one",         n // 1,                          n),
    rule("trunc-divide-one",         trunc_divide(n, 1),              n),
    rule("mod-one",                  n % 1,                           zeros_like(n)),
    rule("fmod-one",                 fmod(n, 1),                      zeros_like(n)),
    rule("mod-mod",                  (n % m) % m,                     n % m),
    rule("fmod-fmod",                fmod(fmod(x, y), y),             fmod(x, y)),
)
POWERS: Final = (
    rule("power-zero",               x ** 0,                          ones_like(x)),
    rule("power-one",                x ** 1,                          x),
    rule("power-two",                x ** 2,                          square(x),                    float=reassociates),
    rule("power-three",              x ** 3,                          square(x) * x,                float=reassociates),
    rule("power-minus-one",          f ** -1,                         reciprocal(f),                float=reassociates),
    rule("reciprocal-reciprocal",    reciprocal(reciprocal(f)),       f,                            float=reassociates),
    rule("reciprocal-sqrt",          reciprocal(sqrt(f)),             rsqrt(f),                     float=reassociates),
    rule("reciprocal-rsqrt",         reciprocal(rsqrt(f)),            sqrt(f),                      float=reassociates),
    rule("divide-rsqrt",             f / rsqrt(g),                    f * sqrt(g),                  float=reassociates),
    rule("exp-minus-one",            exp(f) - 1,                      expm1(f),                     float=reassociates),
    rule("exp-add-minus-one",        exp(f) + -1,                     expm1(f),                     float=reassociates),
    rule("log-add-one",              log(f + 1),                      log1p(f),                     float=reassociates),
    rule("log-one-add",              log(1 + f),                      log1p(f),                     float=reassociates),
    rule("logistic-is-sigmoid",      reciprocal(exp(-f) + 1),         sigmoid(f),                   float=reassociates),
    rule("multiply-sigmoid",         f * sigmoid(f),                  silu(f),                      float=reassociates),
    rule("sigmoid-multiply",         sigmoid(f) * f,                  silu(f),                      float=reassociates),
    rule("degrees-radians",          degrees(radians(f)),             f,                            float=reassociates),
    rule("radians-degrees",          radians(degrees(f)),             f,                            float=reassociates),
)
EXTREMES: Final = (
    rule("maximum-same",             maximum(x, x),                   x),
    rule("minimum-same",             minimum(x, x),                   x),
    rule("fmax-same",                fmax(x, x),                      x),
    rule("fmin-same",                fmin(x, x),                      x),
    rule("maximum-constants",        maximum(maximum(x, c), e),       Evaluated(maximum(x, w), maximum(c, e)), when=joined),
    rule("minimum-constants",        minimum(minimum(x, c), e),       Evaluated(minimum(x, w), minimum(c, e)), when=joined),
    rule("maximum-maximum",          *spread(maximum(maximum(x, y), y), maximum(x, y))),
    rule("minimum-minimum",          *spread(minimum(minimum(x, y), y), minimum(x, y))),
    rule("maximum-of-minimum",       *spread(maximum(minimum(n, m), n), n)),
    rule("minimum-of-maximum",       *spread(minimum(maximum(n, m), n), n)),
    rule("maximum-negatives",        maximum(-f, -g),                 -minimum(f, g)),
    rule("minimum-negatives",        minimum(-f, -g),                 -maximum(f, g)),
    rule("integer-fmax",             fmax(n, m),                      maximum(n, m)),
    rule("integer-fmin",             fmin(n, m),                      minimum(n, m)),
    rule("copysign-same",            copysign(f, f),                  f),
    rule("copysign-of-absolute",     copysign(absolute(f), g),        copysign(f, g)),
    rule("copysign-of-negative",     copysign(-f, g),                 copysign(f, g)),
)
SIGNS: Final = (
    rule("absolute-absolute",        absolute(absolute(x)),           absolute(x)),
    rule("absolute-negative",        absolute(-s),                    absolute(s)),
    rule("square-negative",          square(-x),                      square(x)),
    rule("square-absolute",          square(absolute(x)),             square(x)),
    rule("sign-sign",                sign(sign(x)),                   sign(x)),
    rule("sign-negative",            sign(-f),                        -sign(f),                     float=signless_zero),
    rule("sign-times-absolute",      sign(s) * absolute(s),           s,                            float=signless_zero),
    rule("absolute-of-sqrt",         absolute(sqrt(f)),               sqrt(f),                      float=signless_zero),
    *(rule(f"{spoken(name)}-of-negative", op(name)(-f), -op(name)(f),   float=reassociates)           for name in ODD),
    *(rule(f"{spoken(name)}-ignores-sign", op(name)(-f), op(name)(f),   float=reassociates)           for name in EVEN),
    *(rule(f"absolute-of-{spoken(name)}", absolute(op(name)(f)), op(name)(f))                         for name in NEVER_BELOW_ZERO if name != "absolute"),
    *(rule(f"relu-of-{spoken(name)}",  relu(op(name)(f)),               op(name)(f))                  for name in NEVER_BELOW_ZERO if name != "nn.relu"),
)
ROUNDING: Final = (
    *(rule(f"{outer}-of-{inner}",    op(outer)(op(inner)(f)),         op(inner)(f))                 for outer in WHOLE for inner in WHOLE),
    rule("floor-of-negative",        op("floor")(-f),                 -op("ceil")(f)),
    rule("ceil-of-negative",         op("ceil")(-f),                  -op("floor")(f)),
    rule("round-of-negative",        op("round")(-f),                 -op("round")(f)),
    rule("trunc-of-negative",        op("trunc")(-f),                 -op("trunc")(f)),
)
BITS: Final = (
    rule("bits-and-same",            both(i, i),                      i),
    rule("bits-or-same",             either_(i, i),                   i),
    rule("bits-xor-same",            one_of(n, n),                    zeros_like(n)),
    rule("bits-and-zero",            both(n, 0),                      zeros_like(n)),
    rule("bits-or-zero",             either_(n, 0),                   n),
    rule("bits-xor-zero",            one_of(n, 0),                    n),
    rule("bits-not-not",             inverted(inverted(i)),           i),
    rule("bits-and-of-nots",         both(inverted(i), inverted(j)),  inverted(either_(i, j))),
    rule("bits-or-of-nots",          either_(inverted(i), inverted(j)), inverted(both(i, j))),
    rule("bits-xor-of-nots",         one_of(inverted(i), inverted(j)), one_of(i, j)),
    rule("bits-and-of-or",           *spread(both(either_(i, j), i),  i)),
    rule("bits-or-of-and",           *spread(either_(both(i, j), i),  i)),
    rule("bits-xor-back",            *spread(one_of(one_of(n, m), m), n)),
    rule("left-shift-zero",          left_shift(n, 0),                n),
    rule("right-shift-zero",         right_shift(n, 0),               n),
    rule("bits-not-is-negative",     inverted(n) + 1,                 -n),
)
# fmt: on

ALGEBRA: Final[Pack] = pack(
    "algebra",
    SUMS,
    PRODUCTS,
    POWERS,
    EXTREMES,
    SIGNS,
    ROUNDING,
    BITS,
    version="3",
    doc="Identities of arithmetic, powers, extremes, signs, rounding and bits.",
)
