"""Values: their types, their equality, how they are built and shown."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from plica.core.diagnostic import CompilerBug
from plica.core.name import Name
from plica.ir.interpret.value import (
    DataValue,
    NativeFunction,
    arity,
    build,
    conforms,
    equations,
    sketch,
)
from plica.ir.prelude import list_items, list_value, prelude
from plica.ir.type.dtype import DTYPES, DType
from plica.ir.type.term import (
    DataName,
    DataType,
    FuncType,
    TupleType,
    TypeVar,
    Unknown,
    dim_var,
    tensor,
)
from plica.runtime.error import InputError
from tests.same_value import same_value

n = dim_var("n")
LIST = DataName(Name("List"))


@given(st.sampled_from(DTYPES), st.sampled_from(DTYPES), st.lists(st.integers(0, 3), max_size=3))
def test_an_array_is_of_its_own_type_only(one: DType, other: DType, shape: list[int]) -> None:
    array = np.zeros(shape, one.numpy)
    assert conforms(array, tensor(shape, one))
    assert conforms(array, tensor(shape, other)) == (one is other)
    assert not conforms(array, tensor([*shape, 1], one))
    assert not conforms(array, tensor([size + 1 for size in shape] or [1], one))


def test_dims_that_are_not_known_must_agree() -> None:
    pair = TupleType((tensor((n,), "f32"), tensor((n,), "f32")))
    two, three = np.zeros(2, np.float32), np.zeros(3, np.float32)
    assert conforms((two, two), pair)
    assert not conforms((two, three), pair)
    assert not conforms((two, two), pair, {n: 3})
    assert not conforms(two, pair)
    assert not conforms((two,), pair)


def test_lists_are_checked_to_their_end() -> None:
    of = DataType(LIST, (tensor((), "i64"),))
    good = list_value(range_of := [np.int64(i) for i in range(20_000)])
    assert conforms(good, of, {}, prelude())
    assert not conforms(list_value([*range_of, np.float32(1)]), of, {}, prelude())
    assert not conforms(DataValue(LIST, 7, Name("Cons"), ()), of, {}, prelude())
    assert not conforms(DataValue(LIST, 0, Name("Nil"), (good,)), of, {}, prelude())
    assert not conforms(np.int64(1), of, {}, prelude())


def test_a_data_type_nobody_defines_is_a_bug() -> None:
    with pytest.raises(CompilerBug):
        conforms(list_value([]), DataType(LIST, (tensor((), "i64"),)))


def test_of_a_function_only_its_arity_shows() -> None:
    one = FuncType((), (), (tensor((), "i64"),), tensor((), "i64"))
    assert conforms(NativeFunction("f", 1, lambda args: args[0]), one)
    assert not conforms(NativeFunction("f", 2, lambda args: args[0]), one)
    assert not conforms(np.zeros(()), one)
    assert arity(np.zeros(())) is None


def test_anything_is_of_a_type_variable_and_nothing_of_the_unknown() -> None:
    assert conforms((), TypeVar(Name("A")))
    with pytest.raises(CompilerBug):
        conforms((), Unknown(Name("A")))


VALUES = st.recursive(
    st.sampled_from(
        [np.float32(1), np.float32(-0.0), np.float32("nan"), np.int64(1), np.bool_(True)]
    ).map(np.asarray),
    lambda inner: (
        st.lists(inner, max_size=3).map(tuple) | st.lists(inner, max_size=3).map(list_value)
    ),
    max_leaves=6,
)


@given(VALUES, VALUES)
def test_equality_of_values_is_an_equivalence(a: Any, b: Any) -> None:
    assert same_value(a, a)
    assert same_value(a, b) == same_value(b, a)
    if same_value(a, b):
        assert sketch(a, 9).replace("-0.0", "0.0") == sketch(b, 9).replace("-0.0", "0.0")


def test_what_differs_in_dtype_shape_or_constructor_differs() -> None:
    assert not same_value(np.zeros(1, np.float32), np.zeros(1))
    assert not same_value(np.zeros(1), np.zeros((1, 1)))
    assert not same_value(list_value([]), build(prelude(), "Nothing"))
    assert not same_value((), np.zeros(0))
    assert same_value(np.float64(1), np.asarray(1.0))


def test_a_sketch_is_short() -> None:
    assert sketch(np.zeros((3, 4))) == "float64 tensor of shape (3, 4)"
    assert len(repr(list_value([np.int64(0)] * 10_000))) < 200
    assert repr(build(prelude(), "Some", np.int64(3))) == "Some(3)"


def test_building_by_the_name_of_a_constructor() -> None:
    zero = build(prelude(), "Zero")
    assert str(build(prelude(), "Succ", zero).name) == "Succ"
    with pytest.raises(InputError) as caught:
        build(prelude(), "Suc", zero)
    assert caught.value.diagnostics[0].suggestion == "Did you mean 'Succ'?"
    with pytest.raises(InputError) as caught:
        build(prelude(), "Succ")
    assert caught.value.code == "wrong-arity"


def test_equations_look_into_data_only_with_its_module() -> None:
    of = DataType(LIST, (tensor((n,), "f32"),))
    value = list_value([np.zeros(3, np.float32)])
    assert list(equations(of, value)) == []
    assert list(equations(of, value, prelude())) == [(n, 3)]


@given(st.lists(st.integers(-5, 5)))
def test_lists_go_there_and_back(items: list[int]) -> None:
    assert [int(each) for each in list_items(list_value(map(np.int64, items)))] == items
