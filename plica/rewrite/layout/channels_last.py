"""Channels last: convolutions of many images compute where channels are neighbours in memory.

    before:  nn.conv(x, w)                                      x[n, c, h, w]
    after:   nn.conv_laid(t, w', ("NHWC", "OHWI", "NHWC"))      t[n, h, w, c]

A product in tiles reads eight channels at once, inside of an image or outside of it together, and
all places of all images are the rows of one product.  What narrow floats lack to eight channels
is filled up with zeros.  Few images of f32 have few places, and those of one channel are then as
good a row; so are those of images whose results have no eight channels, or what is read has few.

>>> from plica.core.name import Name
>>> from plica.ir.graph.expression import Var
>>> from plica.ir.op.convolution import conv
>>> from plica.ir.type.infer import infer_expr
>>> from plica.ir.type.term import tensor
>>> x, w = Var(Name("x"), tensor((8, 16, 9, 9), "f16")), Var(Name("w"), tensor((32, 16, 3, 3), "f16"))
>>> is_for_channels_last(infer_expr(conv(x, w)))
True
"""  # noqa: E501  # examples are a line each

from __future__ import annotations

from typing import Final

from plica.ir.graph import Apply, Expr, Function, Module, attr
from plica.ir.op.pad import pad
from plica.ir.type import TensorType, bf16, f16, f32, infer, known, type_of
from plica.rewrite.graph.fold import fold_constants
from plica.rewrite.graph.walk import expressions, map_functions, operands, with_operands
from plica.rewrite.layout.convert import convert_layout

IMAGES: Final = {f16: 1, bf16: 1, f32: 4}
"""Images that are many, at least: tensor cores read eight neighbours of narrow floats at once."""

LAYOUTS: Final = (("NHWC", "OHWI"), ("NWC", "OWI"))
"""The channels-last layouts of images and rows, with those of their weights."""

OCTET: Final = 8  # channels that are read at once


def channels_last(module: Module) -> Module:
    """The module with channels last in the convolutions of large batches."""
    known_ = infer(module)
    whole = map_functions(known_, lambda _, function: _in_octets(function))
    if whole is not known_:
        module = fold_constants(whole)
    for words in LAYOUTS:
        module = convert_layout(module, {"nn.conv": words}, is_for_channels_last)
    return module


def _in_octets(function: Function) -> Function:
    """A function whose convolutions of narrow floats have channels in whole octets: more are 0."""
    memo: dict[Expr, Expr] = {}
    for node in expressions(function):
        new = with_operands(node, tuple([memo[part] for part in operands(node)]))
        memo[node] = new
        if not isinstance(node, Apply) or node.op != "nn.conv" or not is_for_channels_last(node):
            continue
        of = type_of(node.args[0])
        assert isinstance(of, TensorType)
        count = known(of.shape[1]) or 0
        if count % OCTET and of.dtype is not f32:
            assert isinstance(new, Apply)
            more = ((0, 0), (0, -count % OCTET), *[(0, 0)] * (len(of.shape) - 2))
            args = tuple([pad(arg, more) for arg in new.args])
            memo[node] = Apply(new.op, args, new.attrs)
    made = memo[function]
    assert isinstance(made, Function)
    return made


def is_for_channels_last(node: Apply) -> bool:
    """Whether a convolution is one product over places and channels, of many images."""
    types = [type_of(arg) for arg in node.args]
    if len(types) != 2 or int(attr(node, "groups", 1)) != 1:
        return False
    tensors = [each for each in types if isinstance(each, TensorType)]
    sizes = [[known(size) for size in tensor.shape] for tensor in tensors]
    if len(sizes) != 2 or len(sizes[0]) not in (3, 4) or None in (*sizes[0], *sizes[1]):
        return False
    (images, channels, *_), out = [size or 0 for size in sizes[0]], sizes[1][0] or 0
    least = IMAGES.get(tensors[0].dtype)
    if least is None or images < least:
        return False
    return out % OCTET == 0 or (tensors[0].dtype is not f32 and channels >= OCTET)
