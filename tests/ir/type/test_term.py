"""Types: shapes in normal form, dims and variables bound by function types."""

from __future__ import annotations

from hypothesis import given

from plica.core.binding import free_vars, substitute
from plica.core.digest import alpha_equal
from plica.core.name import Name
from plica.ir.loop.scalar import Lit
from plica.ir.type.dim import dim_var
from plica.ir.type.dtype import f32, i64
from plica.ir.type.term import (
    DataName,
    DataType,
    FuncType,
    TensorType,
    TupleType,
    Type,
    TypeVar,
    static_shape,
    tensor,
)
from tests.strategies import types

N, M = dim_var("n"), dim_var("m")


@given(types(dim_vars=(N, M), type_vars=(TypeVar(Name("A")),)))
def test_only_the_given_variables_are_free(type: Type) -> None:
    allowed = {N, M, TypeVar(Name("A")), DataName(Name("List"))}
    assert free_vars(type) <= allowed


def test_shapes_are_normal() -> None:
    assert TensorType((2 * N + N, N - N), f32) is TensorType((3 * N, Lit(0, i64)), f32)
    assert tensor(("n", 4), "f32") is TensorType((N, Lit(4, i64)), f32)
    assert tensor((), "float32") is TensorType((), f32)


def test_shapes_stay_normal_when_dims_are_given() -> None:
    grown = TensorType((N + 1, 2 * N), f32)
    assert substitute(grown, {N: Lit(3, i64)}) is tensor((4, 6), f32)
    assert substitute(grown, {N: M + 1}) is TensorType((M + 2, 2 * M + 2), f32)


def test_static_shapes() -> None:
    assert static_shape(tensor((2, 3), f32)) == (2, 3)
    assert static_shape(tensor((), f32)) == ()
    assert static_shape(tensor(("n", 3), f32)) is None


def test_function_types_bind_dims_and_types() -> None:
    a, b = TypeVar(Name("A")), TypeVar(Name("B"))
    one = FuncType((N,), (a,), (tensor(("n",), f32), a), TupleType((a,)))
    two = FuncType((M,), (b,), (tensor(("m",), f32), b), TupleType((b,)))
    assert one is not two
    assert alpha_equal(one, two)
    assert free_vars(one) == frozenset()
    assert not alpha_equal(one, FuncType((M,), (b,), (tensor(("n",), f32), b), TupleType((b,))))


def test_types_under_a_binder_make_way() -> None:
    a = TypeVar(Name("A"))
    inner = FuncType((), (a,), (a, TypeVar(Name("B"))), a)
    found = substitute(inner, {TypeVar(Name("B")): a})
    assert isinstance(found, FuncType)
    assert free_vars(found) == {a}
    assert found.params[1] is a
    assert found.params[0] is found.types[0] is not a


def test_data_types_mention_their_name() -> None:
    tree = DataName(Name("Tree"))
    assert free_vars(DataType(tree, (tensor((), f32),))) == {tree}
