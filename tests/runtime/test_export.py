"""Libraries for C: the example compiles, runs, and computes what Python computes."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from plica.runtime.artefact import ArtefactMachine
from plica.runtime.error import ArtefactError, UnsupportedError
from plica.runtime.export import export, header_text, identifier
from plica.runtime.link import can_link
from tests.runtime.model import inputs, model

needs_cc = pytest.mark.skipif(
    not can_link() or shutil.which("cc") is None, reason="there is no C compiler"
)


@needs_cc
def test_the_example_runs(tmp_path: Path) -> None:
    model().export(tmp_path / "libsmall.so")
    names = sorted(each.name for each in tmp_path.iterdir())
    assert names == ["libsmall.so", "small.h", "small_example.c"]
    (line,) = [
        each.removeprefix("/* ")
        for each in (tmp_path / "small_example.c").read_text().splitlines()
        if each.startswith("/* cc")
    ]
    subprocess.run(f"{line} -Wall -Werror", cwd=tmp_path, check=True, shell=True)
    done = subprocess.run(
        ["./small_example"],
        cwd=tmp_path,
        env={},
        capture_output=True,
        text=True,
        check=True,
    )
    x = (np.arange(12) % 7 / 7).astype(np.float32).reshape(3, 4)
    w = (np.arange(20) % 7 / 7).astype(np.float32).reshape(4, 5)
    expected = model()(x, w, np.zeros(2, np.int64))
    for line_, array in zip(done.stdout.splitlines(), expected, strict=True):
        assert float(line_.split()[1]) == pytest.approx(float(array.sum()), rel=1e-4)


@needs_cc
def test_it_is_called_through_ctypes(tmp_path: Path) -> None:
    model().export(tmp_path / "libother.so", name="my model")
    library = ctypes.CDLL(str(tmp_path / "libother.so"))
    library.my_model_threads(ctypes.c_int64(2))
    call = library.my_model
    call.restype = ctypes.c_int64
    arrays = inputs(5)
    outputs = [np.empty(port.shape, port.numpy) for port in model().outputs]
    pointers = [ctypes.c_void_p(each.ctypes.data) for each in (*arrays, *outputs)]
    assert call(*pointers, None) == 0
    expected = model()(*arrays)
    assert all(np.array_equal(a, b) for a, b in zip(outputs, expected, strict=True))
    arrays[2][0] = 77
    assert call(*pointers, None) > 0
    assert not hasattr(library, "plica_main")


def test_names_become_names_of_c() -> None:
    assert identifier("a.b-c") == "a_b_c"
    assert identifier("3d") == "model_3d"
    assert identifier("") == "model"
    if can_link():
        assert "int64_t f(const float *in_x" in header_text(model().artefact, "f")


@pytest.mark.skipif(not can_link(), reason="objects are not loaded here")
@pytest.mark.parametrize("word", ["int", "class", "main"])
def test_words_of_c_are_no_names(tmp_path: Path, word: str) -> None:
    with pytest.raises(UnsupportedError, match=f"cannot be named '{word}'"):
        export(model().artefact, tmp_path / f"lib{word}.so")
    with pytest.raises(UnsupportedError, match=f"cannot be named '{word}'"):
        export(model().artefact, tmp_path / "libx.so", word)
    assert list(tmp_path.iterdir()) == []


@needs_cc
def test_a_library_for_another_machine_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CC", raising=False)
    triple = "riscv64-unknown-linux-gnu"
    other = replace(model().artefact, machine=ArtefactMachine(triple, "generic", ()))
    with pytest.raises(UnsupportedError, match=f"no library for {triple}") as caught:
        export(other, tmp_path / "libx.so")
    assert caught.value.code == "missing-tool"


@pytest.mark.skipif(not can_link(), reason="objects are not loaded here")
def test_a_missing_or_failing_compiler_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(UnsupportedError) as caught:
        export(model().artefact, tmp_path / "libx.so")
    assert caught.value.code == "missing-tool"
    monkeypatch.setenv("CC", "false")
    with pytest.raises(ArtefactError) as failed:
        export(model().artefact, tmp_path / "libx.so")
    assert failed.value.code == "missing-tool"
    assert list(tmp_path.iterdir()) == []
