"""Recurrent networks: steps that are alike share their kernels, and another runtime agrees."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import plica
from plica.codegen.llvm import toolchain
from plica.codegen.program import Launch
from plica.pipeline import lower

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


def model(  # noqa: PLR0917  # a network is these things
    kind: str, steps: int, batch: int, inputs: int, hidden: int, direction: str = "forward",
    **attrs: Any,
) -> tuple[Any, np.ndarray[Any, Any]]:  # fmt: skip
    """A network of one node with weights that are known, and a sequence for it."""
    random = np.random.default_rng(0)
    ways, gates = 1 + (direction == "bidirectional"), GATES[kind] * hidden
    shapes = {"w": (ways, gates, inputs), "r": (ways, gates, hidden), "b": (ways, 2 * gates)}
    kept = [
        onnx.numpy_helper.from_array(
            (random.standard_normal(shape) / np.sqrt(hidden)).astype(np.float32), name
        )
        for name, shape in shapes.items()
    ]
    x = random.standard_normal((steps, batch, inputs)).astype(np.float32)
    node = onnx.helper.make_node(
        kind, ["x", *shapes], ["y", "h"], hidden_size=hidden, direction=direction, **attrs
    )
    float_ = onnx.TensorProto.FLOAT
    ports = [onnx.helper.make_tensor_value_info("x", float_, x.shape)]
    ends = [onnx.helper.make_tensor_value_info(name, float_, None) for name in ("y", "h")]
    graph = onnx.helper.make_graph([node], "g", ports, ends, kept)
    opset = [onnx.helper.make_opsetid("", 18)]
    return onnx.helper.make_model(graph, opset_imports=opset, ir_version=9), x


# fmt: off
NETWORKS: dict[str, tuple[tuple[str, int, int, int, int, str], dict[str, Any]]] = {
    "lstm":          (("LSTM", 5, 1, 20, 33, "forward"),       {}),
    "lstm batch":    (("LSTM", 4, 3, 16, 32, "reverse"),       {}),
    "gru":           (("GRU",  5, 1, 20, 33, "bidirectional"), {}),
    "gru linear":    (("GRU",  5, 2, 16, 48, "forward"),       {"linear_before_reset": 1}),
    "plain":         (("RNN",  5, 2, 16, 40, "bidirectional"), {}),
}
# fmt: on


@pytest.mark.parametrize("name", list(NETWORKS))
def test_another_runtime_agrees(name: str) -> None:
    shape, attrs = NETWORKS[name]
    made, x = model(*shape, **attrs)
    found = plica.compile(plica.from_onnx(made), cache=False)(x)
    session = runtime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    for mine, other in zip(found, session.run(None, {"x": x}), strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_steps_share_their_kernels(kind: str) -> None:
    """More steps are more launches, but only what cuts a step out of the sequence is new code."""
    counts = []
    for steps in (6, 12):
        made, _ = model(kind, steps, 1, 24, 32)
        program = lower(plica.from_onnx(made), target=toolchain.host()).program
        steps_ = [step for region in program.regions for step in region]
        launches = [step for step in steps_ if isinstance(step, Launch)]
        cuts = [name for name in program.names if name in ("slice", "slice_")]
        counts.append((len(program.kernels) - len(cuts), len(launches)))
    (few, short), (many, long) = counts
    assert many == few
    assert long >= short + 6 * 2
