"""Tensors of nodes: each has its name, and is what an independent runtime computes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnxruntime import InferenceSession

from plica.bench.sample import sample
from plica.cli import main
from plica.report.compare import node_tensors
from plica.runtime.link import can_link
from tests.report.model import compiled_small, model_file

pytestmark = pytest.mark.skipif(not can_link(), reason="objects are not loaded here")


def test_every_node_has_the_tensor_that_onnxruntime_computes(tmp_path: Path) -> None:
    model = compiled_small("mlp")
    arrays = sample(model.executable.inputs, {}, 0)
    found = node_tensors(model, arrays)
    proto = onnx.load(model_file("mlp", tmp_path))
    outputs = {node.name: node.output[0] for node in proto.graph.node if node.name in found}
    assert outputs
    del proto.graph.output[:]
    proto.graph.output.extend([onnx.ValueInfoProto(name=each) for each in outputs.values()])
    session = InferenceSession(proto.SerializeToString())
    names = [each.name for each in session.get_inputs()]
    results = session.run(list(outputs.values()), dict(zip(names, arrays, strict=True)))
    for name, wanted in zip(outputs, results, strict=True):
        np.testing.assert_allclose(found[name], wanted, rtol=1e-4, atol=1e-5)


def test_the_command_writes_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "tensors.npz"
    assert main(["debug", str(model_file("mlp", tmp_path)), "--dump", str(file)]) == 0
    assert "agree with the interpreter" in capsys.readouterr().out
    with np.load(file, allow_pickle=False) as tensors:
        kernels = [name for name in tensors.files if name.startswith("kernel ")]
        assert kernels
        assert len(tensors.files) > len(kernels)
