"""Rows of resampling whose sizes or scales are only known when the model runs.

Where each place of a result lies on an axis of the input, and how much its neighbours count, are
vectors that the model computes; the elements are taken from there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

import attrs

from plica.frontend.measured import ONE, ZERO, Piece, amount, places
from plica.frontend.onnx.node import OnnxNode
from plica.frontend.onnx.row.resize_kernel import ResizeKernel
from plica.frontend.onnx.row.word import along, dtype, in_f32, like, rank, shape, to
from plica.frontend.onnx.run_time import clamped, lawful, size_from
from plica.ir.graph.expression import Expr, const
from plica.ir.loop.scalar import Scalar, index
from plica.ir.op.namespace import op
from plica.ir.type.dim import is_size, normal_dim, same_dim
from plica.ir.type.dtype import f64, i64


def number(value: float) -> Expr:
    """A constant of the type that places are computed in."""
    return const(value, f64)


_HALF: Final = number(0.5)
_NEAREST: Final[dict[str, Callable[[Expr], Expr]]] = {
    "round_prefer_floor": lambda at: op.ceil(at - _HALF),
    "round_prefer_ceil": lambda at: op.floor(at + _HALF),
    "floor": op.floor,
    "ceil": op.ceil,
}


@attrs.frozen(eq=False)
class LateGrid:
    """Where the places of a result lie on an axis, as values: sizes, the scale, the region, and
    whether the size of the result was given, whatever that of the input is."""

    before: Scalar
    after: Scalar
    scale: Expr
    mode: str
    start: Expr
    stop: Expr
    given: bool

    def places(self) -> Expr:
        """The place in the input of each place of the result."""
        at = to(places(self.after), f64)
        before = to(amount(self.before), f64)
        length, last = self.scale * before, before - number(1.0)
        single = op.equal(length, number(1.0))
        rest = op.where(single, number(1.0), length - number(1.0))
        half = (at + _HALF) / self.scale - _HALF
        match self.mode:
            case "asymmetric":
                return at / self.scale
            case "align_corners":
                return op.where(single, at * number(0.0), at * last / rest)
            case "tf_crop_and_resize":
                span = (self.stop - self.start) * last
                steps = at * span / rest
                step = op.where(single, at * number(0.0) + _HALF * span, steps)
                return step + self.start * last
            case "pytorch_half_pixel":
                return op.where(single, at * number(0.0) + number(-0.5), half)
            case "half_pixel_symmetric":
                part = to(amount(self.after), f64) / length
                shift = before * _HALF * (number(1.0) - part)
                return shift + half
            case _:
                return half


def late_grids(  # noqa: PLR0917  # every way to say where the places lie
    node: OnnxNode, axes: Sequence[int], scales: Sequence[Expr | float] | None,
    sizes: Sequence[Piece] | None, mode: str, region: Sequence[Expr] | None, policy: str,
) -> dict[int, LateGrid]:  # fmt: skip
    """The grids of the axes that are resampled."""
    given, count = shape(node.x()), len(axes)
    if len(scales if scales is not None else sizes or ()) != count:
        node.malformed("There must be a scale or a size for each axis.", str(count), "others")
    grids: dict[int, LateGrid] = {}
    factors: list[Expr] = []
    if scales is not None:
        factors = [each if isinstance(each, Expr) else number(each) for each in scales]
    else:
        for axis, size in zip(axes, sizes or (), strict=True):
            whole = op.maximum(amount(given[axis]), ONE)
            factors.append(to(amount(size), f64) / to(whole, f64))
        if policy != "stretch" and factors:
            if policy not in ("not_larger", "not_smaller"):
                node.malformed("There is no such policy.", "not_larger, not_smaller", repr(policy))
            one = factors[0]
            for each in factors[1:]:
                one = op.minimum(one, each) if policy == "not_larger" else op.maximum(one, each)
            factors = [one] * count
    for at, axis in enumerate(axes):
        before, plain = given[axis], None if scales is None else scales[at]
        if isinstance(plain, float) and not 0 < plain < math.inf:
            node.malformed("Resize has a scale that is no scale.", "above 0", str(plain))
        if scales is None and policy == "stretch":
            assert sizes is not None
            size = sizes[at]
            after = size_from(node, size, axis)
            if same_dim(before, after) and mode != "tf_crop_and_resize":
                continue
        elif isinstance(plain, float) and plain.is_integer() and plain >= 1:
            after = before * int(plain)
            if plain == 1 and mode != "tf_crop_and_resize":
                continue
        else:
            wide = to(amount(before), f64) * factors[at]
            rounded = op.floor(wide if scales is not None else wide + _HALF)
            above = number(0.0) < factors[at]  # no scale is 0, or no number
            fits = op.logical_and(above, factors[at] < number(math.inf))
            after = node.measured(lawful(to(rounded, i64), fits, "scale"), axis)
        start, stop = (number(0.0), number(1.0)) if region is None else (
            region[at], region[at + count])  # fmt: skip
        factor = op.where(op.equal(factors[at], number(0.0)), number(1.0), factors[at])
        told = scales is None and policy == "stretch"
        grids[axis] = LateGrid(before, after, factor, mode, start, stop, told)
    return grids


def resampled_late(
    node: OnnxNode, grids: dict[int, LateGrid], kernel: ResizeKernel, outside: float
) -> Expr:
    """The input resampled along the axes of the grids."""
    x = node.x()
    of, exact = dtype(x), kernel.mode == "nearest"
    if not exact and not of.is_float:
        message = "Integers are resized to their nearest only: the standard says no rounding."
        node.unsupported(message, "nearest", str(of))
    # An axis without elements has nothing near any place: it is resized to none.
    asked = [normal_dim(e.after * e.before - e.after) for e in grids.values() if e.given]
    least = tuple([each for each in asked if not is_size(each)])
    x = op.match_shape(x, shape(x), least=least) if least else x
    whole = x if exact else in_f32(x)
    for axis, grid in grids.items():
        smooth = kernel.antialias and not exact
        whole = (_smoothed(node, whole, axis, grid, kernel) if smooth else
                 _along(whole, axis, grid, kernel))  # fmt: skip
    whole = to(whole, of)
    for axis, grid in grids.items():
        if grid.mode == "tf_crop_and_resize":
            at, last = grid.places(), to(amount(grid.before), f64) - number(1.0)
            missed = op.logical_or(at < number(0.0), last < at)
            whole = op.where(along(missed, axis, rank(whole)), like(outside, whole), whole)
    return whole


def _along(x: Expr, axis: int, grid: LateGrid, kernel: ResizeKernel) -> Expr:
    at, last = grid.places(), amount(grid.before) - ONE
    if kernel.mode == "nearest":
        chosen = to(_NEAREST[kernel.nearest](at), i64)
        return op.take(x, clamped(chosen, ZERO, last), axis=axis)
    low = to(op.floor(at), i64)
    reach = range(2) if kernel.mode == "linear" else range(-1, 3)
    taps: list[tuple[Expr, Expr]] = []
    for step in reach:
        place = low + const(step, i64)
        weight = _falloff(kernel, to(place, f64) - at)
        if kernel.exclude:
            out = op.logical_or(place < ZERO, last < place)
            weight = op.where(out, number(0.0), weight)
        taps.append((place, weight))
    if kernel.exclude:
        total = taps[0][1]
        for _, weight in taps[1:]:
            total = total + weight
        total = op.where(op.equal(total, number(0.0)), number(1.0), total)
        taps = [(place, weight / total) for place, weight in taps]
    found: Expr | None = None
    for place, weight in taps:
        part = op.take(x, clamped(place, ZERO, last), axis=axis)
        part = part * along(to(weight, dtype(x)), axis, rank(x))
        found = part if found is None else found + part
    assert found is not None
    return found


def _smoothed(node: OnnxNode, x: Expr, axis: int, grid: LateGrid, kernel: ResizeKernel) -> Expr:
    """x along an axis whose kernel is stretched as far as the result shrinks, so that no place of
    the input is lost: how many places are under a weight is a size, too."""
    shrink = op.minimum(grid.scale, number(1.0))
    radius = number(1.0 if kernel.mode == "linear" else 2.0)
    reach = to(op.ceil(radius / shrink), i64) + ONE
    count = node.measured((reach + ONE) * const(2, i64), f"taps {axis}")
    at, last = op.expand_dims(grid.places(), (1,)), amount(grid.before) - ONE
    low = to(op.floor(at), i64) - reach
    place = low + op.expand_dims(places(count), (0,))
    weight = _falloff(kernel, (to(place, f64) - at) * shrink)
    if kernel.exclude:
        out = op.logical_or(place < ZERO, last < place)
        weight = op.where(out, number(0.0), weight)
    total = op.sum(weight, axis=(1,), keepdims=True)
    weight = weight / op.where(op.equal(total, number(0.0)), number(1.0), total)
    taken = op.take(x, clamped(place, ZERO, last), axis=axis)
    form = tuple(s if axis <= o <= axis + 1 else index(1) for o, s in enumerate(shape(taken)))
    return op.sum(taken * op.reshape(to(weight, dtype(x)), form), axis=(axis + 1,))


def _falloff(kernel: ResizeKernel, distance: Expr) -> Expr:
    """How much a place counts at a distance."""
    x = op.absolute(distance)
    if kernel.mode == "linear":
        return op.maximum(number(1.0) - x, number(0.0))
    a = kernel.cubic

    def polynomial(*factors: float) -> Expr:
        value: Expr = number(factors[0])
        for each in factors[1:]:
            value = value * x + number(each)
        return value

    near = polynomial(a + 2, -(a + 3), 0.0, 1.0)
    far = polynomial(a, -5 * a, 8 * a, -4 * a)
    outer = op.where(x < number(2.0), far, number(0.0))
    return op.where(number(1.0) < x, outer, near)
