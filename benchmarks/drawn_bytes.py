"""Drawn operators: products and convolutions of bytes, in all the ways that models write them."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.drawn_model import Model, size

Array = np.ndarray[Any, Any]
SCALE = np.float32(0.05)
IMAGE = "n.hw"
"""Axes of images: all but the channels may be open."""


def quantised(m: Model) -> str:
    """A product or a convolution of bytes: restored around an operator of floats, of integers, or
    quantised by what a tensor holds."""
    ways = (_restored, _restored, _integers, _requantised, _dynamic)
    result = ways[int(m.random.integers(len(ways)))](m)
    m.open_some()
    return result


def _restored(m: Model) -> str:
    """An operator of floats that were quantised before."""
    one, zero = m.weight(SCALE), m.weight(np.uint8(128))

    def bytes_(axes: str, *shape: int) -> str:
        made = m.node("QuantizeLinear", m.input(*shape, axes=axes), one, zero)
        return m.node("DequantizeLinear", made, one, zero)

    def weight(*shape: int) -> str:
        kept = m.weight(m.random.integers(-127, 128, shape).astype(np.int8))
        return m.node("DequantizeLinear", kept, m.weight(np.float32(0.01)), m.weight(np.int8(0)))

    if m.random.random() < 0.5:
        (rows, depth, columns), _ = _sizes(m)
        return m.node("Relu", m.node("MatMul", bytes_("m", rows, depth), weight(depth, columns)))
    image, window, attributes = _window(m)
    return m.node("Relu", m.node("Conv", bytes_(IMAGE, *image), weight(*window), **attributes))


def _integers(m: Model) -> str:
    """Sums of 32 bits."""
    if m.random.random() < 0.6:
        x, zero, w, point = _sides(m)
        return m.node("MatMulInteger", x, w, zero, point)
    image, window, attributes = _window(m)
    x, zero = _bytes(m, image, np.uint8, axes=IMAGE)
    w, point = _bytes(m, window, np.uint8, known=True)
    return m.node("ConvInteger", x, w, zero, point, **attributes)


def _requantised(m: Model) -> str:
    """Bytes again, in a scale of their own."""
    if m.random.random() < 0.6:
        x, zero, w, point = _sides(m)
        product: str = "QLinearMatMul"
        more: dict[str, Any] = {}
    else:
        image, window, more = _window(m)
        x, zero = _bytes(m, image, np.uint8, axes=IMAGE)
        w, point = _bytes(m, window, np.int8, known=True, middle=True)
        product = "QLinearConv"
    scales = [m.weight(np.float32(each)) for each in (SCALE, 0.01, 2.0)]
    given = [x, scales[0], zero, w, scales[1], point, scales[2], m.weight(np.uint8(100))]
    return m.node(product, *given, **more)


def _dynamic(m: Model) -> str:
    """Floats that are quantised by their extremes, and the product in floats again."""
    (rows, depth, columns), _ = _sizes(m)
    x, scale, zero = m.several("DynamicQuantizeLinear", m.input(rows, depth, axes="m"), outputs=3)
    dtype = np.uint8 if m.random.random() < 0.5 else np.int8
    w, point = _bytes(m, (depth, columns), dtype, known=True)
    sums = m.node("Cast", m.node("MatMulInteger", x, w, zero, point), to=1)
    return m.node("Mul", sums, m.node("Mul", scale, m.weight(np.float32(0.01))))


def _sides(m: Model) -> tuple[str, str, str, str]:
    """Two sides with their zero points, the second of them known or given."""
    r = m.random
    (rows, depth, columns), batch = _sizes(m)
    of_batch = "b" * len(batch)
    x, zero = _bytes(m, (*batch, rows, depth), np.uint8, axes=f"{of_batch}m")
    dtype = np.uint8 if r.random() < 0.5 else np.int8
    known = r.random() < 0.4
    shape = (depth, columns) if known or r.random() < 0.5 else (*batch, depth, columns)
    of_weight = of_batch if len(shape) > 2 else ""
    w, point = _bytes(m, shape, dtype, known=known, axes=of_weight)
    return x, zero, w, point


def _bytes(
    m: Model,
    shape: tuple[int, ...],
    dtype: Any,
    *,
    known: bool = False,
    middle: bool = False,
    axes: str = "",
) -> tuple[str, str]:
    """Bytes, and their zero point, which is the middle as often as another."""
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    values = m.random.integers(low, high, shape, endpoint=True).astype(dtype)
    zero = (low + high + 1) // 2
    if not middle and m.random.random() < 0.5:
        zero = int(m.random.integers(low, high, endpoint=True))
    return m.weight(values) if known else m.given(values, axes), m.weight(np.asarray(zero, dtype))


def _sizes(m: Model) -> tuple[tuple[int, int, int], list[int]]:
    """Rows, terms and columns of a product, and how many there are of it."""
    r = m.random
    batch = [int(r.integers(2, 9))] if r.random() < 0.25 else []
    return (size(r, 1, 400), size(r, 4, 800), size(r, 2, 800)), batch


def _window(m: Model) -> tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]:
    """An image, a window over it with groups and strides, and what says so."""
    r = m.random
    rank, groups = int(r.choice([1, 2, 2, 2])), int(r.choice([1, 1, 1, 2, 4]))
    channels, outputs = groups * size(r, 1, 128 // groups), groups * size(r, 1, 128 // groups)
    if r.random() < 0.2:
        groups = outputs = channels
    taps = int(r.choice([1, 3, 3, 5, 7]))
    side = [size(r, max(6, taps), (1500, 60)[rank - 1]) for _ in range(rank)]
    attributes = {
        "group": groups, "pads": [int(r.integers(0, taps // 2 + 1))] * 2 * rank,
        "strides": [int(r.choice([1, 1, 2]))] * rank,
    }  # fmt: skip
    return (1, channels, *side), (outputs, channels // groups, *[taps] * rank), attributes
