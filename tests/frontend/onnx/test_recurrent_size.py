"""Recurrent networks of usual sizes, compiled for one thread, against onnxruntime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import plica
from plica.codegen.program_kind import is_loop, repeats, without_loops
from plica.frontend import recurrence
from plica.pipeline import lower
from plica.rewrite.graph.walk import expressions
from plica.runtime.staged.executable import StagedExecutable

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")


@pytest.mark.parametrize("linear_before_reset", [0, 1])
def test_a_gru_of_128_compiles_for_one_thread(linear_before_reset: int) -> None:
    rng = np.random.default_rng(0)
    hidden, width, steps = 128, 64, 5
    shapes = {"W": (1, 3 * hidden, width), "R": (1, 3 * hidden, hidden), "B": (1, 6 * hidden)}
    weights = [
        onnx.numpy_helper.from_array((rng.standard_normal(shape) / 10).astype(np.float32), name)
        for name, shape in shapes.items()
    ]
    node = onnx.helper.make_node(
        "GRU",
        ["x", "W", "R", "B"],
        ["y", "last"],
        hidden_size=hidden,
        linear_before_reset=linear_before_reset,
    )
    info = onnx.helper.make_tensor_value_info
    kind = onnx.TensorProto.FLOAT
    graph = onnx.helper.make_graph(
        [node],
        "gru",
        [info("x", kind, [steps, 1, width])],
        [info("y", kind, None), info("last", kind, None)],
        weights,
    )
    opset = [onnx.helper.make_opsetid("", 18)]
    model = onnx.helper.make_model(graph, opset_imports=opset, ir_version=9).SerializeToString()
    x = rng.standard_normal((steps, 1, width)).astype(np.float32)
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    wanted = session.run(None, {"x": x})
    found = plica.compile(plica.from_onnx(model), cache=False, threads=1)(x)
    for mine, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)


def _network(
    kind: str, steps: int, direction: str, **settings: Any
) -> tuple[bytes, list[np.ndarray[Any, Any]]]:
    rng = np.random.default_rng(steps)
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[kind]
    ways, hidden, width = 2 if direction == "bidirectional" else 1, 3, 2
    shapes = {
        "W": (ways, gates * hidden, width),
        "R": (ways, gates * hidden, hidden),
        "B": (ways, 2 * gates * hidden),
    }
    weights = [
        onnx.numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), name)
        for name, shape in shapes.items()
    ]
    node = onnx.helper.make_node(
        kind, ["x", "W", "R", "B", "n"], ["y", "last"], hidden_size=hidden, direction=direction,
        **settings,
    )  # fmt: skip
    info, kinds = onnx.helper.make_tensor_value_info, onnx.TensorProto
    graph = onnx.helper.make_graph(
        [node],
        "long",
        [info("x", kinds.FLOAT, [steps, 2, width]), info("n", kinds.INT32, [2])],
        [info("y", kinds.FLOAT, None), info("last", kinds.FLOAT, None)],
        weights,
    )
    opset = [onnx.helper.make_opsetid("", 18)]
    model = onnx.helper.make_model(graph, opset_imports=opset, ir_version=9)
    x = rng.standard_normal((steps, 2, width)).astype(np.float32)
    return model.SerializeToString(), [x, np.array([steps - 5, steps], np.int32)]


@pytest.fixture
def blocks_of_four(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recurrence, "MOST_STEPS", 4)
    monkeypatch.setattr(recurrence, "BLOCK", 4)


@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("steps", [8, 11])
def test_long_sequences_are_a_loop_of_blocks(
    kind: str, direction: str, steps: int, blocks_of_four: None
) -> None:
    model, given = _network(kind, steps, direction)
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    wanted = session.run(None, dict(zip(("x", "n"), given, strict=True)))
    module = plica.from_onnx(model)
    assert any(is_loop(each) for each in expressions(module.main_function().body))
    for mine, theirs in zip(plica.interpret(module, *given), wanted, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)


def test_a_loop_of_blocks_is_one_code_and_is_written_out_for_others(
    blocks_of_four: None, tmp_path: Path
) -> None:
    model, given = _network("RNN", 11, "reverse")
    wanted = plica.interpret(plica.from_onnx(model), *given)
    exe = plica.compile(plica.from_onnx(model), cache=False, threads=1)
    assert isinstance(exe, StagedExecutable)
    elsewhere = plica.compile(plica.from_onnx(model), cache=False, target="c")
    exe.export(str(tmp_path / "model"))
    exe.save(tmp_path / "model.plica")
    for each in (exe, elsewhere, plica.load(tmp_path / "model.plica")):
        for mine, theirs in zip(each(*given), wanted, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)


def test_what_looks_at_one_program_has_loops_written_out(blocks_of_four: None) -> None:
    module = plica.from_onnx(_network("RNN", 11, "forward")[0])
    assert repeats(module)
    assert not repeats(without_loops(module))
    assert lower(module).program.kernels


# fmt: off
GATES = [
    ("RNN",  "forward",       ["LeakyRelu"],                            [0.2],        []),
    ("RNN",  "bidirectional", ["LeakyRelu", "HardSigmoid"],             [0.2, 0.3],   [0.45]),
    ("GRU",  "reverse",       ["HardSigmoid", "Softsign"],              [0.3],        [0.4]),
    ("GRU",  "bidirectional", ["HardSigmoid", "Tanh", "Sigmoid", "Elu"], [0.3, 0.15], [0.4]),
    ("LSTM", "forward",       ["HardSigmoid", "Elu", "LeakyRelu"],      [0.25, 0.7],  []),
]
# fmt: on


@pytest.mark.parametrize(("kind", "direction", "functions", "alpha", "beta"), GATES)
def test_functions_of_gates_take_their_settings_in_turn(
    kind: str, direction: str, functions: list[str], alpha: list[float], beta: list[float]
) -> None:
    settings = {"activation_alpha": alpha, "activation_beta": beta}
    told = {name: values for name, values in settings.items() if values}
    model, given = _network(kind, 5, direction, activations=functions, **told)
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    wanted = session.run(None, dict(zip(("x", "n"), given, strict=True)))
    found = plica.interpret(plica.from_onnx(model), *given)
    for mine, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-4)
