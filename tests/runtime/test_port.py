"""Ports: outputs that no memory holds, and tensors of other libraries."""

from __future__ import annotations

import numpy as np
import pytest

import plica
from plica.runtime.element import ELEMENTS
from plica.runtime.error import Diagnostic, EvaluationError
from plica.runtime.port import LINE, MIN_ALIGNED_BYTES, RECYCLED_BYTES, Port, address_of


@pytest.mark.parametrize("size", [1 << 48, 1 << 62])
def test_an_output_that_no_memory_holds_is_refused(size: int) -> None:
    port = Port("y", (size,), "f32", np.dtype("float32"))
    with pytest.raises(EvaluationError, match="not enough memory for the output 'y'") as caught:
        port.empty()
    assert caught.value.code == "no-memory"


def test_an_input_that_no_memory_holds_a_copy_of_is_refused() -> None:
    size = 1 << 50
    view = np.lib.stride_tricks.as_strided(np.zeros(1, np.float32), (size,), (0,))
    found = Port("x", (size,), "f32", np.dtype("float32")).take(view)
    assert isinstance(found, Diagnostic)
    assert (found.code, found.found) == ("no-memory", f"{4 * size} bytes")
    assert str(found.place) == "x"


@pytest.mark.parametrize("shape", [(), (0, 5), (3, 7), (1 << 13,), (129, 65)])
def test_long_results_begin_with_a_line(shape: tuple[int, ...]) -> None:
    made, address = Port("y", shape, "f32", np.dtype("float32")).placed()
    assert (made.shape, made.dtype, address) == (shape, np.dtype("float32"), address_of(made))
    assert made.flags.c_contiguous
    assert made.flags.writeable
    assert made.nbytes < MIN_ALIGNED_BYTES or address % LINE == 0


@pytest.mark.parametrize("dtype", ["f32", "bf16", "i64", "bool"])
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3), (MIN_ALIGNED_BYTES,)])
def test_what_is_prepared_makes_arrays_of_its_port(dtype: str, shape: tuple[int, ...]) -> None:
    place = Port("y", shape, dtype, ELEMENTS[dtype].numpy).placing()
    (one, start), (two, _) = place(), place()
    assert (one.shape, one.dtype) == (shape, ELEMENTS[dtype].numpy)
    assert start == address_of(one)
    assert not np.shares_memory(one, two)


def test_bf16_of_torch_is_taken_as_it_is() -> None:
    torch = pytest.importorskip("torch")
    port = Port("x", (2, 3), "bf16", ELEMENTS["bf16"].numpy)
    given = torch.randn(3, 2).bfloat16()
    found = port.take(given.t())
    assert isinstance(found, np.ndarray)
    assert found.dtype == port.numpy
    np.testing.assert_array_equal(found.astype(np.float32), given.t().float().numpy())
    shared = port.take(given.reshape(2, 3))
    assert isinstance(shared, np.ndarray)
    assert shared.__array_interface__["data"][0] == given.data_ptr()
    wrong = port.take(torch.ones(2, 3))
    assert isinstance(wrong, Diagnostic)
    assert (wrong.code, wrong.expected, wrong.found) == ("input-dtype", "bf16", "float32")
    assert isinstance(port.take(torch.ones(2, 3).bfloat16().requires_grad_()), Diagnostic)


def test_a_tensor_of_a_type_numpy_has_not_is_refused_by_its_type() -> None:
    torch = pytest.importorskip("torch")
    wrong = Port("x", (2,), "f32", np.dtype("float32")).take(torch.ones(2).bfloat16())
    assert isinstance(wrong, Diagnostic)
    assert (wrong.code, wrong.expected, wrong.found) == ("input-dtype", "f32", "bfloat16")


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_what_torch_has_yet_to_negate_is_negated(dtype: str) -> None:
    """DLPack hands out the memory of such a tensor as it is."""
    torch = pytest.importorskip("torch")
    element = ELEMENTS[dtype]
    given = torch._neg_view(torch.tensor([1.0, -2.0, 0.5], dtype=getattr(torch, element.array)))
    assert given.is_neg()
    found = Port("x", (3,), dtype, element.numpy).take(given)
    assert isinstance(found, np.ndarray)
    np.testing.assert_array_equal(found.astype(np.float32), [-1.0, 2.0, -0.5])


@pytest.mark.parametrize(
    "value", [10**400, -(10**400), 2**1024 - 1, 10**6000], ids=["large", "low", "edge", "huge"]
)
def test_an_integer_beyond_all_floats_is_refused(value: int) -> None:
    found = Port("x", (), "f32", np.dtype("float32")).take(value)
    assert isinstance(found, Diagnostic)
    assert found.code == "input-dtype"
    assert "bits (int)" in str(found.found)
    module = plica.from_text("import plica\n@plica.function\ndef main(x: f32):\n    return x\n")
    with pytest.raises(plica.PlicaError, match="bits"):
        plica.interpret(module, value)


def test_large_rooms_are_used_again_once_nobody_has_them() -> None:
    port = Port("y", (RECYCLED_BYTES.start // 4,), "f32", np.dtype(np.float32))
    first, place = port.placed()
    part = first[::2].reshape(-1, 2)
    del first
    second, other = port.placed()
    assert other != place  # a view is still there
    part[:] = 1
    second[:] = 2
    assert (part == 1).all()
    del part
    third, again = port.placed()
    assert again == place
    assert not np.shares_memory(second, third)
