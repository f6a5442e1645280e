"""The prover says only what is true, and its certificates convince an independent check."""

from __future__ import annotations

import itertools

import attrs
import pytest
from hypothesis import given, strategies as st

from plica.analysis.index import (
    EMPTY,
    Context,
    Fails,
    Holds,
    Undecided,
    can_prove,
    decide,
    decide_equal,
    holds,
    simplify,
    solver,  # fmt: skip
)
from plica.analysis.index.certificate import (
    ByValue,
    Contradiction,
    Contradictory,
    Exhausted,
    Periodic,
)  # fmt: skip
from plica.analysis.index.elimination import RowSum
from plica.analysis.index.modular import periods
from plica.analysis.index.nonlinear import Nonlinear
from plica.analysis.index.prove import same
from plica.core.name import Name
from plica.ir.loop.scalar import (
    And,
    Buffer,
    Eq,
    FloorDiv,
    FloorMod,
    Lit,
    Lt,
    Max,
    Min,
    Ne,
    Or,
    Scalar,
    ScalarVar,
)
from plica.ir.type.dtype import i64
from tests.analysis.index.box import X, Y, Z, conditions, contexts, points, terms, value

PAIR = (X, Y)
affine = terms(3, PAIR, linear=True, choices=False)


def number(of: int) -> Scalar:
    return Lit(of, i64)


@given(affine, affine, st.integers(0, 3))
def test_equations_are_decided(a: Scalar, b: Scalar, kind: int) -> None:
    """Complete: every equation of the fragment is proved or refuted, as brute force says."""
    if kind == 0:
        b = simplify(a)
    elif kind == 1:
        b = simplify(a) + FloorDiv(FloorMod(X, number(6)), number(5))
    elif kind == 2:
        b = simplify(a) + FloorDiv(FloorMod(Y, number(6)), number(6))
    answer = decide_equal(a, b)
    size = min(3 * max(periods((a - b,)).values(), default=1), 24)
    agree = all(value(a, p) == value(b, p) for p in points(EMPTY, PAIR, size))
    match answer:
        case Holds(certificate):
            assert agree
            assert isinstance(certificate, Periodic | Contradictory | Exhausted)
            assert holds(Eq(a, b), EMPTY, certificate)
        case Fails(point):
            at = {X: 0, Y: 0, **dict(point)}
            assert value(a, at) != value(b, at)
        case Undecided(why):
            pytest.fail(why)


@given(conditions(2, PAIR), contexts(PAIR))
def test_conditions(condition: Scalar, context: Context) -> None:
    answer = decide(condition, context)
    match answer:
        case Holds(certificate):
            assert all(value(condition, p) for p in points(context, PAIR, 9))
            assert holds(condition, context, certificate)
        case Fails(point):
            at = {X: 0, Y: 0, **dict(point)}
            assert all(value(each, at) for each in context.conditions())
            assert not value(condition, at)
        case Undecided():
            pass


@given(conditions(2, PAIR), contexts(PAIR))
def test_never_proves_what_is_false(condition: Scalar, context: Context) -> None:
    if can_prove(condition, context):
        assert all(value(condition, p) for p in points(context, PAIR, 9))


@given(conditions(1, PAIR, linear=True), contexts(PAIR))
def test_linear_conditions_are_decided(condition: Scalar, context: Context) -> None:
    answer = decide(condition, context)
    assert not isinstance(answer, Undecided) or "integer" in answer.why or "quotient" in answer.why


N, M, C = (ScalarVar(Name(name), i64) for name in "nmc")

PROVABLE = [
    (Lt(X % 8, number(8)), EMPTY),
    (Lt(X * M + Y, N * M), EMPTY.loop(X, N).loop(Y, M)),
    (Lt(X * 8 + Y, number(32)), EMPTY.loop(X, 4).loop(Y, 8)),
    (Lt(X, Z), EMPTY.where(X < Y, Y < Z)),  # transitive
    (Lt(X + 1, Z), EMPTY.where(X < Y, Y < Z)),
    (Eq(Min(X, Y) + Max(X, Y), X + Y), EMPTY),
    (Ne(X * 2, Y * 2 + 1), EMPTY),
    (Or(X < Y, Y <= X), EMPTY),
    (Eq(X % 4, number(0)), EMPTY.where(Eq(X % 8, number(4)))),
    (Eq((X * C) // C, X), EMPTY.where(Ne(C, number(0)))),
    (Ne(Y * 3, X), EMPTY.loop(X, 3).where(Y < X, number(0) < X)),
    (Eq(X // 7 // 11 // 13, X // 1001), EMPTY),
    (Eq((X * 224 + Y) // 224, X), EMPTY.loop(Y, 224)),
    (And(number(0) <= X // 3 % 5, X // 3 % 5 < 5), EMPTY),
]  # fmt: skip


@pytest.mark.parametrize(("condition", "context"), PROVABLE)
def test_provable(condition: Scalar, context: Context) -> None:
    assert can_prove(condition, context)
    answer = decide(condition, context)
    assert isinstance(answer, Holds)
    assert holds(condition, context, answer.certificate)


FALSE = [
    ((X // -2, (X // 2) * -1), EMPTY, {X: 1}),
    (((X + 1) // 2, X // 2 + 1), EMPTY, {X: 0}),
    ((X % -3, X % 3), EMPTY, {X: 1}),
    (((X + Y) % 3, X % 3 + Y % 3), EMPTY, {X: -1, Y: 1}),
    ((X // 4 // 3, X // 7), EMPTY, None),
    (((X * 8 + Y) // 8, X), EMPTY.loop(Y, 9), {X: 0, Y: 8}),
]  # fmt: skip


@pytest.mark.parametrize(("sides", "context", "expected"), FALSE)
def test_refuted(
    sides: tuple[Scalar, Scalar], context: Context, expected: dict[Scalar, int] | None
) -> None:
    answer = decide_equal(*sides, context)
    assert isinstance(answer, Fails)
    if expected is not None:
        assert dict(answer.point) == expected
    assert max(abs(each) for _, each in answer.point) <= 12


def test_data_that_may_wrap_proves_nothing() -> None:
    data = Buffer(Name("data"), (number(4),), i64)
    value_ = data[0]
    assert not can_prove(Lt(value_, value_ + 1))
    assert isinstance(decide(Lt(value_, value_ + 1)), Undecided)
    assert not can_prove(Lt(value_, number(5)), EMPTY.where(Lt(value_ + 1, number(5))))
    inside = EMPTY.where(number(0) <= value_, value_ < 100)
    assert can_prove(Lt(value_, value_ + 1), inside)
    assert can_prove(Eq((value_ * 8 + 3) // 8, value_), inside)
    nowhere = EMPTY.loop(X, 1).where(number(1) <= X)  # a branch that is never taken
    assert isinstance(decide(Lt(FloorMod(value_, number(2)), number(2)), nowhere), Undecided)


def test_a_far_counterexample() -> None:
    """No small point shows it: the box does."""
    odd = FloorDiv(FloorMod(X, number(997)), number(996))
    answer = decide_equal(odd, number(0))
    assert isinstance(answer, Fails)
    assert dict(answer.point)[X] % 997 == 996


def test_forged_certificates() -> None:
    same_ = Eq(X // 4 * 4 + X % 4, X)
    wrong = Eq(X // 4 * 4 + X % 4, X + FloorDiv(FloorMod(X, number(8)), number(7)))
    assert holds(same_, EMPTY, Periodic(((X, 4),)))
    assert holds(same_, EMPTY, Periodic(((X, 12),)))
    for periods_ in (((X, 3),), ((X, 0),), (), ((Y, 4),)):
        assert not holds(same_, EMPTY, Periodic(periods_))
    assert not holds(wrong, EMPTY, Periodic(((X, 4),)))
    assert not holds(wrong, EMPTY, Periodic(((X, 8),)))
    inside = EMPTY.loop(X, 4)
    assert holds(Lt(X, number(4)), inside, Exhausted(((X, 0, 3),)))
    assert not holds(Lt(X, number(3)), inside, Exhausted(((X, 0, 2),)))
    assert not holds(Lt(X, number(3)), inside, Exhausted(((X, 0, 3),)))
    true, false = Lt(X, X + 1), Lt(X + 1, X)
    answer = decide(true)
    assert isinstance(answer, Holds)
    assert not holds(false, EMPTY, answer.certificate)
    assert not holds(false, EMPTY, Contradictory((Contradiction(None, ()),)))
    with pytest.raises(ValueError, match="negative"):
        holds(false, EMPTY, Contradictory((Contradiction(None, (RowSum(0, -1, 0, 1),)),)))
    assert not holds(Lt(X, number(2)), EMPTY.loop(X, 3), ByValue(X, ()))


def test_nonlinear_certificates_are_checked() -> None:
    context = EMPTY.where(Lt(number(0), C))
    claim = same((X * C) // C, X)
    answer = decide(claim, context)
    assert isinstance(answer, Holds)
    assert isinstance(answer.certificate, Nonlinear)
    assert not holds(same((X * C) // C, X + 1), context, answer.certificate)
    assert not holds(claim, EMPTY, answer.certificate)
    for place, case in enumerate(answer.certificate.cases):
        cases = list(answer.certificate.cases)
        cases[place] = attrs.evolve(case, multiples=case.multiples[1:])
        assert not holds(claim, context, Nonlinear(tuple(cases)))


def test_too_large_is_said() -> None:
    vast = X % 1009 + Y % 1013 + Z % 1019
    answer = decide_equal(FloorMod(vast, number(1021)), FloorMod(vast + 1021, number(1021)))
    assert isinstance(answer, Holds | Undecided)
    if isinstance(answer, Undecided):
        assert "points" in answer.why or "residues" in answer.why


def test_without_the_solver() -> None:
    hard = Lt(X * X * X + Y * Y * Y, Z * Z * Z * Z + 10**9)
    answer = decide(Or(hard, Lt(number(-5), X)), EMPTY.where(X * X < Y))
    if not solver.available() and isinstance(answer, Undecided):
        assert "z3 is not installed" in answer.why


@pytest.mark.skipif(not solver.available(), reason="z3 is not installed")
@given(conditions(2, PAIR, linear=True), contexts(PAIR))
def test_agrees_with_the_solver(condition: Scalar, context: Context) -> None:
    from plica.analysis.index.case import contrary

    told = solver.possible(contrary(condition, context))
    answer = decide(condition, context)
    if told is False:
        assert not isinstance(answer, Fails)
    elif not isinstance(told, str):
        assert not isinstance(answer, Holds)


def test_deep_conditions() -> None:
    deep: Scalar = X
    for i in range(4_000):
        deep = deep + (1 if i % 2 else -1)
    assert can_prove(Eq(deep, X))
    assert isinstance(decide(Eq(deep, X)), Holds)
    assert isinstance(decide(Eq(deep, X + 1)), Fails)


def test_exhaustive_agreement_on_a_small_world() -> None:
    """Every equation `(x + a) // b == x // b + c` with small numbers."""
    for a, b, c in itertools.product(range(-3, 4), range(-3, 4), range(-2, 3)):
        left, right = (X + a) // b, X // b + c
        truth = all(value(left, {X: n}) == value(right, {X: n}) for n in range(-12, 13))
        assert isinstance(decide_equal(left, right), Holds) == truth
