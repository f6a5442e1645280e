"""Convolutions that look elsewhere: where offsets say, or at all displacements of another image.

>>> from plica.ir.type.term import tensor
>>> how = {"kernel": 1, "max_displacement": 2, "stride": 1, "displacement_stride": 1}
>>> x = tensor((1, 8, 9, 9), "f32")
>>> found = correlation.relation({**how, "padding": 2, "multiply": True}, x, x)
>>> [size.value for size in found.shape]
[1, 25, 9, 9]
"""

from __future__ import annotations

from plica.ir.graph.expression import Expr
from plica.ir.graph.operator import Mismatch, Values
from plica.ir.loop.scalar import Scalar, index
from plica.ir.op import elementwise as ew
from plica.ir.op.attribute import attribute, flag, natural, positive
from plica.ir.op.comparison import greater_equal, less, logical_and
from plica.ir.op.convolution import conv
from plica.ir.op.create import iota
from plica.ir.op.index import length, take, take_along_axis, where
from plica.ir.op.linear import einsum
from plica.ir.op.order import ONE, ZERO
from plica.ir.op.pad import pad
from plica.ir.op.record import composite, scalar, tensor_of
from plica.ir.op.reduction import narrow, sum_, widen
from plica.ir.op.relation import FLOAT, Shape, rank_is, refuse, same
from plica.ir.op.repeat import broadcast_to
from plica.ir.op.shape import expand_dims, reshape
from plica.ir.op.window import windows
from plica.ir.type import TensorType, i64, known, normal_dim, product, quotient

# --- where offsets say ---------------------------------------------------------------------------

_OWN = ("strides", "padding", "dilation", "groups")


def _deformed_rule(attrs: Values, x: TensorType, *given: TensorType) -> TensorType:
    name = "nn.deformable_conv2d"
    offset, mask, weight = given
    for what, tensor in (("x", x), ("the offsets", offset), ("the mask", mask), ("weight", weight)):
        rank_is(name, what, tensor, 4)
    out = conv.relation({each: attrs[each] for each in _OWN}, x, weight)
    if isinstance(out, Mismatch):
        refuse(out.code, f"{name}: {out.message}", out.expected, out.found)
    assert isinstance(out, TensorType)
    taps = product(weight.shape[2:])
    groups = quotient(offset.shape[1], product((index(2), taps)))
    if groups is None or known(groups) in (None, 0) or quotient(x.shape[1], groups) is None:
        message = f"{name} takes two offsets for each tap of the window and group of channels."
        refuse("shape-conflict", message, f"a multiple of 2 * {known(taps)} channels", str(offset))
    same(name, "the mask and the offsets", mask.shape[1], product((groups, taps)))
    for tensor_type in (offset, mask):
        same(name, "the batch of x and of offsets and mask", x.shape[0], tensor_type.shape[0])
        for mine, other in zip(out.shape[2:], tensor_type.shape[2:], strict=True):
            same(name, "the result and the offsets and mask", mine, other)
    return out


def _deformed(attrs: Values, x: Expr, offset: Expr, mask: Expr, weight: Expr) -> Expr:
    types = [tensor_of(expr) for expr in (x, offset, mask, weight)]
    n, channels, rows, columns = types[0].shape
    out = _deformed_rule(attrs, *types).shape
    kernel = types[3].shape[2:]
    taps, spots = product(kernel), product(out[2:])
    groups = quotient(types[1].shape[1], product((index(2), taps))) or index(1)
    own = quotient(channels, groups) or index(1)
    moved = reshape(offset, (n, groups, taps, 2, spots))
    places = [
        ew.add(_taps(attrs, kernel, out[2:], at, tensor_of(offset)), _part(moved, at))
        for at in (0, 1)
    ]
    flat = reshape(x, (n, groups, own, product((rows, columns))))
    whole = (n, groups, own, product((taps, spots)))
    # Indices are in bounds by construction; if there are elements, no further check is needed.
    mode = "clip" if known(product((rows, columns))) else "raise"
    lows = [ew.floor(expr) for expr in places]
    total: Expr | None = None
    for corner in ((0, 0), (0, 1), (1, 0), (1, 1)):
        here = [ew.add(low, scalar(c, types[1].dtype)) for low, c in zip(lows, corner, strict=True)]
        share = ew.multiply(
            *(_nearness(place, low, c) for place, low, c in zip(places, lows, corner, strict=True))
        )
        inside, at = _inside(x, here)
        spot = broadcast_to(reshape(at, (n, groups, 1, whole[-1])), whole)
        value = take_along_axis(flat, spot, axis=-1, mode=mode)
        nothing = scalar(0, types[0].dtype)
        share = where(inside, share, nothing)
        part = ew.multiply(value, reshape(share, (n, groups, 1, whole[-1])))
        total = part if total is None else ew.add(total, part)
    assert total is not None
    total = ew.multiply(total, reshape(mask, (n, groups, 1, whole[-1])))
    split = index(attrs["groups"])
    depth = product((quotient(channels, split) or index(1), taps))
    cells = reshape(total, (n, split, depth, spots))
    kernels = reshape(weight, (split, quotient(out[1], split) or index(1), depth))
    return reshape(einsum((cells, kernels), equation="ngkp,gok->ngop"), out)


def _part(moved: Expr, at: int) -> Expr:
    """The offsets along one axis of the image: (n, groups, taps, spots)."""
    return take(moved, scalar(at, i64), axis=3)


def _taps(attrs: Values, kernel: Shape, out: Shape, at: int, like: TensorType) -> Expr:
    """Where the taps of each window lie along an axis, were there no offsets: (taps, spots)."""
    box = (*kernel, *out)
    window = windows("nn.deformable_conv2d", attrs, 2)[at]
    steps = ew.multiply(iota(box, axis=2 + at), scalar(window.stride, i64))
    reach = ew.multiply(iota(box, axis=at), scalar(window.dilation, i64))
    expr = ew.subtract(ew.add(steps, reach), scalar(window.before, i64))
    return ew.cast(reshape(expr, (product(kernel), product(out))), like.dtype)


def _nearness(place: Expr, low: Expr, corner: int) -> Expr:
    """How much a corner counts along an axis."""
    away = ew.subtract(place, low)
    return away if corner else ew.subtract(scalar(1, tensor_of(away).dtype), away)


def _inside(x: Expr, here: list[Expr]) -> tuple[Expr, Expr]:
    """Whether places (y, x) lie in the image, and where in it, counted through rows."""
    dtype = tensor_of(here[0]).dtype
    inside: Expr | None = None
    flat: Expr = ZERO
    for at, place in enumerate(here, 2):
        size = length(x, at)
        within = logical_and(
            greater_equal(place, scalar(0, dtype)), less(place, ew.cast(size, dtype))
        )
        inside = within if inside is None else logical_and(inside, within)
        held = ew.maximum(ZERO, ew.minimum(ew.cast(place, i64), ew.subtract(size, ONE)))
        flat = ew.add(ew.multiply(flat, size), held)
    assert inside is not None
    return inside, flat


deformable_conv2d = composite(
    "nn.deformable_conv2d", ("x", "offset", "mask", "weight"), _deformed_rule,
    lambda attrs, *given: narrow(_deformed(attrs, *map(widen, given)), tensor_of(given[0]).dtype),
    "Deformable convolution: taps are shifted by offsets (y, x) and scaled by a mask, with "
    "bilinear interpolation and zeros outside.",
    attributes=conv.attributes, admits=FLOAT, onnx=("DeformConv",),
)  # fmt: skip

# --- at all displacements ------------------------------------------------------------------------


def _displaced(attrs: Values, x: TensorType) -> tuple[int, tuple[Scalar, Scalar]]:
    """The number of displacements along an axis, and the size of the result."""
    border = attrs["max_displacement"] + (attrs["kernel"] - 1) // 2
    sizes = []
    for size in x.shape[2:]:
        room = size + 2 * (attrs["padding"] - border)
        held = known(normal_dim(room))
        if held is not None and held <= 0:
            message = "nn.correlation has no room for its displacements."
            refuse("shape-conflict", message, f"more than {2 * border} with padding", str(x))
        sizes.append(normal_dim((room + (attrs["stride"] - 1)) // attrs["stride"]))
    return 2 * (attrs["max_displacement"] // attrs["displacement_stride"]) + 1, (sizes[0], sizes[1])


def _correlation_rule(attrs: Values, x: TensorType, y: TensorType) -> TensorType:
    rank_is("nn.correlation", "x", x, 4)
    rank_is("nn.correlation", "y", y, 4)
    for mine, other in zip(x.shape, y.shape, strict=True):
        same("nn.correlation", "both images", mine, other)
    if attrs["kernel"] % 2 == 0:
        message = "nn.correlation takes a window with a middle."
        refuse("bad-attribute", message, "an odd number", str(attrs["kernel"]))
    count, (rows, columns) = _displaced(attrs, x)
    return TensorType((x.shape[0], index(count * count), rows, columns), x.dtype)


def _correlation(attrs: Values, x: Expr, y: Expr) -> Expr:
    of = tensor_of(x)
    count, sizes = _displaced(attrs, of)
    sides = (attrs["padding"],) * 2
    x, y = (pad(widen(each), ((0, 0), (0, 0), sides, sides)) for each in (x, y))
    for at, size in ((2, sizes[0]), (5, sizes[1])):
        spots = _spots(attrs, (count, size, index(attrs["kernel"])))
        y = take(y, spots, axis=at)  # (n, c, displacement, place, tap, …)
        still = take(spots, scalar(count // 2, i64), axis=0)
        x = expand_dims(take(x, still, axis=at), (at,))
    away = ew.multiply(x, y) if attrs["multiply"] else ew.absolute(ew.subtract(x, y))
    total = sum_(away, axis=(1, 4, 7))  # (n, dy, rows, dx, columns)
    terms = ew.multiply(length(x, 1), scalar(attrs["kernel"] ** 2, i64))
    share = ew.divide(total, ew.cast(terms, tensor_of(total).dtype))
    expr = einsum((share,), equation="ndiej->ndeij")
    return narrow(reshape(expr, _correlation_rule(attrs, of, of).shape), of.dtype)


def _spots(attrs: Values, box: tuple[int, Scalar, Scalar]) -> Expr:
    """Which pixel a displacement, a place of the result and a tap of its window look at."""
    shape = (index(box[0]), *box[1:])
    moves = ew.multiply(iota(shape, axis=0), scalar(attrs["displacement_stride"], i64))
    steps = ew.multiply(iota(shape, axis=1), scalar(attrs["stride"], i64))
    reach = attrs["max_displacement"] - box[0] // 2 * attrs["displacement_stride"]
    return ew.add(ew.add(moves, steps), ew.add(iota(shape, axis=2), scalar(reach, i64)))


correlation = composite(
    "nn.correlation", ("x", "y"), _correlation_rule, _correlation,
    "The mean product (or distance) of windows of x with those of y at each displacement.",
    attributes=(
        attribute("kernel", positive, 1),
        attribute("max_displacement", natural, 1),
        attribute("stride", positive, 1),
        attribute("displacement_stride", positive, 1),
        attribute("padding", natural, 0),
        attribute("multiply", flag, True),
    ),
    admits=FLOAT,
)  # fmt: skip
