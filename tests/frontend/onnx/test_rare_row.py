"""Determinants, half spectra and n-grams: held to numpy and to the standard's own evaluator."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import plica
from plica.core.diagnostic import Malformed
from plica.frontend.onnx.expand import bound_nodes, definition
from plica.frontend.onnx.node import OnnxNode
from plica.frontend.onnx.value import TensorValue
from plica.ir.graph.expression import const
from plica.runtime.error import UnsupportedError
from tests.frontend.onnx import build

Array = np.ndarray[Any, Any]
BOUND: Final = {"Constant", "Cast"}
"""What a window is made of, by attributes of the window."""


def model(kind: str, inputs: dict[str, Array], opset: int = 20, **said: Any) -> Any:
    """A model of one node."""
    return build.model(
        [helper.make_node(kind, list(inputs), ["y"], **said)], inputs, ["y"], None, opset
    )


def test_the_definition_of_an_operator_has_the_standards_default_attributes() -> None:
    node = OnnxNode(helper.make_node("HannWindow", ["n"], ["y"]), 17, (TensorValue(const(5)),))
    function = definition(node, "")
    assert function is not None
    bound = [each for each in bound_nodes(function, node, ()) if each.op_type in BOUND]
    assert {each.op_type for each in bound} == BOUND
    assert all(each.attribute for each in bound)


@settings(max_examples=8)
@given(st.integers(1, 6), st.integers(0, 3), st.integers(0, 10_000), st.booleans())
def test_a_determinant_is_numpys(size: int, batch: int, seed: int, flat: bool) -> None:
    draw = np.random.default_rng(seed)
    x = draw.integers(-3, 4, (*([batch] if batch else []), size, size)).astype(np.float32)
    if flat:
        x[..., 0] = 0  # whose determinant is 0
    found = plica.interpret(plica.from_onnx(model("Det", {"x": x}, 22)), x)
    np.testing.assert_allclose(found, np.linalg.det(x.astype(np.float64)), rtol=1e-4, atol=1e-2)


def test_what_has_no_determinant_is_refused() -> None:
    for shape in ((2, 3), (40, 40)):
        with pytest.raises(UnsupportedError, match="Det takes square matrices"):
            plica.from_onnx(model("Det", {"x": np.zeros(shape, np.float32)}, 22))


@pytest.mark.parametrize("length", [1, 2, 7, 8])
def test_half_a_spectrum_is_a_signal(length: int) -> None:
    draw = np.random.default_rng(length)
    half = np.fft.rfft(draw.standard_normal((3, length)), axis=1)
    x = np.stack([half.real, half.imag], -1).astype(np.float32)
    given: dict[str, Array] = {"x": x, "n": np.asarray(length, np.int64)}
    module = plica.from_onnx(
        model("DFT", given, 19, axis=1, inverse=1, onesided=1), fixed={"n": given["n"]}
    )
    expected = np.fft.irfft(half, length, axis=1)[..., None]
    np.testing.assert_allclose(plica.interpret(module, x), expected, rtol=1e-4, atol=1e-5)


@settings(max_examples=6)
@given(st.sampled_from(["TF", "IDF", "TFIDF"]), st.integers(0, 4), st.booleans(),
       st.integers(0, 10_000))  # fmt: skip
def test_n_grams_are_counted_as_the_standard_does(
    mode: str, skips: int, several: bool, seed: int
) -> None:
    draw = np.random.default_rng(seed)
    x = draw.integers(0, 4, (2, 7) if several else (7,)).astype(np.int64)
    said = {
        "mode": mode, "max_skip_count": skips, "min_gram_length": 1, "max_gram_length": 2,
        "ngram_counts": [0, 3], "ngram_indexes": [4, 0, 2, 1, 3],
        "pool_int64s": [0, 1, 2, 1, 2, 3, 0], "weights": [2.0, 0.5, 1.0, 3.0, 1.5],
    }  # fmt: skip
    given_model = model("TfIdfVectorizer", {"x": x}, 9, **said)
    found = plica.interpret(plica.from_onnx(given_model), x)
    (expected,) = ReferenceEvaluator(given_model).run(None, {"x": x})
    np.testing.assert_allclose(found, np.asarray(expected))


def test_a_pool_that_does_not_fit_is_refused() -> None:
    x = np.zeros(4, np.int64)
    said = {"mode": "TF", "max_skip_count": 0, "min_gram_length": 1, "max_gram_length": 2}
    for counts, places in (([0, 1], [0, 1]), ([0, 2], [0])):
        wrong = model("TfIdfVectorizer", {"x": x}, 9, ngram_counts=counts, ngram_indexes=places,
                      pool_int64s=[1, 2, 3, 4], **said)  # fmt: skip
        with pytest.raises(Malformed):
            plica.from_onnx(wrong)


def test_bits_are_kept_in_a_type_of_the_same_size() -> None:
    x = np.asarray([-1, 2], np.int16)
    made = plica.from_onnx(model("BitCast", {"x": x}, 26, to=TensorProto.UINT16))
    assert plica.interpret(made, x).tolist() == [65535, 2]
    made = plica.from_onnx(model("BitCast", {"x": x}, 26, to=TensorProto.FLOAT16))
    np.testing.assert_array_equal(plica.interpret(made, x), x.view(np.float16))
    with pytest.raises(Malformed, match="keeps the size"):
        plica.from_onnx(model("BitCast", {"x": x}, 26, to=TensorProto.INT32))
