"""Inputs: every way a value can be right, and one test per way it can be wrong."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, strategies as st

from plica.ir.graph.module import Module
from plica.ir.interpret.interpreter import interpret
from plica.ir.interpret.value import build, conforms
from plica.ir.prelude import list_value, prelude
from plica.ir.text.script import from_text
from plica.ir.type.dtype import DTYPES, DType
from plica.ir.type.term import tensor
from plica.runtime.error import InputError
from tests.same_value import same_value

TWO = """
@plica.function
def main(x: Tensor[("n", 2), f32], y: Tensor[("n",), f32]) -> Tensor[("n",), f32]:
    return op.sum(x, axis=1) + y
"""
PAIR = """
@plica.function
def main(p: tuple[f32, tuple[i32, bool]]) -> tuple[tuple[i32, bool], f32]:
    return (p[1], p[0])
"""
X, Y = np.ones((3, 2), np.float32), np.zeros(3, np.float32)


def identity(of: DType) -> Module:
    return from_text(f"@plica.function\ndef main(x: {of}) -> {of}:\n    return x\n")


def refused(text: str, *args: Any, **named: Any) -> InputError:
    with pytest.raises(InputError) as caught:
        interpret(from_text(text), *args, **named)
    return caught.value


def test_inputs_come_by_position_or_by_name() -> None:
    of = from_text(TWO)
    expected = np.full(3, 2, np.float32)
    for result in (interpret(of, X, Y), interpret(of, X, y=Y), interpret(of, y=Y, x=X)):
        assert same_value(result, expected)


def test_what_is_missing_unknown_or_given_twice() -> None:
    error = refused(TWO, X, x=X, z=1)
    assert [each.code for each in error.diagnostics] == [
        "input-unknown",
        "input-unknown",
        "input-missing",
    ]
    assert "twice" in error.diagnostics[0].message
    assert error.diagnostics[2].message == "Input 'y' is not given."
    assert error.diagnostics[2].expected == 'Tensor[("n",), f32]'


def test_a_name_that_is_nearly_right() -> None:
    text = "@plica.function\ndef main(image: f32) -> f32:\n    return image\n"
    (first, _) = refused(text, imge=1.0).diagnostics
    assert first.suggestion == "Did you mean 'image'?"


def test_too_many_inputs() -> None:
    error = refused(TWO, X, Y, Y)
    assert error.code == "input-unknown"
    assert error.diagnostics[0].expected == "2 (x, y)"


def test_a_wrong_dtype_names_both() -> None:
    (only,) = refused(TWO, X, Y.astype(np.float64)).diagnostics
    assert (only.code, only.expected, only.found) == ("input-dtype", "f32", "float64")
    assert only.place is not None
    assert only.place.node == "y"


def test_a_wrong_rank() -> None:
    assert refused(TWO, X, X).code == "input-shape"


def test_dims_must_agree_and_the_error_says_who_fixed_them() -> None:
    (only,) = refused(TWO, X, np.zeros(4, np.float32)).diagnostics
    assert only.code == "input-shape"
    assert only.expected == "Tensor[(\"n\",), f32] with n = 3 from 'x'"
    assert only.found == "shape (4,)"


def test_a_static_dim_must_fit() -> None:
    assert refused(TWO, np.ones((3, 5), np.float32), Y).code == "input-shape"


def test_a_dim_inside_an_expression_is_solved() -> None:
    text = """
@plica.function
def main(x: Tensor[("2*n+1",), f32]) -> Tensor[("n",), f32]:
    return op.zeros(("n",), dtype=f32)
"""
    assert interpret(from_text(text), np.zeros(7, np.float32)).shape == (3,)
    assert refused(text, np.zeros(6, np.float32)).code == "input-shape"


@given(st.sampled_from(DTYPES), st.data())
def test_python_numbers_are_scalars_of_any_dtype_they_fit(of: DType, data: st.DataObject) -> None:
    if of.is_float:
        number: Any = data.draw(st.floats(width=16) | st.integers(-100, 100))
    elif of.is_integer:
        number = data.draw(st.integers(*of.bounds))
    else:
        number = data.draw(st.booleans())
    result = interpret(identity(of), number)
    assert conforms(result, tensor((), of))
    assert same_value(result, np.asarray(number, of.numpy))


@pytest.mark.parametrize(
    ("of", "number"),
    [("i8", 128), ("i8", -129), ("u8", -1), ("i8", 1.0), ("i8", True), ("bool", 1), ("f32", True)],
)
def test_python_numbers_that_do_not_fit(of: str, number: Any) -> None:
    assert (
        refused(f"@plica.function\ndef main(x: {of}) -> {of}:\n    return x\n", number).code
        == "input-dtype"
    )


def test_arrays_of_the_other_byte_order_and_of_bf16() -> None:
    assert interpret(identity(DType("f32")), np.array(1.5, ">f4")) == 1.5
    assert interpret(identity(DType("bf16")), np.array(1.5, ml_dtypes.bfloat16)) == 1.5


class Foreign:
    """An array of another library."""

    def __dlpack__(self, **options: Any) -> Any:
        return np.ones(3, np.float32).__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


def test_arrays_of_other_libraries_come_by_dlpack() -> None:
    assert same_value(interpret(from_text(TWO), X, Foreign()), np.full(3, 3, np.float32))


def test_tuples_are_tuples() -> None:
    result = interpret(from_text(PAIR), (1.5, (2, True)))
    assert same_value(result, ((np.array(2, np.int32), np.array(True)), np.array(1.5, np.float32)))


@pytest.mark.parametrize("wrong", [1.5, (1.5,), (1.5, 2), [1.5, (2, True)], "text"])
def test_what_is_no_such_tuple(wrong: Any) -> None:
    assert refused(PAIR, wrong).code == "input-type"


def test_faults_inside_tuples_are_all_named() -> None:
    error = refused(PAIR, (True, (2.5, 1)))
    assert [each.message for each in error.diagnostics] == [
        "Input 'p'[0] has the wrong element type.",
        "Input 'p'[1][0] has the wrong element type.",
        "Input 'p'[1][1] has the wrong element type.",
    ]


@pytest.mark.parametrize("wrong", ["text", None, [1.0], {}])
def test_what_is_no_tensor(wrong: Any) -> None:
    assert refused(TWO, wrong, Y).code == "input-type"


def test_what_is_no_function() -> None:
    text = "@plica.function\ndef main(f: Fn[(f32,), f32]) -> f32:\n    return f(1.0)\n"
    assert refused(text, 1.0).code == "input-type"
    assert interpret(from_text(text), lambda x: x + x) == 2


def test_data_must_be_of_its_type() -> None:
    library = prelude()
    main = next(name for name, _ in library.functions() if str(name.name) == "sum")
    total = Module(library.names, library.values, main)
    assert interpret(total, list_value([np.int64(1), np.int64(2)])) == 3
    for wrong in (np.int64(1), list_value([np.float32(1)]), build(library, "Zero")):
        with pytest.raises(InputError) as caught:
            interpret(total, wrong)
        assert caught.value.code == "input-type"


def test_a_masked_array_is_refused_rather_than_unmasked() -> None:
    masked = np.ma.array(Y, mask=[True, False, False])
    error = refused(TWO, X, masked)
    assert [each.code for each in error.diagnostics] == ["input-type"]
    assert "masked" in error.diagnostics[0].message
    assert error.diagnostics[0].suggestion is not None
