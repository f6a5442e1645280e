"""`target="spirv"`: models as modules of SPIR-V, validated and run by a driver."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import plica
from plica.codegen.backend import TARGETS, backend_named, find_target
from plica.codegen.spirv.backend import module_of
from plica.runtime.error import ArtefactError, UnsupportedError
from plica.runtime.spirv import executable, tool
from plica.runtime.spirv.tool import entry_points
from plica.runtime.verify import verify

WHY = backend_named("spirv").missing()
runs = pytest.mark.skipif(bool(WHY), reason=WHY)
makes = pytest.mark.skipif(tool.found_pair() is None, reason=tool.PACKAGE)
MODEL = """
import plica
from plica import op
from plica.script import Tensor, f32

@plica.function
def main(x: Tensor[(5, 12), f32], w: Tensor[(12, 7), f32]) -> Tensor[(5, 7), f32]:
    return op.nn.softmax(op.nn.gelu(op.matmul(x, w)))
"""


@runs
def test_a_model_computes_what_it_means_and_is_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = plica.from_text(MODEL)
    random = np.random.default_rng(0)
    x, w = (random.standard_normal(each).astype("f4") for each in ((5, 12), (12, 7)))
    made = plica.compile(module, target="spirv", cache=False)
    np.testing.assert_allclose(made(x, w), plica.interpret(module, x, w), rtol=2e-5, atol=1e-7)
    made.save(tmp_path / "m.plica")
    assert verify(tmp_path / "m.plica").target == "spirv"
    np.testing.assert_array_equal(plica.load(tmp_path / "m.plica")(x, w), made(x, w))
    made.export(tmp_path / "m.spv")
    assert entry_points((tmp_path / "m.spv").read_bytes())

    class Deaf:
        name, extensions, il_version = "deaf", "cl_khr_fp64", ""

    monkeypatch.setattr(executable.SpirvProgram, "_built", _on(Deaf(), executable.SpirvProgram))
    with pytest.raises(ArtefactError, match="takes no SPIR-V") as error:
        plica.load(tmp_path / "m.plica")
    assert error.value.diagnostics[0].code == "other-machine"


def _on(device: object, kind: type[executable.SpirvProgram]) -> object:
    """How a program is built, on another device than there is."""
    built = kind._built
    return lambda self, code, found: built(self, code, device)


@makes
def test_modules_name_their_functions_and_what_is_no_text_is_refused() -> None:
    module = module_of("kernel void one(global int *a) { a[get_global_id(0)] = 1; }")
    assert entry_points(module) == {"one"}
    with pytest.raises(UnsupportedError, match="refuses"):
        module_of("no text")


@pytest.mark.parametrize(
    "code", [b"", b"abc", bytes(20), (0x07230203).to_bytes(4, "little") + bytes(20)]
)
def test_what_is_no_module_is_refused(code: bytes) -> None:
    with pytest.raises(ArtefactError):
        entry_points(code)


def test_a_machine_without_the_compiler_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool, "which", lambda name: None)
    assert tool.PACKAGE in tool.missing()
    with pytest.raises(UnsupportedError) as error:
        plica.compile(plica.from_text(MODEL), target="spirv", cache=False)
    assert error.value.diagnostics[0].code == "no-toolchain"


def test_names() -> None:
    assert TARGETS.points()["spirv"].value == "plica.codegen.spirv.backend:BACKEND"
    with pytest.raises(UnsupportedError):
        find_target("spirv:1.4")
