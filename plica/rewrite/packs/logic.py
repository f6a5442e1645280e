"""Logic: comparisons, conditions, and choices between values.

Measure: operators, then negations inside others, then `greater` and `greater_equal`: a rule removes
an operator, moves a negation towards the result, or swaps a comparison.

Comparisons are false on nan but for `not_equal`, so `not (x < y)` is `x >= y` of integers alone.

>>> from plica.core.name import Name
>>> from plica.ir.graph.expression import Var
>>> from plica.ir.type.term import tensor
>>> from plica.rewrite.pack import rewrite
>>> a = Var(Name("a"), tensor((2,), "f32"))
>>> rewrite(negated(equal(a, a)), LOGIC)[0] is isnan(a)
True
"""

from __future__ import annotations

from typing import Final

from plica.ir.graph.expression import const
from plica.ir.type import bool_
from plica.rewrite.make import tabled as rule
from plica.rewrite.pack import Pack, pack
from plica.rewrite.packs.canonical import commuted
from plica.rewrite.packs.word import b, d, f, g, i, m, n, op, spread, x, y, z

equal, not_equal, less, less_equal, greater, greater_equal = map(
    op, ["equal", "not_equal", "less", "less_equal", "greater", "greater_equal"]
)
both, any_of, one_of, negated = map(op, ["logical_and", "logical_or", "logical_xor", "logical_not"])
bits_and, bits_or, bits_xor, bits_not = map(
    op, ["bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not"]
)
isnan, isinf, isfinite, signbit = map(op, ["isnan", "isinf", "isfinite", "signbit"])
where, full_like, absolute, square = map(op, ["where", "full_like", "absolute", "square"])
relu = op("nn.relu")

true, false = const(True, bool_), const(False, bool_)
always = {"value": True, "dtype": bool_}
never = {"value": False, "dtype": bool_}

# fmt: off
# ruff: noqa: E501  # a rule is one line
COMPARISONS: Final = (
    *map(commuted, ("equal", "logical_and", "logical_or", "logical_xor", "not_equal")),
    rule("greater-is-less",            greater(x, y),                       less(y, x)),
    rule("greater-equal-is-less",      greater_equal(x, y),                 less_equal(y, x)),
    rule("equal-same",                 equal(i, i),                         full_like(i, **always)),
    rule("not-equal-same",             not_equal(i, i),                     full_like(i, **never)),
    rule("less-same",                  less(x, x),                          full_like(x, **never)),
    rule("less-equal-same",            less_equal(n, n),                    full_like(n, **always)),
    rule("not-equal-self-is-nan",      not_equal(f, f),                     isnan(f)),
    rule("equal-self-is-number",       equal(f, f),                         negated(isnan(f))),
    rule("less-equal-self-is-number",  less_equal(f, f),                    negated(isnan(f))),
    rule("equal-negatives",            equal(-x, -y),                       equal(x, y)),
    rule("not-equal-negatives",        not_equal(-x, -y),                   not_equal(x, y)),
    rule("less-negatives",             less(-f, -g),                        less(g, f)),
    rule("less-equal-negatives",       less_equal(-f, -g),                  less_equal(g, f)),
    rule("equal-true",                 equal(b, True),                      b),
    rule("equal-false",                equal(b, False),                     negated(b)),
    rule("not-equal-true",             not_equal(b, True),                  negated(b)),
    rule("not-equal-false",            not_equal(b, False),                 b),
    rule("absolute-below-zero",        less(absolute(f), 0),                full_like(f, **never)),
    rule("square-below-zero",          less(square(f), 0),                  full_like(f, **never)),
    rule("relu-below-zero",            less(relu(x), 0),                    full_like(x, **never)),
    rule("isnan-of-negative",          isnan(-f),                           isnan(f)),
    rule("isnan-of-absolute",          isnan(absolute(f)),                  isnan(f)),
    rule("isinf-of-negative",          isinf(-f),                           isinf(f)),
    rule("isinf-of-absolute",          isinf(absolute(f)),                  isinf(f)),
    rule("isfinite-of-negative",       isfinite(-f),                        isfinite(f)),
    rule("isfinite-of-absolute",       isfinite(absolute(f)),               isfinite(f)),
    rule("nan-or-inf",                 any_of(isnan(f), isinf(f)),          negated(isfinite(f))),
    rule("inf-or-nan",                 any_of(isinf(f), isnan(f)),          negated(isfinite(f))),
)
CONDITIONS: Final = (
    rule("not-not",                    negated(negated(b)),                 b),
    rule("not-equal",                  negated(equal(x, y)),                not_equal(x, y)),
    rule("not-not-equal",              negated(not_equal(x, y)),            equal(x, y)),
    rule("not-less",                   negated(less(n, m)),                 less_equal(m, n)),
    rule("not-less-equal",             negated(less_equal(n, m)),           less(m, n)),
    rule("and-same",                   both(b, b),                          b),
    rule("and-true",                   both(b, True),                       b),
    rule("and-false",                  both(b, False),                      full_like(b, **never)),
    rule("and-not",                    both(b, negated(b)),                 full_like(b, **never)),
    rule("not-and",                    both(negated(b), b),                 full_like(b, **never)),
    rule("or-same",                    any_of(b, b),                        b),
    rule("or-false",                   any_of(b, False),                    b),
    rule("or-true",                    any_of(b, True),                     full_like(b, **always)),
    rule("or-not",                     any_of(b, negated(b)),               full_like(b, **always)),
    rule("not-or",                     any_of(negated(b), b),               full_like(b, **always)),
    rule("xor-same",                   one_of(b, b),                        full_like(b, **never)),
    rule("xor-false",                  one_of(b, False),                    b),
    rule("xor-true",                   one_of(b, True),                     negated(b)),
    rule("xor-of-nots",                one_of(negated(b), negated(d)),      one_of(b, d)),
    rule("not-xor",                    one_of(negated(b), d),               negated(one_of(b, d))),
    rule("xor-not",                    one_of(b, negated(d)),               negated(one_of(b, d))),
    rule("and-of-nots",                both(negated(b), negated(d)),        negated(any_of(b, d))),
    rule("or-of-nots",                 any_of(negated(b), negated(d)),      negated(both(b, d))),
    rule("and-of-or",                  *spread(both(any_of(b, d), b),       b)),
    rule("or-of-and",                  *spread(any_of(both(b, d), b),       b)),
    rule("and-and-same",               *spread(both(both(b, d), d),         both(b, d))),
    rule("or-or-same",                 *spread(any_of(any_of(b, d), d),     any_of(b, d))),
    rule("bits-and-of-bools",          bits_and(b, d),                      both(b, d)),
    rule("bits-or-of-bools",           bits_or(b, d),                       any_of(b, d)),
    rule("bits-xor-of-bools",          bits_xor(b, d),                      one_of(b, d)),
    rule("bits-not-of-bools",          bits_not(b),                         negated(b)),
)
CHOICES: Final = (
    rule("where-same",                 *spread(where(b, x, x),              x)),
    rule("where-true",                 *spread(where(true, x, y),           x)),
    rule("where-false",                *spread(where(false, x, y),          y)),
    rule("where-not",                  where(negated(b), x, y),             where(b, y, x)),
    rule("where-inner-same",           *spread(where(b, where(b, x, y), z), where(b, x, z))),
    rule("where-outer-same",           *spread(where(b, x, where(b, y, z)), where(b, x, z))),
    rule("where-shared-first",         *spread(where(b, x, where(d, x, y)), where(any_of(b, d), x, y))),
    rule("where-and",                  *spread(where(b, where(d, x, y), y), where(both(b, d), x, y))),
    rule("where-is-condition",         where(b, b, d),                      any_of(b, d)),
    rule("where-orelse-condition",     where(b, d, b),                      both(b, d)),
)
# fmt: on

LOGIC: Final[Pack] = pack(
    "logic",
    COMPARISONS,
    CONDITIONS,
    CHOICES,
    version="2",
    doc="Identities of comparisons, conditions and choices.",
)
