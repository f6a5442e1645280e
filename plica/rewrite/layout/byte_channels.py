"""NHWC layout for int8 convolutions, so that dot products read adjacent channels.

    before:  nn.conv(cast(x, i32), w)                                    x[n, c, h, w] of bytes
    after:   nn.conv_laid(cast(t, i32), w', ("NHWC", "HWIO", "NHWC"))    t[n, h, w, c]

A dot product reads four adjacent bytes, and vector lanes go along the channels of the result, so no
data is packed or transposed, and elementwise operators use whole vectors for every image size.
Depthwise convolutions between them also vectorise over channels.  If there are too few channels for
a dot product (the three of an image), only the result is NHWC.

>>> from plica.core.name import Name
>>> from plica.ir.graph.expression import Var
>>> from plica.ir.op.convolution import conv
>>> from plica.ir.type.infer import infer_expr
>>> from plica.ir.type.term import tensor
>>> x, w = Var(Name("x"), tensor((1, 16, 9, 9), "i32")), Var(Name("w"), tensor((8, 16, 3, 3), "i32"))
>>> is_deep(infer_expr(conv(x, w))), is_thin(infer_expr(conv(x, w)))
(True, False)
"""  # noqa: E501  # examples are a line each

from __future__ import annotations

from math import prod
from typing import Final

from plica.ir.graph import Apply, Module, attr
from plica.ir.type import TensorType, i32, infer, known, type_of
from plica.rewrite.graph.walk import expressions
from plica.rewrite.layout.convert import convert_layout

SPATIAL: Final = ("W", "HW", "DHW")  # the spatial axes for each rank
MIN_CONVOLUTIONS: Final = 2
"""The least number of convolutions for which transposes at both ends pay."""

MIN_INTEGER_SHARE: Final = 0.85
"""The least share of integer work: data is transposed between integer convolutions and others."""

QUAD: Final = 4  # bytes per lane of a dot product
MIN_CHANNELS: Final = 16  # from this many channels on, a remainder modulo 4 does not matter
LANES: Final = 8  # the least number of channels of a depthwise convolution in NHWC


def byte_channels_last(module: Module) -> Module:
    """The module with chains of convolutions in NHWC and transposes at their ends, if most of its
    convolution work is in integers."""
    known_ = infer(module)
    work = [(_is_integer(node), _work(node)) for _, function in known_.functions()
            for node in expressions(function)
            if isinstance(node, Apply) and node.op == "nn.conv" and not _is_sum(node)]  # fmt: skip
    whole = sum(cost for is_integer, cost in work if is_integer)
    if len(work) < MIN_CONVOLUTIONS or whole < MIN_INTEGER_SHARE * sum(cost for _, cost in work):
        return module
    made = module
    for window in SPATIAL:
        last, first = f"N{window}C", f"NC{window}"
        made = convert_layout(infer(made), {"nn.conv": (last, f"{window}IO")}, is_deep)
        thin = {"nn.conv": (first, f"{window}IO", last)}
        made = convert_layout(infer(made), thin, is_thin)
    return made


def _sizes(of: Apply) -> list[list[int]]:
    """The shapes of data, weight and result; empty if one is symbolic."""
    types = [type_of(expr) for expr in (*of.args, of)]
    tensors = [each for each in types if isinstance(each, TensorType)]
    sizes = [[known(size) or 0 for size in tensor.shape] for tensor in tensors]
    return sizes if len(sizes) == 3 and all(0 not in each for each in sizes) else []


def _work(of: Apply) -> int:
    sizes = _sizes(of)
    return prod(sizes[2]) * prod(sizes[1][1:]) if sizes else 0


def _is_sum(of: Apply) -> bool:
    """Whether a convolution has one input and one output channel, as window sums have."""
    sizes = _sizes(of)
    return bool(sizes) and sizes[1][:2] == [1, 1]


def _is_integer(of: Apply) -> bool:
    found = type_of(of)
    return isinstance(found, TensorType) and found.dtype is i32


def is_deep(of: Apply) -> bool:
    """Whether data, weight and result should be NHWC: an integer convolution of many channels, or a
    depthwise one."""
    sizes = _sizes(of)
    if of.op != "nn.conv" or not sizes:
        return False
    channels, groups = sizes[0][1], int(attr(of, "groups", 1))
    if groups == 1:
        return _is_integer(of) and (channels >= MIN_CHANNELS or channels % QUAD == 0)
    return groups == channels == sizes[1][0] and channels >= LANES


def is_thin(of: Apply) -> bool:
    """Whether only the result should be NHWC: an integer convolution of few channels."""
    sizes = _sizes(of)
    whole = of.op == "nn.conv" and bool(sizes) and int(attr(of, "groups", 1)) == 1
    return whole and _is_integer(of) and not is_deep(of)
