"""The simplifier keeps the value, comes to an end, and does nothing twice."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, strategies as st

from plica.analysis.index import EMPTY, INDEX_RULES, Context, simplified, simplify
from plica.analysis.index.context import FALSE, TRUE
from plica.core.name import Name
from plica.ir.loop.scalar import (
    Add,
    And,
    Buffer,
    Cast,
    FloorDiv,
    FloorMod,
    Lit,
    Load,
    Lt,
    Max,
    Min,
    Mul,
    Not,
    Or,
    Reduce,
    Scalar,
    ScalarVar,
    Select,
    Sub,
)  # fmt: skip
from plica.ir.type.dtype import bool_, f32, i32, i64
from plica.rewrite.derivation import at
from plica.rewrite.discriminate import Index
from plica.rewrite.match import head
from tests.analysis.index.box import (
    X,
    Y,
    Z,
    conditions,
    contexts,
    points,
    split_terms,
    terms,
    value,
)

N, M = (ScalarVar(Name(name), i64) for name in "nm")


def number(of: int) -> Scalar:
    return Lit(of, i64)


@given(terms(), contexts())
def test_keeps_the_value(term: Scalar, context: Context) -> None:
    result = simplify(term, context)
    for point in points(context, size=3):
        assert value(result, point) == value(term, point)


@given(split_terms())
def test_split_indices(pair: tuple[Scalar, Context]) -> None:
    term, context = pair
    result = simplify(term, context)
    for point in points(context, size=5):
        assert value(result, point) == value(term, point)
    assert simplify(result, context) is result
    open_ended = simplify(term)
    for point in points(EMPTY, size=2):
        assert value(open_ended, point) == value(term, point)
    assert simplify(open_ended) is open_ended


@given(conditions(3), contexts())
def test_keeps_the_truth(term: Scalar, context: Context) -> None:
    result = simplify(term, context)
    for point in points(context, size=3):
        assert value(result, point) == value(term, point)


@given(terms(4), contexts())
def test_does_nothing_twice(term: Scalar, context: Context) -> None:
    result = simplify(term, context)
    assert simplify(result, context) is result


@given(terms(), contexts())
def test_the_derivation_leads_there(term: Scalar, context: Context) -> None:
    result, derivation = simplified(term, context)
    assert result is simplify(term, context)
    assert derivation.source is term
    assert at(derivation, len(derivation.steps)) is result


@given(terms(), contexts())
def test_the_order_of_the_rules_is_irrelevant(term: Scalar, context: Context) -> None:
    shuffled = list(INDEX_RULES)
    random.Random(7).shuffle(shuffled)
    result, _ = simplified(term, context, Index(shuffled))
    for point in points(context, size=2):
        assert value(result, point) == value(term, point)


@given(terms(3, (X, Y), linear=True, choices=False), terms(2, (X, Y), linear=True, choices=False))
def test_equal_polynomials_become_one_term(a: Scalar, b: Scalar) -> None:
    context = EMPTY.within(X, -9, 9).within(Y, -9, 9)
    assert simplify(a + b, context) is simplify(b + a, context)
    assert simplify((a + b) * 3, context) is simplify(b * 3 + a * 3, context)
    assert simplify(a + b - a, context) is simplify(b, context)


NEST = EMPTY.loop(X, 4).loop(Y, 8).loop(Z, 16)

# fmt: off
EXPECTED: list[tuple[Scalar, Context, Scalar]] = [
    ((X * 8 + Y) // 8,                          NEST,   X),
    ((X * 8 + Y) % 8,                           NEST,   Y),
    (((X * 8 + Y) * 16 + Z) // 128,             NEST,   X),
    (((X * 8 + Y) * 16 + Z) % 128 // 16,        NEST,   Y),
    ((X * 8 + Y) // 8 * 8 + (X * 8 + Y) % 8,    NEST,   X * 8 + Y),
    (X // 4 * 4 + X % 4,                        EMPTY,  X),
    (X - X // 4 * 4,                            EMPTY,  X % 4),
    ((X + 12) // 4,                             EMPTY,  X // 4 + 3),
    ((X * 4 + 3) // 8,                          EMPTY,  X // 2),
    ((X * 4 + 3) % 8,                           EMPTY,  X % 2 * 4 + 3),
    (X // 3 // 4,                               EMPTY,  X // 12),
    (X % 12 // 3,                               EMPTY,  X // 3 % 4),
    (X % 12 % 4,                                EMPTY,  X % 4),
    (X // -4,                                   EMPTY,  (X * -1) // 4),
    (X // 0 + Y % 0 + X % 1,                    EMPTY,  number(0)),
    ((X // 8 % 8) * 8 + X % 8,                  EMPTY,  X % 64),
    (Min(X * 8, Y * 8),                         EMPTY,  Min(X, Y) * 8),
    (Min(X, number(7)),                         NEST,   X),
    (Max(Min(Y, number(7)), number(0)),         NEST,   Y),
    (Select(X < 4, Y, Z),                       NEST,   Y),
    (Select(X < Y, Max(X, Y), Min(X, Y)),       EMPTY,  Select(X < Y, Y, Y)),
    (And(X < 3, X < 9),                         EMPTY,  X < 3),
    (Or(X < 9, X < 3),                          EMPTY,  X < 9),
    (Not(X < 9),                                EMPTY,  number(8) < X),
    ((X * 4 + 1) <= (Y * 4),                    EMPTY,  X < Y),
    (Lt(X * 2 + 1, Y * 2 + 2),                  EMPTY,  X < Y + 1),
]
# fmt: on


@pytest.mark.parametrize(("term", "context", "expected"), EXPECTED)
def test_expected(term: Scalar, context: Context, expected: Scalar) -> None:
    assert simplify(term, context) is simplify(expected, context)


def test_symbolic_extents() -> None:
    nest = EMPTY.loop(X, N).loop(Y, M)
    flat = X * M + Y
    assert simplify(FloorDiv(flat, M), nest) is X
    assert simplify(FloorMod(flat, M), nest) is Y
    assert simplify(Lt(flat, N * M), nest) is TRUE
    assert simplify(Lt(N * M, flat), nest) is FALSE
    assert simplify(Min(flat, N * M - 1), nest) is simplify(flat, nest)
    # without knowing that m is not 0, n*m // m is not n
    assert simplify(FloorDiv(N * M, M)) is FloorDiv(M * N, M)


def test_wrapping_data_is_left_alone() -> None:
    data = Buffer(Name("data"), (number(4),), i64)
    term = FloorDiv(Mul(data[0], number(8)), number(8))
    assert simplify(term) is term
    small = Buffer(Name("small"), (number(4),), i32)
    narrow = Cast(small[0], i64)
    assert simplify(FloorDiv(Mul(narrow, number(8)), number(8))) is narrow


def test_floats_are_left_alone() -> None:
    data = Buffer(Name("data"), (number(4),), f32)
    a = data[X + 0]
    term = Sub(a, a)
    assert simplify(term) is Sub(data[X], data[X])
    assert simplify(Min(a, a)) is Min(data[X], data[X])


def test_loads_and_guards() -> None:
    data = Buffer(Name("data"), (number(8),), f32)
    inside = And(number(0) <= X - 1, X - 1 < 8)
    term = Select(inside, data[Max(X - 1, number(0))], Lit(0.0, f32))
    result = simplify(term, EMPTY.loop(X, 10))
    assert isinstance(result, Select)
    assert result.then is Load(data, (X - 1,))


def test_reductions_bind_their_axes() -> None:
    # Inside, x is the axis and runs to 16: what the context says of another x is not used.
    body = FloorMod(X, number(8)) + FloorMod(X, number(16))
    term = Reduce("sum", (X,), (number(16),), body)
    result = simplify(term, EMPTY.loop(X, 8))
    assert result is Reduce("sum", (X,), (number(16),), X + FloorMod(X, number(8)))


def test_contradictory_contexts() -> None:
    context = EMPTY.loop(X, 4).where(X < 0)
    assert simplify(X + 0, context) is X


@given(st.lists(st.tuples(st.integers(-4, 4), st.integers(0, 2), st.integers(0, 2)), max_size=5),
       st.randoms(use_true_random=False))  # fmt: skip
def test_equal_polynomials_become_one_term_in_the_empty_context(
    products: list[tuple[int, int, int]], shuffled: random.Random
) -> None:
    """However they are written: products in any order, their factors in any order."""
    n, m = (ScalarVar(Name(name), i64) for name in "nm")

    def written() -> Scalar:
        total: Scalar = number(0)
        for scale, of_n, of_m in shuffled.sample(products, len(products)):
            factors: list[Scalar] = [number(scale), *[n] * of_n, *[m] * of_m]
            shuffled.shuffle(factors)
            whole = factors[0]
            for each in factors[1:]:
                whole = Mul(whole, each)
            total = Add(total, whole) if shuffled.random() < 0.5 else Add(whole, total)
        return total

    assert simplify(written()) is simplify(written())


def test_a_sum_has_one_form_in_the_empty_context() -> None:
    x, y = (ScalarVar(Name(name), i64) for name in "xy")
    assert simplify(x + y) is simplify(y + x)
    assert simplify(x * y + y * 2) is simplify(2 * y + y * x)


def test_names_do_not_decide_the_order() -> None:
    def shape(a: ScalarVar, b: ScalarVar) -> Scalar:
        return simplify(b // 3 + b * 2 + a // 5 + a, EMPTY.loop(a, N).loop(b, M))

    from plica.core.binding import substitute

    a, b = (ScalarVar(Name(name), i64) for name in "ab")
    swapped = substitute(shape(a, b), {a: X, b: Y})
    assert substitute(substitute(shape(b, a), {b: X}), {a: Y}) is swapped


def test_deep_terms() -> None:
    term: Scalar = X
    for i in range(4_000):
        term = (Add(term, number(1)), Min(term, Y), FloorDiv(term, number(2)))[i % 3]
    result = simplify(term)
    assert simplify(result) is result
    select: Scalar = X
    for i in range(2_000):
        select = Select(Lt(Y, number(i)), select, number(i))
    assert simplify(simplify(select)) is simplify(select)


def test_sharing() -> None:
    term: Scalar = X
    for i in range(60):
        term = Max(term + term, term - i)
    result = simplify(term)
    assert simplify(result) is result
    choice: Scalar = X
    for i in range(40):
        choice = Select(Lt(Y, number(i)), choice + 1, choice * 2)
    assert simplify(choice, EMPTY.loop(X, 4)) is not None


def test_all_heads_are_indexed() -> None:
    assert all(head(each.left) is not None for each in INDEX_RULES)
    assert Lit(True, bool_) is TRUE
