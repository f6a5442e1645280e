"""Rows of operators that make tensors from attributes and shapes."""

from __future__ import annotations

import math
from functools import reduce
from typing import Final

import numpy as np

from plica.frontend.measured import ONE, ZERO, amount, places
from plica.frontend.onnx.arithmetic import settled
from plica.frontend.onnx.node import OnnxNode
from plica.frontend.onnx.row.word import Row, as_scalar, dtype, like, to
from plica.frontend.onnx.run_time import at_least_zero, ceiling, lawful, pieces, size_from
from plica.frontend.onnx.storage import dtype_of
from plica.frontend.onnx.value import TensorValue
from plica.ir.graph.expression import Expr, const
from plica.ir.graph.provenance import stored_const
from plica.ir.loop.scalar import Scalar, index
from plica.ir.op.namespace import op
from plica.ir.type import f32, f64, greater, i64

MOST: Final = 1 << 40  # a tensor of more elements is refused: no machine could hold it


def _constant(node: OnnxNode) -> Expr:
    given = [
        name
        for name in ("value", "value_float", "value_floats", "value_int", "value_ints")
        if node.has(name)
    ]
    if len(given) != 1:
        if node.has("value_string") or node.has("value_strings"):
            node.unsupported("Strings are not supported.", "numbers", "a string")
        if node.has("sparse_value"):
            node.unsupported("Sparse tensors are not supported.", "a dense tensor", "sparse")
        node.malformed("A Constant has one value.", "one", str(given))
    match given[0]:
        case "value":
            array = node.tensor("value")
            assert array is not None
            return stored_const(array, listed=False)
        case "value_float":
            return const(node.real("value_float", 0.0), f32)
        case "value_floats":
            return stored_const(np.asarray(node.reals("value_floats"), np.float32), listed=False)
        case "value_int":
            return const(node.integer("value_int", 0), i64)
        case _:
            return stored_const(np.asarray(node.integers("value_ints"), np.int64), listed=False)


def _constant_of_shape(node: OnnxNode) -> Expr:
    sizes = [piece if isinstance(piece, int) else size_from(node, piece, at)
             for at, piece in enumerate(pieces(node, 0))]  # fmt: skip
    if (value := node.tensor("value")) is None:
        value = np.zeros(1, np.float32)
    if value.size != 1:
        node.malformed("ConstantOfShape takes one value.", "one element", str(value.shape))
    numbers = [size for size in sizes if isinstance(size, int)]
    if any(number < 0 for number in numbers) or math.prod(numbers) > MOST:
        node.malformed("ConstantOfShape has a shape that no tensor has.", "a shape", str(sizes))
    one = const(value)
    return op.full(shape=tuple(sizes), value=value.reshape(-1)[0].item(), dtype=one.dtype)


def _range(node: OnnxNode) -> Expr:
    of = dtype(node.x(0))
    terms = [None if tensor_value is None else tensor_value.terms() for tensor_value in node.inputs]
    if of is i64 and all(term is not None and term.size == 1 for term in terms):
        start, stop, step = (term.reshape(-1)[0] for term in terms if term is not None)
        if isinstance(stop, Scalar) and start == 0 and step == 1:
            for at in range(3):
                node.value(at)
            return op.iota(shape=(greater(stop, index(0)),), dtype=i64)
    if any(node.need(at).numbers() is None for at in range(3)):
        return _range_by_value(node, *(node.need(at) for at in range(3)))
    start, stop, step = (node.scalar(at) for at in range(3))
    if step == 0 or not all(map(math.isfinite, (start, stop, step))):
        node.malformed("Range takes finite numbers and a step.", "a step", f"{step}")
    if math.ceil((stop - start) / step) > MOST:
        node.malformed("Range is longer than any tensor.", str(MOST), f"{start} to {stop}")
    return op.arange(start=start, stop=stop, step=step, dtype=of)


def _range_by_value(
    node: OnnxNode, start: TensorValue, stop: TensorValue, step: TensorValue
) -> Expr:
    """Range: numbers from a start by a step."""
    first, end, by = (as_scalar(tensor_value.expr) for tensor_value in (start, stop, step))
    of = dtype(first)
    if (given := step.numbers()) is not None and not given.any():
        node.malformed("Range takes finite numbers and a step.", "a step", "0")
    fits = op.logical_not(op.equal(by, like(0, by)))
    if of.is_float:
        for expr in (first, end, by):
            fits = op.logical_and(fits, op.absolute(to(expr, f64)) < const(math.inf, f64))
        span = to(end - first, f64) / to(by, f64)
        count = to(op.ceil(span), i64)
    else:
        wide = to(by, i64)
        apart = to(end, i64) - to(first, i64)
        count = ceiling(apart, op.where(op.equal(wide, ZERO), ONE, wide))
    size = node.measured(lawful(at_least_zero(count), fits, "step"))
    return first + to(places(size), of) * by


def _eye_like(node: OnnxNode) -> Expr:
    of = dtype_of(node.integer("dtype"), node.place) if node.has("dtype") else node.type().dtype
    if node.rank() != 2:
        node.malformed("EyeLike takes a matrix.", "rank 2", str(node.type()))
    n, m = node.shape()
    return op.eye(n=n, m=m, k=node.integer("k", 0), dtype=of)


MOST_MEL_WEIGHTS: Final = 1 << 22
"""Bins times the length of a transform whose mel bands are computed when the model is read."""

MAX_WINDOW: Final = 1 << 24  # samples of a window that is computed when the model is read


def _window(kind: str) -> Row:
    def row(node: OnnxNode) -> Expr:
        of = dtype_of(node.integer("output_datatype", 1), node.place)
        if node.need(0).numbers() is not None and not 0 < int(node.scalar(0)) <= MAX_WINDOW:
            found = str(int(node.scalar(0)))
            node.malformed("The window has no such size.", f"1 to {MAX_WINDOW}", found)
        (given,) = pieces(node, 0)
        size = size_from(node, given)
        whole = amount(size) if node.flag("periodic", True) else amount(size) - ONE
        turn = to(places(size), f64) / to(op.maximum(whole, ONE), f64)
        waves = [
            op.cos(turn * const(2 * np.pi * times, f64)) * const(factor, f64)
            for times, factor in enumerate(_COSINES[kind])
        ]
        return to(settled(reduce(op.add, waves), MAX_WINDOW), of)

    return row


_COSINES: Final = {
    "hann": (0.5, -0.5),
    "hamming": (25 / 46, -21 / 46),
    "blackman": (0.42, -0.5, 0.08),
}
"""What each window has of the cosines of once, twice … the angle."""


def _mel(node: OnnxNode) -> Expr:
    """The weights from a spectrum to mel bands, which depend on settings alone."""
    numbers = [node.need(at).numbers() for at in range(5)]
    if all(array is not None for array in numbers):
        bins_, size, rate_ = (int(node.scalar(at)) for at in range(3))
        in_order = 0 <= float(node.scalar(3)) < float(node.scalar(4)) <= rate_ / 2
        if min(bins_, size, rate_) < 1 or bins_ * size > MOST_MEL_WEIGHTS or not in_order:
            said = f"{bins_}, {size}, {rate_}"
            node.malformed("MelWeightMatrix has sizes.", "sizes above 0", said)

    def number(value: float) -> Expr:
        return const(value, f64)

    bins, length, rate = (amount(as_scalar(node.x(at))) for at in range(3))
    low, high = (to(as_scalar(node.x(at)), f64) for at in (3, 4))
    of = dtype_of(node.integer("output_datatype", 1), node.place)
    fits = op.logical_and(op.logical_and(bins > ZERO, length > ZERO), rate > ZERO)
    above = op.logical_and(number(0.0) <= low, low < high)
    half = to(rate, f64) * number(0.5)
    fits = op.logical_and(fits, op.logical_and(above, high <= half))
    spectrum = node.measured(lawful(length // const(2, i64) + ONE, fits, "band"), 0)
    bands = node.measured(bins, 1)
    low, high = (
        op.log10(each / number(700.0) + number(1.0)) * number(2595.0) for each in (low, high)
    )
    step = (high - low) / to(bins + const(2, i64), f64)

    def place(edge: int) -> Expr:
        """The spectral bin of each band's edge."""
        mel = to(places(bands) + const(edge, i64), f64) * step + low
        turns = number(10.0) ** (mel / number(2595.0))
        hertz = (turns - number(1.0)) * number(700.0)
        scaled = to(length + ONE, f64) * hertz / to(rate, f64)
        return op.expand_dims(op.floor(scaled), (0,))

    at = op.expand_dims(to(places(spectrum), f64), (1,))
    lower, middle, upper = (place(edge) for edge in range(3))
    none, one = number(0.0), number(1.0)
    rises = (at - lower) / op.maximum(middle - lower, one)
    rises = op.where(op.logical_and(lower <= at, at <= middle), rises, none)
    rises = op.where(op.equal(lower, middle), op.where(op.equal(at, middle), one, none), rises)
    falls = (upper - at) / op.maximum(upper - middle, one)
    expr: Expr = op.where(op.logical_and(middle <= at, at < upper), falls, rises)
    return to(settled(expr, MOST_MEL_WEIGHTS), of)


# fmt: off
TABLE: Final[dict[str, Row]] = {
    "Constant":        _constant,
    "ConstantOfShape": _constant_of_shape,
    "Range":           _range,
    "EyeLike":         _eye_like,
    "HannWindow":      _window("hann"),
    "HammingWindow":   _window("hamming"),
    "BlackmanWindow":  _window("blackman"),
    "MelWeightMatrix": _mel,
}
# fmt: on
