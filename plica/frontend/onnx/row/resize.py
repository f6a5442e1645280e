"""Rows of resampling: each place of a result is a weighted sum of places along each axis.

The weights depend on sizes alone, so they are constants: a matrix from the places of the input to
those of the result, of which only the few places with a weight are read.

>>> nearest = weights(ResizeGrid(2, 4, 2.0, "asymmetric"), ResizeKernel("nearest", "floor"))
>>> nearest.argmax(axis=1).tolist()
[0, 0, 1, 1]
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import attrs
import numpy as np

from plica.core.diagnostic import MOST_BYTES
from plica.frontend.onnx.node import OnnxNode
from plica.frontend.onnx.row.resize_by_value import late_grids, resampled_late
from plica.frontend.onnx.row.resize_kernel import ResizeKernel
from plica.frontend.onnx.row.word import Row, along, axes_in, dtype, in_f32, like, rank, to
from plica.frontend.onnx.run_time import element, pieces
from plica.frontend.onnx.value import TensorValue
from plica.ir.graph.expression import Expr, const
from plica.ir.op.namespace import op
from plica.ir.type.dim import known, product
from plica.ir.type.dtype import f64

Array = np.ndarray[Any, Any]

MOST_TAPS: Final = 8
"""With more places than this under a weight, a product with the whole matrix costs less."""

LONGEST: Final = 1 << 24
"""An axis of more places is not made."""

MOST_WEIGHTS: Final = 1 << 24
"""An axis is not resampled if its matrix of weights would have more elements."""


@attrs.frozen
class ResizeGrid:
    """Where the places of a result lie on an axis of the input."""

    before: int
    after: int
    scale: float
    mode: str
    start: float = 0.0
    stop: float = 1.0

    def places(self) -> Array:
        """The place in the input of each place of the result."""
        at = np.arange(self.after, dtype=np.float64)
        length = self.scale * self.before  # before it was rounded to a whole number
        last = self.before - 1
        match self.mode:
            case "asymmetric":
                return at / self.scale
            case "align_corners":
                return at * 0 if length == 1 else at * last / (length - 1)
            case "tf_crop_and_resize":
                span = (self.stop - self.start) * last
                step = np.full_like(at, 0.5 * span) if length == 1 else at * span / (length - 1)
                return step + self.start * last
            case "pytorch_half_pixel" if length == 1:
                return np.full_like(at, -0.5)
            case "half_pixel_symmetric":
                shift = self.before / 2 * (1 - self.after / length)
                return shift + (at + 0.5) / self.scale - 0.5
            case _:
                return (at + 0.5) / self.scale - 0.5


_NEAREST: Final[dict[str, Callable[[Array], Array]]] = {
    "round_prefer_floor": lambda at: np.ceil(at - 0.5),
    "round_prefer_ceil": lambda at: np.floor(at + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


def _falloff(kernel: ResizeKernel, distance: Array) -> Array:
    x = np.abs(distance)
    if kernel.mode == "linear":
        line: Array = np.maximum(1 - x, 0.0)
        return line
    a = kernel.cubic
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0.0))


def weights(grid: ResizeGrid, kernel: ResizeKernel) -> Array:
    """The matrix from the places of an input to those of a result."""
    at = grid.places()
    whole = np.zeros((grid.after, grid.before))
    if kernel.mode == "nearest":
        chosen = np.clip(_NEAREST[kernel.nearest](at), 0, grid.before - 1).astype(np.int64)
        whole[np.arange(grid.after), chosen] = 1
        return whole
    # Only a shrinking result has its kernel stretched, so that no place of the input is lost.
    shrink = min(grid.scale, 1.0) if kernel.antialias else 1.0
    reach = math.ceil((1 if kernel.mode == "linear" else 2) / shrink) + 1
    low = np.floor(at).astype(np.int64) - reach
    for step in range(2 * reach + 2):
        place = low + step
        weight = _falloff(kernel, (place - at) * shrink)
        if kernel.exclude:
            weight = np.where((place < 0) | (place >= grid.before), 0.0, weight)
        rows = np.arange(grid.after)
        np.add.at(whole, (rows, np.clip(place, 0, grid.before - 1)), weight)
    total = whole.sum(axis=1, keepdims=True)
    return whole / np.where(total == 0, 1.0, total) if kernel.antialias or kernel.exclude else whole


def _along(x: Expr, axis: int, matrix: Array) -> Expr:
    """x resampled along one axis."""
    used = int((matrix != 0).sum(axis=1).max(initial=1))
    if used > MOST_TAPS:
        turned = op.matmul(
            op.swapaxes(x, axis, rank(x) - 1), const(matrix.T.astype(dtype(x).numpy))
        )
        return op.swapaxes(turned, axis, rank(x) - 1)
    order = np.argsort(matrix == 0, axis=1, kind="stable")[:, :used]
    total: Expr | None = None
    for tap in range(used):
        places = order[:, tap].astype(np.int64)
        part = op.take(x, const(places), axis=axis)
        factor = matrix[np.arange(len(places)), places]
        if not (factor == 1).all():
            vector = const(factor.astype(dtype(x).numpy), dtype(x))
            part = part * along(vector, axis, rank(x))
        total = part if total is None else total + part
    assert total is not None
    return total


def _growth(of: tuple[int, ResizeGrid]) -> tuple[bool, int]:
    """What comes first: axes that shrink, rows before their elements; then those that grow, the
    elements of a row before it is repeated."""
    axis, grid = of
    grows = grid.after > grid.before
    return grows, -axis if grows else axis


def _resampled(
    node: OnnxNode, grids: dict[int, ResizeGrid], kernel: ResizeKernel, outside: float
) -> Expr:
    x = node.x()
    for grid in grids.values():
        if grid.before * grid.after > MOST_WEIGHTS:
            node.unsupported("An axis is too long to resample.", str(MOST_WEIGHTS), str(grid))
        if grid.before == 0 and grid.after:
            node.malformed("An empty axis cannot be resized.", "1 or more", "0")
    of = dtype(x)
    exact = kernel.mode == "nearest"
    if not exact and not of.is_float:
        message = "Integers are resized to their nearest only: the standard says no rounding."
        node.unsupported(message, "nearest", str(of))
    whole = x if exact else in_f32(x)
    for axis, grid in sorted(grids.items(), key=_growth):
        plain = grid.before == grid.after and np.array_equal(
            weights(grid, kernel), np.eye(grid.before)
        )
        if not plain:
            whole = _along(whole, axis, weights(grid, kernel))
    whole = to(whole, of)
    for axis, grid in grids.items():
        if grid.mode == "tf_crop_and_resize":
            at = grid.places()
            missed = (at < 0) | (at > grid.before - 1)
            if missed.any():
                mask = along(const(missed), axis, rank(whole))
                whole = op.where(mask, like(outside, whole), whole)
    return whole


def _kernel(node: OnnxNode) -> ResizeKernel:
    mode = node.text("mode", "nearest")
    if mode not in ("nearest", "linear", "bilinear", "trilinear", "cubic"):
        node.malformed("There is no such mode.", "nearest, linear or cubic", repr(mode))
    return ResizeKernel("linear" if mode.endswith("linear") else mode)


def _grids(  # noqa: PLR0917  # every way to say where the places lie
    node: OnnxNode, axes: tuple[int, ...], scales: list[float] | None, sizes: list[int] | None,
    mode: str, region: list[float] | None,
) -> dict[int, ResizeGrid]:  # fmt: skip
    given = node.sizes()
    count = len(axes)
    if len(scales if scales is not None else sizes or ()) != count:
        node.malformed("There must be a scale or a size for each axis.", str(count), "others")
    policy = node.text("keep_aspect_ratio_policy", "stretch") if node.opset >= 18 else "stretch"
    grids: dict[int, ResizeGrid] = {}
    factors = scales if scales is not None else [
        size / max(1, given[axis]) for axis, size in zip(axes, sizes or (), strict=True)
    ]  # fmt: skip
    if any(not math.isfinite(each) or each < 0 for each in factors):
        node.malformed("A scale is no positive number.", "above 0", str(factors))
    if scales is None and policy != "stretch" and factors:
        if policy not in ("not_larger", "not_smaller"):
            node.malformed("There is no such policy.", "not_larger, not_smaller", repr(policy))
        factors = [min(factors) if policy == "not_larger" else max(factors)] * count
        sizes = [math.floor(factors[0] * given[axis] + 0.5) for axis in axes]
    for at, axis in enumerate(axes):
        before = given[axis]
        after = math.floor(before * factors[at]) if scales is not None else (sizes or [])[at]
        start, stop = (0.0, 1.0) if region is None else (region[at], region[at + count])
        if after > LONGEST:
            node.unsupported("A result is too long to be resampled.", str(LONGEST), str(after))
        grids[axis] = ResizeGrid(before, after, factors[at] or 1.0, mode, start, stop)
    whole = math.prod(grids[at].after if at in grids else size for at, size in enumerate(given))
    if whole * node.type().dtype.bytes > MOST_BYTES:  # before there are tables for every axis
        message = "The result is too large to be held in memory."
        node.unsupported(message, f"at most {MOST_BYTES} bytes", f"{whole} elements")
    return grids


_MODES: Final = (
    "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric",
    "tf_crop_and_resize",
)  # fmt: skip


def _resize(node: OnnxNode) -> Expr:
    kernel = _kernel(node)
    axes = tuple(range(node.rank()))
    if node.opset < 11:
        return _scaled(node, attrs.evolve(kernel, nearest="floor"))
    mode = node.text("coordinate_transformation_mode", "half_pixel")
    nearest = node.text("nearest_mode", "round_prefer_floor")
    if mode not in _MODES or nearest not in _NEAREST:
        node.unsupported("There is no such way to resize.", ", ".join(_MODES), f"{mode}, {nearest}")
    if node.opset >= 18:
        given = node.integers("axes")
        axes = axes if given is None else axes_in(node, given, node.rank())
        kernel = attrs.evolve(kernel, antialias=node.flag("antialias"))
    kernel = attrs.evolve(
        kernel,
        nearest=nearest,
        cubic=node.real("cubic_coeff_a", -0.75),
        exclude=node.flag("exclude_outside"),
    )
    roi = node.value(1)
    region = None
    if mode == "tf_crop_and_resize":
        if roi is None:
            node.malformed("tf_crop_and_resize needs a region.", "roi", "none")
        if roi.numbers() is None:
            return _late(node, kernel, axes, mode)
        region = [float(each) for each in node.numbers(1).reshape(-1)]
        if len(region) != 2 * len(axes):
            node.malformed("The region does not fit.", str(2 * len(axes)), str(len(region)))
    if _is_late(node):
        return _late(node, kernel, axes, mode)
    by_scale = node.value(2) is not None and node.numbers(2).size > 0
    scales_ = [float(each) for each in node.numbers(2).reshape(-1)] if by_scale else None
    sizes = None if by_scale or node.value(3) is None else node.whole(3)
    if scales_ is None and sizes is None:
        node.malformed("Resize has scales or sizes.", "one of them", "none")
    grids = _grids(node, axes, scales_, sizes, mode, region)
    return _resampled(node, grids, kernel, node.real("extrapolation_value", 0.0))


def _is_late(node: OnnxNode) -> bool:
    """Whether a size or a scale is no number before the model runs."""
    given = [node.value(at) for at in (2, 3)]
    late = any(each is not None and each.numbers() is None for each in given)
    return late or any(known(size) is None for size in node.shape())


def _late(node: OnnxNode, kernel: ResizeKernel, axes: tuple[int, ...], mode: str) -> Expr:
    """Resize by numbers that are known when the model runs."""
    roi, scales, sizes = (node.value(at) for at in (1, 2, 3))
    region = None
    if mode == "tf_crop_and_resize":
        assert roi is not None
        region = [to(element(roi.expr, at), f64) for at in range(2 * len(axes))]
    factors = None
    if scales is not None and known(product(scales.type.shape)) != 0:
        factors = _factors(scales, len(axes))
    if factors is None and sizes is None:
        node.malformed("Resize has scales or sizes.", "one of them", "none")
    wanted = None if factors is not None else pieces(node, 3)
    policy = node.text("keep_aspect_ratio_policy", "stretch") if node.opset >= 18 else "stretch"
    grids = late_grids(node, axes, factors, wanted, mode, region, policy)
    return resampled_late(node, grids, kernel, node.real("extrapolation_value", 0.0))


def _factors(of: TensorValue, count: int) -> list[Expr | float]:
    if (numbers := of.numbers()) is not None:
        return [float(each) for each in numbers.reshape(-1)]
    return [to(element(of.expr, at), f64) for at in range(count)]


def _scaled(node: OnnxNode, kernel: ResizeKernel) -> Expr:
    """Resize by scales alone, as the first versions do."""
    axes = tuple(range(node.rank()))
    given = node.need(1) if node.proto.op_type == "Resize" or node.opset >= 9 else None
    scales: list[Expr | float] = list(node.reals("scales") or ()) if given is None else []
    if given is not None:
        scales = _factors(given, len(axes))
    numbers = [each for each in scales if isinstance(each, float)]
    if len(numbers) < len(scales) or any(known(size) is None for size in node.shape()):
        grids = late_grids(node, axes, scales, None, "asymmetric", None, "stretch")
        return resampled_late(node, grids, kernel, 0.0)
    return _resampled(node, _grids(node, axes, numbers, None, "asymmetric", None), kernel, 0.0)


def _upsample(node: OnnxNode) -> Expr:
    return _scaled(node, attrs.evolve(_kernel(node), nearest="floor"))


# fmt: off
TABLE: Final[dict[str, Row]] = {
    "Resize":   _resize,
    "Upsample": _upsample,
}
# fmt: on
