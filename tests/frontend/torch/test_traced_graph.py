"""Traced graphs on a GPU, here one that is made of the processor: tensors, strides, addresses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch  # it may be missing

from plica.codegen.cuda.target import GpuTarget
from plica.codegen.cuda.toolchain import path_of
from plica.frontend.torch import traced_graph
from plica.frontend.torch.backend import compiled
from plica.frontend.torch.plan import GPU
from plica.pipeline import assemble, lower
from plica.runtime.artefact import Artefact
from plica.runtime.cuda.program import CudaExecutable
from plica.runtime.executable import Executable
from plica.runtime.load import executable
from tests.codegen.cuda.emulate import COMPILER
from tests.runtime.cuda.fake import FakeDriver, plugged

pytestmark = [
    pytest.mark.skipif(COMPILER is None, reason="no C++ compiler on this machine"),
    pytest.mark.skipif(path_of() is None, reason="NVRTC is not installed: plica[cuda]"),
]


@pytest.fixture(autouse=True)
def anew() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


class Emulated:
    """The backend, whose code for a GPU runs on tensors of the processor."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._patch = patch
        self.made: list[tuple[CudaExecutable, FakeDriver]] = []
        patch.setattr(traced_graph, "device_of", lambda graph: GPU)
        patch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda number: 77, raising=False)

    def __call__(self, graph: Any, inputs: Any) -> Callable[..., Any]:
        return compiled(graph, inputs, self._compiled)

    def _compiled(self, module: Any, target: str) -> Executable:
        chosen = GpuTarget("sm_90")
        artefact = assemble(lower(module, target=chosen), chosen)
        assert isinstance(artefact, Artefact)
        driver = plugged(self._patch, FakeDriver())
        driver.runs(artefact)
        made = executable(artefact)
        assert isinstance(made, CudaExecutable)
        self.made.append((made, driver))
        return made


def same(found: Any, wanted: Any) -> None:
    for mine, reference in zip(found, wanted, strict=True):
        assert mine.stride() == reference.stride()
        torch.testing.assert_close(mine, reference)


def test_tensors_are_read_where_they_are_or_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = Emulated(monkeypatch)

    def run(x: Any, y: Any) -> Any:
        return torch.tanh(x * 2 + y), (x.t() - 1).sum(0), (x + y).expand(2, 3, 4)

    made: Any = torch.compile(run, backend=backend)
    room = torch.from_numpy(np.empty(64, np.float32))
    moved = room[1:13].view(3, 4)
    for turn in range(4):
        x, y = torch.randn(3, 4) + turn, torch.randn(4)
        same(made(x, y), run(x, y))
        with torch.no_grad():
            moved.copy_(x)
        same(made(moved, y), run(x, y))  # begins at no multiple of 16
    turned = torch.randn(4, 3).t()
    same(made(turned, y), run(turned, y))


def test_a_step_of_training_is_that_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = Emulated(monkeypatch)
    torch.manual_seed(7)
    model = torch.nn.Sequential(torch.nn.Linear(5, 6), torch.nn.GELU(), torch.nn.Linear(6, 3))
    made: Any = torch.compile(model, backend=backend)
    for _ in range(3):
        x = torch.randn(2, 5)
        slopes = []
        for run in (model, made):
            model.zero_grad()
            run(x).square().sum().backward()
            slopes.append(
                [torch.clone(each.grad) for each in model.parameters() if each.grad is not None]
            )
        same(slopes[1], slopes[0])
    assert len(backend.made) == 2  # forwards and backwards
    assert "cuStreamSynchronize" not in backend.made[0][1].asked[-20:]
