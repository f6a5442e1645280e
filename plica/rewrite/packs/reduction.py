"""Reductions: axes folded away at once, in another order, or not at all.

Measure: operators, then the number of reduced elements, then the distance of transposes, negations
and products with a constant from the result: they move out of reductions.

Sums and products in another order differ in their roundings (`reassociates`); extremes and
conditions do not depend on the order at all.

>>> is_open((0, 2)), is_open((-1,))
(False, True)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any, Final

import numpy as np

from plica.core import Term
from plica.ir.contract import Contract, exact, reassociates, signless_zero
from plica.ir.graph.expression import const
from plica.ir.type import f32, f64, i32, known, tensor as tensor_type
from plica.rewrite.closed import are_finite
from plica.rewrite.make import tabled as rule
from plica.rewrite.match import PatternMatch
from plica.rewrite.pack import Pack, pack
from plica.rewrite.packs.axes import (
    AxesOfOne,
    AxisOfOne,
    CreatesAxes,
    NamesAll,
    as_shape,
    every,
    explicit,
    merged,
    remaining,
    through,
    united,
    without,
)
from plica.rewrite.packs.composite import dims, number, own_dtype
from plica.rewrite.packs.shape import is_explicit, is_order
from plica.rewrite.packs.word import (
    HasElements,
    Shape,
    admitted,
    ascending,
    b,
    f,
    op,
    reshaped,
    same_shape,
    shape,
    shaped,
    spread,
    tensor,
    x,
    y,
)
from plica.rewrite.pattern import hole, holes
from plica.rewrite.rule import Rule

sum_, max_, min_, all_, any_ = map(op, ["sum", "max", "min", "all", "any"])
supremum, infimum = map(op, ["supremum", "infimum"])
transpose, reshape, broadcast_to = map(op, ["transpose", "reshape", "broadcast_to"])
created: Final = CreatesAxes("x", "t", "a")
multiply, einsum = op("multiply"), op("einsum")
cumsum, cumprod, negated, relu = map(op, ["cumsum", "cumprod", "logical_not", "nn.relu"])

# Any: holes for attributes and for a constant.
a, e, o, t, u, w = holes("a e o t u w")
p: Any = hole("p", when=is_order)
r: Any = hole("r", when=is_explicit)
q: Any = hole("q", constant=True, rank=0)

ORDERED: Final = {"sum": reassociates, "prod": reassociates}
"""What it costs to reduce in another order, where that is not free."""


def is_open(axes: Any) -> bool:
    """Whether a reduction's axes are unspecified or counted from the end."""
    return axes is None or any(axis < 0 for axis in axes) or tuple(sorted(axes)) != axes


def counted(match: PatternMatch, wanted: Shape) -> Term | None:
    """The sum of a broadcast: each element as often as it was repeated."""
    if not created(match):
        return None
    part = as_shape.compute(match.x, without.compute(match.x, match.t, match.a, match.u))
    of, axes = tensor(match.x).dtype, ascending(match.a, len(match.t))
    count = prod(known(match.t[at]) or 0 for at in axes)  # `created` has seen that they are known
    most = 2**10 if of.is_float else of.bounds[1]
    whole = part if same_shape(shape(part), wanted) else broadcast_to(part, wanted)
    done: Term | None = multiply(whole, const(np.array(count), of)) if count <= most else None
    return done


def own_letters(part: str, others: str) -> str:
    """The letters of an argument of einsum that stand once in it, and nowhere else."""
    return "".join(each for each in part if part.count(each) == 1 and each not in others)


def summed_alone(match: PatternMatch) -> Term | None:
    """A sum of products without the axes that only one argument is summed over.

    "abcd,dace->ac"  -->  "acd,dac->ac" of sums over b, and over e
    """
    left, _, result = str(match.e).replace(" ", "").partition("->")
    parts = left.split(",")
    new = []
    for value, part, other in zip((match.x, match.y), parts, reversed(parts), strict=True):
        own = own_letters(part, other + result)
        axes = tuple([part.index(each) for each in own])
        kept = "".join(each for each in part if each not in own)
        new.append((sum_(value, axes, False) if axes else value, kept))
    if [kept for _, kept in new] == parts:
        return None
    equation = ",".join(kept for _, kept in new) + f"->{result}"
    done: Term = einsum(tuple(value for value, _ in new), equation)
    return done


def some_equation(choose: Callable[[Sequence[Any]], Any]) -> dict[str, Any]:  # Any: what it draws
    """Two arguments, letters of each, and which of them the result has."""
    sizes = {letter: choose((1, 2, 3)) for letter in "abcd"}
    parts = [choose(("ab", "abc", "dca", "bb", "d")), choose(("bc", "cd", "cb", "dcb", ""))]
    result = "".join(each for each in dict.fromkeys("".join(parts)) if choose((True, False)))
    of = choose((f32, f64, i32))
    x, y = (tensor_type(tuple(sizes[each] for each in part), of) for part in parts)
    return {"x": x, "y": y, "e": f"{','.join(parts)}->{result}"}


def laws(name: str) -> Iterator[Rule]:
    """Laws of every reduction."""
    of = op(name)
    x: Any = hole("x", dtypes=admitted(name))
    order = ORDERED.get(name, exact)
    alone: Contract = signless_zero if name == "sum" else exact
    fewer = as_shape(x, without(x, t, a, u))

    # fmt: off
    # ruff: noqa: E501  # a rule is one line
    yield rule(f"{name}-axes-explicit",     of(x, hole("a", when=is_open), u),                of(x, explicit(a, x), u))
    yield rule(f"{name}-over-nothing",      of(x, (), u),                                     x)
    yield rule(f"{name}-of-ones",           *reshaped(of(x, a, u)),                           float=alone, when=AxesOfOne("x", "a"))
    yield rule(f"{name}-of-{name}",         of(of(x, a, False), o, False),                    of(x, merged(a, o, x), False), float=order)
    yield rule(f"{name}-of-kept-{name}",    of(of(x, a, True), o, True),                      of(x, united(a, o, x), True), float=order)
    yield rule(f"{name}-of-transpose",      of(transpose(x, p), a, u),                        transpose(of(x, through(p, a), u), remaining(p, a, u)), float=order)
    yield rule(f"{name}-of-all-reshaped",   of(reshape(x, r), a, False),                      of(x, every(x), False), float=order, when=NamesAll("a", "r"))
    yield rule(f"reshape-of-kept-{name}",   reshape(of(x, a, True), r),                       reshape(of(x, a, False), r))
    if name in ("max", "min", "all", "any"):
        yield rule(f"{name}-of-broadcast",  *spread(of(broadcast_to(x, t), a, u),             fewer), when=created)
    # fmt: on


# fmt: off
# ruff: noqa: E501  # a rule is one line
REDUCTION: Final[Pack] = pack(
    "reduction",
    *map(laws, ("sum", "prod", "max", "min", "all", "any")),
    rule("sum-of-broadcast",    *shaped(sum_(broadcast_to(x, t), a, u),  counted),           float=reassociates),
    rule("sum-of-negative",     sum_(-x, a, u),                          -sum_(x, a, u),     float=signless_zero),
    rule("sum-of-scaled",       sum_(x * q, a, u),                       sum_(x, a, u) * q,  float=reassociates, when=lambda m: are_finite(m.q)),
    rule("supremum-of-some",    supremum(x, a, u),                       max_(x, a, u),      when=HasElements("x", a)),
    rule("infimum-of-some",     infimum(x, a, u),                        min_(x, a, u),      when=HasElements("x", a)),
    rule("max-of-negative",     max_(-f, a, u),                          -min_(f, a, u)),
    rule("min-of-negative",     min_(-f, a, u),                          -max_(f, a, u)),
    rule("max-of-relu",         max_(relu(x), a, u),                     relu(max_(x, a, u))),
    rule("min-of-relu",         min_(relu(x), a, u),                     relu(min_(x, a, u))),
    rule("all-of-not",          all_(negated(b), a, u),                  negated(any_(b, a, u))),
    rule("any-of-not",          any_(negated(b), a, u),                  negated(all_(b, a, u))),
    rule("einsum-sums-alone",   einsum((x, y), e),                       summed_alone,       float=reassociates, instances=some_equation),
    rule("cumsum-over-one",     cumsum(x, a, False, u),                  x, when=AxisOfOne("x", "a"), float=signless_zero),
    rule("cumprod-over-one",    cumprod(x, a, False, u),                 x, when=AxisOfOne("x", "a")),
    rule("cumsum-before-one",   cumsum(x, a, True, u),                   broadcast_to(number(0, own_dtype(None, x)), dims(x)), when=AxisOfOne("x", "a")),
    rule("cumprod-before-one",  cumprod(x, a, True, u),                  broadcast_to(number(1, own_dtype(None, x)), dims(x)), when=AxisOfOne("x", "a")),
    version="2",
    doc="Reductions merged, moved and left out.",
)
# fmt: on
