"""`target="webgpu"`: a model as shaders in WGSL, run on a device, saved and loaded."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import plica
from plica.codegen.backend import TARGETS, Backend, backend_named
from plica.codegen.fuzz import fuzz
from plica.ir.graph.module import Module
from plica.ir.interpret.value import Array
from plica.runtime.error import ArtefactError, EvaluationError, UnsupportedError
from plica.runtime.verify import verify
from plica.runtime.webgpu import device, executable
from tests.codegen.native import assert_close

WHY = backend_named("webgpu").missing()
needs_device = pytest.mark.skipif(bool(WHY), reason=WHY)

TEXT = """
from __future__ import annotations
import plica
from plica.script import Tensor, f32
from plica.op import matmul, nn

@plica.function
def main(x: Tensor[(24, 40), f32], w: Tensor[(40, 48), f32]) -> Tensor[(24, 48), f32]:
    return nn.softmax(nn.relu(matmul(x, w)), axis=-1)
"""

CHOSEN = """
from __future__ import annotations
import plica
from plica.script import Tensor, i8, i64
from plica.op import take

@plica.function
def main(x: Tensor[(5,), i8], at: Tensor[(3,), i64]) -> Tensor[(3,), i8]:
    return take(x, at) + take(x, at)
"""

DOUBLES = """
from __future__ import annotations
import plica
from plica.script import Tensor, f64

@plica.function
def main(x: Tensor[(5,), f64]) -> Tensor[(5,), f64]:
    return x + x
"""


@pytest.fixture
def module() -> Module:
    return plica.from_text(TEXT)


@pytest.fixture
def arrays() -> list[Array]:
    random = np.random.default_rng(0)
    return [random.standard_normal(shape).astype(np.float32) for shape in ((24, 40), (40, 48))]


def test_it_is_found_by_its_folder() -> None:
    assert TARGETS.points()["webgpu"].value == "plica.codegen.webgpu.backend:BACKEND"


@needs_device
def test_a_model_computes_what_it_means_and_is_saved(
    module: Module, arrays: list[Array], tmp_path: Path
) -> None:
    made = plica.compile(module, target="webgpu", cache=False)
    found = made(*arrays)
    assert isinstance(found, np.ndarray)
    assert_close(found, plica.interpret(module, *arrays), arrays)
    made.save(tmp_path / "m.plica")
    loaded = plica.load(tmp_path / "m.plica")
    np.testing.assert_array_equal(loaded(*arrays), found)
    assert loaded.source("wgsl") == made.source("wgsl")
    assert verify(tmp_path / "m.plica").target == "webgpu"
    made.export(tmp_path / "page.plica")
    assert (tmp_path / "plica-runtime.js").exists()


@needs_device
def test_parts_of_words_wrap_around_and_an_index_outside_is_told() -> None:
    if not device.has_int64():  # places are integers of 64 bits
        pytest.skip("the device has no integers of 64 bits")
    made = plica.compile(plica.from_text(CHOSEN), target="webgpu", cache=False)
    x = np.array([1, -128, 127, 100, 3], np.int8)
    with pytest.raises(EvaluationError, match="outside"):
        made(x, np.array([5, 1, 0]))
    np.testing.assert_array_equal(made(x, np.array([1, 3, 2])), np.array([0, -56, -2], np.int8))


@needs_device
@pytest.mark.slow
def test_random_kernels_compute_what_they_mean() -> None:
    report = fuzz(20, seed=7, target="webgpu", isolated=False)
    assert report.finding is None


@needs_device
def test_a_device_without_long_integers_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executable, "has_int64", lambda: False)
    with pytest.raises(ArtefactError, match="64 bits"):
        plica.compile(plica.from_text(CHOSEN), target="webgpu", cache=False)


@needs_device
def test_more_memory_than_there_is_is_a_clear_error(
    module: Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Small:
        limits = {"max-buffer-size": 1 << 10, "max-storage-buffer-binding-size": 1 << 10}  # noqa: RUF012

    monkeypatch.setattr(executable, "device", Small)
    with pytest.raises(EvaluationError, match="not enough memory"):
        plica.compile(module, target="webgpu", cache=False)


@needs_device
def test_a_lost_device_is_told_and_the_next_model_finds_another(module: Module) -> None:
    made = plica.compile(module, target="webgpu", cache=False)
    arrays = [np.ones(each.shape, each.numpy) for each in made.inputs]
    before = made(*arrays)
    device.device().destroy()
    for act in (lambda: plica.compile(module, target="webgpu", cache=False), lambda: made(*arrays)):
        with pytest.raises(EvaluationError, match="lost") as caught:
            act()
        assert caught.value.code == "device-fault"
    again = plica.compile(module, target="webgpu", cache=False)
    np.testing.assert_array_equal(again(*arrays), before)


def test_doubles_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Backend, "check_before", lambda *_, **__: None)  # with a driver or without
    with pytest.raises(UnsupportedError, match="WGSL has no f64"):
        plica.compile(plica.from_text(DOUBLES), target="webgpu", cache=False)


def test_no_package_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "wgpu", None)
    device.device.cache_clear()
    assert device.PACKAGE in backend_named("webgpu").missing()
    device.device.cache_clear()


def test_other_words_are_refused(module: Module) -> None:
    with pytest.raises(UnsupportedError, match="no target"):
        plica.compile(module, target="webgpu:fast")
