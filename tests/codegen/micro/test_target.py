"""`target="micro"`: models that run on boards in QEMU, without an operating system."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import plica
from plica.codegen.fuzz import fuzz
from plica.codegen.micro.backend import parse
from plica.codegen.micro.core import CORES
from plica.frontend.zoo import ds_cnn, mlp
from plica.ir.graph.module import Module
from plica.runtime.device_executable import DeviceExecutable
from plica.runtime.emulated import EmulatedModel
from plica.runtime.error import ArtefactError, UnsupportedError


def missing(name: str) -> str:
    """Why a core cannot be tried here, or nothing."""
    core = CORES[name]
    absent = [each for each in (core.compiler, core.board.emulator) if shutil.which(each) is None]
    return f"there is no {' and no '.join(absent)} here" if absent else ""


def compiled(module: Module, name: str) -> DeviceExecutable:
    if why := missing(name):
        pytest.skip(why)
    made = plica.compile(module, target=f"micro:{name}", cache=False)
    assert isinstance(made, DeviceExecutable)
    return made


@pytest.mark.parametrize(
    "name",
    [each if each == "cortex-m7" else pytest.param(each, marks=pytest.mark.slow) for each in CORES],
)
def test_a_network_of_bytes_says_what_it_says_here(name: str) -> None:
    random = np.random.default_rng(0)
    network = ds_cnn(frames=9, features=4, channels=8, blocks=1)
    samples = random.standard_normal((4, 1, 1, 9, 4)).astype(np.float32)
    integers = plica.quantise(network, samples)
    made = compiled(integers, name)
    np.testing.assert_allclose(
        made(samples[0]), plica.compile(integers)(samples[0]), rtol=1e-5, atol=1e-6
    )
    size = made.source("size")
    assert size.startswith("flash ")
    bound = int(size.rpartition(" ")[2].rstrip(")"))  # beside which the harness takes some
    assert isinstance(made.program, EmulatedModel)
    assert 0 < made.program.note <= bound + 256


def test_it_is_saved_and_not_loaded_here(tmp_path: Path) -> None:
    made = compiled(mlp((4, 3)), "cortex-m3")
    made.save(tmp_path / "m.plica")
    with pytest.raises(ArtefactError, match="another kind") as caught:
        plica.load(tmp_path / "m.plica")
    assert caught.value.code == "other-machine"
    made.export(tmp_path / "words.c")
    assert (tmp_path / "words.h").is_file()


@pytest.mark.slow
def test_a_model_that_is_too_large_is_refused() -> None:
    made = compiled(mlp((1024, 144, 4)), "cortex-m55")  # 590 kB, and it has 512
    with pytest.raises(UnsupportedError, match="does not fit") as caught:
        made(np.zeros((1, 1024), np.float32))
    assert caught.value.code == "no-memory"


def test_a_missing_tool_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UnsupportedError, match="no arm-none-eabi-gcc here") as caught:
        plica.compile(mlp((4, 3)), target="micro:cortex-m3", cache=False)
    assert "apt-get install" in str(caught.value)


def test_a_core_that_is_not_known_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="no core 'cortex-m77'"):
        parse("micro:cortex-m77")
    with pytest.raises(UnsupportedError):
        parse("micro:")


@pytest.mark.slow
def test_random_kernels_compute_what_they_mean() -> None:
    if why := missing("cortex-m7"):
        pytest.skip(why)
    report = fuzz(2, seed=3, target="micro", isolated=False)
    assert report.finding is None
