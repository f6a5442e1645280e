"""Externs: functions of C and of Python that a compiled graph calls."""

from __future__ import annotations

import shutil
import subprocess
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import plica
from plica.ir.graph.module import Module

MODEL = """
scale = plica.extern("plica_test_scale", Fn[(Tensor[("n",), f32],), Tensor[("n",), f32]])

@plica.function
def main(x: Tensor[(SIZE,), f32]):
    y = scale(x + 1.0)
    return scale(y) + y, y
"""

C = """
#include <stdint.h>
void plica_test_scale(const float *x, float *out, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = 3 * x[i];
}
"""

SYMBOL = "plica_test_scale"
needs_cc = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")


def model(size: str = "5") -> Module:
    return plica.from_text(MODEL.replace("SIZE", size))


def thrice(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return 3 * x


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("extern")
    (folder / "scale.c").write_text(C)
    made = folder / "libplicascale.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", made, folder / "scale.c"], check=True)
    return made


@settings(max_examples=6, deadline=None)
@given(st.integers(0, 9))
def test_a_python_function_is_called(size: int) -> None:
    x = np.arange(size, dtype=np.float32)
    exe = plica.compile(model('"n"'), externs={SYMBOL: thrice})
    for one, two in zip(
        plica.interpret(model('"n"'), x, externs={SYMBOL: thrice}), exe(x), strict=True
    ):
        assert np.array_equal(one, np.asarray(two))


@needs_cc
@pytest.mark.parametrize("size", ["5", '"n"'])
def test_a_function_of_c_is_called_saved_and_loaded(
    size: str, library: Path, tmp_path: Path
) -> None:
    x = np.arange(5, dtype=np.float32)
    expected = plica.interpret(model(size), x, externs={SYMBOL: thrice})
    exe = plica.compile(model(size), externs={SYMBOL: library})
    exe.save(tmp_path / "m.plica")
    with pytest.raises(plica.ArtefactError, match="does not have") as refused:
        plica.load(tmp_path / "m.plica")
    assert SYMBOL in str(refused.value.diagnostics[0].suggestion)
    loaded = plica.load(tmp_path / "m.plica", externs={SYMBOL: library})
    for run in (exe, loaded):
        for one, two in zip(expected, run(x), strict=True):
            assert np.array_equal(one, np.asarray(two))


@needs_cc
def test_a_library_that_calls_another_is_exported(library: Path, tmp_path: Path) -> None:
    plica.compile(model(), externs={SYMBOL: library}).export(tmp_path / "libouter.so")
    example = tmp_path / "outer_example"
    words = ["cc", f"{example}.c", f"-L{tmp_path}", "-louter", f"-Wl,-rpath,{tmp_path}"]
    subprocess.run([*words, f"-Wl,-rpath,{library.parent}", "-o", example], check=True)
    found = subprocess.run([example], capture_output=True, text=True, check=True).stdout
    x = np.arange(5) / 7
    assert np.isclose(float(found.split()[1]), np.sum(12 * (x + 1)), rtol=1e-5)


def test_what_a_python_function_raises_is_raised_by_the_call() -> None:
    def wrong(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        raise ValueError("the moon is full")

    exe = plica.compile(model(), externs={SYMBOL: wrong})
    for _ in range(2):
        with pytest.raises(ValueError, match="the moon is full"):
            exe(np.zeros(5, np.float32))


def test_a_result_of_another_type_is_refused() -> None:
    exe = plica.compile(model(), externs={SYMBOL: lambda x: x[:2]})
    with pytest.raises(plica.PlicaError, match="not of its type"):
        exe(np.zeros(5, np.float32))


def test_what_a_python_function_is_given_it_may_keep() -> None:
    kept: list[np.ndarray[Any, Any]] = []

    def keeping(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        kept.append(x)
        return x

    exe = plica.compile(model(), externs={SYMBOL: keeping})
    exe(np.zeros(5, np.float32))
    exe(np.ones(5, np.float32))
    assert [each.tolist() for each in kept[::2]] == [[1.0] * 5, [2.0] * 5]


def test_threads_call_at_once_and_have_errors_of_their_own() -> None:
    def picky(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        if x[0] > 50:
            raise ValueError("too much")
        return x

    exe = plica.compile(model(), externs={SYMBOL: picky})
    found: dict[int, str] = {}

    def run(value: int) -> None:
        try:
            exe(np.full(5, value, np.float32))
            found[value] = "fine"
        except ValueError:
            found[value] = "raised"

    threads = [threading.Thread(target=run, args=(each,)) for each in (1, 100, 2, 200)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert found == {1: "fine", 2: "fine", 100: "raised", 200: "raised"}


def test_a_model_that_calls_python_is_not_written(tmp_path: Path) -> None:
    exe = plica.compile(model(), externs={SYMBOL: thrice})
    with pytest.raises(plica.UnsupportedError, match="is not saved") as refused:
        exe.save(tmp_path / "m.plica")
    assert refused.value.diagnostics[0].found == SYMBOL
    with pytest.raises(plica.UnsupportedError, match="is not exported"):
        exe.export(tmp_path / "libm.so")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("given_", "match"),
    [
        (None, "Nothing serves the extern"),
        ({"scal": thrice, SYMBOL: thrice}, "calls no extern 'scal'"),
        ({SYMBOL: 3}, "Nothing that could serve"),
        ({SYMBOL: "no-such-library.so"}, "cannot be opened"),
        ({SYMBOL: "libm.so.6"}, "has no function"),
        ([SYMBOL], "Externs are given by symbol"),
    ],
)
@pytest.mark.parametrize("size", ["5", '"n"'])
def test_externs_that_nobody_serves_are_refused(given_: Any, match: str, size: str) -> None:
    with pytest.raises(plica.UnsupportedError, match=match):
        plica.compile(model(size), externs=given_)


@pytest.mark.parametrize(
    ("declared", "match"),
    [
        ('plica.extern("not a name", Fn[(f32,), f32])', "no name of a function of C"),
        ('plica.extern("pair", Fn[(tuple[f32, f32],), f32])', "something else than tensors"),
    ],
)
def test_what_c_cannot_call_is_refused(declared: str, match: str) -> None:
    argument = "(x, x)" if "tuple" in declared else "x"
    text = (
        f"f = {declared}\n\n@plica.function\ndef main(x: f32) -> f32:\n    return f({argument})\n"
    )
    with pytest.raises(plica.UnsupportedError, match=match):
        plica.compile(plica.from_text(text), externs=None)


def test_a_target_without_externs_refuses_them() -> None:
    with pytest.raises(plica.UnsupportedError, match="calls no externs"):
        plica.compile(model(), target="c", externs={SYMBOL: thrice})
