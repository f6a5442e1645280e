"""Transposed convolutions of int8 become ordinary ones, so that no inserted zero is multiplied.

    before:  i8(clip(conv_transpose(x, w, strides=2) + b >> n))          w of 4 x 4
    after:   i8(clip(conv(x padded, the taps of a phase) + b >> n))      4 phases, windows of 2 x 2,
             interleaved

A transposed convolution is an ordinary one over data with zeros between its elements.  A phase is
the results that meet the same taps: the products with inserted zeros are skipped, of which there
are three in four for strides of 2.  The epilogue is done in each phase, so each is an integer layer
of its own (`plica.rewrite.quantise.form`).  Integers: the result is the same to the bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any, Final

import numpy as np
from attrs import frozen

from plica.core import map_bottom_up
from plica.core.term import Term
from plica.ir.graph import Apply, Const, Expr, Module, const
from plica.ir.op.convolution import conv
from plica.ir.op.elementwise import cast
from plica.ir.op.join import concat
from plica.ir.type import TensorType, i8, i32, infer, type_of
from plica.rewrite.packs import phase as phases

Array = np.ndarray[Any, Any]

EPILOGUE: Final = frozenset({"cast", "clip", "right_shift", "add", "maximum", "minimum"})
"""What may follow the sums, each for itself."""


@frozen(eq=False)
class TransposedLayer:
    """A transposed convolution of bytes, and what is done to each of its sums."""

    data: Expr
    weight: Array
    of: phases.Transposed
    finish: Callable[[Expr], Expr]


def skip_zeros(module: Module) -> Module:
    """The module with its transposed convolutions of int8 by phases."""

    def change(node: Term) -> Term:
        layer = layer_of(node) if isinstance(node, Apply) and node.op == "cast" else None
        return node if layer is None else by_phases(layer)

    known = infer(module)
    made = map_bottom_up(change, known)
    assert isinstance(made, Module)
    return known if made is known else infer(made)


def layer_of(root: Apply) -> TransposedLayer | None:
    """The layer that computes a byte, or None: sums, then operators with constants."""
    given = type_of(root)
    if not isinstance(given, TensorType) or given.dtype is not i8:
        return None
    chain: list[tuple[Apply, int]] = []
    node: Expr = root
    while isinstance(node, Apply) and node.op in EPILOGUE:
        open_ = [at for at, arg in enumerate(node.args) if not _for_outputs(arg)]
        if len(open_) != 1:
            return None
        chain.append((node, open_[0]))
        node = node.args[open_[0]]
    if not isinstance(node, Apply) or node.op != "nn.conv_transpose":
        return None
    data, weight, of = _bytes(node.args[0]), _bytes(node.args[1]), phases.transposed(node)
    if data is None or not isinstance(weight, Const) or of is None or len(of.data) != 4:
        return None
    if any(window.dilation != 1 for window in of.sliding) or set(of.steps) == {1}:
        return None

    def finish(sums: Expr) -> Expr:
        for step, at in reversed(chain):
            args = (*step.args[:at], sums, *step.args[at + 1 :])
            sums = Apply(step.op, args, step.attrs)
        return sums

    return TransposedLayer(data, weight.numpy(), of, finish)


def _bytes(of: Expr) -> Expr | None:
    """What is cast from i8 to i32."""
    if isinstance(of, Apply) and of.op == "cast":
        given = type_of(of.args[0])
        if isinstance(given, TensorType) and given.dtype is i8:
            return of.args[0]
    return None


def _for_outputs(of: Expr) -> bool:
    """Whether something is one constant, or one for each output."""
    return isinstance(of, Const) and all(size == 1 for size in of.shape[-2:])


def by_phases(layer: TransposedLayer) -> Expr:
    """The phases of a layer, each finished, interleaved."""
    of, axes = layer.of, layer.of.axes
    starts, data = phases.with_padding(layer.data, of, axes)

    def made(phase: Sequence[phases.Phase]) -> Expr:
        if min(each.taps for each in phase) < 1:
            return layer.finish(phases.empty(of))
        read = phases.cut(
            data, of, [p.start - at for p, at in zip(phase, starts, strict=True)], phase
        )
        taps = const(taps_of(layer.weight, of, phase))
        return layer.finish(conv(cast(read, i32), cast(taps, i32), groups=of.groups))

    return phases.between(concat(tuple(map(made, product(*axes))), axis=1), of)


def taps_of(weight: Array, of: phases.Transposed, phase: Sequence[phases.Phase]) -> Array:
    """The taps of a phase in reverse order: (out, channels / groups, …)."""
    part = weight
    for axis, (each, step) in enumerate(zip(phase, of.steps, strict=True), start=2):
        places = [each.first + step * tap for tap in reversed(range(each.taps))]
        part = np.take(part, places, axis)
    channels, outputs, *sizes = part.shape
    split = part.reshape(of.groups, channels // of.groups, outputs, *sizes).swapaxes(1, 2)
    array: Array = np.ascontiguousarray(
        split.reshape(of.groups * outputs, channels // of.groups, *sizes)
    )
    return array
