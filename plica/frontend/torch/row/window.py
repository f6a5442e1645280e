"""Rows of convolutions and pools."""

from __future__ import annotations

import math
from typing import Any, Final

from plica.frontend.measured import amount
from plica.frontend.sampled_place import window_places
from plica.frontend.torch.node import TorchNode
from plica.frontend.torch.row.word import Row, casted, opmath
from plica.frontend.word import along, dtype, like, rank, shape
from plica.ir.graph.expression import Expr, const
from plica.ir.loop.scalar import index
from plica.ir.op.convolution import conv_pullback, conv_transpose_pullback
from plica.ir.op.namespace import op
from plica.ir.op.relation import Shape
from plica.ir.type import i64, known, normal_dim


def each(given: tuple[int, ...], count: int) -> tuple[int, ...]:
    """A number per axis; a single one applies to all."""
    return given * count if len(given) == 1 else given


def _how(node: TorchNode, count: int) -> dict[str, Any]:
    """The attributes of a convolution along a given number of axes, as operators have them."""
    strides, padding, dilation, extra = (
        each(node.integers(n), count) for n in ("stride", "padding", "dilation", "output_padding")
    )
    if any(width < 0 for width in padding):
        node.unsupported("Negative padding is not supported.", "0 or more", str(padding))
    found = {
        "strides": strides,
        "padding": tuple((width, width) for width in padding),
        "dilation": dilation,
        "groups": node.integer("groups"),
    }
    return found | ({"output_padding": extra} if node.flag("transposed") else {})


def _convolution(node: TorchNode) -> Expr:
    x, weight, bias = node.x("input"), node.x("weight"), node.maybe("bias")
    of = op.nn.conv_transpose if node.flag("transposed") else op.nn.conv
    y = of(x, weight, **_how(node, rank(x) - 2))
    return y if bias is None else y + along(bias, 1, rank(y))


def _convolution_backward(node: TorchNode) -> list[Expr | None]:
    """The gradients of a convolution for its data, weight and bias, as requested; bias sizes are
    those of the channels."""
    d, x, weight = (node.x(name) for name in ("grad_output", "input", "weight"))
    node.argument("bias_sizes")
    pull = conv_transpose_pullback if node.flag("transposed") else conv_pullback
    by_data, by_weight = pull(_how(node, rank(x) - 2), d, d, x, weight)
    total = op.sum(casted(d, opmath(dtype(d))), axis=(0, *range(2, rank(d))))
    every = (by_data, by_weight, casted(total, dtype(d)))
    asked = node.argument("output_mask")
    return [expr if wanted else None for expr, wanted in zip(every, asked, strict=True)]


# --- pools ---------------------------------------------------------------------------------------


def _batched(x: Expr, count: int) -> tuple[Expr, Shape]:
    """x with one axis of images and one of channels, and the axes that these stand for."""
    lead = rank(x) - count
    whole = x if lead == 2 else op.reshape(x, (*(index(1),) * (2 - lead), *shape(x)))
    return whole, shape(x)[:lead]


def _restored(y: Expr, lead: Shape) -> Expr:
    return y if len(lead) == 2 else op.reshape(y, (*lead, *shape(y)[2:]))


def _sliding(node: TorchNode, count: int) -> dict[str, Any]:
    """The attributes of a pool along a given number of axes, as operators have them."""
    kernel = each(node.integers("kernel_size"), count)
    return {
        "kernel": kernel,
        "strides": each(node.integers("stride") or kernel, count),
        "padding": tuple((width, width) for width in each(node.integers("padding"), count)),
        "ceil_mode": node.flag("ceil_mode"),
    }


def _avg_pool(count: int) -> Row:
    def row(node: TorchNode) -> Expr:
        x, lead = _batched(node.x(), count)
        how, padded = _sliding(node, count), node.flag("count_include_pad")
        divisor = node.argument("divisor_override")
        if divisor is not None and how["ceil_mode"]:
            node.unsupported("divisor_override with ceil_mode is not supported.")
        wide, counted = casted(x, opmath(dtype(x))), padded or divisor is not None
        y = op.nn.avg_pool(wide, **how, count_include_pad=counted)
        if divisor is not None:
            y = y * like(math.prod(how["kernel"]) / divisor, y)
        return _restored(casted(y, node.dtype()), lead)

    return row


def _max_pool(count: int) -> Row:
    def row(node: TorchNode) -> list[Expr | None]:
        x, lead = _batched(node.x(), count)
        how = {**_sliding(node, count), "dilation": each(node.integers("dilation"), count)}
        y = op.nn.max_pool(x, **how)
        return [_restored(y, lead), _restored(window_places(x, y, how), lead)]

    return row


# --- as many windows of an axis as are wanted -----------------------------------------------------


def _parts_of(x: Expr, axis: int, wanted: int) -> tuple[Expr, Expr, Expr]:
    """Windows as two axes in place of one, the places that lie in each, and how many these are.

    Windows begin and end where quotients do; a shorter one has its last place again.
    """
    size = shape(x)[axis]
    count = amount(size)
    number, over = op.iota(shape=(wanted,), dtype=i64), const(wanted, i64)
    start = number * count // over
    stop = (number + const(1, i64)) * count
    stop = (stop + const(wanted - 1, i64)) // over
    start, stop = (op.expand_dims(each_, axis=(1,)) for each_ in (start, stop))
    longest = normal_dim((size + (wanted - 1)) // wanted + 1)
    inner = start + op.expand_dims(op.iota(shape=(longest,), dtype=i64), axis=(0,))
    form = (*(index(1),) * axis, index(wanted), longest, *(index(1),) * (rank(x) - axis - 1))
    cut = op.take(x, op.minimum(inner, stop - const(1, i64)), axis=axis)
    held = op.reshape(stop - start, (*form[: axis + 1], index(1), *form[axis + 2 :]))
    return cut, op.reshape(inner < stop, form), held


def _adaptive(count: int, mean: bool) -> Row:
    """The mean of each window, or the greatest element, whose place is not said."""

    def row(node: TorchNode) -> Expr | list[Expr | None]:
        x, lead = _batched(node.x(), count)
        wanted = each(node.integers("output_size"), count)
        y = casted(x, opmath(dtype(x))) if mean else x
        if all(known(size) is not None for size in shape(x)[2:]):
            record = op.nn.adaptive_avg_pool if mean else op.nn.adaptive_max_pool
            y = record(y, output_size=wanted)
        else:
            for at, number in enumerate(wanted, 2):
                cut, inside, held = _parts_of(y, at, number)
                share = op.where(inside, cut, like(0, cut)) / casted(held, dtype(cut))
                # Of the greatest a place that is there again changes nothing.
                y = op.sum(share, axis=(at + 1,)) if mean else op.max(cut, axis=(at + 1,))
        expr = _restored(casted(y, node.dtype()), lead)
        return expr if mean else [expr, None]

    return row


# fmt: off
TABLE: Final[dict[str, Row]] = {
    "convolution.default":             _convolution,
    "convolution_backward.default":    _convolution_backward,
    "avg_pool2d.default":              _avg_pool(2),
    "avg_pool3d.default":              _avg_pool(3),
    "max_pool2d_with_indices.default": _max_pool(2),
    "max_pool3d_with_indices.default": _max_pool(3),
    "_adaptive_avg_pool2d.default":    _adaptive(2, True),
    "_adaptive_avg_pool3d.default":    _adaptive(3, True),
    "adaptive_max_pool2d.default":     _adaptive(2, False),
    "adaptive_max_pool3d.default":     _adaptive(3, False),
}
# fmt: on
