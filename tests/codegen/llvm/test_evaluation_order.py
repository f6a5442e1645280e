"""What is known of terms wherever they are written."""

from __future__ import annotations

from hypothesis import given, strategies as st

from plica.analysis.constant_bound import bounds, fill, interval, linear
from plica.core.term import Term
from plica.ir.loop.scalar import Scalar, index
from plica.ir.loop.tensor import axis
from plica.ir.type.dim import evaluate

_i, _j = axis("i"), axis("j")
TERMS = st.recursive(
    st.sampled_from((_i, _j)) | st.integers(-3, 9).map(index),
    lambda inner: st.tuples(inner, inner, st.sampled_from("+-*/%")).map(
        lambda made: {
            "+": made[0] + made[1],
            "-": made[0] - made[1],
            "*": made[0] * made[1],
            "/": made[0] // made[1],
            "%": made[0] % made[1],
        }[made[2]]
    ),
    max_leaves=8,
)


@given(st.lists(TERMS, min_size=1, max_size=4))
def test_intervals_are_those_of_each_term(terms: list[Scalar]) -> None:
    ranges: dict[Term, tuple[int, int]] = {_i: (0, 5), _j: (-2, 3)}
    found: dict[Scalar, tuple[int, int]] = {}
    fill(bounds(terms), ranges, found)
    assert [found[each] for each in terms] == [interval(each, ranges, {}) for each in terms]


@given(TERMS, st.integers(-9, 9), st.integers(-9, 9))
def test_a_sum_is_its_number_and_its_parts(term: Scalar, i: int, j: int) -> None:
    if (form := linear(term)) is None:
        return
    number, counts, parts = form
    found = [evaluate(part, {_i: i, _j: j}) for part in parts]
    if None in found:
        return  # a quotient by 0
    total = number + sum(n * part for n, part in zip(counts, found, strict=True) if part)
    assert total == evaluate(term, {_i: i, _j: j})
