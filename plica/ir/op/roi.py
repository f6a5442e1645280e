"""Regions of interest: boxes of images, brought to one size by sampling.

>>> from plica.ir.type.term import tensor
>>> how = {"size": (2, 3), "scale": 1.0, "samples": 2, "half_pixel": True, "mode": "avg"}
>>> x, rois, batch = tensor((1, 8, 9, 9), "f32"), tensor((4, 4), "f32"), tensor((4,), "i64")
>>> [size.value for size in roi_align.relation(how, x, rois, batch).shape]
[4, 8, 2, 3]
"""

from __future__ import annotations

from functools import reduce

from plica.ir.graph.expression import Expr
from plica.ir.graph.operator import Values
from plica.ir.loop.scalar import index
from plica.ir.op import elementwise as ew
from plica.ir.op.attribute import attribute, choice, flag, many, natural, positive, real
from plica.ir.op.comparison import greater_equal, less_equal, logical_and
from plica.ir.op.create import iota
from plica.ir.op.index import integers, length, take, where
from plica.ir.op.linear import matmul
from plica.ir.op.order import ONE
from plica.ir.op.record import composite, scalar, tensor_of
from plica.ir.op.reduction import max_, mean, narrow, sum_, widen
from plica.ir.op.relation import FLOAT, rank_is, refuse, same
from plica.ir.op.shape import expand_dims, reshape, transpose
from plica.ir.type import TensorType, i64, known, product


def _rule(attrs: Values, x: TensorType, rois: TensorType, batch: TensorType) -> TensorType:
    name = "nn.roi_align"
    rank_is(name, "x", x, 4)
    rank_is(name, "the boxes", rois, 2)
    rank_is(name, "the batch", batch, 1)
    integers(name, batch)
    same(name, "the boxes and which image each is of", rois.shape[0], batch.shape[0])
    if known(rois.shape[1]) != 4 or len(attrs["size"]) != 2:
        message = f"{name} takes boxes (x1, y1, x2, y2) and a size (height, width)."
        refuse("shape-conflict", message, "4 and 2 numbers", f"{rois}, {attrs['size']}")
    sizes = [known(term) for term in x.shape[2:]]
    if not attrs["samples"] and None in sizes:
        message = f"{name} takes as many samples as bins have pixels of images of known size."
        refuse("shape-conflict", message, "numbers", str(x))
    if not attrs["samples"] and attrs["mode"] != "avg":
        message = f"{name} takes as many samples as a bin has pixels for their mean alone."
        refuse("bad-attribute", message, "samples above 0", "0")
    return TensorType((rois.shape[0], x.shape[1], *map(index, attrs["size"])), x.dtype)


def _bins(attrs: Values, rois: Expr, axis: int) -> tuple[Expr, Expr]:
    """Where each box begins along an axis, and how long its bins are."""
    dtype = tensor_of(rois).dtype
    shift = scalar(0.5 if attrs["half_pixel"] else 0.0, dtype)
    scale, count = scalar(attrs["scale"], dtype), scalar(attrs["size"][axis], dtype)
    start, stop = (
        ew.subtract(ew.multiply(take(rois, scalar(at, i64), axis=1), scale), shift)
        for at in (1 - axis, 3 - axis)
    )
    span = ew.subtract(stop, start)
    if not attrs["half_pixel"]:
        span = ew.maximum(span, scalar(1.0, dtype))  # a box has at least a pixel
    return start, ew.divide(span, count)


def _along(attrs: Values, x: Expr, rois: Expr, axis: int) -> tuple[Expr, list[tuple[Expr, Expr]]]:
    """Samples along an axis (boxes, bins * samples): which are near x, what they read."""
    dtype, count, samples = tensor_of(x).dtype, attrs["size"][axis], attrs["samples"]

    def number(value: float) -> Expr:
        return scalar(value, dtype)

    start, long = _bins(attrs, rois, axis)
    step = ew.divide(long, number(samples))
    middle = ew.add(ew.cast(iota((count * samples,)), dtype), number(0.5))
    at = ew.add(expand_dims(start, (1,)), ew.multiply(expand_dims(step, (1,)), middle))
    last = ew.cast(ew.subtract(length(x, 2 + axis), ONE), dtype)
    near = logical_and(greater_equal(at, number(-1.0)), less_equal(at, ew.add(last, number(1.0))))
    at = ew.minimum(ew.maximum(at, number(0.0)), last)
    low = ew.floor(at)
    part = ew.subtract(at, low)
    high = ew.minimum(ew.add(low, number(1.0)), last)
    taps = [(low, ew.subtract(number(1.0), part)), (high, part)]
    return near, [(ew.cast(place, i64), share) for place, share in taps]


def _shares(attrs: Values, x: Expr, rois: Expr, axis: int) -> Expr:
    """What each pixel counts along an axis, (boxes, bins, pixels), with a sample for each pixel
    that a bin is long.

    Samples are between half a pixel and one apart, so that few of a bin are near x: those from the
    first of them on.
    """
    dtype, size = tensor_of(x).dtype, known(tensor_of(x).shape[2 + axis])
    assert size is not None  # its rule asks for that

    def number(value: float) -> Expr:
        return scalar(value, dtype)

    start, long = (expand_dims(_bin, (1,)) for _bin in _bins(attrs, rois, axis))
    many = ew.maximum(ew.ceil(long), number(0.0))
    some = ew.maximum(many, number(1.0))
    step = ew.divide(long, some)
    begin = ew.add(start, ew.multiply(long, ew.cast(iota((attrs["size"][axis],)), dtype)))
    apart = where(greater_equal(number(0.0), many), number(1.0), step)
    before = ew.floor(ew.subtract(ew.divide(ew.subtract(number(-1.0), begin), apart), number(0.5)))
    first = ew.maximum(before, number(0.0))
    wide = [expand_dims(expr, (2,)) for expr in (first, begin, step, many, some)]
    first, begin, step, many, some = wide
    which = ew.add(first, ew.cast(iota((2 * size + 6,)), dtype))  # (boxes, bins, samples)
    at = ew.add(begin, ew.multiply(step, ew.add(which, number(0.5))))
    near = logical_and(greater_equal(at, number(-1.0)), less_equal(at, number(size)))
    counts = logical_and(near, greater_equal(many, ew.add(which, number(1.0))))
    inside = ew.minimum(ew.maximum(at, number(0.0)), number(size - 1))
    far = ew.absolute(
        ew.subtract(expand_dims(inside, (2,)), reshape(ew.cast(iota((size,)), dtype), (size, 1)))
    )
    share = ew.maximum(ew.subtract(number(1.0), far), number(0.0))
    kept = where(expand_dims(counts, (2,)), share, number(0.0))
    return ew.divide(sum_(kept, axis=(3,)), some)


def _align(attrs: Values, x: Expr, rois: Expr, batch: Expr) -> Expr:
    of, out = tensor_of(x), _rule(attrs, *map(tensor_of, (x, rois, batch)))
    x, rois = widen(x), widen(rois)
    if not attrs["samples"]:  # what pixels count along one axis does not depend on the other
        tall, broad_ = (expand_dims(_shares(attrs, x, rois, axis), (1,)) for axis in (0, 1))
        if known(of.shape[0]) == 1:  # a copy of the image for each box is none that is needed
            first = ew.cast(
                take(iota((1,)), batch), tensor_of(x).dtype
            )  # 0, if there is that image
            bands = matmul(ew.add(tall, expand_dims(first, (1, 2, 3))), x)
        else:
            bands = matmul(tall, take(x, batch, axis=0))
        return narrow(matmul(bands, transpose(broad_, (0, 1, 3, 2))), of.dtype)
    n, channels, rows, columns = of.shape
    pixels = reshape(transpose(x, (0, 2, 3, 1)), (product((n, rows, columns)), channels))
    (down, tops), (right, lefts) = (_along(attrs, x, rois, axis) for axis in (0, 1))
    near = logical_and(expand_dims(down, (2,)), expand_dims(right, (1,)))
    # Taking from the images themselves refuses one that is not there.
    image = expand_dims(take(iota((n,)), batch), (1, 2))
    corners = []
    for y, high in tops:
        for z, broad in lefts:
            row = ew.add(ew.multiply(image, length(x, 2)), expand_dims(y, (2,)))
            spot = ew.add(ew.multiply(row, length(x, 3)), expand_dims(z, (1,)))
            share = ew.multiply(expand_dims(high, (2,)), expand_dims(broad, (1,)))
            share = where(near, share, scalar(0, tensor_of(share).dtype))
            corners.append(ew.multiply(take(pixels, spot), expand_dims(share, (3,))))
    value = reduce(ew.add if attrs["mode"] == "avg" else ew.maximum, corners)
    (height, width), samples = attrs["size"], attrs["samples"]
    bins = reshape(value, (out.shape[0], height, samples, width, samples, channels))
    pooled = (mean if attrs["mode"] == "avg" else max_)(bins, axis=(2, 4))
    return narrow(transpose(pooled, (0, 3, 1, 2)), of.dtype)


roi_align = composite(
    "nn.roi_align", ("x", "rois", "batch"), _rule, _align,
    "Resample boxes (x1, y1, x2, y2) to one size, by the mean (or maximum) of samples; 0 "
    "samples: one per pixel.",
    attributes=(
        attribute("size", many(positive)),
        attribute("scale", real, 1.0),
        attribute("samples", natural, 2),
        attribute("half_pixel", flag, True),
        attribute("mode", choice("avg", "max"), "avg"),
    ),
    admits=FLOAT, like=(0, 1), onnx=("RoiAlign",),
)  # fmt: skip
