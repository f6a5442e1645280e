"""`target="opencl"`: a model as OpenCL C, run on a device, saved and loaded."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import plica
from plica.codegen.backend import TARGETS, backend_named
from plica.codegen.emit.lane_store import FORMULAS
from plica.codegen.fuzz import fuzz
from plica.codegen.opencl.dialect import helpers
from plica.ir.graph.module import Module
from plica.ir.interpret.value import Array
from plica.runtime.device_executable import DeviceExecutable
from plica.runtime.error import ArtefactError, EvaluationError, UnsupportedError
from plica.runtime.opencl import device
from plica.runtime.verify import verify
from tests.codegen.native import assert_close

WHY = backend_named("opencl").missing()
needs_device = pytest.mark.skipif(bool(WHY), reason=WHY)

TEXT = """
from __future__ import annotations
import plica
from plica.script import Tensor, f32
from plica.op import matmul, nn

@plica.function
def main(x: Tensor[(24, 40), f32], w: Tensor[(40, 48), f32]) -> Tensor[(24, 48), f32]:
    return nn.relu(matmul(x, w)) + 1.0
"""

EXTREMES = """
from __future__ import annotations
import plica
from plica import op
from plica.script import Tensor, f32

@plica.function
def main(a: Tensor[({size},), f32], b: Tensor[({size},), f32]) -> Tensor[({size},), f32]:
    return op.{word}(a, b)
"""

CHOSEN = """
from __future__ import annotations
import plica
from plica.script import Tensor, f64, i64
from plica.op import take

@plica.function
def main(x: Tensor[(4,), f64], at: Tensor[(2,), i64]) -> Tensor[(2,), f64]:
    return take(x, at)
"""


@pytest.fixture
def module() -> Module:
    return plica.from_text(TEXT)


@pytest.fixture
def arrays() -> list[Array]:
    random = np.random.default_rng(0)
    return [random.standard_normal(shape).astype(np.float32) for shape in ((24, 40), (40, 48))]


def test_it_is_found_by_its_folder() -> None:
    assert TARGETS.points()["opencl"].value == "plica.codegen.opencl.backend:BACKEND"


@needs_device
def test_a_model_computes_what_it_means_and_is_saved(
    module: Module, arrays: list[Array], tmp_path: Path
) -> None:
    made = plica.compile(module, target="opencl:256", cache=False)
    found = made(*arrays)
    assert isinstance(found, np.ndarray)
    assert_close(found, plica.interpret(module, *arrays), arrays)
    text = made.source("opencl")
    assert "p_fma_f32_8(*(global float8_ *)" in text  # lanes are vectors
    made.save(tmp_path / "m.plica")
    loaded = plica.load(tmp_path / "m.plica")
    np.testing.assert_array_equal(loaded(*arrays), found)
    assert loaded.source("opencl") == text
    assert verify(tmp_path / "m.plica").target == "opencl:256"


@needs_device
def test_an_index_outside_is_told_and_the_next_call_is_right() -> None:
    made = plica.compile(plica.from_text(CHOSEN), target="opencl", cache=False)
    x = np.arange(4, dtype=np.float64)
    with pytest.raises(EvaluationError, match="outside"):
        made(x, np.array([4, 1]))
    np.testing.assert_array_equal(made(x, np.array([3, 1])), [3, 1])


@needs_device
@pytest.mark.slow
def test_random_kernels_compute_what_they_mean() -> None:
    report = fuzz(20, seed=7, target="opencl", isolated=False)
    assert report.finding is None
    assert report.examples == 20


@needs_device
def test_a_device_without_doubles_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Narrow:
        name, extensions = "narrow", "cl_khr_fp16"

    monkeypatch.setattr("plica.runtime.opencl.executable.device", Narrow)
    with pytest.raises(ArtefactError, match="f64"):
        plica.compile(plica.from_text(CHOSEN), target="opencl:128", cache=False)


@needs_device
def test_a_device_that_is_too_small_or_lost_is_told(
    module: Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pyopencl

    made = plica.compile(module, target="opencl:128", cache=False)
    arrays = [np.ones(each.shape, each.numpy) for each in made.inputs]
    before = made(*arrays)

    def lost() -> None:
        raise pyopencl.RuntimeError("clEnqueueNDRangeKernel failed: OUT_OF_RESOURCES")

    assert isinstance(made, DeviceExecutable)
    with monkeypatch.context() as patch:
        patch.setattr(made.program, "_steps", [lost])
        with pytest.raises(EvaluationError, match="lost") as caught:
            made(*arrays)
        assert caught.value.code == "device-fault"
    np.testing.assert_array_equal(made(*arrays), before)

    class Small:
        name, extensions, max_mem_alloc_size, global_mem_size = "small", "cl_khr_fp64", 9, 9

    monkeypatch.setattr("plica.runtime.opencl.executable.device", Small)
    with pytest.raises(EvaluationError, match="not enough memory") as caught:
        plica.compile(module, target="opencl:128", cache=False)
    assert caught.value.code == "no-memory"
    assert "at most 9 bytes, 9 in one piece" in str(caught.value)


@needs_device
def test_a_name_that_no_device_has_is_told_with_the_names(
    module: Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    (name, *_) = [each.name for each in device.devices()]
    monkeypatch.setenv("PLICA_OPENCL", "no such device")
    with pytest.raises(UnsupportedError, match="PLICA_OPENCL") as caught:
        plica.compile(module, target="opencl:128", cache=False)
    assert name in str(caught.value)
    monkeypatch.setenv("PLICA_OPENCL", name[1:])
    assert device.device().name == name


def test_no_package_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyopencl", None)
    assert device.PACKAGE in backend_named("opencl").missing()
    with pytest.raises(UnsupportedError, match="not installed"):
        device.device()


def test_no_device_is_a_clear_error(module: Module, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyopencl")
    monkeypatch.setattr(device, "devices", list)
    with pytest.raises(UnsupportedError, match="no device") as caught:
        plica.compile(module, target="opencl:128", cache=False)
    assert caught.value.code == "no-toolchain"
    assert device.DRIVER in backend_named("opencl").missing()


def test_other_words_and_libraries_are_refused(module: Module, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="no target"):
        plica.compile(module, target="opencl:100")
    if not WHY:
        with pytest.raises(UnsupportedError, match="for processors"):
            plica.compile(module, target="opencl:256", cache=False).export(tmp_path / "lib.so")


PADDED = """
from __future__ import annotations
import plica
from plica.script import Tensor, f32
from plica.op import nn

@plica.function
def main(x: Tensor[(1, 4, 40, 40), f32], w: Tensor[(4, 1, 3, 3), f32]):
    return nn.conv(x, w, padding=1, groups=4)
"""


FUNCTIONS = """
from __future__ import annotations
import plica
from plica import op
from plica.script import Tensor, f32
@plica.function
def main(x: Tensor[(512,), f32]):
    return op.erf(x), op.expm1(x), op.log1p(x)
"""


@needs_device
def test_functions_of_lanes_are_formulas() -> None:
    module = plica.from_text(FUNCTIONS)
    x = np.linspace(-6, 6, 512, dtype=np.float32)
    x[:7] = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-30, 1e30]
    made = plica.compile(module, target="opencl:256", cache=False)
    assert "p_erf_f32_16(float16 x)" in made.source("opencl")
    with np.errstate(all="ignore"):
        meant = plica.interpret(module, x)
    for found, wanted in zip(made(x), meant, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=4e-7)


@needs_device
@pytest.mark.parametrize(("stride", "word"), [(1, "guarded"), (2, ").even,")])
def test_neighbours_behind_a_guard_are_read_at_once_where_it_holds(stride: int, word: str) -> None:
    module = plica.from_text(PADDED.replace("padding=1", f"padding=1, strides={stride}"))
    random = np.random.default_rng(1)
    shapes = ((1, 4, 40, 40), (4, 1, 3, 3))
    arrays = [random.standard_normal(shape).astype(np.float32) for shape in shapes]
    made = plica.compile(module, target="opencl:256", cache=False)
    assert word in made.source("opencl")
    found = made(*arrays)
    assert isinstance(found, np.ndarray)
    assert_close(found, plica.interpret(module, *arrays), arrays)


@pytest.mark.parametrize("count", [2, 4, 8, 16])
def test_vectors_are_computed_by_operators_not_by_functions_of_the_driver(count: int) -> None:
    names = ["p_min_f32", "p_max_f64", "p_fma_f32", *[f"p_{each}_f32" for each in FORMULAS]]
    text = helpers({f"{name}_{count}" for name in names})
    called = set(re.findall(r"\b([a-z]\w*)\(", text)) - {"defined", "fma"}  # that is for SPIR-V
    assert not {each for each in called if not each.startswith(("p_", "as_", "convert_", "float"))}


@needs_device
@pytest.mark.parametrize("word", ["min", "max"])
def test_extremes_of_lanes_are_those_of_ieee(word: str) -> None:
    given = np.array([0.0, -0.0, np.nan, np.inf, -np.inf, 1.5, -1.5, 3e-45], np.float32)
    one, two = (each.ravel() for each in np.meshgrid(given, given))
    source = EXTREMES.format(size=one.size, word=f"{word}imum")
    made = plica.compile(plica.from_text(source), target="opencl:128", cache=False)
    assert f"p_{word}_f32_16(" in made.source("opencl")
    found = made(one, two)
    meant = getattr(np, f"{word}imum")(one, two)
    np.testing.assert_array_equal(found, meant)
    zeros = (one == 0) & (two == 0)
    both = np.signbit(one) & np.signbit(two)
    either = np.signbit(one) | np.signbit(two)
    wanted = either if word == "min" else both
    np.testing.assert_array_equal(np.signbit(np.asarray(found))[zeros], wanted[zeros])
