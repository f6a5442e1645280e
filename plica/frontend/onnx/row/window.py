"""Rows of convolutions and pools: how ONNX says where a window goes."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final, Literal

import attrs
import numpy as np

from plica.frontend.onnx.node import OnnxNode
from plica.frontend.onnx.row.word import Row, along, dtype, in_f32, like, rank, shape, to
from plica.ir.graph.expression import Expr, const
from plica.ir.op.comparison import equal, logical_and, logical_or
from plica.ir.op.convolution import conv, conv_transpose
from plica.ir.op.create import full
from plica.ir.op.cut import slice_
from plica.ir.op.elementwise import absolute, add, divide, isnan, power
from plica.ir.op.index import where
from plica.ir.op.pad import pad
from plica.ir.op.pool import avg_pool, max_pool
from plica.ir.op.put import scatter_elements
from plica.ir.op.reduction import sum_
from plica.ir.op.roi import roi_align
from plica.ir.op.sampled import deformable_conv2d
from plica.ir.op.shape import reshape
from plica.ir.type.dim import known

LARGEST_WINDOW: Final = 1024
"""How many elements a window may have whose places are asked for."""

Pairs = tuple[tuple[int, int], ...]


@attrs.frozen
class Slide:
    """How a window slides over the spatial axes."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilation: tuple[int, ...]
    padding: Pairs

    def reach(self, at: int) -> int:
        """From the first to the last place of a window along an axis, both included."""
        return (self.kernel[at] - 1) * self.dilation[at] + 1


def _each(node: OnnxNode, name: str, count: int) -> tuple[int, ...]:
    given = node.integers(name)
    found = (1,) * count if given is None else given
    if len(found) != count or any(each < 1 for each in found):
        node.malformed(f"{name!r} takes a number for each axis.", f"{count} above 0", str(found))
    return found


def slide(node: OnnxNode, kernel: Sequence[int], dilated: bool = True) -> Slide:
    """The window of a node from its attributes."""
    count = len(kernel)
    strides = _each(node, "strides", count)
    dilation = _each(node, "dilations", count) if dilated else (1,) * count
    found = Slide(tuple(kernel), strides, dilation, ((0, 0),) * count)
    auto, pads = node.text("auto_pad", "NOTSET"), node.integers("pads")
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        sides = [_same(node, found, at, auto == "SAME_UPPER") for at in range(count)]
        return attrs.evolve(found, padding=tuple(sides))
    if auto not in ("NOTSET", "VALID"):
        node.malformed("There is no such auto_pad.", "NOTSET, VALID, SAME_UPPER", repr(auto))
    if pads is None or auto == "VALID":
        return found
    if len(pads) != 2 * count:
        node.malformed("'pads' takes a pair for each axis.", str(2 * count), str(len(pads)))
    if min(pads, default=0) < 0:
        node.unsupported("Negative padding is not supported.", "0 or more", str(pads))
    return attrs.evolve(found, padding=tuple((pads[at], pads[at + count]) for at in range(count)))


def _same(node: OnnxNode, of: Slide, at: int, upper: bool) -> tuple[int, int]:
    """The padding that keeps the size of an axis, up to the stride."""
    size, stride = known(node.shape()[2 + at]), of.strides[at]
    if size is None and stride > 1:
        message = "Padding by auto_pad needs known sizes where there are strides."
        node.unsupported(message, "a number", str(node.type()))
    wanted = of.reach(at) - 1 if size is None else (
        (-(-size // stride) - 1) * stride + of.reach(at) - size
    )  # fmt: skip
    total = max(0, wanted)
    small, large = total // 2, total - total // 2
    return (small, large) if upper else (large, small)


def _kernel(node: OnnxNode, weight: int) -> tuple[int, ...]:
    """The kernel's sizes, which the weight has and the attribute may repeat."""
    if node.rank(0) < 3 or node.rank(weight) != node.rank(0):
        expected, found = "(n, c, …) and a weight of its rank", str(node.type(weight))
        node.malformed(f"{node.proto.op_type} takes images and a weight.", expected, found)
    sizes = tuple(known(size) for size in node.shape(weight)[2:])
    if None in sizes:
        node.unsupported("The kernel's sizes must be known.", "numbers", str(node.type(weight)))
    kernel = tuple(size for size in sizes if size is not None)
    said = node.integers("kernel_shape")
    if said is not None and said != kernel:
        node.malformed("'kernel_shape' is not the weight's.", str(kernel), str(said))
    return kernel


def with_bias(node: OnnxNode, y: Expr, at: int) -> Expr:
    """y with a vector added to its channels, where there is one."""
    bias = node.maybe(at)
    return y if bias is None else add(y, along(bias, 1, rank(y)))


def convolved(node: OnnxNode, x: Expr, weight: Expr, at: int = 1) -> Expr:
    """The convolution that a node's attributes describe."""
    window = slide(node, _kernel(node, at))
    return conv(
        x,
        weight,
        strides=window.strides,
        padding=window.padding,
        dilation=window.dilation,
        groups=node.integer("group", 1),
    )


def _conv(node: OnnxNode) -> Expr:
    return with_bias(node, convolved(node, node.x(0), node.x(1)), 2)


def _deform_conv(node: OnnxNode) -> Expr:
    kernel = _kernel(node, 1)
    window, offset, mask = slide(node, kernel), node.x(2), node.maybe(4)
    groups = node.integer("offset_group", 1)
    if rank(node.x(0)) != 4 or known(shape(offset)[1]) != 2 * groups * prod(kernel):
        expected = f"offsets of {2 * groups * prod(kernel)} channels"
        node.malformed("DeformConv takes images and offsets.", expected, str(node.type(2)))
    if mask is None:
        n, _, *rest = shape(offset)
        mask = full(shape=(n, groups * prod(kernel), *rest), value=1.0, dtype=dtype(offset))
    y = deformable_conv2d(
        node.x(0),
        offset,
        mask,
        node.x(1),
        strides=window.strides,
        padding=window.padding,
        dilation=window.dilation,
        groups=node.integer("group", 1),
    )
    return with_bias(node, y, 3)


def _conv_transpose(node: OnnxNode) -> Expr:
    kernel = _kernel(node, 1)
    count = len(kernel)
    extra = node.integers("output_padding") or (0,) * count
    wanted = node.integers("output_shape")
    auto = node.text("auto_pad", "NOTSET")
    if wanted is None and auto not in ("SAME_UPPER", "SAME_LOWER"):
        window = slide(node, kernel)
        padding, more = window.padding, list(extra)
    else:
        node.integers("pads")
        strides, dilation = _each(node, "strides", count), _each(node, "dilations", count)
        window = Slide(kernel, strides, dilation, ((0, 0),) * count)
        sizes = node.sizes(0)[2:]
        goal = tuple(s * t for s, t in zip(sizes, strides, strict=True))
        goal = goal if wanted is None else wanted[-count:]
        sides, more = [], list(extra)
        for at in range(count):
            whole = strides[at] * (sizes[at] - 1) + extra[at] + window.reach(at)
            total = max(0, whole - goal[at])
            more[at] += max(0, goal[at] - whole)
            small, large = total // 2, total - total // 2
            sides.append((small, large) if auto == "SAME_UPPER" else (large, small))
        padding = tuple(sides)
    y = conv_transpose(
        node.x(0),
        node.x(1),
        strides=window.strides,
        padding=padding,
        dilation=window.dilation,
        groups=node.integer("group", 1),
        output_padding=tuple(more),
    )
    return with_bias(node, y, 2)


# --- pools ---------------------------------------------------------------------------------------


def _pool_window(node: OnnxNode, dilated: bool = True) -> Slide:
    kernel = node.integers("kernel_shape") or ()
    if node.rank() < 3 or len(kernel) != node.rank() - 2 or any(each < 1 for each in kernel):
        expected, found = f"{node.rank() - 2} sizes", str(kernel)
        node.malformed(f"{node.proto.op_type} takes a kernel for each axis.", expected, found)
    return slide(node, kernel, dilated)


def _max_pool(node: OnnxNode) -> list[Expr]:
    by_columns = node.flag("storage_order")
    window = _pool_window(node)
    y = max_pool(
        node.x(),
        kernel=window.kernel,
        strides=window.strides,
        padding=window.padding,
        dilation=window.dilation,
        ceil_mode=node.flag("ceil_mode"),
    )
    if not any(node.proto.output[1:]):
        return [y]
    return [y, _max_places(node, y, window, by_columns)]


def _max_places(node: OnnxNode, y: Expr, window: Slide, by_columns: bool) -> Expr:
    """Where in the whole tensor the first greatest element of each window lies."""
    x = node.x()
    sizes, wanted = node.sizes(0), [known(size) or 0 for size in shape(y)[2:]]
    if prod(window.kernel) > LARGEST_WINDOW:
        found = str(prod(window.kernel))
        node.unsupported("The places in a large window.", f"at most {LARGEST_WINDOW}", found)
    spatial = sizes[2:]
    order: Literal["F", "C"] = "F" if by_columns else "C"
    places = np.arange(prod(spatial), dtype=np.int64).reshape(spatial, order=order)
    border = []
    for at, (before, _) in enumerate(window.padding):
        end = (wanted[at] - 1) * window.strides[at] + window.reach(at)
        border.append((before, max(0, end - before - spatial[at])))
    places = np.pad(places, border, constant_values=-1)
    padded = pad(x, ((0, 0), (0, 0), *border))
    axes = tuple(range(2, len(sizes)))
    found_at: Expr = const(np.zeros(wanted, np.int64))
    # From the last place of a window to the first, which is the one that is kept.
    for place in reversed(list(np.ndindex(*window.kernel))):
        start = [i * by for i, by in zip(place, window.dilation, strict=True)]
        stop = [i + (n - 1) * by + 1
                for i, n, by in zip(start, wanted, window.strides, strict=True)]  # fmt: skip
        steps = window.strides
        here = places[tuple([slice(*each) for each in zip(start, stop, steps, strict=True)])]
        element = slice_(padded, tuple(start), tuple(stop), steps, axes)
        takes = equal(element, y)
        if dtype(x).is_float:
            takes = logical_or(takes, isnan(element))  # then the greatest is nan, too
        takes = logical_and(takes, const(here >= 0))
        found_at = where(takes, const(here), found_at)
    planes = np.arange(sizes[0] * sizes[1], dtype=np.int64) * prod(spatial)
    return add(found_at, const(planes.reshape(sizes[0], sizes[1], *[1] * len(spatial))))


def _average_pool(node: OnnxNode) -> Expr:
    window = _pool_window(node, node.opset >= 19)
    ceil, padded = node.flag("ceil_mode"), node.flag("count_include_pad")
    if set(window.dilation) <= {1}:
        return avg_pool(
            node.x(),
            kernel=window.kernel,
            strides=window.strides,
            padding=window.padding,
            ceil_mode=ceil,
            count_include_pad=padded,
        )
    x = in_f32(node.x())
    held = full(shape=shape(x), value=1.0, dtype=dtype(x))
    border = ((0, 0), (0, 0), *window.padding)
    held = pad(held, border, constant_values=1.0 if padded else 0.0)
    total = _windows(node, pad(x, border), window, ceil)
    return to(divide(total, _windows(node, held, window, ceil)), node.type().dtype)


def _windows(node: OnnxNode, x: Expr, window: Slide, ceil: bool) -> Expr:
    """The sum of each window of padded images."""
    count = len(window.kernel)
    extra = [(0, 0)] * count
    if ceil:
        for at in range(count):
            size, stride = known(shape(x)[2 + at]), window.strides[at]
            if size is None:
                node.unsupported("ceil_mode with dilations needs known sizes.", "numbers")
            room = size - window.reach(at)
            number = -(-room // stride) + 1
            before = size - window.padding[at][1]
            if (number - 1) * stride >= before:
                number -= 1
            extra[at] = (0, max(0, (number - 1) * stride + window.reach(at) - size))
    channels = known(shape(x)[1])
    if channels is None:
        node.unsupported("Dilations need a known number of channels.", "a number")
    ones = full(shape=(channels, 1, *window.kernel), value=1.0, dtype=dtype(x))
    return conv(
        pad(x, ((0, 0), (0, 0), *extra)),
        ones,
        strides=window.strides,
        dilation=window.dilation,
        groups=channels,
    )


def _max_unpool(node: OnnxNode) -> Expr:
    x, places = node.x(0), node.x(1)
    window, sizes = _pool_window(node, False), node.sizes(0)
    inner = [
        (size - 1) * stride - sum(sides) + kernel
        for size, stride, sides, kernel in zip(
            sizes[2:], window.strides, window.padding, window.kernel, strict=True
        )
    ]
    whole = (*sizes[:2], *inner)
    wanted = tuple(node.whole(2)) if node.value(2) is not None else whole
    if node.sizes(1) != sizes or len(wanted) != len(whole) or min(inner) < 0:
        node.malformed("Each element has a place.", str(node.type(0)), str(node.type(1)))
    if any(a < b for a, b in zip(wanted, whole, strict=True)):
        node.malformed("MaxUnpool makes no less than it has.", str(whole), str(wanted))
    nothing = full(shape=(prod(whole),), value=0, dtype=dtype(x))
    flat = scatter_elements(nothing, *(reshape(each, (prod(sizes),)) for each in (places, x)))
    sides = tuple((0, a - b) for a, b in zip(wanted, whole, strict=True))
    return pad(reshape(flat, whole), sides)


def _roi_align(node: OnnxNode) -> Expr:
    samples = node.integer("sampling_ratio", 0)
    if samples < 1:
        message = "How many samples a box needs is only known when the model runs."
        node.unsupported(message, "a sampling_ratio above 0", str(samples))
    words = {"half_pixel": True, "output_half_pixel": False}
    usual = "half_pixel" if node.opset >= 16 else "output_half_pixel"
    how = node.text("coordinate_transformation_mode", usual)
    mode = node.text("mode", "avg")
    if how not in words or mode not in ("avg", "max"):
        node.malformed("There is no such way to sample.", ", ".join(words), f"{how}, {mode}")
    return roi_align(
        node.x(0),
        node.x(1),
        node.x(2),
        size=(node.integer("output_height", 1), node.integer("output_width", 1)),
        scale=node.real("spatial_scale", 1.0),
        samples=samples,
        half_pixel=words[how],
        mode=mode,
    )


def _power(node: OnnxNode) -> int:
    p = node.integer("p", 2)
    if p < 1:
        node.malformed("The power of a norm is 1 or more.", "1 or more", str(p))
    return p


def _lp_pool(node: OnnxNode) -> Expr:
    window = _pool_window(node, node.opset >= 18)
    p = _power(node)
    x = in_f32(node.x())
    border = ((0, 0), (0, 0), *window.padding)
    powers = power(absolute(pad(x, border)), like(p, x))
    total = _windows(node, powers, window, node.flag("ceil_mode") if node.opset >= 18 else False)
    return to(power(total, like(1.0 / p, x)), node.type().dtype)


def _global_lp_pool(node: OnnxNode) -> Expr:
    x, p = in_f32(node.x()), _power(node)
    axes = tuple(range(2, rank(x)))
    total = sum_(power(absolute(x), like(p, x)), axis=axes, keepdims=True)
    return to(power(total, like(1.0 / p, x)), node.type().dtype)


# fmt: off
TABLE: Final[dict[str, Row]] = {
    "Conv":          _conv,
    "ConvTranspose": _conv_transpose,
    "DeformConv":    _deform_conv,
    "MaxPool":       _max_pool,
    "MaxUnpool":     _max_unpool,
    "RoiAlign":      _roi_align,
    "AveragePool":   _average_pool,
    "LpPool":        _lp_pool,
    "GlobalLpPool":  _global_lp_pool,
}
# fmt: on
