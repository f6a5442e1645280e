"""Sizes of inputs that are the same, shorter or 1 in a call: what onnxruntime takes is taken."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import onnx
import pytest
from hypothesis import given, settings, strategies as st
from onnx import helper

import plica
from tests.frontend.onnx.build import Array, agrees, f32_like, model, one, runtime


def opened(
    kind: str, shape: tuple[int | str, ...], *stored: Array, opset: int = 21, **attrs: Any
) -> onnx.ModelProto:
    """A model of one node that reads an input with open sizes, and constants."""
    named = {f"c{at}": each for at, each in enumerate(stored)}
    node = helper.make_node(kind, ["x", *named], ["y"], name="node", **attrs)
    return model([node], {"x": ("float32", shape)}, ["y"], named, opset)


@given(st.integers(1, 4), st.integers(1, 4), st.integers(0, 1))
@settings(max_examples=12)
def test_indices_may_be_shorter_than_what_they_index(size: int, rows: int, axis: int) -> None:
    picked = np.arange(rows * 3).reshape(rows, 3) % (3 if axis else size)
    of = opened("GatherElements", ("n", 3), picked, axis=axis)
    if axis == 0 or rows <= size:
        agrees(of, {"x": f32_like(size, 3)})
    else:
        with pytest.raises(plica.PlicaError, match="shape-conflict"):
            agrees(of, {"x": f32_like(size, 3)})


def test_shorter_indices_compiled_for_any_size() -> None:
    of = opened("GatherElements", ("n", 3), np.array([[2, 0, 1], [1, 1, 0]]), axis=1)
    run = plica.compile(of)
    for size in (2, 5):
        x = {"x": f32_like(size, 3)}
        np.testing.assert_array_equal(run(**x), runtime(of, x)[0])


@pytest.mark.parametrize("equation", ["ab,b->a", "ab,b->ba", "ab,b", "...b,b->b..."])
@pytest.mark.parametrize("size", [1, 4])
def test_letters_of_an_equation_stand_for_1_or_one_size(equation: str, size: int) -> None:
    x = f32_like(3, size)
    agrees(one("Einsum", (x, f32_like(4)), equation=equation), {"x0": x, "x1": f32_like(4)})
    agrees(opened("Einsum", (3, "n"), f32_like(4), equation=equation), {"x": x})


def test_sizes_of_a_letter_that_differ_are_refused() -> None:
    arrays = (f32_like(3, 2), f32_like(4))
    with pytest.raises(plica.PlicaError, match="the axes 'b' must agree"):
        plica.from_onnx(one("Einsum", arrays, equation="ab,b->a"))
    of = opened("Einsum", (3, "n"), f32_like(4), equation="ab,b->a")
    with pytest.raises(plica.PlicaError, match="shape-conflict"):
        plica.interpret(plica.from_onnx(of), x=arrays[0])


SHARED: Final[list[tuple[str, tuple[int | str, ...], tuple[Array, ...], dict[str, Any]]]] = [
    ("Squeeze", (2, "n"), (np.array([1]),), {}),
    ("Conv", ("b", "n", 4, 4), (f32_like(2, 3, 2, 2), f32_like(2)), {}),
    ("Conv", ("b", "n", 4, 4), (f32_like(2, 2, 2, 2),), {"group": 2}),
    ("ConvTranspose", ("b", "n", "h", 4), (f32_like(3, 2, 2, 2),),
     {"auto_pad": "SAME_UPPER", "strides": [2, 1]}),
    ("MatMul", (2, "n"), (f32_like(3),), {}),
    ("MatMul", ("n",), (f32_like(3, 2),), {}),
    ("Gemm", (2, "n"), (f32_like(3, 4), f32_like(4)), {}),
    ("Gemm", ("n", 2), (f32_like(4, 3), f32_like(1, 4)), {"transA": 1, "transB": 1}),
    ("ScatterND", ("b", "n"), (np.array([[1], [0]]), f32_like(2, 3)), {}),
    ("LayerNormalization", (2, "n"), (f32_like(3),), {}),
    ("LpPool", ("b", "n", 4, 5), (), {"kernel_shape": [2, 2], "p": 1}),
    ("Compress", ("b", "n"), (np.array([True, False, True]),), {}),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "shape", "stored", "attrs"), SHARED)
def test_a_size_that_must_be_another_is_seen_at_a_call(
    kind: str, shape: tuple[int | str, ...], stored: tuple[Array, ...], attrs: dict[str, Any]
) -> None:
    of = opened(kind, shape, *stored, **attrs)
    right = 1 if kind == "Squeeze" else 4 if attrs.get("group") else 3
    sizes = {"b": 2, "h": 4, "n": right}

    def drawn() -> Array:
        return f32_like(*[sizes[each] if isinstance(each, str) else each for each in shape])

    agrees(of, {"x": drawn()})
    if kind not in ("LpPool", "Compress"):
        sizes["n"] = 5
        with pytest.raises(plica.PlicaError):
            plica.interpret(plica.from_onnx(of), drawn())


VECTORS = [
    ("GroupNormalization", 2, {"num_groups": 2}),
    ("InstanceNormalization", 2, {}),
    ("BatchNormalization", 4, {}),
]


@pytest.mark.parametrize(("kind", "count", "attrs"), VECTORS)
def test_vectors_say_how_many_channels_there_are(
    kind: str, count: int, attrs: dict[str, Any]
) -> None:
    vectors = [np.abs(f32_like(4)) + at for at in range(count)]
    of = opened(kind, (2, "c", 5), *vectors, **attrs)
    agrees(of, {"x": f32_like(2, 4, 5)}, 1e-3)
    with pytest.raises(plica.PlicaError, match="shape-conflict"):
        plica.interpret(plica.from_onnx(of), x=f32_like(2, 6, 5))


@pytest.mark.parametrize("batch", [0, 1])
def test_lengths_say_how_many_sequences_there_are(batch: int) -> None:
    shape = (3, "n") if batch else ("n", 3)
    of = opened("ReverseSequence", shape, np.array([2, 3, 1, 1]), batch_axis=batch,
                time_axis=1 - batch)  # fmt: skip
    agrees(of, {"x": f32_like(3, 4) if batch else f32_like(4, 3)})


def test_groups_of_a_number_of_channels_that_is_not_known_are_refused() -> None:
    of = opened("GroupNormalization", (2, "c", 5), f32_like(2), f32_like(2), opset=18, num_groups=2)
    with pytest.raises(plica.UnsupportedError, match="a multiple of 2"):
        plica.from_onnx(of)
