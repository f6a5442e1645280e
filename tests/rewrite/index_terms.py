"""Index terms and rules that the tests of the engine share."""

from __future__ import annotations

from hypothesis import strategies as st

from plica.core.name import Name
from plica.ir.loop.scalar import Add, Lit, Max, Min, Mul, Scalar, ScalarVar, Sub
from plica.ir.type.dtype import i64
from plica.rewrite import index_constants, index_holes, rule
from plica.rewrite.match import PatternMatch
from plica.rewrite.rule import Rule

x, y = index_holes("x y")
c, d = index_constants("c d")
VARIABLES = tuple(ScalarVar(Name(name), i64) for name in "abcd")


def _sum(m: PatternMatch) -> Scalar:
    return Add(m.x, Lit(m.c.value + m.d.value, i64))


RULES: tuple[Rule, ...] = (
    rule("add-zero", x + 0, x),
    rule("mul-one", x * 1, x),
    rule("sub-self", x - x, Lit(0, i64)),
    rule("min-same", Min(x, x), x),
    rule("add-fold", (x + c) + d, _sum),
    rule("max-min", Max(Min(x, y), x), x),
)


def index_terms() -> st.SearchStrategy[Scalar]:
    """Small index terms in which the rules have something to do."""
    leaves = st.one_of(
        st.sampled_from(VARIABLES), st.integers(-2, 2).map(lambda number: Lit(number, i64))
    )
    return st.recursive(
        leaves,
        lambda inner: st.builds(
            lambda make, left, right: make(left, right),
            st.sampled_from([Add, Sub, Mul, Min, Max]),
            inner,
            inner,
        ),
        max_leaves=12,
    )


def value(term: Scalar, point: dict[str, int]) -> int:
    """A direct recursive meaning, independent of the interpreters."""
    match term:
        case Lit(number, _):
            return int(number)
        case ScalarVar(name, _):
            return point[name.hint]
        case Add(left, right):
            return value(left, point) + value(right, point)
        case Sub(left, right):
            return value(left, point) - value(right, point)
        case Mul(left, right):
            return value(left, point) * value(right, point)
        case Min(left, right):
            return min(value(left, point), value(right, point))
        case Max(left, right):
            return max(value(left, point), value(right, point))
        case _:
            raise AssertionError(term)
