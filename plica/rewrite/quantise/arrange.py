"""Operators that arrange bytes, and functions of one byte: rules by name.

What only chooses or arranges numbers does so with bytes; a function of one byte is a table of 256.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from plica.ir.graph.expression import Apply, Expr, attr, const
from plica.ir.op import find
from plica.ir.op.elementwise import cast, subtract
from plica.ir.op.index import take
from plica.ir.op.pad import pad
from plica.ir.op.quantise import dequantise, quantise
from plica.ir.type import i32
from plica.rewrite.closed import value_of
from plica.rewrite.make import tabled as rule
from plica.rewrite.match import PatternMatch
from plica.rewrite.pattern import hole
from plica.rewrite.quantise.word import bytes_, into, one, reshaped, spoken, tensor
from plica.rewrite.rule import Rule

# fmt: off
CARRIERS: Final = (
    "reshape", "transpose", "squeeze", "expand_dims", "swapaxes", "moveaxis", "ravel", "flip",
    "slice", "copy", "nn.flatten", "nn.max_pool", "nn.global_max_pool", "nn.space_to_depth",
    "nn.depth_to_space",
)
TABLED: Final = (
    "exp", "sqrt", "tanh", "erf", "nn.sigmoid", "nn.silu", "nn.gelu", "nn.hard_swish", "nn.mish",
    "nn.hard_sigmoid", "nn.leaky_relu", "nn.elu", "nn.celu", "nn.selu", "nn.softplus",
)
# fmt: on


def carried(name: str) -> Rule:
    """The rule that lets integers through an operator that only chooses or arranges them."""
    record = find(name)
    assert record is not None

    def right(m: PatternMatch) -> Expr | None:
        scale, zero = one(m.s), one(m.z)
        if scale is None or zero is None or scale <= 0:
            return None
        settings = {attribute.name: m[attribute.name] for attribute in record.attributes}
        return dequantise(record(m.x, **settings), m.s, m.z)

    settings = [hole(attribute.name) for attribute in record.attributes]
    return rule(f"integer-{spoken(name)}", record(bytes_, *settings), right)


def is_carrier(of: Apply) -> bool:
    """Whether an operator only chooses or arranges numbers, and zeros among them."""
    if of.op == pad.name:
        return bool(attr(of, "mode") != "constant" or attr(of, "constant_values") == 0)
    return of.op in CARRIERS


def padded(m: PatternMatch) -> Expr | None:
    """Integers with their zero point around them, or what they repeat."""
    zero = one(m.z)
    low, high = tensor(m.x).dtype.bounds
    if zero is None or one(m.s) is None or (m.mode == "constant" and m.value != 0):
        return None
    if not low <= zero <= high:
        return None
    return dequantise(pad(m.x, m.width, m.mode, int(zero)), m.s, m.z)


def tabled(name: str) -> Rule:
    """The rule that makes a table of a function of one byte: 256 results, each as it was."""
    record = find(name)
    assert record is not None

    def right(m: PatternMatch) -> Expr | None:
        parts = [value_of(each) for each in (m.s, m.z, m.u, m.o)]
        if any(part is None or part.size != 1 for part in parts):
            return None
        bottom, top = (int(bound) for bound in tensor(m.x).dtype.bounds)
        every = const(np.arange(bottom, top + 1), tensor(m.x).dtype)
        settings = {attribute.name: m[attribute.name] for attribute in record.attributes}
        plain = [reshaped(each) for each in (m.s, m.z, m.u, m.o)]
        inside = record(dequantise(every, plain[0], plain[1]), **settings)
        results = value_of(quantise(inside, plain[2], plain[3], m.rounding, m.low, m.high))
        if results is None:
            return None
        place = cast(m.x, i32)
        place = place if not bottom else subtract(place, const(bottom, i32))
        return take(const(results, tensor(m.o).dtype), place, axis=0)

    settings = [hole(attribute.name) for attribute in record.attributes]
    return rule(f"table-{spoken(name)}", into(record(bytes_, *settings)), right)
