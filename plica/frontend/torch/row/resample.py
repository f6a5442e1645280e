"""Rows of images brought to another size: nearest places, and two neighbours along each axis."""

from __future__ import annotations

from typing import Final

from plica.core.binding import free_vars
from plica.frontend import sampled_place
from plica.frontend.measured import amount
from plica.frontend.torch.node import TorchNode
from plica.frontend.torch.row.word import Row, casted, opmath
from plica.frontend.word import along, dtype, like, rank, select, shape, to
from plica.ir.graph.expression import Expr, const
from plica.ir.interpret.graph_machine import computed
from plica.ir.loop.scalar import Scalar
from plica.ir.op.namespace import op
from plica.ir.type import dim, f32, i64, known, normal_dim


def _steps(node: TorchNode, x: Expr, corners: bool = False) -> list[tuple[Scalar, Scalar, Expr]]:
    """For each axis of the image: its size, the size wanted, and how far one place is, in f32."""
    sizes, wanted = shape(x)[2:], [dim(each) for each in node.shape()[2:]]
    factors = _factors(node, len(sizes))
    node.has("output_size")
    found = []
    for at, (size, goal) in enumerate(zip(sizes, wanted, strict=True)):
        if corners:
            last = op.maximum(_real(normal_dim(goal - 1)), const(1.0, f32))
            apart = _real(normal_dim(size - 1)) / last
            step = const(0.0, f32) if known(goal) == 1 else apart
            if known(goal) is None:
                step = op.where(op.equal(amount(goal), const(1, i64)), const(0.0, f32), apart)
        elif (factor := factors[at]) is not None:
            step = const(1.0 / factor, f32)
        else:
            step = _real(size) / _real(goal)
        found.append((size, goal, step))
    return found


def _real(size: Scalar) -> Expr:
    return sampled_place.size_like(size, const(0.0, f32))


def _settled(expr: Expr) -> Expr:
    """A table that follows from known sizes, as a constant."""
    return expr if free_vars(expr) else const(computed(expr), dtype(expr))


def _factors(node: TorchNode, count: int) -> list[float | None]:
    """The scale factors of each axis, if given besides the size."""
    if node.has("scale_factors"):
        return [float(each) for each in node.argument("scale_factors")]
    names = ["scales_d", "scales_h", "scales_w"][-count:] if count > 1 else ["scales"]
    return [float(node.number(name)) if node.has(name) else None for name in names]


def _image(node: TorchNode) -> Expr:
    return node.x("input") if node.has("input") else node.x()


def _nearest(node: TorchNode) -> Expr:
    x = _image(node)
    for at, (size, goal, step) in enumerate(_steps(node, x), 2):
        places = op.floor(op.iota(shape=(goal,), dtype=f32) * step)
        last = amount(normal_dim(size - 1))
        x = op.take(x, _settled(op.minimum(to(places, i64), last)), axis=at)
    return x


def _linear(node: TorchNode) -> Expr:
    x = _image(node)
    corners = node.flag("align_corners")
    steps = _steps(node, x, corners)
    of = dtype(x)
    y = casted(x, opmath(of))
    half = const(0.5, f32)
    for at, (size, goal, step) in enumerate(steps, 2):
        numbers = op.iota(shape=(goal,), dtype=f32)
        source = numbers * step
        if not corners:
            source = (numbers + half) * step - half
            source = op.maximum(source, const(0.0, f32))
        last = amount(normal_dim(size - 1))
        low = op.minimum(to(op.floor(source), i64), last)
        high = op.minimum(low + const(1, i64), last)
        part = _settled(to(source - to(low, f32), dtype(y)))
        part = along(part, at, rank(y))
        near, far = (op.take(y, _settled(places), axis=at) for places in (low, high))
        y = near * (like(1, part) - part) + far * part
    return casted(y, of)


def _weights(of: tuple[Scalar, Scalar, Expr], cubic: bool) -> Expr:
    """How much each place of an axis counts for each that is wanted, where the kernel is stretched
    as far as the axis shrinks."""
    size, goal, step = of
    half, one = const(0.5, f32), const(1.0, f32)
    shrink = op.maximum(step, one)
    reach = shrink * const(2.0 if cubic else 1.0, f32)
    middle = (op.iota(shape=(goal,), dtype=f32) + half) * step
    middle = op.expand_dims(middle, axis=(1,))
    places = op.expand_dims(op.iota(shape=(size,), dtype=f32), axis=(0,))
    first, behind = (op.trunc(join(middle, reach) + half) for join in (op.subtract, op.add))
    apart = (places - middle + half) / shrink
    away = op.absolute(apart)
    if cubic:
        near, far = (
            sampled_place.cubic_weight(apart, each, _STRETCHED_CUBIC) for each in (True, False)
        )
        far = op.where(away < const(2.0, f32), far, const(0.0, f32))
        weight = op.where(away < one, near, far)
    else:
        weight = op.maximum(one - away, const(0.0, f32))
    counts = op.logical_and(places >= first, places < behind)
    weight = op.where(counts, weight, const(0.0, f32))
    total = op.sum(weight, axis=(1,), keepdims=True)
    return weight / op.where(op.equal(total, const(0.0, f32)), one, total)


_STRETCHED_CUBIC: Final = -0.5  # cubic kernels that are stretched bend less


def _smooth(cubic: bool) -> Row:
    """Every place that is wanted is a sum over all that lie under its kernel."""

    def row(node: TorchNode) -> Expr:
        x = _image(node)
        steps = _steps(node, x, node.flag("align_corners"))
        of = dtype(x)
        y = casted(x, opmath(of))
        for at, axis in reversed(list(enumerate(steps, 2))):
            matrix = _settled(to(op.transpose(_weights(axis, cubic), (1, 0)), dtype(y)))
            y = op.swapaxes(op.matmul(op.swapaxes(y, at, rank(y) - 1), matrix), at, rank(y) - 1)
        return casted(y, of)

    return row


# --- sampling at given places --------------------------------------------------------------------


_SAMPLED: Final[tuple[sampled_place.Mode, ...]] = ("linear", "nearest", "cubic")
_BORDERS: Final = ("zeros", "border", "reflection")


def _grid_sample(node: TorchNode) -> Expr:
    """Images read at places that run from -1 to 1 along each axis."""
    x, grid = node.x("input"), node.x("grid")
    mode = _SAMPLED[node.integer("interpolation_mode")]
    padding, corners = _BORDERS[node.integer("padding_mode")], node.flag("align_corners")
    of = dtype(x)
    wide = casted(grid, opmath(of))
    axes: list[sampled_place.Taps] = []
    for number, size in enumerate(shape(x)[2:]):
        which = rank(x) - 3 - number  # the grid names the axes of the images backwards
        at = sampled_place.unscaled(select(wide, which, rank(grid) - 1), size, corners)
        axes.append(
            sampled_place.taps_inside(at, mode, padding, size, corners=corners, round_first=False)
        )
    return casted(sampled_place.summed_taps(casted(x, opmath(of)), axes, padding == "zeros"), of)


# fmt: off
TABLE: Final[dict[str, Row]] = {
    "upsample_nearest2d.vec":       _nearest,
    "upsample_bilinear2d.vec":      _linear,
    "upsample_bilinear2d.default":  _linear,
    "upsample_trilinear3d.default": _linear,
    "_upsample_bilinear2d_aa.default": _smooth(cubic=False),
    "_upsample_bicubic2d_aa.default":  _smooth(cubic=True),
    "grid_sampler_2d.default":      _grid_sample,
    "grid_sampler_3d.default":      _grid_sample,
}
# fmt: on
