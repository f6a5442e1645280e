"""Rows of images brought to another size: nearest places, and two neighbours along each axis."""

from __future__ import annotations

from typing import Final

from plica.core.binding import free_vars
from plica.frontend.measured import amount
from plica.frontend.sampled_place import (
    Mode,
    Taps,
    cubic_weight,
    size_like,
    summed_taps,
    taps_inside,
    unscaled,
)
from plica.frontend.torch.node import TorchNode
from plica.frontend.torch.row.word import Row, casted, opmath
from plica.frontend.word import along, dtype, like, rank, shape, to
from plica.ir.graph.expression import Expr, const
from plica.ir.interpret.graph_machine import computed
from plica.ir.loop.scalar import Scalar
from plica.ir.op import elementwise as ew
from plica.ir.op.comparison import equal, greater_equal, less, logical_and
from plica.ir.op.create import iota
from plica.ir.op.cut import slice_
from plica.ir.op.index import take, where
from plica.ir.op.linear import matmul
from plica.ir.op.reduction import sum_
from plica.ir.op.shape import expand_dims, reshape, swapaxes, transpose
from plica.ir.type.dim import dim, known, normal_dim
from plica.ir.type.dtype import f32, i64


def _steps(node: TorchNode, x: Expr, corners: bool = False) -> list[tuple[Scalar, Scalar, Expr]]:
    """For each axis of the image: its size, the size wanted, and how far one place is, in f32."""
    sizes, wanted = shape(x)[2:], [dim(each) for each in node.shape()[2:]]
    factors = _factors(node, len(sizes))
    node.has("output_size")
    found = []
    for at, (size, goal) in enumerate(zip(sizes, wanted, strict=True)):
        if corners:
            last = ew.maximum(_real(normal_dim(goal - 1)), const(1.0, f32))
            apart = ew.divide(_real(normal_dim(size - 1)), last)
            step = const(0.0, f32) if known(goal) == 1 else apart
            if known(goal) is None:
                step = where(equal(amount(goal), const(1, i64)), const(0.0, f32), apart)
        elif (factor := factors[at]) is not None:
            step = const(1.0 / factor, f32)
        else:
            step = ew.divide(_real(size), _real(goal))
        found.append((size, goal, step))
    return found


def _real(size: Scalar) -> Expr:
    return size_like(size, const(0.0, f32))


def _settled(expr: Expr) -> Expr:
    """A table that follows from known sizes, as a constant."""
    return expr if free_vars(expr) else const(computed(expr), dtype(expr))


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
        places = ew.floor(ew.multiply(iota(shape=(goal,), dtype=f32), step))
        last = amount(normal_dim(size - 1))
        x = take(x, _settled(ew.minimum(to(places, i64), last)), axis=at)
    return x


def _linear(node: TorchNode) -> Expr:
    x = _image(node)
    corners = node.flag("align_corners")
    steps = _steps(node, x, corners)
    of = dtype(x)
    y = casted(x, opmath(of))
    half = const(0.5, f32)
    for at, (size, goal, step) in enumerate(steps, 2):
        numbers = iota(shape=(goal,), dtype=f32)
        source = ew.multiply(numbers, step)
        if not corners:
            source = ew.subtract(ew.multiply(ew.add(numbers, half), step), half)
            source = ew.maximum(source, const(0.0, f32))
        last = amount(normal_dim(size - 1))
        low = ew.minimum(to(ew.floor(source), i64), last)
        high = ew.minimum(ew.add(low, const(1, i64)), last)
        part = _settled(to(ew.subtract(source, to(low, f32)), dtype(y)))
        part = along(part, at, rank(y))
        near, far = (take(y, _settled(places), axis=at) for places in (low, high))
        y = ew.add(ew.multiply(near, ew.subtract(like(1, part), part)), ew.multiply(far, part))
    return casted(y, of)


def _weights(of: tuple[Scalar, Scalar, Expr], cubic: bool) -> Expr:
    """How much each place of an axis counts for each that is wanted, where the kernel is stretched
    as far as the axis shrinks."""
    size, goal, step = of
    half, one = const(0.5, f32), const(1.0, f32)
    shrink = ew.maximum(step, one)
    reach = ew.multiply(shrink, const(2.0 if cubic else 1.0, f32))
    middle = ew.multiply(ew.add(iota(shape=(goal,), dtype=f32), half), step)
    middle = expand_dims(middle, axis=(1,))
    places = expand_dims(iota(shape=(size,), dtype=f32), axis=(0,))
    first, behind = (ew.trunc(ew.add(join(middle, reach), half)) for join in (ew.subtract, ew.add))
    apart = ew.divide(ew.add(ew.subtract(places, middle), half), shrink)
    away = ew.absolute(apart)
    if cubic:
        near, far = (cubic_weight(apart, each, _STRETCHED_CUBIC) for each in (True, False))
        far = where(less(away, const(2.0, f32)), far, const(0.0, f32))
        weight = where(less(away, one), near, far)
    else:
        weight = ew.maximum(ew.subtract(one, away), const(0.0, f32))
    counts = logical_and(greater_equal(places, first), less(places, behind))
    weight = where(counts, weight, const(0.0, f32))
    total = sum_(weight, axis=(1,), keepdims=True)
    return ew.divide(weight, where(equal(total, const(0.0, f32)), one, total))


_STRETCHED_CUBIC: Final = -0.5
"""Cubic kernels that are stretched bend less."""


def _smooth(cubic: bool) -> Row:
    """Every place that is wanted is a sum over all that lie under its kernel."""

    def row(node: TorchNode) -> Expr:
        x = _image(node)
        steps = _steps(node, x, node.flag("align_corners"))
        of = dtype(x)
        y = casted(x, opmath(of))
        for at, axis in reversed(list(enumerate(steps, 2))):
            matrix = _settled(to(transpose(_weights(axis, cubic), (1, 0)), dtype(y)))
            y = swapaxes(matmul(swapaxes(y, at, rank(y) - 1), matrix), at, rank(y) - 1)
        return casted(y, of)

    return row


# --- sampling at given places --------------------------------------------------------------------


_SAMPLED: Final[tuple[Mode, ...]] = ("linear", "nearest", "cubic")
_BORDERS: Final = ("zeros", "border", "reflection")


def _grid_sample(node: TorchNode) -> Expr:
    """Images read at places that run from -1 to 1 along each axis."""
    x, grid = node.x("input"), node.x("grid")
    mode = _SAMPLED[node.integer("interpolation_mode")]
    padding, corners = _BORDERS[node.integer("padding_mode")], node.flag("align_corners")
    of = dtype(x)
    wide = casted(grid, opmath(of))
    lead, last = shape(grid)[:-1], rank(grid) - 1
    axes: list[Taps] = []
    for number, size in enumerate(shape(x)[2:]):
        which = rank(x) - 3 - number  # the grid names the axes of the images backwards
        at = reshape(slice_(wide, (which,), (which + 1,), None, (last,)), lead)
        at = unscaled(at, size, corners)
        axes.append(taps_inside(at, mode, padding, size, corners=corners, round_first=False))
    return casted(summed_taps(casted(x, opmath(of)), axes, padding == "zeros"), of)


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
    "_upsample_bilinear2d_aa.default": _smooth(cubic=False),
    "_upsample_bicubic2d_aa.default":  _smooth(cubic=True),
    "_upsample_bilinear2d_aa.vec":     _smooth(cubic=False),
    "_upsample_bicubic2d_aa.vec":      _smooth(cubic=True),
    "grid_sampler_2d.default":      _grid_sample,
    "grid_sampler_3d.default":      _grid_sample,
}
# fmt: on
