"""`target="cuda-emulator"`: models for a GPU on a machine that has none."""

from __future__ import annotations

import ctypes
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import plica
from plica.codegen.backend import find_target
from plica.runtime.emulator.gpu import compiler, launch, loaded
from plica.runtime.error import ArtefactError, EvaluationError, UnsupportedError

has_compiler = pytest.mark.skipif(compiler() is None, reason="there is no C++ compiler here")
MODEL = """
import plica
from plica import op
from plica.script import Tensor, f32

@plica.function
def main(x: Tensor[(5, 12), f32], w: Tensor[(12, 7), f32]) -> Tensor[(5, 7), f32]:
    return op.nn.softmax(op.nn.relu(op.matmul(x, w)))
"""


@has_compiler
def test_a_model_runs_and_comes_back_from_its_file(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    x, w = (random.standard_normal(each).astype("f4") for each in ((5, 12), (12, 7)))
    wanted = np.maximum(x.astype("f8") @ w, 0)
    wanted = np.exp(wanted - wanted.max(1, keepdims=True))
    wanted /= wanted.sum(1, keepdims=True)
    made = plica.compile(plica.from_text(MODEL), target="cuda-emulator", cache=False)
    np.testing.assert_allclose(made(x, w), wanted, rtol=1e-5)
    assert "__global__" in made.source("cuda")
    made.save(tmp_path / "m.plica")
    again: Any = plica.load(tmp_path / "m.plica")  # it has what only GPUs have
    assert again.target == "cuda-emulator:sm_90"
    np.testing.assert_array_equal(again(x, w), made(x, w))
    with pytest.raises(UnsupportedError):
        again.export(tmp_path / "m.so")
    with pytest.raises(UnsupportedError, match="How long kernels take"):
        again.seconds(x, w)


POWERS = """
import plica
from plica import op
from plica.script import Tensor, i8

@plica.function
def main(x: Tensor[(4,), i8], y: Tensor[(4,), i8]) -> Tensor[(4,), i8]:
    return op.power(x, y)
"""


@has_compiler
def test_powers_of_integers_are_those_of_integers() -> None:
    made = plica.compile(plica.from_text(POWERS), target="cuda-emulator", cache=False)
    found = made(np.array([1, 2, -3, 5], "i1"), np.array([1, 5, 3, 0], "i1"))
    np.testing.assert_array_equal(found, np.array([1, 32, -27, 1], "i1"))


def racing(body: str, *, watched: bool = False) -> ctypes.CDLL:
    text = f"__global__ void f(float* out) {{ {body} }}"
    return loaded(text, ["f"], watched=watched)


@has_compiler
@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("out[0] = threadIdx.x;", "they race"),
        ("if (threadIdx.x) __syncthreads();", "who do not come"),
    ],
)
def test_threads_that_race_or_wait_for_ever_are_told(body: str, said: str) -> None:
    out = np.zeros(4, "f4")
    shape = SimpleNamespace(function="f", grid=(1, 1, 1), block=(4, 1, 1))
    with pytest.raises(EvaluationError, match=said) as error:
        launch(racing(body), shape, [out.ctypes.data], [out])
    assert error.value.diagnostics[0].code == "device-fault"


SHIFTED = """
  float* const held = (float*)shared_memory;
  held[threadIdx.x] = out[threadIdx.x];
  {wait}
  const float next = held[(threadIdx.x + 1) % 4];
  out[threadIdx.x] = next > 5 ? 1 : 0;
"""


@has_compiler
@pytest.mark.parametrize(
    ("body", "blocks", "said"),
    [
        ("out[0] = 1;", 1, "two writes, byte 0 of buffer 0: thread 0 of block 0 and thread 1"),
        ("*(uint4*)out = uint4{};", 1, "two writes"),
        ("if (threadIdx.x == 0) out[0] = 1;", 2, "two writes.*block 0 and thread 0 of block 1"),
        ("if (!threadIdx.x) out[0] = 0; else if (out[0]) out[1] = 1;", 1, "a write and a read"),
        (SHIFTED.replace("{wait}", ""), 1, "byte .* of shared memory"),
        (SHIFTED.replace("{wait}", "__syncthreads();"), 1, ""),
        ("out[threadIdx.x] += 1;", 1, ""),
    ],
    ids=["one value", "four at once", "blocks", "read", "no barrier", "barrier", "each its own"],
)
def test_races_that_change_nothing_are_told_where_accesses_are_watched(
    body: str, blocks: int, said: str
) -> None:
    out = np.zeros(4, "f4")
    shape = SimpleNamespace(function="f", grid=(blocks, 1, 1), block=(4, 1, 1))
    watched = racing(body, watched=True)
    if not said:
        launch(watched, shape, [out.ctypes.data], [out])
        return
    with pytest.raises(EvaluationError, match=said):
        launch(watched, shape, [out.ctypes.data], [out])


@has_compiler
def test_threads_with_more_memory_than_their_stack_are_refused() -> None:
    """They wrote over the memory of others."""
    own = "float own[40000]; for (int i = 0; i < 40000; ++i) own[i] = out[i % 4];"
    with pytest.raises(EvaluationError, match="refused the text"):
        racing(f"{own} out[0] = own[(int)out[1]];")


@has_compiler
def test_a_text_without_the_function_is_refused(tmp_path: Path) -> None:
    made = plica.compile(plica.from_text(MODEL), target="cuda-emulator", cache=False)
    made.save(tmp_path / "m.plica")
    data = (tmp_path / "m.plica").read_bytes().replace(b"__global__", b"__globbl__")
    (tmp_path / "m.plica").write_bytes(data)
    with pytest.raises(ArtefactError):
        plica.load(tmp_path / "m.plica")


def test_architectures_are_those_of_the_real_one() -> None:
    assert str(find_target("cuda-emulator:sm_80")) == "cuda-emulator:sm_80"
    for text in ("cuda-emulator:sm_70", "cuda-emulato"):
        with pytest.raises(UnsupportedError):
            find_target(text)
