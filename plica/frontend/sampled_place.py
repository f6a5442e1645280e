"""Places in images: those of the greatest elements, and those between elements that are read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from itertools import product
from typing import Any, Final, Literal, TypeAlias

from plica.frontend.measured import amount
from plica.frontend.word import dtype, in_f32, like, shape, to
from plica.ir.graph.expression import Expr, const
from plica.ir.loop.scalar import Scalar, index
from plica.ir.op.namespace import op
from plica.ir.op.order import unravelled
from plica.ir.type import i32, i64, known, normal_dim, product as product_

CUBIC: Final = -0.75  # how far a cubic kernel bends below zero, as most have it

Taps: TypeAlias = "list[tuple[Expr, Expr | None]]"
"""Indices along an axis with their weights; None for a single one."""

Mode: TypeAlias = Literal["nearest", "linear", "cubic"]


def size_like(size: Scalar, x: Expr) -> Expr:
    """A size as a number of the dtype of x."""
    number = known(size)
    return to(amount(size), dtype(x)) if number is None else like(number, x)


def mirrored(at: Expr, low: float, span: Scalar) -> Expr:
    """A coordinate outside of an interval, reflected into it."""
    if known(span) == 0:
        return at * like(0, at)
    twice = size_like(normal_dim(span * 2), at)
    safe = twice if known(span) is not None else op.where(
        op.equal(twice, like(0, at)), like(1, at), twice
    )  # fmt: skip
    away = op.absolute(at - like(low, at)) % safe
    expr = op.minimum(away, twice - away) + like(low, at)
    return expr if safe is twice else op.where(op.equal(twice, like(0, at)), like(0, at), expr)


def cubic_weight(distance: Expr, near: bool, bend: float = CUBIC) -> Expr:
    """The weight of a place within one step, or between one and two."""
    x = op.absolute(distance)
    near_factors = (bend + 2, -(bend + 3), 0.0, 1.0)
    factors = near_factors if near else (bend, -5 * bend, 8 * bend, -4 * bend)
    total: Expr = like(factors[0], x)
    for factor in factors[1:]:
        total = total * x + like(factor, x)
    return total


def _taps(mode: Mode, at: Expr) -> Taps:
    """The places that count along an axis, and how much."""
    if mode == "nearest":
        return [(op.round(at), None)]
    low = op.floor(at)
    part = at - low
    one = like(1, at)
    if mode == "linear":
        return [(low, one - part), (low + one, part)]
    steps = [(low + like(step, low), part - like(step, part)) for step in (-1, 0, 1, 2)]
    return [
        (place, cubic_weight(distance, near))
        for (place, distance), near in zip(steps, (False, True, True, False), strict=True)
    ]


def unscaled(at: Expr, size: Scalar, corners: bool) -> Expr:
    """The index on an axis of a coordinate from -1 to 1: between the corners, or their
    outer edges."""
    one, number = like(1, at), known(size)
    if not corners:
        whole = (at + one) * size_like(size, at)
        return (whole - one) * like(0.5, at)
    half = (
        size_like(normal_dim(size - 1), at) * like(0.5, at) if number is None
        else like((number - 1) / 2, at)
    )  # fmt: skip
    return (at + one) * half


def taps_inside(
    at: Expr, mode: Mode, padding: str, size: Scalar, *, corners: bool, round_first: bool
) -> Taps:
    """Places along an axis with weights; only those of zeros may lie outside of it.

    The nearest place to a reflection is that of the rounded place where it is rounded first.
    """
    last = size_like(normal_dim(size - 1), at)
    low, span = (0.0, normal_dim(size - 1)) if corners else (-0.5, size)
    if padding == "border" and mode != "cubic":
        at = op.minimum(op.maximum(at, like(0, at)), last)
    if padding == "reflection" and mode != "cubic":
        at = mirrored(op.round(at) if mode == "nearest" and round_first else at, low, span)
        if not round_first:
            at = op.minimum(op.maximum(at, like(0, at)), last)
    taps = _taps(mode, at)
    if padding == "zeros":
        return taps
    fold: Callable[[Expr], Expr] = (
        (lambda place: mirrored(place, low, span))
        if padding == "reflection" and (round_first or mode == "cubic")
        else (lambda place: place)
    )
    return [(op.minimum(op.maximum(fold(p), like(0, p)), last), weight) for p, weight in taps]


def summed_taps(x: Expr, axes: Sequence[Taps], zeros: bool) -> Expr:
    """The weighted sum over the taps of all axes together, with equal places in each channel."""
    sizes = shape(x)[2:]
    batch, *points = shape(axes[0][0][0])
    whole_count = product_(sizes)
    images = op.reshape(in_f32(x), (*shape(x)[:2], whole_count))
    whole_shape = (batch, shape(x)[1], product_(tuple(points)))
    narrow = i32 if (known(whole_count) or 1 << 31) < 1 << 31 else i64

    def along(value: Expr) -> Expr:
        return op.reshape(value, (batch, index(1), product_(tuple(points))))

    parts: list[Expr] = []
    for taps in product(*axes):
        flat, whole, valid = None, None, None
        for (place, weight), size in zip(taps, sizes, strict=True):
            last = size_like(normal_dim(size - 1), place)
            if zeros:
                fits = op.logical_and(like(0, place) <= place, place <= last)
                valid = fits if valid is None else op.logical_and(valid, fits)
            inside = op.minimum(op.maximum(place, like(0, place)), last)
            at = to(inside, narrow)
            flat = at if flat is None else flat * size_like(size, flat) + at
            if weight is not None:
                whole = weight if whole is None else whole * weight
        assert flat is not None
        there = op.broadcast_to(along(flat), whole_shape)
        expr = op.take_along_axis(images, there, axis=2, mode="clip")
        if whole is not None:
            expr = expr * to(along(whole), dtype(expr))
        if valid is not None:
            expr = op.where(along(valid), expr, like(0, expr))
        parts.append(expr)
    return op.reshape(reduce(op.add, parts), (batch, shape(x)[1], *points))


def window_places(x: Expr, y: Expr, how: Mapping[str, Any], by_columns: bool = False) -> Expr:
    """Where the first element of each window of a pool is that y holds: its number in the image,
    counted by rows or by columns; `how` has all attributes of the pool."""
    inner = op.nn.window_first(op.stop_gradient(x), op.stop_gradient(y), **how)
    within = unravelled(inner, [const(size, i64) for size in how["kernel"]])
    total: Expr | None = None
    for at in reversed(range(len(within))) if by_columns else range(len(within)):
        start = op.iota_like(inner, axis=at + 2) * const(how["strides"][at], i64)
        here = within[at] * const(how["dilation"][at], i64) + start
        here = here - const(how["padding"][at][0], i64)
        total = here if total is None else total * amount(shape(x)[at + 2]) + here
    assert total is not None
    return total
