"""Operators of libraries: found by entry point in Python, scripts, texts and from the shell."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module, reload
from pathlib import Path

import numpy as np
import pytest

import plica
from plica import op
from plica.ir.graph import operator
from plica.ir.graph.operator import OperatorRefused, find
from plica.ir.op.record import pointwise
from plica.runtime.error import PlicaError
from tests.library import Library

ROOT = Path(__file__).parents[3]
SOURCE = """
import numpy as np
from plica import op
from plica.ir.loop.scalar import Max, like
from plica.ir.op.record import pointwise

def square_relu(x):
    positive = Max(x, like(0, x))
    return positive * positive

SQUARE_RELU = pointwise(
    "acme.square_relu", ("x",), square_relu, "max(x, 0) squared.",
    slope=lambda cotangent, result, x: cotangent * 2.0 * op.maximum(x, 0.0),
    reference=lambda x: np.maximum(x, 0) ** 2,
)
"""
POINTS = "[plica.operators]\nacme = acme_op\n"
MODEL = """
import plica
from plica import op
from plica.op import acme
from plica.script import Tensor, f32

@plica.function
def main(x: Tensor[(4,), f32]) -> Tensor[(4,), f32]:
    return op.acme.square_relu(x) + acme.square_relu(x)
"""


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Library]:
    made = Library(tmp_path, monkeypatch)
    yield made
    made.remove()


def test_it_is_used_like_plicas_own(library: Library) -> None:
    library.install("acme", POINTS, acme_op=SOURCE)
    assert op.acme.square_relu.name == "acme.square_relu"  # type: ignore[attr-defined]  # a library's
    assert "acme" in dir(op)
    assert dir(op.acme) == ["square_relu"]
    module = plica.from_text(MODEL)
    x = np.array([-1, 0, 2, 3], np.float32)
    assert plica.interpret(module, x).tolist() == [0, 0, 8, 18]
    assert np.asarray(plica.compile(module)(x)).tolist() == [0, 0, 8, 18]
    again = plica.from_text(str(module))
    assert plica.digest(again) == plica.digest(module)
    assert str(again) == str(module)
    # What it means may be another tomorrow, under the same name: no whole model is kept.
    assert operator.uses_foreign(module.values)


def test_it_has_a_gradient(library: Library) -> None:
    library.install("acme", POINTS, acme_op=SOURCE)
    text = MODEL.replace("-> Tensor[(4,), f32]", "-> Tensor[(), f32]")
    module = plica.from_text(text.replace("return ", "return op.sum(").rstrip() + ")\n")
    found = plica.interpret(plica.grad(module), np.array([-1, 0, 2, 3], np.float32))
    assert np.asarray(found).ravel().tolist() == [0, 0, 8, 12]


def test_a_fresh_process_and_the_shell_find_it(library: Library, tmp_path: Path) -> None:
    library.install("acme", POINTS, acme_op=SOURCE)
    (tmp_path / "model_script.py").write_text(MODEL)
    np.save(tmp_path / "x.npy", np.array([-1, 0, 2, 3], np.float32))
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    store = tmp_path / "store"

    def shell(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "plica", *words],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": path, "PLICA_CACHE": str(store)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    shell("compile", "model_script.py", "-o", "m.plica")
    assert "18" in shell("run", "m.plica", "--input", "x=x.npy")


def test_the_same_record_again_is_nothing(library: Library) -> None:
    library.install("acme", POINTS, acme_op=SOURCE)
    first = find("acme.square_relu")
    module = import_module("acme_op")
    reload(module)
    assert find("acme.square_relu") is first
    assert module.SQUARE_RELU is first


def test_another_definition_of_one_name_is_refused_with_both_places(library: Library) -> None:
    library.install("acme", POINTS, acme_op=SOURCE)
    assert find("acme.square_relu") is not None
    with pytest.raises(OperatorRefused, match="already") as caught:
        pointwise("acme.square_relu", ("x",), lambda x: x, "x itself.")
    (told,) = caught.value.diagnostics
    assert told.code == "name-clash"
    assert told.place is not None
    assert told.place.file == __file__
    assert "acme_op.py" in str(told.found)
    with pytest.raises(OperatorRefused, match="already") as caught:
        pointwise("exp", ("x",), lambda x: x, "x itself.")
    assert caught.value.diagnostics[0].found == "Plica's own"


def test_a_record_without_a_meaning_is_refused() -> None:
    with pytest.raises(OperatorRefused, match="either a tensor expression"):
        operator.register(operator.Operator("acme.none", ("x",), lambda attrs, x: x))


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (SOURCE + "1 / 0\n", "division by zero"),
        (SOURCE.replace('"acme.square_relu"', '"other.square_relu"'), "outside of its names"),
        (SOURCE.replace('"acme.square_relu"', '"exp"'), "There is an operator exp already"),
    ],
)
def test_a_broken_library_is_refused_and_leaves_nothing(
    library: Library, source: str, said: str
) -> None:
    library.install("acme", POINTS, acme_op=source)
    before = operator.names()
    with pytest.raises(PlicaError, match=said):
        plica.from_text(MODEL)
    assert operator.names() == before


def test_what_it_does_not_offer_is_said(library: Library) -> None:
    library.install("acme", POINTS, acme_op=SOURCE)
    with pytest.raises(AttributeError, match=r"acme\.square_rel\. Did you mean 'square_relu'"):
        getattr(op.acme, "square_rel")  # noqa: B009  # the name is not there
    with pytest.raises(PlicaError, match=r"There is no operator 'acme\.cube'"):
        plica.from_text(MODEL.replace("square_relu", "cube"))
