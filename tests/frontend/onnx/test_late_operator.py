# ruff: noqa: E501  # rows of a table
"""Operators whose settings come when a model runs: one executable, several values, no compiler.

Every model is held to onnxruntime, or to numpy where that has no such kernel, compiled and
interpreted; numbers that an operator does not take are refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pytest
from onnx import ModelProto, TensorProto

import plica
from plica.frontend.onnx import from_onnx
from plica.runtime.error import PlicaError
from tests.frontend.onnx.build import runtime
from tests.frontend.onnx.test_run_time import UNIQUE, ints, one, ports, rows, simple

Array = np.ndarray[Any, Any]
Feed = dict[str, Array]
F, INT, B = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
WHOLE: Final[tuple[int, list[int]]] = (INT, [])


def theta(n: int, axes: int, *sizes: int) -> Feed:
    return {"t": rows(n, axes, axes + 1), "s": ints(n, 2, *sizes)}


def columns(channels: int, image: tuple[int, ...], block: tuple[int, ...], settings: Any) -> Feed:
    """As many patches as an image has."""
    strides, dilations, pads = settings
    inner = int(np.prod(block))
    count = 1
    for at, size in enumerate(image):
        room = size + pads[at] + pads[at + len(image)] - (block[at] - 1) * dilations[at] - 1
        count *= room // strides[at] + 1
    return {"x": rows(2, channels * inner, count), "i": ints(*image), "b": ints(*block)}


def words(*shape: int) -> Array:
    """Few different numbers, so that some slices are the same."""
    return np.random.default_rng(sum(shape)).integers(0, 2, shape).astype(np.float32)


def mel(bins: int, length: int, rate: int, low: float, high: float) -> Feed:
    edges = {"l": one(low, "f4"), "h": one(high, "f4")}
    return {"b": one(bins), "n": one(length), "r": one(rate), **edges}


def unpooled(feed: Feed) -> list[Array]:
    """Each element where it lies in 2 x 2 windows, and zeros behind."""
    x, wide = feed["x"], feed["s"]
    whole = (*x.shape[:2], 2 * x.shape[2], 2 * x.shape[3])
    flat = np.zeros(int(np.prod(whole)), np.float32)
    flat[feed["i"].reshape(-1)] = x.reshape(-1)
    found = np.zeros(tuple(wide), np.float32)
    found[tuple(slice(0, size) for size in whole)] = flat.reshape(whole)
    return [found]


def pooled(n: int, c: int, h: int, w: int, *wanted: int) -> Feed:
    count = n * c * h * w
    where = np.random.default_rng(count).permutation(4 * count)[:count]
    return {"x": rows(n, c, h, w), "i": where.reshape(n, c, h, w), "s": ints(*wanted)}


def resized(n: int, h: int, w: int, *wanted: float) -> Feed:
    return {"x": rows(n, 1, h, w), "r": rows(0), "s": np.asarray(wanted, np.float32)}


def dft(n: int, m: int, length: int, axis: int) -> Feed:
    return {"x": rows(n, 5, m, 2), "l": one(length), "a": one(axis)}


def inverse_dft(m: int, length: int, axis: int) -> Feed:
    """Half a spectrum of real signals: what is its own mirror image is real."""
    spectrum = np.fft.rfft(rows(2, length, 3), axis=1)[:, :m]
    x = np.stack([spectrum.real, spectrum.imag], axis=-1).astype(np.float32)
    return {"x": x, "l": one(length), "a": one(axis)}


def framed(n: int, m: int, step: int, length: int) -> Feed:
    return {"x": rows(n, m, 1), "s": one(step), "w": rows(length), "l": one(length)}


def dropped(n: int, ratio: float, training: bool) -> Feed:
    return {"x": rows(n), "r": one(ratio, "f4"), "t": np.asarray(training)}


PATCHES: Final = ((2, 1), (1, 2), (1, 0, 2, 1))
IMAGE: Final = ports(x=(F, ["n", 1, "h", "w"]), r=(F, [0]), s=(F, [2]))

# fmt: off
CASES: Final[dict[str, tuple[ModelProto, list[Feed]]]] = {
    "AffineGrid":     (simple("AffineGrid", ports(t=(F, ["n", 2, 3]), s=(INT, [4])), opset=20), [theta(2, 2, 3, 5), theta(1, 2, 6, 1)]),
    "AffineGrid 3d":  (simple("AffineGrid", ports(t=(F, ["n", 3, 4]), s=(INT, [5])), opset=20, align_corners=1), [theta(1, 3, 2, 4, 3), theta(3, 3, 5, 2, 2)]),
    "Col2Im":         (simple("Col2Im", ports(x=(F, ["n", "c", "l"]), i=(INT, [2]), b=(INT, [2])), strides=PATCHES[0], dilations=PATCHES[1], pads=PATCHES[2]), [columns(1, (5, 6), (2, 3), PATCHES), columns(3, (7, 4), (3, 1), PATCHES)]),
    "MelWeight":      (simple("MelWeightMatrix", ports(b=WHOLE, n=WHOLE, r=WHOLE, l=(F, []), h=(F, []))), [mel(8, 16, 8192, 0, 4096), mel(20, 400, 16000, 60, 7600), mel(5, 30, 100, 1, 40)]),
    "MaxUnpool":      (simple("MaxUnpool", ports(x=(F, ["n", 1, "h", "w"]), i=(INT, ["n", 1, "h", "w"]), s=(INT, [4])), kernel_shape=[2, 2], strides=[2, 2]), [pooled(1, 1, 2, 2, 1, 1, 5, 6), pooled(2, 1, 3, 1, 2, 1, 6, 2)]),
    "Unique rows":    (simple("Unique", ports(x=(F, ["n", 3])), *UNIQUE, axis=0), [{"x": words(n, 3)} for n in (5, 1, 30)]),
    "Unique columns": (simple("Unique", ports(x=(F, ["n", "m"])), *UNIQUE, axis=1, sorted=0), [{"x": words(2, 9)}, {"x": words(3, 20)}]),
    "Resize":         (simple("Resize", IMAGE, mode="cubic", antialias=1, axes=[2, 3], cubic_coeff_a=-0.5, exclude_outside=1), [resized(1, 5, 8, 0.6, 0.5), resized(2, 9, 13, 0.45, 0.3)]),
    "DFT axis":       (simple("DFT", ports(x=(F, ["n", 5, "m", 2]), l=WHOLE, a=WHOLE), opset=20), [dft(2, 3, 6, 1), dft(1, 4, 3, 0), dft(3, 7, 5, -2)]),
    "DFT half":       (simple("DFT", [*ports(x=(F, ["n", "m", 1]))], opset=20, onesided=1), [{"x": rows(2, 5, 1)}, {"x": rows(1, 8, 1)}]),
    "DFT inverse":    (simple("DFT", [*ports(x=(F, [2, "m", 3, 2]), l=WHOLE, a=WHOLE)], opset=20, inverse=1, onesided=1), [inverse_dft(4, 6, 1), inverse_dft(3, 9, 1), inverse_dft(5, 4, -3)]),
    "STFT":           (simple("STFT", ports(x=(F, ["n", "m", 1]), s=WHOLE, w=(F, ["k"]), l=WHOLE)), [framed(2, 40, 4, 8), framed(1, 33, 5, 7)]),
    "STFT window":    (simple("STFT", ports(x=(F, ["n", "m", 1]), s=WHOLE, w=(F, [16])), onesided=0), [framed(2, 40, 4, 16), framed(1, 16, 5, 16)]),
    "Dropout":        (simple("Dropout", ports(x=(F, ["n"]), r=(F, []), t=(B, [])), ("y", F), ("m", B)), [dropped(4, 0.5, False), dropped(7, 0.0, True)]),
}
OTHERS: Final[dict[str, Callable[[Feed], list[Array]]]] = {"MaxUnpool": unpooled}
"""What onnxruntime does not do as the standard says: it takes places in the larger result."""

WRONG: Final[dict[str, list[Feed]]] = {
    "AffineGrid": [{"t": rows(2, 2, 3), "s": ints(3, 1, 2, 2)}, {"t": rows(2, 2, 3), "s": ints(2, 1, -2, 2)}],
    "Col2Im":     [columns(1, (5, 6), (2, 3), PATCHES) | change for change in ({"i": ints(9, 6)}, {"b": ints(2, 2)}, {"b": ints(0, 3)}, {"i": ints(1, 1)})],
    "MelWeight":  [mel(0, 16, 8192, 0, 4096), mel(8, 16, 8192, 10, 10), mel(8, 16, 8192, 0, 4097), mel(8, 0, 8192, 0, 4096)],
    "DFT axis":   [dft(2, 3, 6, 3), dft(2, 3, 6, -5), dft(2, 3, 0, 1), dft(2, 3, -1, 1)],
    "STFT":       [framed(2, 40, 0, 8), framed(2, 7, 4, 8), framed(2, 40, 4, 8) | {"l": one(7)}, framed(2, 40, -1, 8)],
    "Dropout":    [dropped(4, 0.5, True)],
    "MaxUnpool":  [pooled(1, 1, 2, 2, 1, 1, 5, 3)],
}
# fmt: on


def expected(name: str, made: ModelProto, feed: Feed) -> list[Array]:
    return OTHERS[name](feed) if name in OTHERS else runtime(made, feed)


@pytest.mark.parametrize("name", CASES)
def test_one_executable_serves_all_settings(name: str) -> None:
    made, feeds = CASES[name]
    names = [each.name for each in made.graph.input]
    exe = plica.compile(made, threads=1, cache=False, effort="fast")
    for given in feeds:
        feed = {each: given[each] for each in names}
        found = exe(**feed)
        results = found if isinstance(found, tuple) else (found,)
        for mine, other in zip(results, expected(name, made, feed), strict=True):
            assert (mine.dtype, mine.shape) == (other.dtype, other.shape)
            np.testing.assert_allclose(mine, other, rtol=2e-5, atol=2e-5)
    for feed in WRONG.get(name, ()):
        with pytest.raises(PlicaError):
            exe(**feed)
    assert exe.stats.at_call == 0


@pytest.mark.parametrize("name", CASES)
def test_the_interpreter_agrees(name: str) -> None:
    made, feeds = CASES[name]
    module = from_onnx(made)
    assert plica.digest(plica.from_text(str(module))) == plica.digest(module)
    params = [str(each.name) for each in module.main_function().params]
    feed = {each: feeds[-1][each] for each in params}
    found = plica.interpret(module, *feed.values())
    results = found if isinstance(found, tuple) else (found,)
    for mine, other in zip(results, expected(name, made, feed), strict=True):
        np.testing.assert_allclose(mine, other, rtol=2e-5, atol=2e-5)
