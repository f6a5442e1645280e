"""Libraries for C: the example compiles, runs, and computes what Python computes."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import plica
from plica.runtime.artefact import ArtefactMachine
from plica.runtime.c_interface import c_dims, header_text, identifier
from plica.runtime.error import ArtefactError, UnsupportedError
from plica.runtime.export import export
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
        ["./small_example"], cwd=tmp_path, env={}, capture_output=True, text=True, check=True
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
@pytest.mark.parametrize("word", ["int", "class", "main", "write", "exp", "errno"])
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
    monkeypatch.setenv("CC", "cc")  # which links for this one
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


OPEN = """
@plica.function
def main(
    x: Tensor[("n", "k"), f32], w: Tensor[("k", 5), f32]
) -> tuple[Tensor[("n", 5), f32], Tensor[("n + 2",), f32]]:
    return (op.nn.softmax(op.matmul(x, w), axis=-1), op.pad(op.sum(x, axis=1), ((1, 1),)))
"""


@needs_cc
def test_one_library_serves_every_size(tmp_path: Path) -> None:
    exe = plica.compile(plica.from_text(OPEN), cache=False, threads=1)
    exe.export(tmp_path / "libopen.so", name="sized")
    declared = (tmp_path / "sized.h").read_text()
    assert "int64_t sized(int64_t n, int64_t k, const float *in_x" in declared
    library = ctypes.CDLL(str(tmp_path / "libopen.so"))
    library.sized.restype = library.sized_sizes.restype = ctypes.c_int64
    random = np.random.default_rng(0)
    sizes = (ctypes.c_int64 * 16)()
    for n, k in ((1, 1), (7, 3), (64, 33), (0, 4), (5, 0)):
        x, w = (random.standard_normal(shape, np.float32) for shape in ((n, k), (k, 5)))
        dims = ctypes.c_int64(n), ctypes.c_int64(k)
        assert library.sized_sizes(*dims, sizes) == 0
        assert list(sizes[1:8]) == [n, k, k, 5, n, 5, n + 2]
        outputs = np.empty((n, 5), np.float32), np.empty(n + 2, np.float32)
        room = ctypes.create_string_buffer(sizes[0])
        given = [ctypes.c_void_p(each.ctypes.data) for each in (x, w, *outputs)]
        expected = exe(x, w)
        for workspace in (room, None):
            assert library.sized(*dims, *given, workspace) == 0
            for found, wanted in zip(outputs, expected, strict=True):
                assert np.array_equal(found, wanted)
    assert library.sized_sizes(ctypes.c_int64(-1), ctypes.c_int64(1), sizes) == -2
    huge = ctypes.c_int64(1 << 60)
    assert library.sized_sizes(huge, huge, sizes) == -3
    assert library.sized(huge, huge, None, None, None, None, None) == -3


@needs_cc
def test_the_example_of_open_sizes_runs(tmp_path: Path) -> None:
    exe = plica.compile(plica.from_text(OPEN), cache=False, threads=1)
    exe.export(tmp_path / "libsized.so")
    line = (tmp_path / "sized_example.c").read_text().splitlines()[0].removeprefix("/* ")
    subprocess.run(f"{line} -Wall -Werror", cwd=tmp_path, check=True, shell=True)
    done = subprocess.run(
        ["./sized_example"], cwd=tmp_path, env={}, capture_output=True, text=True, check=True
    )
    x, w = (
        (np.arange(count) % 7 / 7).astype(np.float32).reshape(3, -1) for count in (9, 15)
    )  # every open size of the example is 3
    for said, array in zip(done.stdout.splitlines(), exe(x, w), strict=True):
        assert float(said.split()[1]) == pytest.approx(float(array.sum()), rel=1e-4)


def test_dims_are_names_of_c() -> None:
    text = '@plica.function\ndef main(x: Tensor[("int", "sizes"), f32]):\n    return x + 1.0\n'
    artefact = plica.compile(plica.from_text(text), cache=False).artefact
    assert [name for name, _, _ in c_dims(artefact)] == ["dim_int", "dim_sizes"]
