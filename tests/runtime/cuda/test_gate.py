"""Recurrent steps on a GPU, here one that is made of the processor: a launch for each step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import plica
from plica.codegen.cuda.target import GpuTarget
from plica.codegen.cuda.toolchain import path_of
from plica.ir.text.script import from_text
from plica.pipeline import assemble, lower
from plica.runtime.load import executable
from tests.codegen.cuda.emulate import COMPILER
from tests.frontend.onnx.build import one
from tests.runtime.cuda.fake import FakeDriver, plugged

pytestmark = [
    pytest.mark.skipif(COMPILER is None, reason="no C++ compiler on this machine"),
    pytest.mark.skipif(path_of() is None, reason="NVRTC is not installed: plica[cuda]"),
]

HEAD = """
from __future__ import annotations
import plica
from plica import op
from plica.op import nn
from plica.script import Tensor, f32

@plica.function
"""

GRU = """
def main(
    x: Tensor[(2, 2, 30), f32], h: Tensor[(2, 10), f32],
    w: Tensor[(30, 10), f32], b: Tensor[(30,), f32],
) -> Tensor[(2, 10), f32]:
    g = op.reshape(op.slice(x, axes=(0,), starts=(1,), stops=(2,)), shape=(2, 30))
    z = nn.dense(h, w) + b
    r = nn.sigmoid(op.slice(g, (0,), (10,), axes=(1,)) + op.slice(z, (0,), (10,), axes=(1,)))
    u = nn.sigmoid(op.slice(g, (10,), (20,), axes=(1,)) + op.slice(z, (10,), (20,), axes=(1,)))
    n = op.tanh(op.slice(g, (20,), (30,), axes=(1,)) + r * op.slice(z, (20,), (30,), axes=(1,)))
    return n + u * (h - n)
"""

SPLIT = """
def main(
    h: Tensor[(1, 12), f32], c: Tensor[(1, 8), f32], w: Tensor[(16, 12), f32],
) -> Tensor[(1, 8), f32]:
    i, f = op.split(nn.dense(h, w), 2, axis=1)
    return nn.sigmoid(i) * c + op.tanh(f)
"""

LSTM = """
def main(
    h: Tensor[(1, 12), f32], c: Tensor[(1, 8), f32], w: Tensor[(32, 12), f32],
) -> tuple[Tensor[(1, 8), f32], Tensor[(1, 8), f32]]:
    z = nn.dense(h, w)
    i = nn.sigmoid(op.slice(z, (0,), (8,), axes=(1,)))
    f = nn.sigmoid(op.slice(z, (8,), (16,), axes=(1,)))
    g = op.tanh(op.slice(z, (16,), (24,), axes=(1,)))
    new = f * c + i * g
    return (new, nn.sigmoid(op.slice(z, (24,), (32,), axes=(1,))) * op.tanh(new))
"""


@pytest.mark.parametrize(("text", "launches"), [(GRU, 1), (SPLIT, 1), (LSTM, 2)])
def test_a_step_is_a_launch(text: str, launches: int, monkeypatch: pytest.MonkeyPatch) -> None:
    module, target = from_text(HEAD + text), GpuTarget("sm_90a")
    artefact = assemble(lower(module, target=target), target)
    assert artefact.device is not None
    assert len(artefact.device.steps) == launches
    plugged(monkeypatch, FakeDriver()).runs(artefact)
    exe: Any = executable(artefact)
    random = np.random.default_rng(0)
    given = [random.standard_normal(port.shape).astype(port.numpy) for port in exe.inputs]
    found, expected = exe(*given), plica.interpret(module, *given)
    for mine, other in zip(np.atleast_2d(found), np.atleast_2d(expected), strict=True):
        np.testing.assert_allclose(mine, other, atol=1e-6)


@pytest.mark.parametrize(
    ("kind", "gates", "launches"), [("RNN", 1, 1), ("GRU", 3, 1), ("LSTM", 4, 2)]
)
def test_steps_of_files_are_launches(kind: str, gates: int, launches: int) -> None:
    steps, wide, random = 4, 16, np.random.default_rng(1)
    shapes = [(steps, 1, wide), (1, gates * wide, wide), (1, gates * wide, wide)]
    arrays = [random.standard_normal(shape).astype(np.float32) for shape in shapes]
    more = {"linear_before_reset": 1} if kind == "GRU" else {}
    model = one(kind, arrays, stored=2, hidden_size=wide, **more)
    target = GpuTarget("sm_90a")
    artefact = assemble(lower(plica.from_onnx(model), target=target), target)
    assert artefact.device is not None
    whole = 3  # the product with all inputs, and what joins the outputs
    assert len(artefact.device.steps) <= launches * steps + whole
