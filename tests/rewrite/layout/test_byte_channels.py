"""Convolutions of bytes have channels last where most work is theirs, and mean what they did."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from hypothesis import given, settings, strategies as st

import plica
from plica import op
from plica.core.fold import post_order
from plica.core.name import Name
from plica.ir.graph.expression import Apply, Expr, Function, Var, const
from plica.ir.graph.module import Module, module
from plica.ir.op.elementwise import cast, clip
from plica.ir.type.dtype import f32, i32, u8
from plica.ir.type.term import tensor
from plica.rewrite.layout.byte_channels import byte_channels_last

Array = np.ndarray[Any, Any]
FEW = settings(max_examples=2)


def numbers(seed: int, shape: tuple[int, ...], low: int = -3, high: int = 4) -> Array:
    return np.random.default_rng(seed).integers(low, high, shape)


def layer(x: Expr, outputs: int, inputs: int, window: int, zero: int, **attrs: Any) -> Expr:
    """Bytes to bytes: a convolution of integers, rounded to another scale."""
    weight = const(numbers(outputs, (outputs, inputs, window, window)).astype(np.int32))
    data = cast(x, i32) - const(zero, i32)
    sums = op.nn.conv(data, weight, padding=(window // 2, window // 2), **attrs)
    scaled = cast(sums, f32) * const(0.25, f32) + const(100.0, f32)
    return cast(clip(scaled, min=0.0, max=255.0), u8)


def depthwise(x: Expr, channels: int, zero: int) -> Expr:
    """The same in floats, for each channel."""
    weight = const(numbers(7, (channels, 1, 3, 3)).astype(np.float32))
    data = cast(cast(x, i32) - const(zero, i32), f32)
    sums = op.nn.conv(data, weight, padding=(1, 1), groups=channels)
    return cast(clip(sums + const(90.0, f32), min=0.0, max=255.0), u8)


def network(size: int, channels: int, zero: int, stride: int) -> Module:
    x = Var(Name("x"), tensor((1, 3, size, size), "u8"))
    first = layer(x, channels, 3, 3, zero, strides=(stride, stride))
    middle = depthwise(first, channels, 100)
    last = layer(middle, 2 * channels, channels, 1, 90)
    main = Var(Name("main"), None)
    return module({main: Function((), (), (x,), None, last)}, main)


def operators(of: Module) -> Counter[str]:
    return Counter(node.op for node in post_order(of) if isinstance(node, Apply))


@FEW
@given(
    size=st.integers(3, 17),
    channels=st.sampled_from((8, 12, 16, 24)),
    zero=st.integers(0, 255),
    stride=st.integers(1, 2),
)
def test_integers_are_the_same_with_channels_last(
    size: int, channels: int, zero: int, stride: int
) -> None:
    before = network(size, channels, zero, stride)
    x = numbers(0, (1, 3, size, size), 0, 256).astype(np.uint8)
    wanted = plica.interpret(before, x)
    np.testing.assert_array_equal(plica.interpret(byte_channels_last(before), x), wanted)
    np.testing.assert_array_equal(plica.compile(before, cache=False, threads=1)(x), wanted)


@settings(max_examples=2)
@given(
    given_zero=st.booleans(),
    number=st.sampled_from((0, 255)),
    weight=st.sampled_from((-128, 127)),
    channels=st.sampled_from((16, 20)),
    stride=st.integers(1, 2),
)
def test_windows_of_extremes_are_exact(
    given_zero: bool, number: int, weight: int, channels: int, stride: int
) -> None:
    """Zero points that are known only later, too; sums are whole numbers at extremes of bytes."""
    x, z = (Var(Name("x"), tensor((1, channels, 9, 9), "u8")), Var(Name("z"), tensor((), "u8")))
    one = layer(x, channels, channels, 1, 0)  # there is work for products of bytes
    inside = cast(clip(one, min=number, max=number), i32)
    data = inside - cast(z, i32) if given_zero else inside - const(7, i32)
    window = const(np.full((channels, 1, 3, 3), weight, np.int32))
    attrs: dict[str, Any] = {"padding": 1, "groups": channels, "strides": stride}
    body = cast(op.nn.conv(data, window, **attrs), f32) * const(0.5, f32)
    main, params = Var(Name("main"), None), (x, z) if given_zero else (x,)
    of = module({main: Function((), (), params, None, body)}, main)
    values = [numbers(0, (1, channels, 9, 9), 0, 256).astype(np.uint8), np.array(200, np.uint8)]
    values = values[: len(params)]
    found = plica.compile(of, cache=False, threads=1)(*values)
    np.testing.assert_array_equal(found, plica.interpret(of, *values))


def test_memory_holds_bytes_before_a_window() -> None:
    made = plica.compile(network(9, 16, 3, 1), target="cpu:cascadelake", cache=False, threads=1)
    text = made.source("kernel")
    sums = [line for line in text.splitlines() if "window[" in line and "+=" in line]
    assert "dot_" in text
    assert sums
    assert all("f32(i32(" in line for line in sums)


def test_the_result_alone_is_transposed_back() -> None:
    found = operators(byte_channels_last(network(9, 16, 3, 1)))
    assert found["nn.conv_laid"] == 3
    assert found["transpose"] == 1


def test_bytes_are_transposed_before_they_are_widened() -> None:
    x = Var(Name("x"), tensor((1, 16, 5, 5), "u8"))
    main = Var(Name("main"), None)
    both = layer(layer(x, 8, 16, 3, 7), 8, 8, 1, 9)
    after = byte_channels_last(module({main: Function((), (), (x,), None, both)}, main))
    turned = [node for node in post_order(after)
              if isinstance(node, Apply) and node.op == "transpose"]  # fmt: skip
    assert x in [node.args[0] for node in turned]


def test_one_layer_stays_as_it_is() -> None:
    x = Var(Name("x"), tensor((1, 16, 5, 5), "u8"))
    main = Var(Name("main"), None)
    before = module({main: Function((), (), (x,), None, layer(x, 8, 16, 3, 7))}, main)
    assert byte_channels_last(before) is before


def test_a_few_bytes_among_floats_stay_where_they_are() -> None:
    x = Var(Name("x"), tensor((1, 16, 9, 9), "u8"))
    weight = const(numbers(1, (64, 16, 3, 3)).astype(np.float32))
    floats = op.nn.conv(cast(layer(x, 16, 16, 1, 0), f32), weight)
    main = Var(Name("main"), None)
    before = module({main: Function((), (), (x,), None, floats)}, main)
    assert byte_channels_last(before) is before
