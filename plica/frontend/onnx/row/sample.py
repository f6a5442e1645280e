"""Rows of sampling: images read at places that other tensors give."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product
from typing import Final

from plica.frontend.onnx.node import OnnxNode
from plica.frontend.onnx.row.window import kernel_of, settled, slide, with_bias
from plica.frontend.onnx.row.word import Row, dtype, in_f32, like, rank, shape, to
from plica.ir.graph.expression import Expr
from plica.ir.op import elementwise as ew
from plica.ir.op.comparison import less_equal, logical_and
from plica.ir.op.create import full
from plica.ir.op.cut import slice_
from plica.ir.op.index import take_along_axis, where
from plica.ir.op.repeat import broadcast_to
from plica.ir.op.roi import roi_align
from plica.ir.op.sampled import deformable_conv2d
from plica.ir.op.shape import reshape
from plica.ir.type.dim import known
from plica.ir.type.dim import product as product_
from plica.ir.type.dtype import i32, i64

_CUBIC: Final = -0.75
_MODES: Final = {
    "nearest": "nearest", "linear": "linear", "bilinear": "linear",
    "cubic": "cubic", "bicubic": "cubic",
}  # fmt: skip


def _mirrored(at: Expr, low: float, high: float) -> Expr:
    """A place outside of an interval, folded back into it as often as it takes."""
    span = max(high - low, 0.0)
    if span == 0.0:
        return ew.multiply(at, like(0, at))
    away = ew.mod(ew.absolute(ew.subtract(at, like(low, at))), like(2 * span, at))
    return ew.add(ew.minimum(away, ew.subtract(like(2 * span, at), away)), like(low, at))


def _cubic(distance: Expr, near: bool) -> Expr:
    """The weight of a place within one step, or between one and two."""
    a, x = _CUBIC, ew.absolute(distance)
    factors = (a + 2, -(a + 3), 0.0, 1.0) if near else (a, -5 * a, 8 * a, -4 * a)
    total: Expr = like(factors[0], x)
    for each in factors[1:]:
        total = ew.add(ew.multiply(total, x), like(each, x))
    return total


def _taps(mode: str, at: Expr) -> list[tuple[Expr, Expr | None]]:
    """The places that count along an axis, and how much."""
    if mode == "nearest":
        return [(ew.round_(at), None)]
    low = ew.floor(at)
    part = ew.subtract(at, low)
    one = like(1, at)
    if mode == "linear":
        return [(low, ew.subtract(one, part)), (ew.add(low, one), part)]
    steps = [
        (ew.add(low, like(step, low)), ew.subtract(part, like(step, part)))
        for step in (-1, 0, 1, 2)
    ]
    return [
        (place, _cubic(distance, near))
        for (place, distance), near in zip(steps, (False, True, True, False), strict=True)
    ]


def _grid_sample(node: OnnxNode) -> Expr:
    x, grid = node.x(0), in_f32(node.x(1))
    mode = node.text("mode", "linear" if node.opset >= 20 else "bilinear")
    padding = node.text("padding_mode", "zeros")
    align = node.flag("align_corners")
    sizes, places = node.sizes(0)[2:], node.sizes(1)
    count = len(sizes)
    if mode not in _MODES or padding not in ("zeros", "border", "reflection"):
        node.malformed("There is no such way to sample.", ", ".join(_MODES), f"{mode}, {padding}")
    if count < 1 or len(places) != count + 2 or places[-1] != count or 0 in sizes:
        node.malformed("The grid does not fit the images.", str(node.type(0)), str(node.type(1)))
    if _MODES[mode] == "cubic" and count != 2:
        node.unsupported("Cubic sampling is of two axes.", "2", str(count))
    if not dtype(x).is_float and _MODES[mode] != "nearest":
        node.unsupported("Only floats are sampled between places.", "a float", str(node.type(0)))
    axes: list[list[tuple[Expr, Expr | None]]] = []
    for number, size in enumerate(sizes):
        # The last axis of the grid names the axes of the images backwards.
        start = (0,) * (count + 1) + (count - 1 - number,)
        stop = (*places[:-1], count - number)
        at = reshape(slice_(grid, start, stop), places[:-1])
        one = like(1, at)
        if align:
            at = ew.multiply(ew.add(at, one), like((size - 1) / 2, at))
        else:
            at = ew.multiply(
                ew.subtract(ew.multiply(ew.add(at, one), like(size, at)), one), like(0.5, at)
            )
        bounds = (0.0, size - 1.0) if align else (-0.5, size - 0.5)
        axes.append(_inside(at, _MODES[mode], padding, size, bounds))
    return to(_summed(x, axes, sizes, padding == "zeros"), dtype(x))


def _inside(
    at: Expr, mode: str, padding: str, size: int, bounds: tuple[float, float]
) -> list[tuple[Expr, Expr | None]]:
    """Places along an axis with weights; only those of zeros may lie outside of it."""
    last = like(size - 1, at)
    if padding == "border" and mode != "cubic":
        at = ew.minimum(ew.maximum(at, like(0, at)), last)
    if padding == "reflection" and mode != "cubic":
        at = _mirrored(ew.round_(at) if mode == "nearest" else at, *bounds)
    taps = _taps(mode, at)
    if padding == "zeros":
        return taps
    fold: Callable[[Expr], Expr] = (
        (lambda place: _mirrored(place, *bounds)) if padding == "reflection" else (lambda p: p)
    )
    return [(ew.minimum(ew.maximum(fold(p), like(0, p)), last), weight) for p, weight in taps]


def _summed(
    x: Expr, axes: list[list[tuple[Expr, Expr | None]]], sizes: tuple[int, ...], zeros: bool
) -> Expr:
    """The weighted sum over the places of all axes together, channel by channel: where a pixel lies
    is the same in each."""
    first = axes[0][0][0]
    batch, *points = shape(first)
    images = reshape(in_f32(x), (*shape(x)[:2], math.prod(sizes)))
    whole_shape = (batch, shape(x)[1], product_(tuple(points)))
    narrow = i32 if math.prod(sizes) < 1 << 31 else i64

    def along(value: Expr) -> Expr:
        return reshape(value, (batch, 1, product_(tuple(points))))

    total: Expr | None = None
    for taps in product(*axes):
        flat, whole, valid = None, None, None
        for (place, weight), size in zip(taps, sizes, strict=True):
            if zeros:
                fits = logical_and(
                    less_equal(like(0, place), place), less_equal(place, like(size - 1, place))
                )
                valid = fits if valid is None else logical_and(valid, fits)
            inside = ew.minimum(ew.maximum(place, like(0, place)), like(size - 1, place))
            at = to(inside, narrow)
            flat = at if flat is None else ew.add(ew.multiply(flat, like(size, flat)), at)
            if weight is not None:
                whole = weight if whole is None else ew.multiply(whole, weight)
        assert flat is not None
        there = broadcast_to(along(flat), whole_shape)
        found = take_along_axis(images, there, axis=2, mode="clip")
        if whole is not None:
            found = ew.multiply(found, to(along(whole), dtype(found)))
        if valid is not None:
            found = where(along(valid), found, like(0, found))
        total = found if total is None else ew.add(total, found)
    assert total is not None
    return reshape(total, (batch, shape(x)[1], *points))


def _deform_conv(node: OnnxNode) -> Expr:
    kernel = kernel_of(node, 1)
    x, window = settled(node.x(0), slide(node, kernel))
    offset, mask = node.x(2), node.maybe(4)
    groups = node.integer("offset_group", 1)
    if rank(node.x(0)) != 4 or known(shape(offset)[1]) != 2 * groups * math.prod(kernel):
        expected = f"offsets of {2 * groups * math.prod(kernel)} channels"
        node.malformed("DeformConv takes images and offsets.", expected, str(node.type(2)))
    if mask is None:
        n, _, *rest = shape(offset)
        mask = full(shape=(n, groups * math.prod(kernel), *rest), value=1.0, dtype=dtype(offset))
    y = deformable_conv2d(
        x,
        offset,
        mask,
        node.x(1),
        strides=window.strides,
        padding=window.padding,
        dilation=window.dilation,
        groups=node.integer("group", 1),
    )
    return with_bias(node, y, 3)


def _roi_align(node: OnnxNode) -> Expr:
    samples = node.integer("sampling_ratio", 0)
    words = {"half_pixel": True, "output_half_pixel": False}
    usual = "half_pixel" if node.opset >= 16 else "output_half_pixel"
    how = node.text("coordinate_transformation_mode", usual)
    mode = node.text("mode", "avg")
    if how not in words or mode not in ("avg", "max"):
        node.malformed("There is no such way to sample.", ", ".join(words), f"{how}, {mode}")
    open_size = any(known(each) is None for each in shape(node.x(0))[2:])
    if samples < 1 and (mode == "max" or open_size):
        message = "How many samples a box needs is only known when the model runs."
        node.unsupported(message, "a sampling_ratio above 0", str(samples))
    return roi_align(
        node.x(0),
        node.x(1),
        node.x(2),
        size=(node.integer("output_height", 1), node.integer("output_width", 1)),
        scale=node.real("spatial_scale", 1.0),
        samples=max(samples, 0),
        half_pixel=words[how],
        mode=mode,
    )


# fmt: off
TABLE: Final[dict[str, Row]] = {
    "GridSample": _grid_sample,
    "DeformConv": _deform_conv,
    "RoiAlign":   _roi_align,
}
# fmt: on
