"""A recipe writes what a walk through the terms would."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plica.codegen.llvm import value
from plica.codegen.llvm.kernel import emit
from plica.codegen.llvm.recipe import recipe
from plica.codegen.lower.bound import bounds, fill, interval
from plica.core.term import Term
from plica.ir.dtype import f32
from plica.ir.loop import For, Kernel, Store
from plica.ir.scalar import Lt, Reduce, Scalar, Select, index, lit
from plica.ir.tensor import axis, buffer

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
    found: dict[Term, tuple[int, int]] = {}
    fill(bounds(terms), ranges, found)
    assert [found[each] for each in terms] == [interval(each, ranges, {}) for each in terms]


@given(TERMS, st.sampled_from(("serial", "unrolled", "vectorized")), st.booleans())
def test_it_writes_what_a_walk_does(term: Scalar, kind: str, fused: bool) -> None:
    x, y = buffer("x", (16,), f32), buffer("y", (6, 4), f32)
    chosen = Select(Lt(term, index(16)), x[term % 16], lit(0.0, f32))
    body = Store(y, (_i, _j), chosen * x[_i] + x[_j])
    whole = Kernel((), (x, y), 1, For(_i, index(6), "unrolled", For(_j, index(4), kind, body)))  # type: ignore[arg-type]  # one of the kinds
    by_recipe = emit(whole, "k", fused=fused)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(value, "recipe", lambda roots, fused: None)
        assert emit(whole, "k", fused=fused) == by_recipe


def test_a_loop_inside_has_none() -> None:
    x = buffer("x", (16,), f32)
    assert recipe((Reduce("sum", (_i,), (index(16),), x[_i]),), fused=False) is None
