"""Rows of slopes that torch names: convolutions and pools backwards, by the pullbacks that Plica's
own operators have."""

from __future__ import annotations

from typing import Any, Final

from plica.frontend.measured import amount
from plica.frontend.torch.node import TorchNode
from plica.frontend.torch.row.window import batched, each, restored
from plica.frontend.torch.row.word import Row
from plica.frontend.word import rank, shape
from plica.ir.graph.expression import Expr, const
from plica.ir.op.convolution import conv, conv_transpose
from plica.ir.op.create import iota_like
from plica.ir.op.elementwise import add, floor_divide, mod, multiply, subtract
from plica.ir.op.reduction import sum_
from plica.ir.op.unpool import window_put
from plica.ir.type.dtype import i64


def _convolution(node: TorchNode) -> list[Expr | None]:
    """Of the data, of the weight and of the bias, as far as they are asked for."""
    slope, x, weight = node.x("grad_output"), node.x("input"), node.x("weight")
    count = rank(x) - 2
    strides, padding, dilation, extra = (
        each(node.integers(n), count) for n in ("stride", "padding", "dilation", "output_padding")
    )
    if any(width < 0 for width in padding):
        node.unsupported("Negative padding is not supported.", "0 or more", str(padding))
    node.argument("bias_sizes")  # which the slope tells
    how: dict[str, Any] = {
        "strides": strides,
        "padding": tuple((width, width) for width in padding),
        "dilation": dilation,
        "groups": node.integer("groups"),
    }
    if node.flag("transposed"):
        pullback, how = conv_transpose.gradient, {**how, "output_padding": extra}
    else:
        pullback = conv.gradient
    assert callable(pullback)
    of_x, of_weight = pullback(how, slope, slope, x, weight)  # the result says nothing more
    others = tuple(at for at in range(rank(slope)) if at != 1)
    every = of_x, of_weight, sum_(slope, axis=others)
    asked = node.argument("output_mask")
    return [made if wanted else None for made, wanted in zip(every, asked, strict=True)]


def _max_pool(count: int) -> Row:
    def row(node: TorchNode) -> Expr:
        x, lead = batched(node.x(), count)
        slope, _ = batched(node.x("grad_output"), count)
        places, _ = batched(node.x("indices"), count)
        kernel = each(node.integers("kernel_size"), count)
        widths = each(node.integers("padding"), count)
        strides = each(node.integers("stride") or kernel, count)
        dilation = each(node.integers("dilation"), count)
        sizes = shape(x)[2:]
        inner: Expr | None = None
        for at in range(count):
            here = places
            for size in sizes[at + 1 :]:
                here = floor_divide(here, amount(size))
            here = mod(here, amount(sizes[at])) if at else here
            begin = multiply(iota_like(places, axis=at + 2), const(strides[at], i64))
            within = subtract(add(here, const(widths[at], i64)), begin)
            within = floor_divide(within, const(dilation[at], i64))
            inner = (
                within if inner is None else add(multiply(inner, const(kernel[at], i64)), within)
            )
        assert inner is not None
        found = window_put(
            slope, inner, kernel=kernel, strides=strides, dilation=dilation,
            padding=tuple((width, width) for width in widths),
            ceil_mode=node.flag("ceil_mode"), size=sizes,
        )  # fmt: skip
        return restored(found, lead)

    return row


# fmt: off
TABLE: Final[dict[str, Row]] = {
    "convolution_backward.default":             _convolution,
    "max_pool2d_with_indices_backward.default": _max_pool(2),
    "max_pool3d_with_indices_backward.default": _max_pool(3),
}
# fmt: on
