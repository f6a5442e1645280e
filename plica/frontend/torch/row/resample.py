"""Rows of images brought to another size: nearest places, and two neighbours along each axis."""

from __future__ import annotations

from typing import Final

import numpy as np

from plica.frontend.torch.node import TorchNode
from plica.frontend.torch.row.word import Row, casted, opmath
from plica.frontend.word import along, dtype, like, rank, to
from plica.ir.graph.expression import Expr, const
from plica.ir.op import elementwise as ew
from plica.ir.op.comparison import greater_equal, less, logical_and
from plica.ir.op.cut import slice_
from plica.ir.op.index import take, take_along_axis, where
from plica.ir.op.repeat import broadcast_to
from plica.ir.op.shape import expand_dims, reshape
from plica.ir.type.dtype import i64


def _steps(node: TorchNode, x: Expr, corners: bool = False) -> list[tuple[int, int, np.float32]]:
    """For each axis of the image: its size, the size wanted, and how far one place is."""
    sizes, wanted = node.known_sizes(x)[2:], node.shape()[2:]
    factors = _factors(node, len(sizes))
    node.has("output_size")
    found = []
    for at, (size, goal) in enumerate(zip(sizes, wanted, strict=True)):
        if not isinstance(goal, int):
            node.unsupported(f"{node.kind} needs sizes that are numbers.", "numbers", str(goal))
        if corners:
            step = np.float32(size - 1) / np.float32(goal - 1) if goal > 1 else np.float32(0)
        elif (factor := factors[at]) is not None:
            step = np.float32(1.0 / factor)
        else:
            step = np.float32(size) / np.float32(goal)
        found.append((size, goal, np.float32(step)))
    return found


def _factors(node: TorchNode, count: int) -> list[float | None]:
    """How much larger each axis is asked to be, where that is said beside the size."""
    if node.has("scale_factors"):
        return [float(each) for each in node.argument("scale_factors")]
    names = ["scales_d", "scales_h", "scales_w"][-count:] if count > 1 else ["scales"]
    return [float(node.number(name)) if node.has(name) else None for name in names]


def _image(node: TorchNode) -> Expr:
    return node.x("input") if node.has("input") else node.x()


def _nearest(node: TorchNode) -> Expr:
    x = _image(node)
    for at, (size, goal, step) in enumerate(_steps(node, x), 2):
        places = np.floor(np.arange(goal, dtype=np.float32) * step).astype(np.int64)
        x = take(x, const(np.minimum(places, size - 1)), axis=at)
    return x


def _linear(node: TorchNode) -> Expr:
    x = _image(node)
    corners = node.flag("align_corners")
    steps = _steps(node, x, corners)
    of = dtype(x)
    y = casted(x, opmath(of))
    for at, (size, goal, step) in enumerate(steps, 2):
        numbers = np.arange(goal, dtype=np.float32)
        source = numbers * step
        if not corners:
            source = np.maximum((numbers + np.float32(0.5)) * step - np.float32(0.5), 0)
        low = np.minimum(np.floor(source).astype(np.int64), size - 1)
        high = np.minimum(low + 1, size - 1)
        part = along(const((source - low).astype(dtype(y).numpy), dtype(y)), at, rank(y))
        near, far = (take(y, const(places), axis=at) for places in (low, high))
        y = ew.add(ew.multiply(near, ew.subtract(like(1, part), part)), ew.multiply(far, part))
    return casted(y, of)


# --- sampling at given places --------------------------------------------------------------------


def _grid_sample(node: TorchNode) -> Expr:
    """Images read at places that run from -1 to 1 along each axis."""
    x, grid = node.x("input"), node.x("grid")
    mode, border = node.integer("interpolation_mode"), node.integer("padding_mode")
    corners = node.flag("align_corners")
    if mode not in (0, 1) or border not in (0, 1):
        message = f"{node.kind} reads the nearest place or four of them, with a plain border."
        node.unsupported(message, "bilinear or nearest; zeros or border", f"{mode}, {border}")
    of = dtype(x)
    _, channels, height, width = node.known_sizes(x)
    batch, rows, columns, _ = node.known_sizes(grid)
    wide = casted(grid, opmath(of))
    places = []
    for which, size in ((1, height), (0, width)):
        place = reshape(slice_(wide, (which,), (which + 1,), None, (3,)), (batch, rows, columns))
        one = like(1, place)
        if corners:
            place = ew.multiply(ew.add(place, one), like((size - 1) / 2, place))
        else:
            place = ew.divide(ew.subtract(ew.multiply(ew.add(place, one), like(size, place)), one),
                           like(2, place))  # fmt: skip
        if border == 1:
            place = ew.minimum(ew.maximum(place, like(0, place)), like(size - 1, place))
        places.append(place)
    flat = reshape(casted(x, opmath(of)), (node.known_sizes(x)[0], channels, height * width))

    def at(row: Expr, column: Expr) -> Expr:
        """The image at whole places; nothing outside of it."""
        inside = logical_and(
            logical_and(greater_equal(row, like(0, row)), less(row, like(height, row))),
            logical_and(greater_equal(column, like(0, row)), less(column, like(width, row))),
        )
        y = ew.minimum(ew.maximum(row, like(0, row)), like(height - 1, row))
        z = ew.minimum(ew.maximum(column, like(0, row)), like(width - 1, row))
        linear = to(ew.add(ew.multiply(y, like(width, y)), z), i64)
        count = rows * columns
        spots = broadcast_to(reshape(linear, (batch, 1, count)), (batch, channels, count))
        found = reshape(take_along_axis(flat, spots, axis=2), (batch, channels, rows, columns))
        seen = broadcast_to(expand_dims(inside, axis=(1,)), (batch, channels, rows, columns))
        return where(seen, found, like(0, found))

    y, z = places
    if mode == 1:
        return casted(at(ew.round_(y), ew.round_(z)), of)
    low, left = ew.floor(y), ew.floor(z)
    one = like(1, y)
    down, right = ew.subtract(y, low), ew.subtract(z, left)
    total: Expr | None = None
    for row, share in ((low, ew.subtract(one, down)), (ew.add(low, one), down)):
        for column, part in ((left, ew.subtract(one, right)), (ew.add(left, one), right)):
            weight = expand_dims(ew.multiply(share, part), axis=(1,))
            value = ew.multiply(at(row, column), weight)
            total = value if total is None else ew.add(total, value)
    assert total is not None
    return casted(total, of)


# fmt: off
TABLE: Final[dict[str, Row]] = {
    "upsample_nearest1d.vec":       _nearest,
    "upsample_nearest2d.vec":       _nearest,
    "upsample_nearest3d.vec":       _nearest,
    "upsample_nearest1d.default":   _nearest,
    "upsample_nearest2d.default":   _nearest,
    "upsample_nearest3d.default":   _nearest,
    "upsample_linear1d.vec":        _linear,
    "upsample_bilinear2d.vec":      _linear,
    "upsample_trilinear3d.vec":     _linear,
    "upsample_linear1d.default":    _linear,
    "upsample_bilinear2d.default":  _linear,
    "upsample_trilinear3d.default": _linear,
    "grid_sampler_2d.default":      _grid_sample,
}
# fmt: on
