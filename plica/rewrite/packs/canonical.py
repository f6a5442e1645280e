"""Canonical forms: of several ways to say one thing, one is used.

Measure: (operators, constants on the left, subtractions and divisions of constants): a rule lowers
the first of these that it changes.

- arguments that are splats become scalars;
- of a commutative operator's arguments the constant is the right one, a difference with a constant
  is a sum, a quotient by powers of two a product (both exact);
- bounds on values are `relu` or `clip`.

>>> bounds_together((0.0, None), (None, 6.0)), bounds_together((2, 3), (5, None))
((0.0, 6.0), (5, 5))
"""

from __future__ import annotations

from math import inf, isnan
from typing import Any, Final, TypeAlias

import attrs
import numpy as np

from plica.core import Term
from plica.ir.graph.expression import Const, Expr, If, const
from plica.ir.graph.provenance import answered
from plica.ir.type import bool_
from plica.rewrite.closed import value_of
from plica.rewrite.make import tabled as rule
from plica.rewrite.match import PatternMatch
from plica.rewrite.pack import Pack, pack
from plica.rewrite.packs.word import Evaluated, c, covers, f, op, shape, spoken, tensor, w, x, y
from plica.rewrite.pattern import derived, hole
from plica.rewrite.rule import Rule

Bounds: TypeAlias = tuple[float | None, float | None]

maximum, minimum, clip, relu, negative = map(
    op, ["maximum", "minimum", "clip", "nn.relu", "negative"]
)


def is_varying(term: Any) -> bool:
    """Whether a term is no constant."""
    return not isinstance(term, Const)


def is_plain(bound: Any) -> bool:
    """Whether a bound is None or a number with an order: neither nan nor -0.0."""
    return bound is None or not (isnan(bound) or (bound == 0 and np.signbit(bound)))


def is_zero(bound: Any) -> bool:
    return bound is not None and is_plain(bound) and bound == 0


# Any: holes for attributes and for constants.
t: Any = hole("t", dtypes=bool_, rank=0)
e: Any = hole("e", when=is_varying)
g: Any = hole("g", constant=True, rank=0)
h: Any = hole("h", constant=True, rank=0)
low: Any = hole("low", when=is_plain)
high: Any = hole("high", when=is_plain)
less: Any = hole("less", when=is_plain)
more: Any = hole("more", when=is_plain)
nought: Any = hole("nought", when=is_zero)

COMMUTATIVE: Final = (
    "add", "bitwise_and", "bitwise_or", "bitwise_xor", "maximum", "minimum", "multiply",
)  # fmt: skip
WITH_SPLATS: Final = ("add", "divide", "maximum", "minimum", "multiply", "power", "subtract")


def commuted(name: str) -> Rule:
    """The rule that moves a constant to the right of a commutative operator."""
    return rule(f"{spoken(name)}-constant-right", op(name)(c, e), op(name)(e, c))


@attrs.frozen
class IsSplat:
    """A guard: a constant has one value everywhere, and a tensor is as large."""

    constant: str
    name: str

    def __call__(self, match: PatternMatch) -> bool:
        whole: Const = match[self.constant]
        as_large = bool(whole.shape) and covers(shape(match[self.name]), tensor(whole).shape)
        return as_large and answered("is-one-number", (whole,), value_of)


@derived
def one_number(of: Const) -> Term:
    """The value that a constant has everywhere."""
    return Const(of.dtype, (), bytes(of.content[: of.dtype.bytes]))


def is_nonzero(match: PatternMatch) -> bool:
    """Whether a difference with a constant changes anything."""
    return bool(match.c.numpy().any())


def times_inverse(match: PatternMatch) -> Term | None:
    """A product for a quotient by powers of two whose inverses are normal numbers."""
    value = match.c.numpy()
    wide = value.astype(np.float64)
    fraction, exponent = np.frexp(wide)
    limit = {"f16": 13, "f64": 1020}.get(match.c.dtype.name, 124)
    if not np.all((np.abs(fraction) == 0.5) & (np.abs(exponent) <= limit)):
        return None
    done: Term = match.e * const((1 / wide).astype(value.dtype), match.c.dtype)
    return done


def bounds_together(inner: Bounds, outer: Bounds) -> Bounds:
    """The bounds of two clips, one after the other; a maximum may be -inf, a minimum inf."""
    lower, upper = (
        outer[0] if outer[0] is not None else -inf,
        outer[1] if outer[1] is not None else inf,
    )
    first = -inf if inner[0] is None else inner[0]
    last = inf if inner[1] is None else inner[1]
    low, high = (min(max(each, lower), upper) for each in (min(first, last), last))
    return None if low == -inf else low, None if high == inf else high


@derived
def clipped_twice(
    of: Expr, low: float | None, high: float | None, less: float | None, more: float | None
) -> Term:
    """A tensor clipped to some bounds and then to others, at once."""
    made: Term = clip(of, *bounds_together((low, high), (less, more)))
    return made


@derived
def bound(of: Const) -> Any:
    """The number of a scalar constant; None, so that a rule does not apply, if that is no plain
    bound. Any: a number or None."""
    found = of.numpy()[()].item()
    return found if is_plain(found) and found not in (inf, -inf) else None


@attrs.frozen
class InOrder:
    """A guard: of two constants that are bounds the first is not above the second."""

    low: str
    high: str

    def __call__(self, match: PatternMatch) -> bool:
        lower, upper = (bound.compute(match[name]) for name in (self.low, self.high))
        return lower is not None and upper is not None and lower <= upper


@attrs.frozen
class IsAboveZero:
    """A guard: a constant is a bound above zero."""

    name: str

    def __call__(self, match: PatternMatch) -> bool:
        return (bound.compute(match[self.name]) or -1) > 0


# fmt: off
# ruff: noqa: E501  # a rule is one line
CONSTANTS: Final = (
    *map(commuted, COMMUTATIVE),
    *(rule(f"{spoken(name)}-splat-is-scalar",   op(name)(x, c),                              op(name)(x, one_number(c)), when=IsSplat("c", "x")) for name in WITH_SPLATS),
    rule("subtract-constant-is-add",          e - c,                                       Evaluated(e + w, negative(c)), when=is_nonzero),
    rule("divide-power-of-two-is-multiply",   e / c,                                       times_inverse),
)
LIMITS: Final = (
    rule("relu-relu",                         relu(relu(x)),                               relu(x)),
    rule("maximum-zero-is-relu",              maximum(x, 0),                               relu(x)),
    rule("relu6-is-clip",                     op("nn.relu6")(x),                           clip(x, 0, 6)),
    rule("hard-tanh-is-clip",                 op("nn.hard_tanh")(f),                       clip(f, -1, 1)),
    rule("clip-unbounded",                    clip(x, None, None),                         x),
    rule("clip-at-zero-is-relu",              clip(x, nought, None),                       relu(x)),
    rule("clip-clip",                         clip(clip(x, low, high), less, more),        clipped_twice(x, low, high, less, more)),
    rule("clip-of-relu",                      clip(relu(x), low, high),                    clipped_twice(x, 0, None, low, high)),
    rule("relu-of-clip",                      relu(clip(x, low, high)),                    clipped_twice(x, low, high, 0, None)),
    rule("minimum-of-maximum-is-clip",        minimum(maximum(x, g), h),                   clip(x, bound(g), bound(h))),
    rule("maximum-of-minimum-is-clip",        maximum(minimum(x, g), h),                   clip(x, bound(h), bound(g)), when=InOrder("h", "g")),
    rule("minimum-of-relu-is-clip",           minimum(relu(x), h),                         clip(x, 0, bound(h))),
    rule("relu-of-minimum-is-clip",           relu(minimum(x, h)),                         clip(x, 0, bound(h)), when=IsAboveZero("h")),
)
CONDITIONALS: Final = (
    rule("if-true",                                  If(const(True, bool_), x, y),                      x),
    rule("if-false",                                 If(const(False, bool_), x, y),                     y),
    rule("if-same",                                  If(t, x, x),                         x),
)
# fmt: on

CANONICAL: Final[Pack] = pack(
    "canonical",
    CONSTANTS,
    LIMITS,
    CONDITIONALS,
    version="2",
    doc="One form for what can be said in several ways.",
)
