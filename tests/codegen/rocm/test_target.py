"""`target="rocm"`: models as HIP C++, run by the emulator, compiled where clang can."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import plica
from plica.codegen.backend import TARGETS, find_target
from plica.codegen.rocm import toolchain
from plica.codegen.rocm.prelude import helpers
from plica.core.diagnostic import CompilerBug
from plica.runtime.emulator.gpu import compiler
from plica.runtime.error import ArtefactError, UnsupportedError
from plica.runtime.executable import Executable
from plica.runtime.verify import verify

has_compiler = pytest.mark.skipif(compiler() is None, reason="there is no C++ compiler here")
MODEL = """
import plica
from plica import op
from plica.script import Tensor, f16, f32

@plica.function
def main(x: Tensor[(20, 96), f16], w: Tensor[(96, 24), f16]) -> Tensor[(20, 24), f32]:
    return op.nn.softmax(op.nn.gelu(op.cast(op.matmul(x, w), dtype="f32")))
"""


@pytest.fixture(scope="module")
def made() -> Executable:
    return plica.compile(plica.from_text(MODEL), target="rocm:gfx90a", cache=False)


@has_compiler
def test_a_model_computes_what_it_means(made: Executable) -> None:
    random = np.random.default_rng(0)
    x, w = (random.standard_normal(each).astype("f2") for each in ((20, 96), (96, 24)))
    with np.errstate(all="ignore"):
        meant = plica.interpret(plica.from_text(MODEL), x, w)
    np.testing.assert_allclose(made(x, w), meant, rtol=2e-3, atol=1e-6)


def test_the_text_is_of_hip_alone(made: Executable) -> None:
    text = made.source()
    assert text.startswith("#include <hip/hip_runtime.h>")
    assert not re.search(r"\basm\b|_sync\(m|p_tile|wgmma", text)
    with pytest.raises(CompilerBug):
        helpers({"p_mma_f16"})


def test_an_artefact_is_good_and_not_for_this_machine(made: Executable, tmp_path: Path) -> None:
    made.save(tmp_path / "m.plica")
    assert verify(tmp_path / "m.plica").target == "rocm:gfx90a"
    with pytest.raises(ArtefactError, match="HIP") as error:
        plica.load(tmp_path / "m.plica")
    assert error.value.diagnostics[0].code == "other-machine"
    made.export(tmp_path / "m.hip")
    exported = (tmp_path / "m.hip").read_text()
    assert made.source() in exported
    for launch in re.findall(r"__launch_bounds__\(\d+\) (\w+)", made.source()):
        assert re.search(rf"^//   {launch}\(.*grid \(", exported, re.MULTILINE)


@pytest.mark.skipif(toolchain.tools() is None, reason=f"no HIP: {toolchain.PACKAGE}")
@pytest.mark.slow
def test_the_compiler_of_hip_takes_the_text(made: Executable) -> None:
    usage = dict(toolchain.usage_of(made.source("amdgcn")))
    assert usage
    assert all(0 < each.registers <= 256 and not each.spilled for each in usage.values())
    with pytest.raises(UnsupportedError, match="refused"):
        toolchain.assembly("no text", "gfx90a")


def test_a_machine_without_the_compiler_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain, "tools", lambda: None)
    with pytest.raises(UnsupportedError, match="not here") as error:
        toolchain.assembly("", "gfx90a")
    assert toolchain.PACKAGE in (error.value.diagnostics[0].suggestion or "")


def test_names() -> None:
    assert TARGETS.points()["rocm"].value == "plica.codegen.rocm.backend:BACKEND"
    assert str(find_target("rocm")) == "rocm:gfx90a"
    with pytest.raises(UnsupportedError):
        find_target("rocm:gfx1")
