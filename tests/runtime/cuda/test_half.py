"""Networks of f16 and bf16 on a GPU, here one that is made of the processor: any shape compiles."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import settings

import plica
from plica.codegen.cuda.target import GpuTarget
from plica.codegen.cuda.toolchain import path_of
from plica.ir.loop.statement import Invoke, statements
from plica.ir.text.script import from_text
from plica.pipeline import assemble, lower
from plica.runtime.load import executable
from tests.codegen.cuda.emulate import COMPILER
from tests.runtime.cuda.fake import FakeDriver, plugged

pytestmark = [
    pytest.mark.skipif(COMPILER is None, reason="no C++ compiler on this machine"),
    pytest.mark.skipif(path_of() is None, reason="NVRTC is not installed: plica[cuda]"),
]

MORE = pytest.mark.skipif(
    settings.get_current_profile_name() == "ci", reason="takes long: other profiles than ci have it"
)

HEAD = """
from __future__ import annotations
import plica
from plica import op
from plica.op import nn
from plica.script import Tensor, {0}

@plica.function
"""

PERCEPTRON = """
def main(
    x: Tensor[(256, 50), {0}], v: Tensor[(70, 50), {0}], b: Tensor[(70,), {0}],
    w: Tensor[(40, 70), {0}],
) -> Tensor[(256, 40), {0}]:
    return nn.relu(nn.dense(nn.gelu(nn.dense(x, v) + b), w))
"""

RESIDUAL = """
def main(
    x: Tensor[(2, 3, 16, 16), {0}], s: Tensor[(24, 3, 7, 7), {0}], v: Tensor[(24, 24, 3, 3), {0}],
    w: Tensor[(40, 24, 3, 3), {0}],
) -> Tensor[(2, 40, 2, 2), {0}]:
    y = nn.relu(nn.conv2d(x, s, strides=(2, 2), padding=(3, 3)))
    y = nn.max_pool(y, kernel=(3, 3), strides=(2, 2), padding=(1, 1))
    y = nn.relu(nn.conv2d(y, v, padding=(1, 1)) + y)
    return nn.relu(nn.conv2d(y, w, strides=(2, 2), padding=(1, 1)))
"""

ATTENTION = """
def main(
    q: Tensor[(2, 3, 37, 32), {0}], k: Tensor[(2, 3, 37, 32), {0}], v: Tensor[(2, 3, 37, 32), {0}]
) -> Tensor[(2, 3, 37, 32), {0}]:
    scores = op.matmul(q, op.transpose(k, (0, 1, 3, 2)))
    return op.matmul(nn.softmax(scores, axis=-1), v)
"""


@pytest.mark.parametrize(
    ("text", "dtype", "architecture"),
    [
        (PERCEPTRON, "f16", "sm_90a"),
        pytest.param(PERCEPTRON, "bf16", "sm_90", marks=MORE),
        pytest.param(RESIDUAL, "f16", "sm_90a", marks=MORE),
        pytest.param(RESIDUAL, "bf16", "sm_90", marks=MORE),
        pytest.param(ATTENTION, "f16", "sm_90", marks=MORE),
        pytest.param(ATTENTION, "bf16", "sm_90", marks=MORE),
    ],
)
def test_networks_of_narrow_numbers(
    text: str, dtype: str, architecture: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = from_text((HEAD + text.lstrip()).format(dtype))
    target = GpuTarget(architecture)
    lowered = lower(module, target=target)
    calls = [each for kernel in lowered.program.kernels for each in statements(kernel.body)]
    assert any(isinstance(each, Invoke) and "mma" in each.name for each in calls)
    artefact = assemble(lowered, target)
    plugged(monkeypatch, FakeDriver()).runs(artefact)
    exe: Any = executable(artefact)
    random = np.random.default_rng(0)
    given = [(random.standard_normal(port.shape) / 4).astype(port.numpy) for port in exe.inputs]
    found, expected = (
        np.asarray(each).astype(np.float64)
        for each in (exe(*given), plica.interpret(module, *given))
    )
    near = 4e-3 if dtype == "f16" else 3e-2
    np.testing.assert_allclose(found, expected, atol=near * float(np.abs(expected).max()))
