"""Tree ensembles: the same as onnxruntime's, and refusals."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings, strategies as st
from onnx import helper, numpy_helper

import plica
from tests.frontend.onnx.build import Array, runtime
from tests.frontend.onnx.conformance import cases, compiled_verdict_of, verdict_of

FEW = settings(max_examples=max(3, settings().max_examples // 6), deadline=None)
MODES = ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ")
FEATURES = 4


def model(
    kind: str, outputs: int, rows: Any = "n", dtype: Any = np.float32, version: int = 3, **how: Any
) -> onnx.ModelProto:
    """A model of one node of ai.onnx.ml."""
    names = [f"y{at}" for at in range(outputs)]
    node = helper.make_node(kind, ["x"], names, name="node", domain="ai.onnx.ml", **how)
    number = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    taken = helper.make_tensor_value_info("x", number, [rows, FEATURES])
    made = [onnx.ValueInfoProto(name=name) for name in names]
    graph = helper.make_graph([node], "test", [taken], made)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", version)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def forest(
    rng: np.random.Generator, word: str, targets: int, trees: int, deepest: int, **how: Any
) -> dict[str, Any]:
    """Attributes of random trees, whose leaves all have weights for all targets."""
    listed = ("treeids", "nodeids", "featureids", "modes", "values", "truenodeids", "falsenodeids")
    found: dict[str, list[Any]] = {f"nodes_{each}": [] for each in listed}
    found |= {f"{word}_{each}": [] for each in ("treeids", "nodeids", "ids", "weights")}
    missing: list[int] = []
    for tree in range(trees):
        waiting, number = [(0, 0)], 1
        while waiting:
            own, depth = waiting.pop(int(rng.integers(len(waiting))))
            leaf = depth == deepest or (depth > 0 and rng.random() < 0.3)
            mode = "LEAF" if leaf else f"BRANCH_{rng.choice(how.get('modes', MODES))}"
            ends = (0, 0) if leaf else (number, number + 1)
            row = (
                tree,
                own,
                int(rng.integers(FEATURES)),
                mode,
                float(rng.integers(-3, 4)) / 2,
                *ends,
            )
            for name, value in zip(listed, row, strict=True):
                found[f"nodes_{name}"].append(value)
            missing.append(int(rng.integers(2)))
            if leaf:
                least = how.get("least", -1.0)
                for target in range(targets):
                    weight = float(rng.uniform(least, 1) / trees)
                    entry = (tree, own, target, weight)
                    for name, value in zip(
                        ("treeids", "nodeids", "ids", "weights"), entry, strict=True
                    ):
                        found[f"{word}_{name}"].append(value)
            else:
                waiting += [(each, depth + 1) for each in ends]
                number += 2
    if how.get("missing"):
        found["nodes_missing_value_tracks_true"] = missing
    return found


def points(rng: np.random.Generator, rows: int, dtype: Any) -> Array:
    """Samples on, beside and far from splits, some of them no numbers."""
    x = (rng.integers(-4, 5, (rows, FEATURES)) / 2).astype(dtype)
    if np.issubdtype(np.dtype(dtype), np.floating):
        odd = np.array([math.nan, math.inf, -math.inf, -0.0], dtype)
        x = np.where(rng.random(x.shape) < 0.15, rng.choice(odd, x.shape), x)
    return x


def held(of: onnx.ModelProto, x: Array) -> None:
    """Interpreted and compiled it is what onnxruntime gives."""
    wanted = runtime(of, {"x": x})
    for found in (plica.interpret(plica.from_onnx(of), x), plica.compile(of, cache=False)(x)):
        results = found if isinstance(found, tuple) else (found,)
        for mine, other in zip(results, wanted, strict=True):
            assert (mine.dtype, mine.shape) == (other.dtype, other.shape)
            np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-6)


@FEW
@given(st.data())
def test_regressors_are_onnxruntimes(data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 1 << 30)))
    targets, trees = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 5))
    modes = data.draw(st.sampled_from([MODES, MODES[:1], MODES[1:2], MODES[2:4], MODES[4:5]]))
    dtype = data.draw(st.sampled_from([np.float32, np.float32, np.float64]))
    how = forest(rng, "target", targets, trees, data.draw(st.integers(1, 5)),
                 modes=modes, missing=data.draw(st.booleans()))  # fmt: skip
    how["aggregate_function"] = data.draw(st.sampled_from(["SUM", "AVERAGE", "MIN", "MAX"]))
    if data.draw(st.booleans()):
        how["base_values"] = [0.25 * at for at in range(1, targets + 1)]
    if targets > 1:
        how["post_transform"] = data.draw(st.sampled_from(["NONE", "LOGISTIC", "SOFTMAX"]))
    rows = data.draw(st.integers(1, 9))
    of = model("TreeEnsembleRegressor", 1, dtype=dtype, n_targets=targets, **how)
    held(of, points(rng, rows, dtype))


@FEW
@given(st.data())
def test_classifiers_are_onnxruntimes(data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 1 << 30)))
    classes, trees = data.draw(st.integers(2, 4)), data.draw(st.integers(1, 5))
    least = data.draw(st.sampled_from([-1.0, 0.0]))
    weights = 1 if classes == 2 else classes
    how = forest(rng, "class", weights, trees, 4, modes=MODES[:1], least=least)
    ways = ["NONE", "LOGISTIC"] if classes == 2 else ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"]
    how["post_transform"] = data.draw(st.sampled_from(ways))
    if data.draw(st.booleans()):
        how["base_values"] = [0.125 * at for at in range(1, weights + 1)]
    labels = [7, 3, 11, -2][:classes]
    dtype = data.draw(st.sampled_from([np.float32, np.float32, np.float64, np.int64, np.int32]))
    of = model("TreeEnsembleClassifier", 2, dtype=dtype, classlabels_int64s=labels, **how)
    held(of, points(rng, data.draw(st.integers(1, 9)), dtype))


@pytest.mark.parametrize("how", ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"])
@pytest.mark.parametrize("least", [-1.0, 0.0])
def test_two_classes_with_a_weight_for_each(how: str, least: float) -> None:
    """Forests of scikit-learn: the label is the class of the larger score, as the standard says;
    onnxruntime's is the second class wherever that has a score above 0."""
    rng = np.random.default_rng(3)
    trees = forest(rng, "class", 2, 4, 4, modes=MODES[:1], least=least)
    of = model("TreeEnsembleClassifier", 2, classlabels_int64s=[7, 3], post_transform=how, **trees)
    x = points(rng, 40, np.float32)
    label, scores = plica.compile(of, threads=1, cache=False)(x)
    _, wanted = runtime(of, {"x": x})
    np.testing.assert_allclose(scores, wanted, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(label, np.array([7, 3])[np.argmax(wanted, axis=1)])


@pytest.mark.parametrize("name", ["single_tree", "set_membership"])
def test_the_newest_generation(name: str) -> None:
    case = cases()[f"node/test_ai_onnx_ml_tree_ensemble_{name}"]
    assert (verdict_of(case), compiled_verdict_of(case)) == ("passed", "passed")


def test_a_set_that_leads_to_a_branch() -> None:
    nan = math.nan
    of = model(
        "TreeEnsemble", 1, version=5, n_targets=1, tree_roots=[0], nodes_featureids=[0, 1],
        nodes_splits=numpy_helper.from_array(np.array([0, 0.5], np.float32)),
        nodes_modes=numpy_helper.from_array(np.array([6, 0], np.uint8)),
        nodes_truenodeids=[1, 1], nodes_trueleafs=[0, 1],
        nodes_falsenodeids=[0, 2], nodes_falseleafs=[1, 1],
        membership_values=numpy_helper.from_array(np.array([1, 2, 3, nan], np.float32)),
        leaf_targetids=[0, 0, 0],
        leaf_weights=numpy_helper.from_array(np.array([5, 6, 7], np.float32)),
    )  # fmt: skip
    x = np.zeros((6, FEATURES), np.float32)
    x[:, 0], x[:, 1] = [0, 1, 2, 3, 4, nan], [0, 0, 1, 0, 1, 0]
    wanted = [[5], [6], [7], [6], [5], [5]]
    assert np.asarray(plica.interpret(plica.from_onnx(of), x)).tolist() == wanted
    assert np.asarray(plica.compile(of, cache=False)(x)).tolist() == wanted


def test_a_tree_too_deep_to_be_written_out() -> None:
    deep = 200
    rng = np.random.default_rng(0)
    how = forest(rng, "target", 1, 1, 1, modes=MODES[:1])
    for name in how:
        how[name].clear()
    for at in range(deep):
        row = (0, 2 * at, at % FEATURES, "BRANCH_LEQ", at / deep, 2 * at + 1, 2 * at + 2)
        leaf = (0, 2 * at + 1, 0, "LEAF", 0.0, 0, 0)
        for name, a, b in zip(list(how)[:7], row, leaf, strict=True):
            how[name] += [a, b]
    for name, value in zip(list(how)[:7], (0, 2 * deep, 0, "LEAF", 0.0, 0, 0), strict=True):
        how[name].append(value)
    leaves = [2 * at + 1 for at in range(deep)] + [2 * deep]
    for name, values in {
        "target_treeids": [0] * len(leaves), "target_nodeids": leaves,
        "target_ids": [0] * len(leaves), "target_weights": [float(each) for each in leaves],
    }.items():  # fmt: skip
        how[name] += values
    of = model("TreeEnsembleRegressor", 1, n_targets=1, **how)
    held(of, np.sort(rng.random((7, FEATURES)).astype(np.float32) * 1.5, axis=0))


def _stump(**other: Any) -> onnx.ModelProto:
    how: dict[str, Any] = {
        "nodes_treeids": [0, 0, 0], "nodes_nodeids": [0, 1, 2], "nodes_featureids": [0, 0, 0],
        "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"], "nodes_values": [0.0, 0.0, 0.0],
        "nodes_truenodeids": [1, 0, 0], "nodes_falsenodeids": [2, 0, 0],
        "target_treeids": [0, 0], "target_nodeids": [1, 2], "target_ids": [0, 0],
        "target_weights": [1.0, 2.0], "n_targets": 1,
    }  # fmt: skip
    return model("TreeEnsembleRegressor", 1, **{**how, **other})


def _classes(**other: Any) -> onnx.ModelProto:
    how = forest(np.random.default_rng(1), "class", 2, 1, 1, modes=MODES[:1])
    return model("TreeEnsembleClassifier", 2, **{**how, "classlabels_int64s": [0, 1], **other})


@pytest.mark.parametrize(
    ("of", "said"),
    [
        (lambda: _stump(nodes_featureids=[FEATURES, 0, 0]), "a feature that samples do not have"),
        (lambda: _stump(nodes_truenodeids=[5, 0, 0]), "leads to nodes of the tree"),
        (lambda: _stump(nodes_truenodeids=[0, 0, 0]), "below no root"),
        (lambda: _stump(nodes_modes=["BRANCH_SOME", "LEAF", "LEAF"]), "a mode that there is not"),
        (lambda: _stump(nodes_truenodeids=[1, 0, 0], nodes_falsenodeids=[1, 0, 0]), "one root"),
        (lambda: _stump(nodes_values=[0.0]), "of one length"),
        (lambda: _stump(target_ids=[0, 1]), "a target that there is not"),
        (lambda: _stump(target_nodeids=[1, 0]), "a weight is of no leaf"),
        (lambda: _stump(aggregate_function="MEDIAN"), "no such aggregate_function"),
        (lambda: _stump(post_transform="SOME"), "no such post_transform"),
        (lambda: _stump(post_transform="LOGISTIC"), "is not read as LOGISTIC"),
        (lambda: _stump(base_values=[1.0, 2.0]), "a base value for each target"),
        (lambda: _stump(n_targets=2, base_values=[1.0, 2.0]), "may give no weight"),
        (lambda: _stump(n_targets=2, aggregate_function="MIN"), "have no MIN"),
        (lambda: _classes(class_ids=[1] * 4), "one score for each leaf"),
        (lambda: _classes(class_ids=[0] * 4, post_transform="SOFTMAX"), "NONE or LOGISTIC"),
        (lambda: _classes(classlabels_int64s=[5]), "two classes or more"),
        (lambda: _classes(classlabels_strings=["a", "b"]), "no strings"),
        (lambda: _classes(classlabels_int64s=[0, 1, 2], class_weights=[-1.0] * 4), "below 0"),
    ],
)  # fmt: skip
def test_what_has_no_meaning_is_refused(of: Any, said: str) -> None:
    with pytest.raises(plica.PlicaError, match=f"(?i){said}"):
        plica.from_onnx(of())
