"""Pools: a window over the spatial axes of (n, c, …) becomes its maximum or its mean.

Padding is ignored by a maximum, and counts as zeros in a mean only on request.

>>> from plica.ir.type.term import tensor
>>> _, attrs = max_pool.bind((1.0,), {"kernel": 2})
>>> [size.value for size in max_pool.relation(dict(attrs), tensor((1, 3, 8, 8), "f32")).shape]
[1, 3, 4, 4]
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from plica.ir.graph.expression import Expr, const
from plica.ir.graph.operator import Gradient, Operator, Through, Values
from plica.ir.loop.scalar import Buffer, Div, Lit, Lt, Max, Min, Scalar, index
from plica.ir.loop.tensor import Compute, compute, reduce
from plica.ir.op.attribute import attribute, flag, optional, per_axis as per_axis_reader, positive
from plica.ir.op.cotangent import reshape, where, word
from plica.ir.op.pad import guarded
from plica.ir.op.record import as_dtype, composite, plus, primitive, tensor_of, times
from plica.ir.op.reduction import argmax, max_, mean
from plica.ir.op.relation import FLOAT, NUMBER, need, per_axis, rank_at_least, refuse, wide
from plica.ir.op.window import DILATION, PADDING, Window, windows
from plica.ir.type import DType, TensorType, known

_KERNEL = attribute("kernel", per_axis_reader(positive))
_STRIDES = attribute("strides", optional(per_axis_reader(positive)), None)
_CEIL = attribute("ceil_mode", flag, False)

WINDOW = (_KERNEL, _STRIDES, PADDING, DILATION, _CEIL)

window_first, window_put = word("nn.window_first"), word("nn.window_put")
window_sum, window_spread, divide = word("nn.window_sum"), word("nn.window_spread"), word("divide")
take, ones_like, einsum = word("take"), word("ones_like"), word("einsum")
take_along_axis, squeeze = word("take_along_axis"), word("squeeze")


def lowest(dtype: DType) -> Lit:
    """The value that every maximum leaves behind."""
    return Lit(float("-inf") if dtype.is_float else dtype.bounds[0], dtype)


def sliding_windows(
    name: str, attrs: Values, rank: int
) -> tuple[tuple[int, ...], tuple[Window, ...]]:
    """The sizes of a window and how it slides; refuses what could lie in the padding alone."""
    kernel = per_axis(name, "kernel size", attrs["kernel"], rank)
    strides = kernel if attrs["strides"] is None else attrs["strides"]
    sliding = windows(name, {**attrs, "strides": strides}, rank)
    for size, window in zip(kernel, sliding, strict=True):
        reach = (size - 1) * window.dilation + 1
        if max(window.before, window.after) >= reach:
            message = f"{name}: a window could lie in the padding alone."
            refuse("bad-attribute", message, f"padding below {reach}", str(attrs["padding"]))
    return kernel, sliding


def pool_rule(name: str, attrs: Values, x: TensorType) -> TensorType:
    """The type of a pool of (n, c, …)."""
    rank_at_least(name, x, 3)
    kernel, sliding = sliding_windows(name, attrs, len(x.shape) - 2)
    for size in x.shape[2:]:  # a window that holds nothing has neither a maximum nor a mean
        if known(size) == 0:
            refuse("shape-conflict", f"{name} over an empty axis has no value.", found=str(x))
        need(plus(size, -1))
    sizes = tuple(
        window.count(name, size, index(k), attrs["ceil_mode"])
        for window, size, k in zip(sliding, x.shape[2:], kernel, strict=True)
    )
    return TensorType((*x.shape[:2], *sizes), x.dtype)


def window_places(
    attrs: Values, sliding: Sequence[Window], at: Sequence[Scalar], k: Sequence[Scalar], x: Buffer
) -> tuple[list[Scalar], list[Scalar]]:
    """The places of a window's element, and the conditions under which they are no padding."""
    places, checks = [], []
    for window, a, b, size in zip(sliding, at, k, x.shape[2:], strict=True):
        place = window.place(a, b)
        checks += window.inside(place, size, attrs["ceil_mode"])
        places.append(place)
    return places, checks


def _max_body(attrs: Values, out: TensorType, x: Buffer) -> Compute:
    kernel, sliding = sliding_windows("nn.max_pool", attrs, len(x.shape) - 2)

    def element(n: Scalar, c: Scalar, *at: Scalar) -> Scalar:
        def load(*k: Scalar) -> Scalar:
            places, checks = window_places(attrs, sliding, at, k, x)
            return guarded(checks, x[(n, c, *places)], lowest(x.dtype))

        return reduce("max", kernel, load)

    return compute((x,), out.shape, element)


def _held(attrs: Values, window: Window, at: Scalar, kernel: int, size: Scalar) -> Scalar:
    """How many places of a window count in its mean."""
    padded = attrs["count_include_pad"]
    start = plus(times(at, window.stride), -window.before)
    if padded:
        if not attrs["ceil_mode"]:
            return index(kernel)
        return Min(plus(start, kernel), plus(size, window.after)) - start
    stop = plus(start, kernel)
    if window.after or attrs["ceil_mode"]:
        stop = Min(stop, size)
    if window.before:
        start = Max(start, index(0))
    elif stop is plus(start, kernel):
        return index(kernel)
    return stop - start


def _avg_body(attrs: Values, out: TensorType, x: Buffer) -> Compute:
    kernel, sliding = sliding_windows("nn.avg_pool", attrs, len(x.shape) - 2)
    inner = wide(x.dtype)

    def element(n: Scalar, c: Scalar, *at: Scalar) -> Scalar:
        def load(*k: Scalar) -> Scalar:
            places, checks = window_places(attrs, sliding, at, k, x)
            return as_dtype(guarded(checks, x[(n, c, *places)], Lit(0, x.dtype)), inner)

        held: Scalar = index(1)
        for window, a, size, extent in zip(sliding, at, kernel, x.shape[2:], strict=True):
            held = times(held, _held(attrs, window, a, size, extent))
        total = reduce("sum", kernel, load, runs="box")
        return as_dtype(Div(total, as_dtype(held, inner)), x.dtype)

    return compute((x,), out.shape, element)


def _settings(attrs: Values) -> dict[str, Any]:
    return {each.name: attrs.get(each.name, each.default) for each in WINDOW}


def _max_pullback(attrs: Values, d: Expr, y: Expr, x: Expr) -> list[Expr | None]:
    """The first maximum takes the cotangent."""
    how = _settings(attrs)
    return [window_put(d, window_first(x, y, **how), **how, size=tensor_of(x).shape[2:])]


def _avg_pullback(attrs: Values, d: Expr, y: Expr, x: Expr) -> list[Expr | None]:
    kernel, sliding = sliding_windows("nn.avg_pool", attrs, len(tensor_of(x).shape) - 2)
    how = _settings(attrs)
    padded = any(window.before or window.after for window in sliding)
    if not attrs["ceil_mode"] and (attrs["count_include_pad"] or not padded):
        part = d * (1 / math.prod(kernel))
    else:  # of ones a pool is the part of a window that is no padding, over what it counts
        every = ones_like(x)
        counted = avg_pool(every, **{name: attrs[name] for name in _AVERAGED})
        part = d * divide(counted, window_sum(every, **how))
    return [window_spread(part, **how, size=tensor_of(x).shape[2:])]


_AVERAGED = ("kernel", "strides", "padding", "ceil_mode", "count_include_pad")

max_pool = primitive(
    "nn.max_pool", ("x",), lambda attrs, x: pool_rule("nn.max_pool", attrs, x), _max_body,
    "The maximum of each window; nan propagates.", attributes=WINDOW, admits=NUMBER,
    onnx=("MaxPool",), aliases=("nn.max_pool1d", "nn.max_pool2d", "nn.max_pool3d"),
    gradient=_max_pullback,
)  # fmt: skip
avg_pool = primitive(
    "nn.avg_pool", ("x",), lambda attrs, x: pool_rule("nn.avg_pool", attrs, x), _avg_body,
    "The mean of each window; padding counts only if count_include_pad.",
    attributes=(_KERNEL, _STRIDES, PADDING, _CEIL, attribute("count_include_pad", flag, False)),
    admits=FLOAT, onnx=("AveragePool",),
    aliases=("nn.avg_pool1d", "nn.avg_pool2d", "nn.avg_pool3d"), gradient=_avg_pullback,
)  # fmt: skip

# --- over everything -----------------------------------------------------------------------------


def _global(name: str, fold: Operator, doc: str, onnx: str) -> Operator:
    def rule(attrs: Values, x: TensorType) -> TensorType:
        rank_at_least(name, x, 3)
        if any(known(size) == 0 for size in x.shape[2:]):
            refuse("shape-conflict", f"{name} over an empty axis has no value.", None, str(x))
        for size in x.shape[2:]:
            need(plus(size, -1))
        return TensorType((*x.shape[:2], *(index(1) for _ in x.shape[2:])), x.dtype)

    def build(attrs: Values, x: Expr) -> Expr:
        return fold(x, axis=tuple(range(2, len(tensor_of(x).shape))), keepdims=True)

    admits = FLOAT if fold is mean else NUMBER
    return composite(name, ("x",), rule, build, doc, admits=admits, onnx=(onnx,))


global_max_pool = _global(
    "nn.global_max_pool", max_, "The maximum of each channel.", "GlobalMaxPool"
)
global_avg_pool = _global(
    "nn.global_avg_pool", mean, "The mean of each channel.", "GlobalAveragePool"
)

# --- to a size -----------------------------------------------------------------------------------


def _adaptive(
    name: str,
    doc: str,
    value: Callable[[Buffer, list[int], Callable[..., Scalar], list[Scalar]], Scalar],
    averages: bool,
    gradient: Gradient,
) -> Operator:
    def rule(attrs: Values, x: TensorType) -> TensorType:
        rank_at_least(name, x, 3)
        sizes = per_axis(name, "output size", attrs["output_size"], len(x.shape) - 2)
        for size in x.shape[2:]:
            if not known(size):
                message = f"{name} needs axes of known size, not empty."
                refuse("shape-conflict", message, "known sizes", str(x))
        return TensorType((*x.shape[:2], *map(index, sizes)), x.dtype)

    def body(attrs: Values, out: TensorType, x: Buffer) -> Compute:
        wanted = [known(size) or 0 for size in out.shape[2:]]
        there = [known(size) or 0 for size in x.shape[2:]]
        # No window is longer than the quotient rounded up, plus one where the sizes do not divide.
        kernel = [-(-n // o) + (n % o != 0) for n, o in zip(there, wanted, strict=True)]

        def element(b: Scalar, c: Scalar, *at: Scalar) -> Scalar:
            pairs = list(zip(at, there, wanted, strict=True))
            starts = [times(a, n) // o for a, n, o in pairs]
            stops = [plus(times(plus(a, 1), n), o - 1) // o for a, n, o in pairs]

            def load(neutral: Lit, *k: Scalar) -> Scalar:
                places = [start + inner for start, inner in zip(starts, k, strict=True)]
                checks = [Lt(place, stop) for place, stop in zip(places, stops, strict=True)]
                return guarded(checks, x[(b, c, *places)], neutral)

            held = [stop - start for start, stop in zip(starts, stops, strict=True)]
            return value(x, kernel, load, held)

        return compute((x,), out.shape, element)

    return primitive(
        name,
        ("x",),
        rule,
        body,
        doc,
        attributes=(attribute("output_size", per_axis_reader(positive)),),
        admits=FLOAT if averages else NUMBER,
        gradient=gradient,
    )


def _greatest(
    x: Buffer, kernel: list[int], load: Callable[..., Scalar], held: list[Scalar]
) -> Scalar:
    return reduce("max", kernel, lambda *k: load(lowest(x.dtype), *k))


def _average(
    x: Buffer, kernel: list[int], load: Callable[..., Scalar], held: list[Scalar]
) -> Scalar:
    inner = wide(x.dtype)
    total = reduce("sum", kernel, lambda *k: as_dtype(load(Lit(0, x.dtype), *k), inner), runs="box")
    count = held[0]
    for scalar in held[1:]:
        count = count * scalar
    return as_dtype(Div(total, as_dtype(count, inner)), x.dtype)


def _parts(length: int, wanted: int) -> list[tuple[int, int]]:
    """Where the windows of an axis begin and end."""
    return [(a * length // wanted, -(-(a + 1) * length // wanted)) for a in range(wanted)]


def _max_of_parts(attrs: Values, x: Expr) -> Expr:
    """Windows as separate axes, short ones padded."""
    of = tensor_of(x)
    sizes = per_axis("nn.adaptive_max_pool", "output size", attrs["output_size"], len(of.shape) - 2)
    for n, wanted in reversed([*enumerate(sizes)]):  # of equals the first takes the gradient
        at = 2 + n
        parts = _parts(known(of.shape[at]) or 0, wanted)
        longest = max(stop - start for start, stop in parts)
        # A window that is filled up repeats its last place, which leaves its maximum alone.
        places = np.array(
            [[min(start + k, stop - 1) for k in range(longest)] for start, stop in parts]
        )
        own = np.array([[start + k < stop for k in range(longest)] for start, stop in parts])
        cut = take(x, const(places, "i64"), axis=at)
        shape = tuple(index(s) for s in (wanted, longest, *[1] * (len(of.shape) - at - 1)))
        filled = where(reshape(const(own), shape), cut, float("-inf"))
        place = argmax(filled, axis=at + 1, keepdims=True)
        x = squeeze(take_along_axis(filled, place, axis=at + 1), axis=(at + 1,))
    return x


def _adaptive_avg_pullback(attrs: Values, d: Expr, y: Expr, x: Expr) -> list[Expr | None]:
    """The mean along each axis is a product with a matrix; this is one with its transpose."""
    of, out = tensor_of(x), tensor_of(y)
    for at in range(2, len(of.shape)):
        length, wanted = known(of.shape[at]) or 0, known(out.shape[at]) or 0
        matrix = np.zeros((wanted, length))
        for row, (start, stop) in enumerate(_parts(length, wanted)):
            matrix[row, start:stop] = 1 / (stop - start)
        letters = "abcde"[: len(of.shape)]
        moved = letters.replace(letters[at], "z")
        d = einsum((d, const(matrix, of.dtype)), f"{letters},{letters[at]}z->{moved}")
    return [d]


adaptive_max_pool = _adaptive(
    "nn.adaptive_max_pool", "Max pooling to a given output size.", _greatest, False,
    Through(_max_of_parts),
)  # fmt: skip
adaptive_avg_pool = _adaptive(
    "nn.adaptive_avg_pool", "Average pooling to a given output size.", _average, True,
    _adaptive_avg_pullback,
)  # fmt: skip
