"""Networks of the zoo as ONNX models: onnxruntime and the importer give the same numbers."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest

import plica
from plica.frontend.onnx import from_onnx
from plica.frontend.zoo import lstm_weights
from plica.frontend.zoo.export import lstm_to_onnx, to_onnx
from plica.ir.graph.module import Module
from plica.ir.interpret.interpreter import interpret
from plica.ir.text.script import from_text
from tests.frontend.zoo.small import SMALL, input_of


def exported(name: str, network: Module) -> onnx.ModelProto:
    if name != "lstm_lm":
        return to_onnx(network)
    (x,) = network.main_function().params
    return lstm_to_onnx(x, lstm_weights(words=11, hidden=4))


@pytest.mark.parametrize("name", SMALL)
def test_an_exported_network_gives_the_same_numbers(name: str) -> None:
    network = SMALL[name]()
    model = exported(name, network)
    onnx.checker.check_model(model)
    x = input_of(network)
    meant = interpret(network, x)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    (theirs,) = session.run(None, {"x": x})
    np.testing.assert_allclose(theirs, meant, rtol=0, atol=2e-5 * np.abs(meant).max())
    ours = interpret(from_onnx(model), x)
    np.testing.assert_allclose(ours, meant, rtol=0, atol=2e-5 * np.abs(meant).max())


def test_layers_and_their_biases_are_one_node() -> None:
    kinds = [node.op_type for node in to_onnx(SMALL["dqn"]()).graph.node]
    assert kinds == ["Conv", "Relu"] * 3 + ["Flatten", "Gemm", "Relu", "Gemm"]


def test_a_recurrent_layer_is_one_node() -> None:
    kinds = [node.op_type for node in exported("lstm_lm", SMALL["lstm_lm"]()).graph.node]
    assert kinds == ["Gather", "LSTM", "Squeeze", "LSTM", "Squeeze", "Squeeze", "Gemm"]


def test_all_that_is_not_written_is_refused_at_once() -> None:
    network = from_text("""
import plica
from plica import op

@plica.function
def main(x: Tensor[("n", 3), f32], y: Tensor[("n", 3), f32]):
    return op.sin(op.erf(x)) + op.cumsum(y, axis=0)
""")
    with pytest.raises(plica.UnsupportedError) as caught:
        to_onnx(network)
    said = str(caught.value)
    for each in ("one input", "known sizes", "sin", "erf", "cumsum"):
        assert each in said
