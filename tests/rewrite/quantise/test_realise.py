"""Integers mean what was simulated: exactly under powers of two, else to the next step."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import plica
from plica.ir.graph.expression import Expr, const
from plica.ir.graph.module import Module
from plica.rewrite.quantise.arrange import CARRIERS, TABLED
from plica.rewrite.quantise.integer import float_layers, to_integers
from tests.rewrite.quantise.net import module_of, numbers, op, point, restored, rounded, var

Array = np.ndarray[Any, Any]
EXAMPLES = max(6, settings().max_examples // 2)
SCALES = (0.25, 0.0625, 0.03125)
ODD = (0.3, 0.071, 0.0213)


def bytes_of(seed: int, *shape: int, signed: bool = True) -> Array:
    low, high, kind = (-128, 128, np.int8) if signed else (0, 256, np.uint8)
    return np.random.default_rng(seed).integers(low, high, shape).astype(kind)


def weight(seed: int, shape: tuple[int, ...], scale: Any) -> Expr:
    return restored(const(bytes_of(seed, *shape)), scale)


def agrees(body: Expr, given_: Array, params: Any, steps: int = 0) -> Module:
    """The realised module, whose bytes differ by a given number of steps at most."""
    before = module_of(body, params)
    after = to_integers(before).module
    a, b = plica.interpret(before, given_), plica.interpret(after, given_)
    assert a.dtype == b.dtype
    assert np.abs(a.astype(np.int64) - b.astype(np.int64)).max(initial=0) <= steps
    return after


@st.composite
def layers(draw: Any, scales: tuple[float, ...]) -> tuple[Expr, Any, Array]:
    """A layer between bytes, whatever belongs to it."""
    seed = draw(st.integers(0, 999))
    s, t, u = (draw(st.sampled_from(scales)) for _ in range(3))
    signed = draw(st.booleans())
    zero = 0 if signed and draw(st.booleans()) else int(draw(st.integers(0, 90)))
    kind = draw(st.sampled_from(("conv", "group", "dense", "matmul")))
    each = draw(st.booleans())
    shapes: dict[str, tuple[tuple[int, ...], tuple[int, ...], int]] = {
        "conv": ((1, 2, 5, 5), (3, 2, 3, 3), 0),
        "group": ((2, 2, 4, 4), (4, 1, 2, 2), 0),
        "dense": ((2, 7), (3, 7), 0),
        "matmul": ((2, 7), (7, 3), 1),
    }
    shape, size, axis = shapes[kind]
    scale: Any = t
    if each:
        spread = np.array([t * 2.0**-n for n in range(size[axis])], np.float32)
        scale = spread.reshape([-1 if n == axis else 1 for n in range(len(size))])
    x = var("x", shape, "i8" if signed else "u8")
    data, w = restored(x, s, zero, signed), weight(seed, size, scale)
    match kind:
        case "conv":
            y = op("nn.conv", data, w, padding=1, strides=draw(st.sampled_from((1, 2))))
        case "group":
            y = op("nn.conv", data, w, groups=2)
        case "dense":
            y = op("nn.dense", data, w)
        case _:
            y = op("matmul", data, w)
    if draw(st.booleans()):
        count = size[axis]
        bias = np.rint(numbers(seed, count) * 50) * (s * t / 4)
        y = op("add", y, const(bias.reshape((count, 1, 1) if len(size) > 2 else (count,)), "f32"))
    bend = draw(st.sampled_from(("none", "relu", "clip")))
    if bend == "relu":
        y = op("nn.relu", y)
    elif bend == "clip":
        y = op("clip", y, min=-1.0, max=6.0)
    how = draw(st.sampled_from(("up", "even", "away")))
    out = rounded(y, u * 8, zero, signed, rounding=how)
    return out, x, bytes_of(seed + 1, *shape, signed=signed)


@settings(max_examples=EXAMPLES)
@given(layers(SCALES))
def test_layers_are_exact_under_powers_of_two(case: tuple[Expr, Any, Array]) -> None:
    body, x, given_ = case
    after = agrees(body, given_, x)
    assert float_layers(after) == 0


@settings(max_examples=EXAMPLES)
@given(layers(ODD))
def test_layers_are_near_under_others(case: tuple[Expr, Any, Array]) -> None:
    body, x, given_ = case
    assert float_layers(agrees(body, given_, x, steps=1)) == 0


@settings(max_examples=EXAMPLES)
@given(st.integers(0, 999), st.sampled_from(SCALES), st.sampled_from(SCALES), st.booleans())
def test_sums_of_two_scales_are_exact(seed: int, s: float, t: float, signed: bool) -> None:
    x = var("x", (2, 9), "i8" if signed else "u8")
    zero = 0 if signed else 100
    other = restored(const(bytes_of(seed, 1, 9)), t)
    summed = op("nn.relu", op("add", restored(x, s, zero, signed), point(other, t)))
    body = rounded(summed, 0.125, 5, signed, rounding="up")
    agrees(body, bytes_of(seed + 1, 2, 9, signed=signed), x)


@pytest.mark.parametrize(("s", "t"), [(0.3, 0.07), (0.021, 0.4), (1.0, 0.9)])
def test_sums_of_odd_scales_are_near(s: float, t: float) -> None:
    x = var("x", (2, 9), "i8")
    body = rounded(op("add", restored(x, s), restored(op("flip", x, axis=(1,)), t)), 0.31)
    after = agrees(body, bytes_of(0, 2, 9), x, steps=1)
    assert "f32" not in str(after)


@settings(max_examples=EXAMPLES)
@given(st.integers(0, 999), st.booleans(), st.booleans())
def test_constants_are_added_to_bytes_exactly(seed: int, several: bool, each: bool) -> None:
    x = var("x", (2, 9), "i8")
    c = const(np.rint(numbers(seed, *((9,) if each else ())) * 40) / 16, "f32")
    total = op("add", restored(x, 0.25), c)
    if several:
        total = op("add", total, restored(op("flip", x, axis=(1,)), 0.0625))
    body = rounded(op("nn.relu", total), 0.125, 3, rounding="up")
    assert "f32" not in str(agrees(body, bytes_of(seed + 1, 2, 9), x))


def test_a_factor_of_bytes_is_a_scale() -> None:
    x = var("x", (2, 9), "i8")
    for factor, stays in ((0.5, False), (-0.5, True)):
        body = rounded(op("multiply", restored(x, 0.25), const(factor, "f32")), 0.5, rounding="up")
        assert ("f32" in str(agrees(body, bytes_of(0, 2, 9), x))) == stays


def test_many_addends_stay_in_floats() -> None:
    x = var("x", (2, 9), "i8")
    total = restored(x, 0.25)
    for number in range(12):
        total = op("add", total, restored(x, 0.25 + number))
    after = agrees(rounded(total, 0.5), bytes_of(0, 2, 9), x)
    assert "f32" in str(after)


@pytest.mark.parametrize("how", ["mean", "global", "avg", "sum"])
def test_means_are_near(how: str) -> None:
    x = var("x", (1, 3, 4, 4), "u8")
    data = restored(x, 0.05, 30, signed=False)
    mean = {
        "mean": lambda: op("mean", data, axis=(2, 3)),
        "sum": lambda: op("multiply", op("sum", data, axis=(1,)), const(0.1, "f32")),
        "global": lambda: op("nn.global_avg_pool", data),
        "avg": lambda: op("nn.avg_pool", data, kernel=2, padding=1, count_include_pad=True),
    }[how]()
    after = agrees(rounded(mean, 0.03, 9), bytes_of(3, 1, 3, 4, 4, signed=False), x, steps=1)
    assert "f32" not in str(after)


def test_parts_are_joined_in_integers() -> None:
    x = var("x", (2, 3), "i8")
    both = op("concat", (restored(x, 0.25), restored(op("negative", x), 0.5)), axis=1)
    after = agrees(rounded(both, 0.25, rounding="up"), bytes_of(5, 2, 3), x)
    assert "f32" not in str(after)


@pytest.mark.parametrize("name", TABLED)
def test_a_table_holds_every_result(name: str) -> None:
    x = var("x", (256,), "u8")
    body = rounded(op(name, restored(x, 0.04, 128, signed=False)), 0.05, -7)
    after = agrees(body, np.arange(256).astype(np.uint8), x)
    assert "op.take" in str(after)


ARRANGED: dict[str, dict[str, Any]] = {
    "reshape": {"shape": (4, -1)},
    "transpose": {"axes": (3, 0, 2, 1)},
    "squeeze": {"axis": (0,)},
    "expand_dims": {"axis": (0,)},
    "swapaxes": {"axis1": 1, "axis2": 2},
    "moveaxis": {"source": (1,), "destination": (3,)},
    "flip": {"axis": (2,)},
    "slice": {"starts": (1,), "stops": (3,), "axes": (2,)},
    "nn.max_pool": {"kernel": 2, "padding": 1},
    "nn.space_to_depth": {"block": 2},
    "nn.depth_to_space": {"block": 2},
}


@pytest.mark.parametrize("name", CARRIERS)
def test_bytes_are_arranged_as_they_are(name: str) -> None:
    x = var("x", (1, 4, 4, 4), "i8")
    body = rounded(op(name, restored(x, 0.3, 3), **ARRANGED.get(name, {})), 0.3, 3)
    after = agrees(body, bytes_of(1, 1, 4, 4, 4), x)
    assert "quantise" not in str(after)


@pytest.mark.parametrize(
    ("mode", "value", "whole"),
    [("constant", 0, True), ("constant", 1.5, False), ("edge", 1.5, True), ("reflect", 0, True)],
)
def test_bytes_are_padded_with_their_zero_point(mode: str, value: float, whole: bool) -> None:
    x = var("x", (1, 4, 4, 4), "i8")
    how = {"pad_width": ((0, 0), (0, 2), (1, 1), (2, 0)), "mode": mode, "constant_values": value}
    body = rounded(op("pad", restored(x, 0.3, 3), **how), 0.3, 3)
    after = agrees(body, bytes_of(1, 1, 4, 4, 4), x)
    assert ("quantise" not in str(after)) == whole


def test_what_has_no_integer_form_stays_between_floats() -> None:
    x = var("x", (2, 4), "i8")
    body = rounded(op("nn.softmax", restored(x, 0.5)), 0.01)
    after = to_integers(module_of(body, x)).module
    assert str(after).count("quantise") == 2
    assert after is to_integers(after).module


def test_sums_that_might_leave_32_bits_stay_in_floats() -> None:
    x, size = var("x", (1, 70_000), "i8"), 70_000
    w = restored(const(np.full((1, size), 127, np.int8)), 0.5)
    after = to_integers(module_of(op("nn.dense", restored(x, 0.5), w), x)).module
    assert float_layers(after) == 1
