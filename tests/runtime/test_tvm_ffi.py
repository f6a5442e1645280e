"""One library, called from torch, JAX and NumPy through tvm-ffi."""

from __future__ import annotations

import ctypes
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import plica
from plica.runtime.link import can_link
from plica.runtime.tvm_ffi import ffi_text, is_offered

tvm_ffi: Any = pytest.importorskip("tvm_ffi")
pytestmark = pytest.mark.skipif(
    not can_link() or shutil.which("cc") is None, reason="there is no C compiler"
)

TEXT = """# plica 1
from __future__ import annotations

import plica
from plica import op
from plica.script import Tensor, f32


@plica.function
def main(x: Tensor[("n", 4), f32], y: Tensor[(4,), f32]):
    return (x * y, op.sum(x))
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("library") / "libscale.so"
    plica.compile(plica.from_text(TEXT)).export(path)
    assert ctypes.CDLL(str(path)).scale is not None
    return tvm_ffi.load_module(str(path))


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("library") / "libtwice.so"
    source = TEXT.replace('"n"', "3").replace("(x * y, op.sum(x))", "x * y")
    plica.compile(plica.from_text(source)).export(path)
    return tvm_ffi.load_module(str(path))


X = np.arange(12, dtype=np.float32).reshape(3, 4)
Y = np.array([1, 2, 3, 4], np.float32)


def test_numpy_calls_it(library: Any) -> None:
    product, total = library.scale(X, Y)
    np.testing.assert_array_equal(np.from_dlpack(product), X * Y)
    assert float(np.from_dlpack(total)) == X.sum()
    wide = np.from_dlpack(library.scale(np.ones((7, 4), np.float32), Y)[0])
    np.testing.assert_array_equal(wide, np.ones((7, 1), np.float32) * Y)


@pytest.mark.parametrize("name", ["made", "tensor", "model", "gather", "sizes", "any"])
def test_a_model_may_be_called_as_something_in_the_wrapper(name: str, tmp_path: Path) -> None:
    plica.compile(plica.from_text(TEXT)).export(tmp_path / f"lib{name}.so")
    module = tvm_ffi.load_module(str(tmp_path / f"lib{name}.so"))
    product, _ = getattr(module, name)(X, Y)
    np.testing.assert_array_equal(np.from_dlpack(product), X * Y)


def test_torch_calls_it(library: Any, one: Any) -> None:
    torch = pytest.importorskip("torch")
    x, y = torch.from_numpy(X), torch.from_numpy(Y)
    found = one.twice(x, y)
    assert torch.equal(torch.from_dlpack(found), x * y)
    out, total = torch.empty(3, 4), torch.empty(())
    assert library.scale(x, y, out, total) is None
    assert torch.equal(out, x * y)
    assert float(total) == X.sum()


def test_jax_calls_it(one: Any) -> None:
    jax = pytest.importorskip("jax")
    x, y = jax.numpy.asarray(X), jax.numpy.asarray(Y)
    found = jax.numpy.from_dlpack(one.twice(x, y))
    np.testing.assert_array_equal(np.asarray(found), X * Y)


REFUSED = {
    "a number": ((1.0, Y), TypeError, "x: it is no tensor"),
    "another count": ((X,), TypeError, "it takes inputs, or inputs and outputs; expected 2"),
    "another dtype": ((X.astype(np.float64), Y), TypeError, "x: elements of other bits"),
    "integers": ((X.astype(np.int32), Y), TypeError, "x: another element type"),
    "another rank": ((X[0], Y), ValueError, "x: another rank; expected 2, found 1"),
    "another size": ((X, Y[:3]), ValueError, "y: another size; expected 4, found 3"),
    "columns": ((np.asfortranarray(X), Y), ValueError, "x: its elements are not in order of rows"),
    "a small output": ((X, Y, X[:2].copy(), np.float32(0)), TypeError, "no tensor"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused(library: Any, name: str) -> None:
    args, error, message = REFUSED[name]
    with pytest.raises(error, match=message):
        library.scale(*args)


def test_elements_that_dlpack_packs_otherwise_have_no_function() -> None:
    source = TEXT.replace("f32", "i4").replace("(x * y, op.sum(x))", "op.flip(x, axis=(0,))")
    assert not is_offered(plica.compile(plica.from_text(source)).artefact)


def test_the_text_names_inputs() -> None:
    artefact = plica.compile(plica.from_text(TEXT)).artefact
    assert '{"x", 2, 2, 32},' in ffi_text(artefact, "scale")
