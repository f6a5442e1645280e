"""Boxes that are kept: those that onnxruntime keeps, in its order, equal scores and all."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from onnx import TensorProto, helper, numpy_helper

import plica
from plica.codegen.lower.kernel_call import problems
from plica.frontend.onnx.row.suppression import suppression

FEW = settings(max_examples=max(4, settings().max_examples // 16))


def drawn(draw: Any) -> tuple[Any, dict[str, Any]]:
    random = np.random.default_rng(draw(st.integers(0, 1 << 16)))
    batch, classes, count = (draw(st.integers(1, most)) for most in (2, 3, 14))
    low = random.uniform(0, 60, (batch, count, 2))
    boxes = np.concatenate([low, low + random.uniform(1, 40, low.shape)], 2)
    if draw(st.booleans()):  # any two corners, and boxes that are equal
        boxes = np.round(boxes[:, :, [2, 1, 0, 3]] / 10) * 10
    scores = random.random((batch, classes, count))
    scores = np.round(scores * 4) / 4 if draw(st.booleans()) else scores
    feed = {"b": boxes.astype(np.float32), "s": scores.astype(np.float32)}
    rest = {
        "m": np.array([draw(st.sampled_from([0, 1, 2, 100, -1]))]),
        "o": np.array([draw(st.sampled_from([0.0, 0.3, 1.0]))], np.float32),
        "l": np.array([draw(st.sampled_from([0.0, 0.5, 2.0]))], np.float32),
    }
    given_ = dict([*rest.items()][: draw(st.integers(1, 3))])
    node = helper.make_node(
        "NonMaxSuppression", [*feed, *given_], ["y"], center_point_box=draw(st.integers(0, 1))
    )
    late = draw(st.booleans())  # when the model runs, or before
    feed |= given_ if late else {}
    kinds = {"m": TensorProto.INT64}
    inputs = [
        helper.make_tensor_value_info(name, kinds.get(name, TensorProto.FLOAT), each.shape)
        for name, each in feed.items()
    ]
    output = helper.make_tensor_value_info("y", TensorProto.INT64, None)
    known = [] if late else [numpy_helper.from_array(each, at) for at, each in given_.items()]
    graph = helper.make_graph([node], "g", inputs, [output], known)
    opsets = [helper.make_opsetid("", 18)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9), feed


@FEW
@given(st.data())
def test_the_boxes_are_those_that_onnxruntime_keeps(data: st.DataObject) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    model, feed = drawn(data.draw)
    meant = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feed)[0]
    module = plica.from_onnx(model)
    assert np.array_equal(plica.interpret(module, *feed.values()), meant)
    if data.draw(st.integers(0, 2)) == 0:  # as often as there is time for it
        assert np.array_equal(plica.compile(module, cache=False, threads=1)(**feed), meant)


@pytest.mark.parametrize("sizes", [(1, 1, 1), (2, 3, 100)])
@pytest.mark.parametrize("most", [1, 9])
def test_no_store_is_outside_of_what_there_is(sizes: tuple[int, int, int], most: int) -> None:
    for has_least in (True, False):
        assert problems(suppression(sizes, most, has_least=has_least)) == ()


def test_a_model_with_a_kernel_reads_back_as_it_was_written() -> None:
    boxes = helper.make_tensor_value_info("b", TensorProto.FLOAT, [1, 6, 4])
    scores = helper.make_tensor_value_info("s", TensorProto.FLOAT, [1, 2, 6])
    output = helper.make_tensor_value_info("y", TensorProto.INT64, None)
    nodes = [
        helper.make_node("NonMaxSuppression", ["b", "s", "m"], ["p"]),
        helper.make_node("NonMaxSuppression", ["b", "t", "m"], ["q"]),
        helper.make_node("Neg", ["s"], ["t"]),
        helper.make_node("Concat", ["p", "q"], ["y"], axis=0),
    ]
    most = [numpy_helper.from_array(np.array([3]), "m")]
    graph = helper.make_graph(nodes, "g", [boxes, scores], [output], most)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    module = plica.from_onnx(made)
    again = plica.from_text(str(module))
    assert str(again) == str(module)
    assert plica.digest(again) == plica.digest(module)
    assert str(module).count("@plica.kernel") == 1
