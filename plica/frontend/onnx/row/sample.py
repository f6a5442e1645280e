"""Rows of sampling: images read at places that other tensors give."""

from __future__ import annotations

import math
from functools import reduce
from typing import Final

from plica.frontend.measured import amount, matched, places
from plica.frontend.onnx.node import OnnxNode
from plica.frontend.onnx.row.window import kernel_of, settled, slide, with_bias
from plica.frontend.onnx.row.word import Row, along, dtype, in_f32, rank, shape, to
from plica.frontend.onnx.run_time import pieces, size_from
from plica.frontend.sampled_place import Mode, Taps, summed_taps, taps_inside, unscaled
from plica.ir.graph.expression import Expr, const
from plica.ir.loop.scalar import Scalar
from plica.ir.op.namespace import op
from plica.ir.type import f64, known

_MODES: Final[dict[str, Mode]] = {
    "nearest": "nearest", "linear": "linear", "bilinear": "linear",
    "cubic": "cubic", "bicubic": "cubic",
}  # fmt: skip


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
    axes: list[Taps] = []
    for number, size in enumerate(shape(x)[2:]):
        # The last axis of the grid names the axes of the images backwards.
        start = (0,) * (count + 1) + (count - 1 - number,)
        stop = (*places[:-1], count - number)
        at = unscaled(op.reshape(op.slice(grid, start, stop), places[:-1]), size, align)
        axes.append(taps_inside(at, _MODES[mode], padding, size, corners=align, round_first=True))
    return to(summed_taps(x, axes, padding == "zeros"), dtype(x))


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
        mask = op.full(shape=(n, groups * math.prod(kernel), *rest), value=1.0, dtype=dtype(offset))
    y = op.nn.deformable_conv2d(
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
    open_size = any(known(dim) is None for dim in shape(node.x(0))[2:])
    if samples < 1 and (mode == "max" or open_size):
        message = "How many samples a box needs is only known when the model runs."
        node.unsupported(message, "a sampling_ratio above 0", str(samples))
    return op.nn.roi_align(
        node.x(0),
        node.x(1),
        node.x(2),
        size=(node.integer("output_height", 1), node.integer("output_width", 1)),
        scale=node.real("spatial_scale", 1.0),
        samples=max(samples, 0),
        half_pixel=words[how],
        mode=mode,
    )


def _affine_grid(node: OnnxNode) -> Expr:
    """Where a transformation of images reads each place: x counts along the last axis, from -1 to 1
    over all of it, or between the middles of the first and the last place."""
    theta, sizes, align = node.x(0), pieces(node, 1), node.flag("align_corners")
    count = len(sizes) - 2
    fits = rank(theta) == 3 and [*map(known, shape(theta)[1:])] == [count, count + 1]
    if count not in (2, 3) or not fits:
        wanted = "(N, 2, 3) and 4 sizes, or (N, 3, 4) and 5"
        node.malformed("The transformation does not fit.", wanted, f"{node.type(0)}, {len(sizes)}")
    batch, *spatial = (size_from(node, each, at) for at, each in enumerate((sizes[0], *sizes[2:])))
    matrix = in_f32(matched(theta, (batch, *shape(theta)[1:])))
    parts: list[Expr] = []
    for column in range(count + 1):
        part = op.slice(matrix, (column,), (column + 1,), axes=(2,))
        part = op.reshape(part, (batch, *(1,) * count, count))
        if column < count:
            axis = count - column
            at = to(_spread_out(spatial[axis - 1], align, (axis, count) == (1, 3)), dtype(matrix))
            part = part * along(at, axis, count + 2)
        parts.append(part)
    return to(reduce(op.add, parts), dtype(theta))


def _spread_out(size: Scalar, align: bool, deep: bool) -> Expr:
    """The coordinates of an axis from -1 to 1; a single one is at the start for the first of three
    axes, and at zero otherwise, as the standard defines."""
    at, whole = to(places(size), f64), to(amount(size), f64)
    one, two = const(1.0, f64), const(2.0, f64)
    if not align:
        middle = at * two + one
        return middle / whole - one
    step = two / (whole - one)
    if deep:
        step = op.where(op.equal(whole, one), const(0.0, f64), step)
    return at * step - one


# fmt: off
TABLE: Final[dict[str, Row]] = {
    "GridSample": _grid_sample,
    "DeformConv": _deform_conv,
    "RoiAlign":   _roi_align,
    "AffineGrid": _affine_grid,
}
# fmt: on
