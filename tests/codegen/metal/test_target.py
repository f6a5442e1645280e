"""`target="metal"`: models as Metal Shading Language, run by the emulator."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import plica
from plica.codegen.backend import TARGETS, find_target
from plica.codegen.fuzz import fuzz
from plica.runtime.emulator.gpu import compiler
from plica.runtime.error import ArtefactError, EvaluationError, UnsupportedError
from plica.runtime.verify import verify

has_compiler = pytest.mark.skipif(compiler() is None, reason="there is no C++ compiler here")
HEAD = """
import plica
from plica import op
from plica.script import Tensor, bf16, f32, f64, i32
@plica.function
"""
MODEL = f"""{HEAD}
def main(x: Tensor[(5, 12), f32], w: Tensor[(12, 7), bf16]) -> Tensor[(5, 7), f32]:
    return op.nn.softmax(op.erf(op.matmul(x, op.cast(w, dtype="f32"))))
"""
CHOSEN = f"""{HEAD}
def main(x: Tensor[(9,), f32], i: Tensor[(4,), i32]) -> Tensor[(4,), f32]:
    return op.take(x, i, axis=0)
"""


@has_compiler
def test_a_model_computes_what_it_means_and_is_taken_elsewhere(tmp_path: Path) -> None:
    module = plica.from_text(MODEL)
    random = np.random.default_rng(0)
    x, w = random.standard_normal((5, 12)).astype("f4"), random.standard_normal((12, 7))
    w = plica.interpret(
        plica.from_text(
            f"{HEAD}def main(w: Tensor[(12, 7), f64]) -> Tensor[(12, 7), bf16]:\n"
            '    return op.cast(w, dtype="bf16")\n'
        ),
        w,
    )
    made = plica.compile(module, target="metal", cache=False)
    np.testing.assert_allclose(made(x, w), plica.interpret(module, x, w), rtol=1e-5)
    text = made.source()
    assert "kernel void" in text
    assert "p_erf(float x)" in text
    made.save(tmp_path / "m.plica")
    assert verify(tmp_path / "m.plica").target == "metal"
    with pytest.raises(ArtefactError, match="Metal") as error:
        plica.load(tmp_path / "m.plica")
    assert error.value.diagnostics[0].code == "other-machine"
    made.export(tmp_path / "m.metal")
    assert text in (tmp_path / "m.metal").read_text()


@has_compiler
def test_an_index_outside_is_told_and_the_next_call_is_right() -> None:
    made = plica.compile(plica.from_text(CHOSEN), target="metal", cache=False)
    x = np.arange(9, dtype="f4")
    with pytest.raises(EvaluationError):
        made(x, np.array([0, 1, 99, 2], "i4"))
    np.testing.assert_array_equal(made(x, np.array([0, 8, -1, 2], "i4")), x[[0, 8, -1, 2]])


@has_compiler
@pytest.mark.slow
def test_random_kernels_are_what_they_mean() -> None:
    report = fuzz(20, seed=3, target="metal", isolated=False)
    assert report.finding is None


def test_what_the_language_lacks_is_refused() -> None:
    wide = f"{HEAD}def main(x: Tensor[(3,), f64]) -> Tensor[(3,), f64]:\n    return x * x\n"
    with pytest.raises(UnsupportedError, match="has no f64"):
        plica.compile(plica.from_text(wide), target="metal", cache=False)


def test_names() -> None:
    assert TARGETS.points()["metal"].value == "plica.codegen.metal.backend:BACKEND"
    with pytest.raises(UnsupportedError):
        find_target("metal:3")
