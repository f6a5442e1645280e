"""Reductions: axes folded away at once, in another order, or not at all.

Measure: operators, then the number of reduced elements, then the distance of transposes, negations
and products with a constant from the result: they move out of reductions.

Sums and products in another order differ in their roundings (`reassociates`); extremes and
conditions do not depend on the order at all.

>>> remaining((2, 0, 1), (0,))
(0, 1)
>>> merged((0, 2), (1,), 4)
(0, 2, 3)
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
from plica.rewrite.packs.shape import is_explicit, is_order
from plica.rewrite.packs.word import (
    HasElements,
    Shape,
    admitted,
    ascending,
    b,
    f,
    op,
    same_shape,
    shape,
    shaped,
    tensor,
    x,
    y,
)
from plica.rewrite.pattern import hole, holes
from plica.rewrite.rule import Rule

sum_, max_, min_, all_, any_ = map(op, ["sum", "max", "min", "all", "any"])
supremum, infimum = map(op, ["supremum", "infimum"])
transpose, reshape, broadcast_to = map(op, ["transpose", "reshape", "broadcast_to"])
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
    return axes is None or any(each < 0 for each in axes) or tuple(sorted(axes)) != axes


def merged(first: tuple[int, ...], second: tuple[int, ...], rank: int) -> tuple[int, ...]:
    """The axes that two reductions fold, the second counted after the first."""
    left = [at for at in range(rank) if at not in first]
    return tuple(sorted((*first, *(left[at] for at in second))))


def remaining(order: tuple[int, ...], gone: tuple[int, ...]) -> tuple[int, ...]:
    """A permutation without some axes of its result, counted among those that are left."""
    left = [at for i, at in enumerate(order) if i not in gone]
    return tuple(sorted(left).index(at) for at in left)


def folds_ones(match: PatternMatch) -> bool:
    """Whether all the axes have the size 1."""
    sizes = shape(match.x)
    return all(known(sizes[at]) == 1 for at in ascending(match.a, len(sizes)))


def folds_all(match: PatternMatch) -> bool:
    return len(ascending(match.a, len(match.r))) == len(match.r)


def new_axes(match: PatternMatch) -> tuple[int, ...] | None:
    """The reduced axes of a broadcast, if it created all of them and none is empty."""
    inner, wide = shape(match.x), match.t
    skip = len(wide) - len(inner)
    axes = ascending(match.a, len(wide))
    for at in axes:
        made = at < skip or (known(inner[at - skip]) == 1)
        if not made or not known(wide[at]):
            return None
    return axes


def without_new_axes(match: PatternMatch, wanted: Shape) -> Term | None:
    """The operand of the broadcast, without the reduced axes."""
    if (axes := new_axes(match)) is None:
        return None
    inner = shape(match.x)
    skip = len(match.t) - len(inner)
    kept = tuple(size for at, size in enumerate(inner) if match.u or at + skip not in axes)
    part = match.x if same_shape(kept, inner) else reshape(match.x, kept)
    done: Term = part if same_shape(kept, wanted) else broadcast_to(part, wanted)
    return done


def counted(match: PatternMatch, wanted: Shape) -> Term | None:
    """The sum of a broadcast: each element as often as it was repeated."""
    part, of = without_new_axes(match, wanted), tensor(match.x).dtype
    axes = new_axes(match)
    if part is None or axes is None:
        return None
    count = prod(known(match.t[at]) or 0 for at in axes)  # `new_axes` has seen that they are known
    most = 2**10 if of.is_float else of.bounds[1]
    done: Term | None = multiply(part, const(np.array(count), of)) if count <= most else None
    return done


def running_over_one(match: PatternMatch, wanted: Shape) -> Term | None:
    """A running total along an axis of size 1."""
    done: Term | None = match.x if known(wanted[match.a]) == 1 else None
    return done


def before_one(start: int) -> Callable[[PatternMatch, Shape], Term | None]:
    """The prefix before the only element along an axis of size 1: just the start value."""

    def build(match: PatternMatch, wanted: Shape) -> Term | None:
        if known(wanted[match.a]) != 1:
            return None
        done: Term = broadcast_to(const(np.array(start), tensor(match.x).dtype), wanted)
        return done

    return build


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

    def explicit(match: PatternMatch) -> Term:
        done: Term = of(match.x, ascending(match.a, len(shape(match.x))), match.u)
        return done

    def at_once(match: PatternMatch) -> Term:
        rank = len(shape(match.x))
        first = ascending(match.a, rank)
        second = ascending(match.o, rank - len(first))
        done: Term = of(match.x, merged(first, second, rank), False)
        return done

    def kept_at_once(match: PatternMatch) -> Term:
        rank = len(shape(match.x))
        axes = {*ascending(match.a, rank), *ascending(match.o, rank)}
        done: Term = of(match.x, tuple(sorted(axes)), True)
        return done

    def turned_after(match: PatternMatch) -> Term:
        axes = ascending(match.a, len(match.p))
        there = tuple(sorted(match.p[at] for at in axes))
        folded = of(match.x, there, match.u)
        done: Term = transpose(folded, match.p if match.u else remaining(match.p, axes))
        return done

    def flat(match: PatternMatch) -> Term:
        done: Term = of(match.x, tuple(range(len(shape(match.x)))), False)
        return done

    # fmt: off
    # ruff: noqa: E501  # a rule is one line
    yield rule(f"{name}-axes-explicit",     of(x, hole("a", when=is_open), u),                explicit)
    yield rule(f"{name}-over-nothing",      of(x, (), u),                                     x)
    yield rule(f"{name}-of-ones",           *shaped(of(x, a, u), lambda match, wanted: reshape(match.x, wanted) if folds_ones(match) else None), float=alone)
    yield rule(f"{name}-of-{name}",         of(of(x, a, False), o, False),                    at_once,      float=order)
    yield rule(f"{name}-of-kept-{name}",    of(of(x, a, True), o, True),                      kept_at_once, float=order)
    yield rule(f"{name}-of-transpose",      of(transpose(x, p), a, u),                        turned_after, float=order)
    yield rule(f"{name}-of-all-reshaped",   of(reshape(x, r), a, False),                      flat,         float=order, when=folds_all)
    yield rule(f"reshape-of-kept-{name}",   reshape(of(x, a, True), r),                       reshape(of(x, a, False), r))
    if name in ("max", "min", "all", "any"):
        yield rule(f"{name}-of-broadcast",  *shaped(of(broadcast_to(x, t), a, u),             without_new_axes))
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
    rule("cumsum-over-one",     *shaped(cumsum(x, a, False, u),          running_over_one),  float=signless_zero),
    rule("cumprod-over-one",    *shaped(cumprod(x, a, False, u),         running_over_one)),
    rule("cumsum-before-one",   *shaped(cumsum(x, a, True, u),           before_one(0))),
    rule("cumprod-before-one",  *shaped(cumprod(x, a, True, u),          before_one(1))),
    version="2",
    doc="Reductions merged, moved and left out.",
)
# fmt: on
