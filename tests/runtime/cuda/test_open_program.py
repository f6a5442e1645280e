"""Open programs on a GPU, here one that is made of the processor: loaded once, run at any size."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import pytest

from plica.codegen.cuda.target import GpuTarget
from plica.codegen.cuda.toolchain import path_of
from plica.ir.text.script import from_text
from plica.pipeline import assemble, lower
from plica.runtime.artefact import Artefact
from plica.runtime.cuda.array import DeviceArray
from plica.runtime.cuda.open_program import OpenDeviceExecutable
from plica.runtime.load import executable
from tests.codegen.cuda.emulate import COMPILER
from tests.runtime.cuda.fake import FakeDriver, plugged

pytestmark = [
    pytest.mark.skipif(COMPILER is None, reason="no C++ compiler on this machine"),
    pytest.mark.skipif(path_of() is None, reason="NVRTC is not installed: plica[cuda]"),
]

SOURCE = """
import plica
from plica.op import nn
from plica.script import Tensor, f32

@plica.function
def main(x: Tensor[("n", 8), f32]) -> Tensor[("n", 8), f32]:
    return nn.softmax(x * 2.0, axis=-1)
"""


@lru_cache(maxsize=1)
def artefact() -> Artefact:
    target = GpuTarget("sm_90")
    made = assemble(lower(from_text(SOURCE), target=target), target)
    assert isinstance(made, Artefact)
    return made


class OnDevice:
    """An array of another library that says where it is."""

    def __init__(self, of: Any) -> None:
        self._held = of

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        held = self._held
        return {"shape": held.shape, "typestr": held.dtype.str, "data": (held.ctypes.data, False),
                "version": 3, "strides": None}  # fmt: skip


def test_arrays_on_the_device_stay_there(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = plugged(monkeypatch, FakeDriver())
    gpu.runs(artefact())
    exe = executable(artefact())
    for n in (2, 9):
        x = np.random.default_rng(n).standard_normal((n, 8)).astype(np.float32)
        found = exe(OnDevice(x))
        assert isinstance(found, DeviceArray)
        np.testing.assert_array_equal(np.asarray(found), exe(x))


def test_code_is_loaded_once_whatever_the_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = plugged(monkeypatch, FakeDriver())
    gpu.runs(artefact())
    exe = executable(artefact())
    assert isinstance(exe, OpenDeviceExecutable)
    loads = gpu.asked.count("cuModuleLoadData")
    for n in (3, 700, 1, 3):
        x = np.random.default_rng(n).standard_normal((n, 8)).astype(np.float32)
        e = np.exp(2 * x - (2 * x).max(axis=1, keepdims=True))
        np.testing.assert_allclose(exe(x), e / e.sum(axis=1, keepdims=True), rtol=1e-5)
    assert loads == gpu.asked.count("cuModuleLoadData") > 0
    assert exe.stats.calls == 4
    assert exe.stats.compilations == 0


def test_a_call_of_open_sizes_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = plugged(monkeypatch, FakeDriver())
    gpu.runs(artefact())
    exe: Any = executable(artefact())
    streams: list[int] = []
    found = exe.seconds(np.ones((3, 8), np.float32), runs=2, before=streams.append)
    assert found == [2e-3, 2e-3]
    assert streams
