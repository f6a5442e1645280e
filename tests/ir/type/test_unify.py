"""Unification: what it makes equal is equal, what it refuses cannot be."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from plica.core.binding import substitute
from plica.core.name import Name
from plica.core.term import Term
from plica.ir.loop.scalar import Lit, Scalar
from plica.ir.type.dim import evaluate, same_dim
from plica.ir.type.dtype import DTYPES, bool_, f32, f64, i32, i64
from plica.ir.type.term import (
    DataName,
    DataType,
    FuncType,
    TensorType,
    TupleType,
    Type,
    TypeVar,
    Unknown,
    dim_var,
    tensor,
)
from plica.ir.type.unify import Solver, same_type
from plica.ir.type.unknown import POISON, rename_types, unknowns

A, B = TypeVar(Name("A")), TypeVar(Name("B"))
LIST = DataName(Name("List"))
n, m = dim_var("n"), dim_var("m")
V4 = tensor((4,), f32)

sizes = st.one_of(st.integers(0, 5), st.sampled_from([n, m, n + m, 2 * n + 1, n * m]))
leaves: st.SearchStrategy[Type] = st.one_of(
    st.builds(tensor, st.lists(sizes, max_size=3), st.sampled_from(DTYPES)), st.sampled_from([A, B])
)
types: st.SearchStrategy[Type] = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(lambda items: TupleType(tuple(items)), st.lists(inner, max_size=3)),
        st.builds(lambda of: DataType(LIST, (of,)), inner),
        st.builds(
            lambda params, ret: FuncType((), (), tuple(params), ret),
            st.lists(inner, max_size=2),
            inner,
        ),
    ),
    max_leaves=8,
)


@given(types)
def test_a_type_agrees_with_itself(of: Type) -> None:
    assert Solver().unify(of, of) is None
    assert same_type(of, of)
    assert Solver().is_known(of)


@given(types, types)
def test_unification_of_known_types_is_equality_and_symmetric(a: Type, b: Type) -> None:
    assert same_type(a, b) == same_type(b, a)
    assert (a is not b) or same_type(a, b)


@given(types, st.data())
def test_holes_in_a_type_are_filled(of: Type, data: st.DataObject) -> None:
    """Punch holes into a type: unification with the whole finds what was there."""
    solver = Solver()
    parts = [each for each in _inside(of) if data.draw(st.booleans())]
    holes: dict[Term, Term] = {each: solver.fresh() for each in parts}
    punched = rename_types(of, holes)
    assert solver.unify(punched, of) is None
    assert same_type(solver.resolve(punched), of)
    for part, hole in holes.items():
        if any(each is hole for each in unknowns(punched)):
            assert isinstance(hole, Unknown)
            assert same_type(solver.resolve(hole), part)  # type: ignore[arg-type]  # a type


@given(types, types)
def test_what_unifies_is_equal_afterwards(a: Type, b: Type) -> None:
    solver = Solver()
    hole = solver.fresh()
    left, right = TupleType((hole, a)), TupleType((b, hole))
    clash = solver.unify(left, right)
    assert (clash is None) == same_type(a, b)
    if clash is None:
        assert same_type(solver.resolve(left), solver.resolve(right))


def _inside(of: Type) -> list[Type]:
    found: dict[Type, None] = {}
    stack = [of]
    while stack:
        part = stack.pop()
        found[part] = None
        if isinstance(part, TupleType):
            stack.extend(part.items)
        elif isinstance(part, DataType):
            stack.extend(part.args)
        elif isinstance(part, FuncType):
            stack.extend((*part.params, part.ret))
    return list(found)


# --- dims --------------------------------------------------------------------------------------


@given(st.integers(-3, 4).filter(bool), st.integers(-5, 5), st.integers(0, 9))
def test_linear_equations_are_solved_exactly(factor: int, shift: int, value: int) -> None:
    solver = Solver()
    unknown = solver.fresh_dim()
    size: Scalar = unknown * factor + shift
    target = value * factor + shift
    clash = solver.unify(TensorType((size,), f32), TensorType((Lit(target, i64),), f32))
    assert clash is None
    assert evaluate(solver.size(unknown), {}) == value


def test_an_equation_without_whole_solution() -> None:
    solver = Solver()
    unknown = solver.fresh_dim()
    clash = solver.unify(tensor((2 * unknown,), f32), tensor((7,), f32))
    assert clash is not None
    assert clash.code == "shape-conflict"
    assert "No size makes" in clash.why


def test_a_negative_size_is_refused() -> None:
    solver = Solver()
    clash = solver.unify(tensor((solver.fresh_dim() + 5,), f32), tensor((3,), f32))
    assert clash is not None
    assert clash.code == "shape-conflict"


def test_an_unknown_may_be_symbolic() -> None:
    solver = Solver()
    unknown = solver.fresh_dim()
    assert solver.unify(tensor((unknown * 4,), f32), tensor((n * 4 + 8,), f32)) is None
    assert same_dim(solver.size(unknown), n + 2)


def test_a_product_of_unknowns_waits_for_one_of_them() -> None:
    solver = Solver()
    x, y = solver.fresh_dim(), solver.fresh_dim()
    assert solver.unify(tensor((x * y,), f32), tensor((12,), f32)) is None
    assert solver.equations
    assert solver.unify(tensor((x,), f32), tensor((4,), f32)) is None
    assert list(solver.recheck()) == []
    assert evaluate(solver.size(y), {}) == 3


def test_what_waited_is_refused_in_the_end() -> None:
    solver = Solver()
    x, y = solver.fresh_dim(), solver.fresh_dim()
    assert solver.unify(tensor((x * y, x), f32), tensor((12, 5), f32)) is None
    assert [clash.code for clash, _ in solver.recheck()] == ["shape-conflict"]


# --- clashes -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("a", "b", "code"),
    [
        (tensor((3,), f32), tensor((4,), f32), "shape-conflict"),
        (tensor((n,), f32), tensor((m,), f32), "shape-conflict"),
        (tensor((n,), f32), tensor((4,), f32), "shape-conflict"),
        (tensor((3,), f32), tensor((3, 3), f32), "shape-conflict"),
        (tensor((3,), f32), tensor((3,), f64), "dtype-conflict"),
        (V4, TupleType((V4,)), "type-conflict"),
        (TupleType((V4,)), TupleType((V4, V4)), "type-conflict"),
        (A, B, "type-conflict"),
        (A, V4, "type-conflict"),
        (DataType(LIST, (V4,)), DataType(DataName(Name("Tree")), (V4,)), "type-conflict"),
        (FuncType((), (), (V4,), V4), FuncType((), (), (), V4), "type-conflict"),
        (FuncType((), (A,), (A,), A), FuncType((), (), (V4,), V4), "type-conflict"),
        (FuncType((), (A,), (A,), A), FuncType((), (A,), (A,), V4), "type-conflict"),
    ],
)
def test_clashes(a: Type, b: Type, code: str) -> None:
    for found, expected in ((a, b), (b, a)):
        clash = Solver().unify(found, expected)
        assert clash is not None
        assert clash.code == code


def test_functions_are_equal_up_to_the_names_they_bind() -> None:
    a = FuncType((n,), (A,), (tensor((n,), f32), A), A)
    b = FuncType((m,), (B,), (tensor((m,), f32), B), B)
    assert same_type(a, b)
    assert not same_type(a, FuncType((m,), (B,), (tensor((n,), f32), B), B))


def test_a_type_is_no_part_of_itself() -> None:
    solver = Solver()
    unknown = solver.fresh()
    solver.unify(unknown, TupleType((unknown, V4)))
    solver.resolve(unknown)
    assert list(solver.endless) == [unknown]


def test_poison_agrees_with_everything() -> None:
    solver = Solver()
    unknown = solver.fresh()
    assert solver.unify(POISON, V4) is None
    assert solver.unify(TupleType((unknown,)), TupleType((POISON,))) is None
    assert solver.resolve(unknown) is POISON


def test_numbers_join_and_default() -> None:
    solver = Solver()
    whole, broken = solver.fresh_weak(3), solver.fresh_weak(0.5)
    assert solver.unify(whole, broken) is None
    root = solver.find(whole)
    assert isinstance(root, Unknown)
    solver.default(root)
    assert solver.resolve(broken) is tensor((), f32)


@pytest.mark.parametrize(
    ("value", "of", "code"),
    [
        (0.5, tensor((), i32), "dtype-conflict"),
        (1, tensor((), bool_), "dtype-conflict"),
        (1, V4, "shape-conflict"),
        (1, TupleType(()), "type-conflict"),
    ],
)
def test_what_a_number_cannot_be(value: float, of: Type, code: str) -> None:
    solver = Solver()
    clash = solver.unify(solver.fresh_weak(value), of)
    assert clash is not None
    assert clash.code == code


def test_waiting_is_over_when_something_is_known() -> None:
    solver = Solver()
    first, second = solver.fresh(), solver.fresh()
    solver.wait(second, "second")
    solver.unify(first, V4)
    assert solver.ready == []
    solver.unify(second, first)
    assert solver.ready == ["second"]


def test_an_instance_leaves_inner_binders_alone() -> None:
    inner = FuncType((), (A,), (A, B), A)
    made, (given_type,) = Solver().instantiate(FuncType((), (B,), (inner,), B), (A,))
    assert given_type is A
    expected = FuncType((), (TypeVar(Name("C")),), (TypeVar(Name("C")), A), TypeVar(Name("C")))
    assert same_type(made.params[0], expected)
    assert substitute(made, {}) is made


def test_a_doubled_type_is_compared_in_linear_time() -> None:
    solver = Solver()
    a: Type = solver.fresh()
    b: Type = V4
    for _ in range(60):
        a, b = TupleType((a, a)), TupleType((b, b))
    assert solver.unify(a, b) is None
    assert solver.resolve(a) is b


def test_a_type_5_000_deep() -> None:
    solver = Solver()
    a: Type = solver.fresh()
    b: Type = V4
    for _ in range(5_000):
        a, b = TupleType((a,)), TupleType((b,))
    assert solver.unify(a, b) is None
    assert solver.resolve(a) is b
