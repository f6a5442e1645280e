"""Rows of convolutions and pools."""

from __future__ import annotations

import math
from typing import Final

from plica.frontend.torch.node import TorchNode
from plica.frontend.torch.row.word import Row, casted, opmath
from plica.frontend.word import along, dtype, like, rank, shape
from plica.ir.graph.expression import Expr
from plica.ir.loop.scalar import index
from plica.ir.op.convolution import conv, conv_transpose
from plica.ir.op.elementwise import add, multiply
from plica.ir.op.pool import adaptive_avg_pool, adaptive_max_pool, avg_pool, max_pool
from plica.ir.op.relation import Shape
from plica.ir.op.shape import reshape
from plica.ir.type.dim import known


def each(given: tuple[int, ...], count: int) -> tuple[int, ...]:
    """A number for each axis, where one stands for all."""
    return given * count if len(given) == 1 else given


def _convolution(node: TorchNode) -> Expr:
    x, weight, bias = node.x("input"), node.x("weight"), node.maybe("bias")
    count = rank(x) - 2
    strides, padding, dilation, extra = (
        each(node.integers(n), count) for n in ("stride", "padding", "dilation", "output_padding")
    )
    groups = node.integer("groups")
    pairs = tuple((width, width) for width in padding)
    if any(width < 0 for width in padding):
        node.unsupported("Negative padding is not supported.", "0 or more", str(padding))
    if node.flag("transposed"):
        y = conv_transpose(
            x, weight, strides=strides, padding=pairs, dilation=dilation, groups=groups,
            output_padding=extra,
        )  # fmt: skip
    else:
        y = conv(x, weight, strides=strides, padding=pairs, dilation=dilation, groups=groups)
    return y if bias is None else add(y, along(bias, 1, rank(y)))


# --- pools ---------------------------------------------------------------------------------------


def _batched(x: Expr, count: int) -> tuple[Expr, Shape]:
    """x with one axis of images and one of channels, and the axes that these stand for."""
    lead = rank(x) - count
    return (x if lead == 2 else reshape(x, (*(index(1),) * (2 - lead), *shape(x)))), shape(x)[:lead]


def _restored(y: Expr, lead: Shape) -> Expr:
    return y if len(lead) == 2 else reshape(y, (*lead, *shape(y)[2:]))


def _avg_pool(count: int) -> Row:
    def row(node: TorchNode) -> Expr:
        x, lead = _batched(node.x(), count)
        kernel = each(node.integers("kernel_size"), count)
        strides = each(node.integers("stride") or kernel, count)
        widths = each(node.integers("padding"), count)
        ceil, padded = node.flag("ceil_mode"), node.flag("count_include_pad")
        divisor = node.argument("divisor_override") if count > 1 else None
        if divisor is not None and ceil:
            node.unsupported("divisor_override with ceil_mode is not supported.")
        y = avg_pool(
            casted(x, opmath(dtype(x))),
            kernel=kernel,
            strides=strides,
            padding=tuple((width, width) for width in widths),
            ceil_mode=ceil,
            count_include_pad=padded or divisor is not None,
        )
        if divisor is not None:
            y = multiply(y, like(math.prod(kernel) / divisor, y))
        return _restored(casted(y, node.dtype()), lead)

    return row


def _max_pool(count: int) -> Row:
    def row(node: TorchNode) -> list[Expr | None]:
        x, lead = _batched(node.x(), count)
        kernel = each(node.integers("kernel_size"), count)
        widths = each(node.integers("padding"), count)
        y = max_pool(
            x,
            kernel=kernel,
            strides=each(node.integers("stride") or kernel, count),
            padding=tuple((width, width) for width in widths),
            dilation=each(node.integers("dilation"), count),
            ceil_mode=node.flag("ceil_mode"),
        )
        return [_restored(y, lead), None]

    return row


def _adaptive(count: int) -> Row:
    def row(node: TorchNode) -> Expr:
        x, lead = _batched(node.x(), count)
        wanted = each(node.integers("output_size"), count)
        if any(known(size) is None for size in shape(x)[2:]):
            node.known_sizes(x)
        y = adaptive_avg_pool(casted(x, opmath(dtype(x))), output_size=wanted)
        return _restored(casted(y, node.dtype()), lead)

    return row


def _adaptive_max(count: int) -> Row:
    def row(node: TorchNode) -> list[Expr | None]:
        x, lead = _batched(node.x(), count)
        wanted = each(node.integers("output_size"), count)
        return [_restored(adaptive_max_pool(x, output_size=wanted), lead), None]

    return row


# fmt: off
TABLE: Final[dict[str, Row]] = {
    "convolution.default":             _convolution,
    "avg_pool1d.default":              _avg_pool(1),
    "avg_pool2d.default":              _avg_pool(2),
    "avg_pool3d.default":              _avg_pool(3),
    "max_pool2d_with_indices.default": _max_pool(2),
    "max_pool3d_with_indices.default": _max_pool(3),
    "adaptive_avg_pool1d.default":     _adaptive(1),
    "_adaptive_avg_pool2d.default":    _adaptive(2),
    "_adaptive_avg_pool3d.default":    _adaptive(3),
    "adaptive_max_pool2d.default":     _adaptive_max(2),
    "adaptive_max_pool3d.default":     _adaptive_max(3),
}
# fmt: on
