"""`target="c"`: a model as one C file, compiled, saved, loaded and exported."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest

import plica
from plica.cli.doctor import _others
from plica.codegen.backend import TARGETS, backend_named
from plica.ir.graph.module import Module
from plica.ir.interpret.value import Array
from plica.runtime.error import UnsupportedError

TEXT = """
from __future__ import annotations
import plica
from plica.script import Tensor, f32
from plica.op import matmul, nn

@plica.function
def main(x: Tensor[(4, 8), f32], w: Tensor[(8, 5), f32]) -> Tensor[(4, 5), f32]:
    return nn.softmax(nn.relu(matmul(x, w)), axis=-1)
"""


@pytest.fixture
def module() -> Module:
    return plica.from_text(TEXT)


@pytest.fixture
def arrays() -> list[Array]:
    random = np.random.default_rng(0)
    return [random.standard_normal(shape).astype(np.float32) for shape in ((4, 8), (8, 5))]


def test_it_is_found_by_its_folder() -> None:
    assert TARGETS.points()["c"].value == "plica.codegen.c.backend:BACKEND"
    assert backend_named("c").name == "c"


def test_a_model_computes_what_it_means(module: Module, arrays: list[Array]) -> None:
    made = plica.compile(module, target="c", cache=False)
    np.testing.assert_allclose(made(*arrays), plica.interpret(module, *arrays), rtol=1e-5)


def test_powers_of_a_half_are_no_roots() -> None:
    """What compilers make of `pow` is theirs where they are not told otherwise."""
    text = "@plica.function\ndef main(x: Tensor[(8,), f32]):\n    return x ** 0.5\n"
    given = np.array([-np.inf, -0.0, np.inf, np.nan, 0.0, 4.0, 2.25, 1.0], np.float32)
    found = plica.compile(plica.from_text(text), target="c", cache=False)(given)
    expected = [np.inf, 0.0, np.inf, np.nan, 0.0, 2.0, 1.5, 1.0]
    np.testing.assert_array_equal(found, np.array(expected, np.float32))
    assert not np.signbit(found).any()


def test_its_text_is_plain_c(module: Module) -> None:
    made = plica.compile(module, target="c", cache=False)
    text = made.source("c")
    included = [line for line in text.splitlines() if line.startswith("#")]
    assert included == ["#include <math.h>", "#include <stdbool.h>"]
    assert text == plica.compile(module, target="c", cache=False).source("c")


def test_it_is_saved_and_loaded(module: Module, arrays: list[Array], tmp_path: Path) -> None:
    made = plica.compile(module, target="c", cache=False)
    made.save(tmp_path / "m.plica")
    loaded = plica.load(tmp_path / "m.plica")
    np.testing.assert_array_equal(loaded(*arrays), made(*arrays))


def test_it_is_exported(module: Module, tmp_path: Path) -> None:
    plica.compile(module, target="c", cache=False).export(tmp_path / "libm.so")
    assert ctypes.CDLL(str(tmp_path / "libm.so"))._handle


def test_attributes_are_refused(module: Module) -> None:
    with pytest.raises(UnsupportedError):
        plica.compile(module, target="c vector=256")


def test_no_compiler_is_a_clear_error(module: Module, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLICA_CC", "there-is-no-such-compiler")
    with pytest.raises(UnsupportedError, match="no C compiler") as caught:
        plica.compile(module, target="c", cache=False)
    assert caught.value.code == "no-toolchain"


def test_the_doctor_is_told_of_a_missing_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PLICA_CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert backend_named("c").missing().startswith("There is no cc here: apt-get install")
    (said,) = [each for each in _others() if each.name == "c"]
    assert not said.works
    assert "PLICA_CC" in said.reason
