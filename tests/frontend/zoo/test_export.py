"""Networks of the zoo as ONNX models: onnxruntime and the importer give the same numbers."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest

from benchmarks.lstm_model import lstm_to_onnx
from plica.frontend.onnx import from_onnx
from plica.frontend.onnx.writer import to_onnx
from plica.frontend.zoo import lstm_weights
from plica.ir.graph.module import Module
from plica.ir.interpret.interpreter import interpret
from tests.frontend.zoo.small import SMALL, input_of


def exported(name: str, network: Module) -> onnx.ModelProto:
    if name != "lstm_lm":
        return to_onnx(network, finite=True)
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
    assert kinds == [*["Conv", "Relu"] * 3, "Flatten", "Gemm", "Relu", "Gemm", "Identity"]


def test_a_recurrent_layer_is_one_node() -> None:
    kinds = [node.op_type for node in exported("lstm_lm", SMALL["lstm_lm"]()).graph.node]
    assert kinds == ["Gather", "LSTM", "Squeeze", "LSTM", "Squeeze", "Squeeze", "Gemm"]
