"""Simulate: a module of floats in which every point is quantised and restored at once.

before:  nn.conv(x, w)
after:   nn.conv(dequantise(quantise(x, s, 0), s, 0), dequantise(w', t, 0))
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from plica.core import CompilerBug
from plica.ir.graph import Apply, Expr, Module, const
from plica.ir.op.quantise import dequantise, quantise
from plica.ir.type import f32, i8
from plica.rewrite.closed import is_closed, value_of
from plica.rewrite.graph.walk import expressions, operands, with_operands
from plica.rewrite.quantise.annotate import Annotated, origin, with_body
from plica.rewrite.quantise.calibrate import QuantisationPoint, Spec, weights
from plica.rewrite.quantise.word import along, tensor

ROUNDING: Final = "up"


def simulate(of: Annotated, points: Mapping[Expr, QuantisationPoint], spec: Spec) -> Module:
    """The module with the scales of its points, and weights as bytes."""
    done: dict[Expr, Expr] = {}
    body = of.module.main_function().body
    for node in expressions(body):
        made = with_operands(node, tuple([done[part] for part in operands(node)]))
        if node in of.layers and isinstance(made, Apply):
            data, weight = made.args
            made = Apply(made.op, (data, stored(weight, of.layers[node], spec)), made.attrs)
        elif isinstance(node, Apply) and node.op == "add":
            made = _with_bias(node, made, of, points)
        done[node] = rounded(made, points[node]) if node in points else made
    return with_body(of.module, done[body])


def stored(weight: Expr, axis: int, spec: Spec) -> Expr:
    """A weight as bytes that are restored."""
    if (values := value_of(weight)) is None:
        raise CompilerBug("The weight of a layer that was taken cannot be computed.")
    array, scale = weights(values, axis, spec)
    return dequantise(const(array, i8), const(scale, f32), const(0, i8))


def _with_bias(
    node: Apply, made: Expr, of: Annotated, points: Mapping[Expr, QuantisationPoint]
) -> Expr:
    """A sum of a layer and a constant, which is rounded to the steps of the layer's sums."""
    left, right = node.args
    layer, bias = (left, right) if left in of.layers else (right, left)
    if layer not in of.layers or layer in points or not is_closed(bias):
        return made
    assert isinstance(made, Apply)
    whole, place = made.args[node.args.index(layer)], node.args.index(bias)
    assert isinstance(layer, Apply)
    assert isinstance(whole, Apply)
    assert isinstance(whole.args[1], Apply)
    step, values = value_of(whole.args[1].args[1]), value_of(bias)
    at = points.get(origin(layer.args[0]))
    if step is None or values is None or at is None:
        raise CompilerBug("The scales of a layer that was taken are not known.")
    rank = len(tensor(layer.args[1]).shape)
    scale = along(step, of.layers[layer] % rank, rank, rank - 2 if layer.op == "nn.conv" else 0)
    if scale is None:
        raise CompilerBug("The scales of a weight do not lie along its outputs.")
    size = (scale.astype(np.float64) * at.scale).astype(np.float32)
    steps = np.rint(values.astype(np.float64) / size)
    new = const((steps.astype(np.float32) * size).astype(np.float32), f32)
    return Apply("add", (whole, new) if place == 1 else (new, whole), made.attrs)


def rounded(value: Expr, at: QuantisationPoint) -> Expr:
    """A value that is quantised and restored."""
    scale, zero = const(at.scale, f32), const(at.zero, at.dtype)
    return dequantise(quantise(value, scale, zero, ROUNDING), scale, zero)
