"""The graph language: constants, sugar, scopes, and what the generator covers."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from plica.core.binding import free_vars, substitute
from plica.core.diagnostic import IllFormed
from plica.core.digest import digest
from plica.core.encode import to_json
from plica.core.name import Name
from plica.core.term import LARGE_BYTES
from plica.ir.graph.expression import (
    Apply,
    Call,
    Clause,
    Const,
    Function,
    Let,
    Literal,
    Match,
    PAny,
    PTuple,
    PVar,
    Tuple,
    Var,
    as_expr,
    attr,
    const,
    own_const,
)
from plica.ir.type.dtype import DTYPES, DType, bf16, f32, i32
from plica.ir.type.term import tensor
from tests.strategies import arrays, constants, dtypes, small_shapes

X, Y = Var(Name("x"), tensor((2,), f32)), Var(Name("y"), tensor((2,), f32))


@given(st.data())
def test_a_constant_is_its_array(data: st.DataObject) -> None:
    dtype, shape = data.draw(dtypes()), data.draw(small_shapes())
    array = data.draw(arrays(dtype, shape))
    found = const(array)
    assert (found.dtype, found.shape) == (dtype, shape)
    assert found.numpy().tobytes() == array.tobytes()
    assert found.numpy().dtype == dtype.numpy
    assert const(found.numpy()) is found
    assert const(array, dtype) is found
    assert not found.numpy().flags.writeable


@given(st.data())
def test_constants_are_equal_just_when_their_bits_are(data: st.DataObject) -> None:
    dtype = data.draw(dtypes())
    a, b = data.draw(constants(dtype, (2,))), data.draw(constants(dtype, (2,)))
    assert (a is b) == (a.data == b.data)


def test_big_endian_and_strided_arrays_are_written_alike() -> None:
    plain = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert const(plain.astype(">f4")) is const(plain)
    assert const(np.asfortranarray(plain)) is const(plain)
    assert const(plain[:, ::-1][:, ::-1]) is const(plain)
    assert const([[1.5, 2.5]], bf16).dtype is bf16
    assert const(1.5, "f32").shape == ()


@pytest.mark.parametrize("count", [8, LARGE_BYTES // 4 - 1, LARGE_BYTES // 4, LARGE_BYTES // 4 + 1])
def test_an_array_of_its_own_makes_the_same_constant(count: int) -> None:
    array = np.arange(count, dtype=np.float32)
    own = own_const(array.copy(), f32)
    kept = digest(own), to_json(own), pickle.dumps(own), repr(own)
    assert const(array) is own
    assert pickle.loads(kept[2]) is own
    assert own_const(array.reshape(1, count)[:, ::-1], f32) is const(array[None, ::-1])
    other = array.copy()
    other[-1] += 1
    assert own_const(other, f32) is not own
    del own
    again = const(array)
    assert (digest(again), to_json(again), pickle.dumps(again), repr(again)) == kept


def test_what_somebody_can_write_to_is_no_constant() -> None:
    with pytest.raises(IllFormed, match="nobody can write to"):
        Const(f32, (2,), memoryview(bytearray(8)))


@pytest.mark.parametrize(("shape", "size"), [((2,), 4), ((-1,), 4), ((-1, -1), 4), ((), 0)])
def test_bytes_must_fill_the_shape(shape: tuple[int, ...], size: int) -> None:
    with pytest.raises(IllFormed, match="are no f32 tensor"):
        Const(f32, shape, bytes(size))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_empty_and_scalar_constants_of_every_dtype(dtype: DType) -> None:
    assert const(np.zeros((0, 3), dtype.numpy)).data == b""
    assert len(const(np.zeros((), dtype.numpy)).data) == dtype.bytes


def test_python_operators_build_operator_calls() -> None:
    one = Literal(1)
    cases: dict[Any, Apply] = {
        X + 1: Apply("add", (X, one)),
        1 + X: Apply("add", (one, X)),
        X - Y: Apply("subtract", (X, Y)),
        1 - X: Apply("subtract", (one, X)),
        X * Y: Apply("multiply", (X, Y)),
        X / Y: Apply("divide", (X, Y)),
        1 / X: Apply("divide", (one, X)),
        X // Y: Apply("floor_divide", (X, Y)),
        X % Y: Apply("mod", (X, Y)),
        X**Y: Apply("power", (X, Y)),
        1**X: Apply("power", (one, X)),
        X @ Y: Apply("matmul", (X, Y)),
        -X: Apply("negative", (X,)),
        X < Y: Apply("less", (X, Y)),
        X <= Y: Apply("less_equal", (X, Y)),
        X > Y: Apply("greater", (X, Y)),
        X >= Y: Apply("greater_equal", (X, Y)),
    }
    for found, expected in cases.items():
        assert found is expected


def test_numbers_and_arrays_become_expressions() -> None:
    assert as_expr(2.5) is Literal(2.5)
    assert as_expr(X) is X
    assert as_expr(np.asarray(1, np.float32)) is const(1.0, f32)
    assert as_expr(np.asarray([1], np.int32)) is const([1], i32)
    wrong: Any = "text"
    with pytest.raises(TypeError, match="is no expression"):
        as_expr(wrong)


def test_scopes() -> None:
    assert free_vars(Let(X, X, X)) == frozenset()  # a let may be recursive
    assert free_vars(Let(X, Y, X)) == {Y}
    assert free_vars(Function((), (), (X,), None, Tuple((X, Y)))) == {Y}
    pattern = PTuple((PVar(X), PAny()))
    assert free_vars(Match(Y, (Clause(pattern, X), Clause(PAny(), X)))) == {X, Y}
    assert substitute(Let(X, Y, X), {X: Y}) is Let(X, Y, X)


def test_what_is_used_twice_is_one_node() -> None:
    shared = X + Y
    assert Tuple((shared, X + Y)).items[0] is shared


def test_defaults_are_part_of_the_term() -> None:
    assert Call(X, ()) is Call(X, (), ())
    assert Apply("relu", (X,)) is Apply("relu", (X,), ())
    assert Match(X, ()) is Match(X, (), True)
    assert attr(Apply("sum", (X,), (("axis", 1),)), "axis") == 1
    assert attr(Apply("sum", (X,)), "axis", 7) == 7
