"""Fourier transforms of composite length: held to numpy, and short of products."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from onnx import helper

import plica
from plica.core.name import Name
from plica.ir.graph.expression import Var
from plica.ir.graph.module import Module
from plica.ir.type.term import tensor
from plica.rewrite.pack import rewrite
from plica.rewrite.packs.fourier import FOURIER, complex_products, first_factor
from plica.runtime.error import UnsupportedError
from tests.frontend.onnx import build
from tests.rewrite.packs.layers import agree, call, of

Array = np.ndarray[Any, Any]


@settings(max_examples=5)
@given(
    st.sampled_from((210, 242, 343)), st.integers(1, 2), st.integers(1, 2),
    st.booleans(), st.sampled_from((1, 17)),
)  # fmt: skip
def test_a_factored_transform_means_the_same(
    size: int, planes: int, parts: int, inverse: bool, columns: int
) -> None:
    x = Var(Name("x"), tensor((planes, size, columns), "f32"))
    before = of(call("dft", x, bins=size - 1, parts=parts, inverse=inverse), x)
    after, derivation = rewrite(before, FOURIER)
    assert derivation.steps
    assert isinstance(after, Module)
    values = np.random.default_rng(size).standard_normal((planes, size, columns), np.float32)
    agree(before, after, values)


@pytest.mark.parametrize(("size", "axis"), [(3000, 0), (2 * 1031, 1)])
def test_a_long_transform_is_numpys(size: int, axis: int) -> None:
    shape = (size, 2, 2) if axis == 0 else (2, size, 2)
    x = np.random.default_rng(size).standard_normal(shape, np.float32)
    node = helper.make_node("DFT", ["x"], ["y"], axis=axis)
    exe = plica.compile(build.model([node], {"x": x}, ["y"], None, 19), cache=False, threads=1)
    expected = np.fft.fft(x[..., 0] + 1j * x[..., 1].astype(np.float64), axis=axis)
    apart = np.abs(exe(x) @ np.array([1, 1j]) - expected)
    assert apart.max() < 1e-6 * np.abs(expected).max()


def test_products_grow_like_the_logarithm() -> None:
    """Whatever is taken apart: a sixteenfold length adds a few products for each place."""
    assert complex_products(1 << 16) - complex_products(1 << 12) < 200
    assert complex_products(2 * 3 * 5 * 7 * 11 * 13) < 600
    assert first_factor(1021, 1021, 2, 1021) is None


def test_frames_are_numpys() -> None:
    x = np.random.default_rng(0).standard_normal((2, 1500, 1), np.float32)
    window = np.hanning(400).astype(np.float32)
    given_: dict[str, Array] = {"x": x, "step": np.asarray(160, np.int64), "window": window}
    node = helper.make_node("STFT", list(given_), ["y"], onesided=1)
    module = plica.from_onnx(
        build.model([node], given_, ["y"], None, 19),
        fixed={"step": given_["step"], "window": window},
    )
    found = plica.compile(module, cache=False, threads=1)(x)
    starts = range(0, 1500 - 400 + 1, 160)
    expected = np.fft.rfft(np.stack([x[:, at : at + 400, 0] * window for at in starts], 1))
    np.testing.assert_allclose(found @ np.array([1, 1j]), expected, atol=1e-4)


def test_a_long_prime_is_refused() -> None:
    node = helper.make_node("DFT", ["x"], ["y"], axis=1)
    x = np.zeros((1, 2 * 2053, 1), np.float32)
    with pytest.raises(UnsupportedError, match="prime factors up to 2048"):
        plica.from_onnx(build.model([node], {"x": x}, ["y"], None, 19))
