"""Convolution and pool rows: ONNX's window attributes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs

from plica.frontend.measured import matched
from plica.frontend.onnx.node import OnnxNode
from plica.frontend.onnx.row.word import Row, along, rank, shape
from plica.ir.graph.expression import Expr
from plica.ir.loop.scalar import FloorMod, Max, Scalar, index
from plica.ir.op.namespace import op
from plica.ir.type.dim import known, normal_dim

Pairs = tuple[tuple[int, int], ...]


@attrs.frozen
class OpenPadding:
    """What auto_pad leaves of an axis of open size: so much of the padded axis, from a start on."""

    axis: int
    start: Scalar
    length: Scalar


@attrs.frozen
class Slide:
    """How a window slides over the spatial axes.

    If auto_pad depends on an open size, the padding is its maximum, and `cuts` say which part of
    the padded axis remains.
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilation: tuple[int, ...]
    padding: Pairs
    cuts: tuple[OpenPadding, ...] = ()

    def reach(self, at: int) -> int:
        """From the first to the last place of a window along an axis, both included."""
        return (self.kernel[at] - 1) * self.dilation[at] + 1


def _each(node: OnnxNode, name: str, count: int) -> tuple[int, ...]:
    given = node.integers(name)
    found = (1,) * count if given is None else given
    if len(found) != count or any(each < 1 for each in found):
        node.malformed(f"{name!r} takes a number for each axis.", f"{count} above 0", str(found))
    return found


def slide(node: OnnxNode, kernel: Sequence[int]) -> Slide:
    """The window of a node from its attributes."""
    count = len(kernel)
    strides, dilation = _each(node, "strides", count), _each(node, "dilations", count)
    found = Slide(tuple(kernel), strides, dilation, ((0, 0),) * count)
    auto, pads = node.text("auto_pad", "NOTSET"), node.integers("pads")
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        return _same(node, found, auto == "SAME_UPPER")
    if auto not in ("NOTSET", "VALID"):
        node.malformed("There is no such auto_pad.", "NOTSET, VALID, SAME_UPPER", repr(auto))
    if pads is None or auto == "VALID":
        return found
    if len(pads) != 2 * count:
        node.malformed("'pads' takes a pair for each axis.", str(2 * count), str(len(pads)))
    if min(pads, default=0) < 0:
        node.unsupported("Negative padding is not supported.", "0 or more", str(pads))
    return attrs.evolve(found, padding=tuple((pads[at], pads[at + count]) for at in range(count)))


def _same(node: OnnxNode, of: Slide, upper: bool) -> Slide:
    """The window whose padding preserves the size of each axis, up to the stride."""
    padding, cuts = [], []
    for at, stride in enumerate(of.strides):
        size, reach = node.shape()[2 + at], of.reach(at)
        # The size is not padded to a multiple of the stride.
        lacks = normal_dim(FloorMod(index(0) - size, index(stride)))
        total = normal_dim(Max(index(0), lacks + (reach - stride)))
        number = known(total)
        most = reach - 1 if number is None else number
        before = (most + 1 - upper) // 2
        padding.append((before, most - before if number is not None else most))
        if number is None:
            start = normal_dim(index(before) - (total + (1 - upper)) // 2)
            windows = normal_dim((size + (stride - 1)) // stride)
            length = normal_dim((windows - 1) * stride + reach)
            cuts.append(OpenPadding(2 + at, start, length))
    return attrs.evolve(of, padding=tuple(padding), cuts=tuple(cuts))


def bordered(x: Expr, window: Slide, value: bool | int | float = 0) -> Expr:
    """x with the padding of a window around it."""
    padded = op.pad(x, ((0, 0), (0, 0), *window.padding), constant_values=value)
    for cut in window.cuts:
        stop = normal_dim(cut.start + cut.length)
        part = op.slice(padded, (cut.start,), (stop,), None, (cut.axis,))
        sizes = shape(padded)
        padded = matched(part, (*sizes[: cut.axis], cut.length, *sizes[cut.axis + 1 :]))
    return padded


def settled(x: Expr, window: Slide, value: bool | int | float = 0) -> tuple[Expr, Slide]:
    """x and a window whose padding is known: x has it already where it depends on open sizes."""
    if not window.cuts:
        return x, window
    none = ((0, 0),) * len(window.kernel)
    return bordered(x, window, value), attrs.evolve(window, padding=none, cuts=())


def kernel_of(node: OnnxNode, weight: int) -> tuple[int, ...]:
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
    """y with an optional bias added to its channels."""
    bias = node.maybe(at)
    return y if bias is None else y + along(bias, 1, rank(y))


def convolved(node: OnnxNode, x: Expr, weight: Expr, at: int = 1) -> Expr:
    """The convolution that a node's attributes describe."""
    x, window = settled(x, slide(node, kernel_of(node, at)))
    return op.nn.conv(
        x,
        weight,
        strides=window.strides,
        padding=window.padding,
        dilation=window.dilation,
        groups=node.integer("group", 1),
    )


def _conv_transpose(node: OnnxNode) -> Expr:
    kernel = kernel_of(node, 1)
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
        # The excess over strides times the size, which auto_pad removes.
        beyond = [extra[at] + window.reach(at) - strides[at] for at in range(count)]
        if wanted is not None:
            sizes = zip(node.sizes(0)[2:], strides, wanted[-count:], strict=True)
            beyond = [b + s * t - goal for b, (s, t, goal) in zip(beyond, sizes, strict=True)]
        sides, more = [], list(extra)  # auto_pad takes away only; an output_shape may add
        for at in range(count):
            total = max(0, beyond[at])
            more[at] += 0 if wanted is None else max(0, -beyond[at])
            small, large = total // 2, total - total // 2
            sides.append((small, large) if auto == "SAME_UPPER" else (large, small))
        padding = tuple(sides)
    y = op.nn.conv_transpose(
        node.x(0),
        node.x(1),
        strides=window.strides,
        padding=padding,
        dilation=window.dilation,
        groups=node.integer("group", 1),
        output_padding=tuple(more),
    )
    return with_bias(node, y, 2)


# fmt: off
TABLE: Final[dict[str, Row]] = {
    "Conv":          lambda node: with_bias(node, convolved(node, node.x(0), node.x(1)), 2),
    "ConvTranspose": _conv_transpose,
}
# fmt: on
