"""Damage: models of the standard's cases with a few things changed at random."""

from __future__ import annotations

from random import Random
from typing import Final

import onnx

NUMBERS: Final = (-(2**62), -5, -1, 0, 1, 2, 7, 2**31, 2**62)


def damaged(of: onnx.ModelProto, draw: Random) -> onnx.ModelProto:
    """A copy in which one or two attributes, inputs, shapes, types or versions are others."""
    model = onnx.ModelProto()
    model.CopyFrom(of)
    for _ in range(draw.randrange(1, 3)):
        draw.choice((_attribute, _attribute, _input, _port, _version))(model, draw)
    return model


def _attribute(model: onnx.ModelProto, draw: Random) -> None:
    node = draw.choice(model.graph.node)
    if not node.attribute:
        return
    at = draw.randrange(len(node.attribute))
    attribute = node.attribute[at]
    if draw.random() < 0.2:
        del node.attribute[at]
    elif attribute.type == onnx.AttributeProto.INT:
        attribute.i = draw.choice(NUMBERS)
    elif attribute.type == onnx.AttributeProto.INTS and attribute.ints:
        attribute.ints[draw.randrange(len(attribute.ints))] = draw.choice(NUMBERS)
    elif attribute.type == onnx.AttributeProto.FLOAT:
        attribute.f = draw.choice((0.0, -1.0, float("nan"), float("inf"), 1e30))
    elif attribute.type == onnx.AttributeProto.STRING:
        attribute.s = draw.choice((b"", b"zzz", b"linear", b"add", b"\xff"))


def _input(model: onnx.ModelProto, draw: Random) -> None:
    node = draw.choice(model.graph.node)
    if node.input and draw.random() < 0.7:
        node.input[draw.randrange(len(node.input))] = ""
    else:
        node.input.append(draw.choice(["", *(each.name for each in model.graph.input)]))


def _port(model: onnx.ModelProto, draw: Random) -> None:
    if not model.graph.input:
        return
    of = draw.choice(model.graph.input).type.tensor_type
    if draw.random() < 0.4:
        of.elem_type = draw.choice((1, 2, 3, 6, 7, 9, 10, 11, 16))
    elif of.shape.dim and draw.random() < 0.5:
        del of.shape.dim[draw.randrange(len(of.shape.dim))]
    elif of.shape.dim:
        dim = draw.choice(of.shape.dim)
        if draw.random() < 0.5:
            dim.dim_value = draw.choice((0, 1, 2, 3, 2**31, 2**62))
        else:
            dim.dim_param = draw.choice("ab")
    else:
        of.shape.dim.add().dim_value = 2


def _version(model: onnx.ModelProto, draw: Random) -> None:
    model.opset_import[0].version = draw.randrange(1, 30)
