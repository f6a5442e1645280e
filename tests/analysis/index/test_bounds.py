"""Bounds and modular sets hold every value; bounds of affine terms are tight."""

from __future__ import annotations

from hypothesis import given, strategies as st

from plica.analysis.index import EMPTY, Context, Interval, bounds, modular
from plica.analysis.index.bounds import knowledge, wraps
from plica.analysis.index.knowledge import Residue
from plica.core.name import Name
from plica.ir.loop.scalar import Add, Buffer, Cast, Eq, FloorMod, Lit, Min, Scalar
from plica.ir.type.dtype import i32, i64
from tests.analysis.index.box import X, Y, Z, contexts, points, split_terms, terms, value


@given(terms(), contexts())
def test_sound(term: Scalar, context: Context) -> None:
    interval, residue = bounds(term, context), modular(term, context)
    for point in points(context, size=3):
        assert value(term, point) in interval
        assert value(term, point) in residue


@given(split_terms())
def test_sound_on_split_indices(pair: tuple[Scalar, Context]) -> None:
    term, context = pair
    interval, residue = bounds(term, context), modular(term, context)
    for point in points(context, size=5):
        assert value(term, point) in interval
        assert value(term, point) in residue


coefficients = st.tuples(*[st.integers(-4, 4)] * 4)


@given(
    coefficients, coefficients, st.tuples(*[st.tuples(st.integers(-4, 4), st.integers(1, 4))] * 3)
)
def test_tight_on_affine_terms(
    a: tuple[int, ...], b: tuple[int, ...], loops: tuple[tuple[int, int], ...]
) -> None:
    context = EMPTY
    for variable, (start, extent) in zip((X, Y, Z), loops, strict=True):
        context = context.loop(variable, extent, start)
    # the same variable several times, so that gathering matters
    term = X * a[0] + Y * a[1] + Z * a[2] + a[3] - (X * b[0] + Y * b[1] + Z * b[2] + b[3])
    found = [value(term, point) for point in points(context, size=8)]
    assert bounds(term, context) == Interval(min(found), max(found))


def test_facts() -> None:
    context = EMPTY.where(X - Y < 5, Y - X <= 0, Eq(FloorMod(Z, Lit(8, i64)), Lit(3, i64)))
    assert bounds(X - Y, context) == Interval(0, 4)
    assert bounds(3 * X - 3 * Y + 1, context) == Interval(1, 13)
    assert modular(Z, context) == Residue(8, 3)
    assert modular(Z * 2 + 1, context) == Residue(16, 7)
    assert bounds(FloorMod(Z, Lit(4, i64)), context) == Interval(3, 3)


def test_facts_spread() -> None:
    context = EMPTY.loop(X, 8).where(Y <= X, Lit(-2, i64) < Y)
    assert bounds(Y, context) == Interval(-1, 7)
    assert bounds(Min(Y, Z), context) == Interval(None, 7)


def test_data_may_wrap() -> None:
    data = Buffer(Name("data"), (Lit(4, i64),), i64)
    small = Buffer(Name("small"), (Lit(4, i64),), i32)
    known = knowledge(EMPTY)
    assert wraps(data[0] * 8, known)
    assert bounds(data[0] + 1) == Interval(-(2**63), 2**63 - 1)
    assert modular(data[0] * 3 + 1) == Residue(1, 0)
    assert not wraps(Cast(small[0], i64) * 8 + 1, known)
    assert bounds(Cast(small[0], i64) * 8) == Interval(-(2**34), 2**34 - 8)
    assert not wraps(X * 8 + Y, known)


def test_deep_terms() -> None:
    term: Scalar = X
    for number in range(5_000):
        term = Min(FloorMod(Add(term, Y), Lit(7 + number % 3, i64)), Z)
    assert bounds(term, EMPTY.loop(X, 4)).high is not None
    assert modular(term) == Residue(1, 0)
