"""Operators of ai.onnx.ml but for trees: the same as onnxruntime's, and refusals."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import plica
from tests.frontend.onnx.build import Array, runtime
from tests.frontend.onnx.conformance import cases, compiled_verdict_of, verdict_of

X = np.array([[-1, 2.5, 0], [1, 0.5, -3], [0, 0, 0], [0.25, -2, 4]], np.float32)
WITH_NAN = np.where(X == 0, np.float32(math.nan), X)
WHOLE = np.array([[1, 2, 3], [3, 9, -1]], np.int64)


def model(kind: str, outputs: int, *given: Array, version: int = 3, **how: Any) -> onnx.ModelProto:
    """A model of one node."""
    taken = [f"x{at}" for at in range(len(given))]
    made = [f"y{at}" for at in range(outputs)]
    node = helper.make_node(kind, taken, made, name="node", domain="ai.onnx.ml", **how)
    infos = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(each.dtype),
            ["n", *each.shape[1:]] if each.ndim == 2 and len(given) == 1 else each.shape,
        )
        for name, each in zip(taken, given, strict=True)
    ]  # fmt: skip
    ports = [onnx.ValueInfoProto(name=name) for name in made]
    graph = helper.make_graph([node], "test", infos, ports)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", version)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


LINEAR = {"coefficients": [0.3, 0.2, -0.1, -0.3, 0.4, 0.05, 0, 0.1, 0.7], "intercepts": [0.1, 0, 2]}
ONE_ROW = {"coefficients": [0.3, 0.2, -0.1], "intercepts": [0.1], "classlabels_ints": [7, 9]}

CASES: dict[str, tuple[str, int, tuple[Array, ...], dict[str, Any]]] = {
    **{
        f"classes {how}": (
            "LinearClassifier", 2, (X,),
            {**LINEAR, "classlabels_ints": [7, 9, -1], "post_transform": how, "multi_class": 1},
        )
        for how in ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO")
    },
    "two classes": ("LinearClassifier", 2, (X,), {**ONE_ROW, "post_transform": "LOGISTIC"}),
    "one sample": ("LinearRegressor", 1, (X[0],), {"coefficients": [1.0, 2, 3]}),
    "targets": ("LinearRegressor", 1, (X,), {**LINEAR, "targets": 3}),
    "scaled": ("Scaler", 1, (X,), {"offset": [1.0, 2, 3], "scale": [2.0, 3, 0.5]}),
    "scaled alike": ("Scaler", 1, (WHOLE,), {"offset": [1.0], "scale": [2.0]}),
    "f64 scaled": ("Scaler", 1, (X.astype(np.float64),), {"offset": [1.0], "scale": [2.0]}),
    **{
        f"norm {norm} {'rows' * (each.ndim - 1)}": ("Normalizer", 1, (each,), {"norm": norm})
        for norm in ("MAX", "L1", "L2")
        for each in (X, X[1])
    },
    "above": ("Binarizer", 1, (X,), {"threshold": 0.25}),
    "no number": (
        "Imputer", 1, (WITH_NAN,),
        {"imputed_value_floats": [5.0, 6, 7], "replaced_value_float": math.nan},
    ),
    "a number": ("Imputer", 1, (X,), {"imputed_value_floats": [5.0], "replaced_value_float": 0.0}),
    "an integer": (
        "Imputer", 1, (WHOLE,), {"imputed_value_int64s": [5], "replaced_value_int64": 3},
    ),
    "one hot": ("OneHotEncoder", 1, (WHOLE,), {"cats_int64s": [1, 3, -1]}),
    "one hot of floats": ("OneHotEncoder", 1, (X,), {"cats_int64s": [1, 0, -3]}),
    "encoded": (
        "LabelEncoder", 1, (WHOLE,),
        {"keys_int64s": [3, 1, 3], "values_floats": [0.5, 0.25, 4], "default_float": -2.0},
    ),
    "decoded": ("LabelEncoder", 1, (X,), {"keys_floats": [2.5, -3], "values_int64s": [5, 6]}),
    "side by side": ("FeatureVectorizer", 1, (X, X[:, :2]), {"inputdimensions": [3, 2]}),
    "some features": ("ArrayFeatureExtractor", 1, (X, np.array([2, 0], np.int64)), {}),
    "of one sample": ("ArrayFeatureExtractor", 1, (X[0], np.array([[2, 1]], np.int64)), {}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_it_is_onnxruntimes(name: str) -> None:
    kind, outputs, arrays, how = CASES[name]
    of = model(kind, outputs, *arrays, **how)
    wanted = runtime(of, {f"x{at}": each for at, each in enumerate(arrays)})
    ways = [plica.interpret(plica.from_onnx(of), *arrays)]
    if len(CASES) % 2 == list(CASES).index(name) % 2:  # those are compiled, too
        ways.append(plica.compile(of, cache=False)(*arrays))
    for found in ways:
        results = found if isinstance(found, tuple) else (found,)
        for mine, other in zip(results, wanted, strict=True):
            assert (mine.dtype, mine.shape) == (other.dtype, other.shape)
            np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-6)


def test_one_code_takes_features_at_any_number_of_places() -> None:
    of = model("ArrayFeatureExtractor", 1, X, np.zeros((2, 3), np.int64))
    of.graph.input[1].type.tensor_type.shape.dim[0].dim_param = "n"
    run = plica.compile(of, cache=False)
    for count in (2, 0, 5):
        at = np.arange(3 * count).reshape(count, 3) % 3
        np.testing.assert_array_equal(run(X, at), X[:, at.reshape(-1)])
    assert run.stats.at_call == 0


@pytest.mark.parametrize("name", ["array_feature_extractor", "binarizer"])
def test_the_standards_own_cases(name: str) -> None:
    case = cases()[f"node/test_ai_onnx_ml_{name}"]
    assert (verdict_of(case), compiled_verdict_of(case)) == ("passed", "passed")


@pytest.mark.parametrize(
    ("kind", "how", "said"),
    [
        ("LinearClassifier", ONE_ROW, "two labels and LOGISTIC"),
        ("LinearClassifier", {**LINEAR, "classlabels_ints": [1, 2]}, "a score for each"),
        ("LinearClassifier", {**LINEAR, "classlabels_strings": ["a", "b", "c"]}, "no strings"),
        ("LinearRegressor", {"coefficients": [1.0, 2]}, "a coefficient for each"),
        ("LinearRegressor", {**LINEAR, "targets": 3, "intercepts": [1.0]}, "an intercept for each"),
        ("LinearRegressor", {"coefficients": [1.0] * 3, "post_transform": "LOGISTIC"}, "not read"),
        ("LinearRegressor", {**LINEAR, "targets": 3, "post_transform": "PROBIT"}, "PROBIT"),
        ("Scaler", {"offset": [1.0, 2]}, "one for each feature"),
        ("Normalizer", {"norm": "L3"}, "MAX, L1 or L2"),
        ("Imputer", {"imputed_value_int64s": [1]}, "values of the kind"),
        ("OneHotEncoder", {"cats_strings": ["a"]}, "no strings"),
        ("OneHotEncoder", {"cats_int64s": [1], "zeros": 0}, "what is no category"),
        ("OneHotEncoder", {"cats_int64s": [1, 1]}, "different categories"),
        ("LabelEncoder", {"keys_strings": ["a"], "values_int64s": [1]}, "no strings"),
        ("LabelEncoder", {"keys_floats": [math.nan], "values_int64s": [1]}, "no number"),
        ("LabelEncoder", {"keys_int64s": [1], "values_int64s": [1]}, "its input's kind"),
        ("ZipMap", {"classlabels_int64s": [0, 1, 2]}, "zipmap=False"),
        ("SVMRegressor", {"coefficients": [1.0]}, "ai.onnx.ml.SVMRegressor is not supported"),
    ],
)  # fmt: skip
def test_what_has_no_meaning_is_refused(kind: str, how: dict[str, Any], said: str) -> None:
    outputs = 2 if kind == "LinearClassifier" else 1
    with pytest.raises(plica.PlicaError, match=said):
        plica.from_onnx(model(kind, outputs, X, **how))


def test_what_no_size_could_mend_is_refused_before_a_call() -> None:
    of = model("LinearRegressor", 1, X, coefficients=[1.0] * 3, post_transform="LOGISTIC")
    assert of.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "n"
    with pytest.raises(plica.UnsupportedError, match="not read as LOGISTIC"):
        plica.compile(of, cache=False)
