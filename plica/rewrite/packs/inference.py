"""Inference: what training needed is written out or dropped.

Operators made of others are unpacked by their own definitions, so that nothing is said twice.  A
batch norm of constants then becomes one multiplication and one addition:

    before:  nn.batch_norm(x, gamma, beta, mean, variance, axis=1, epsilon=1e-5)
    after:   x * s + b         (s and b are per channel, and constants once folded)

Measure: each rule removes an operator that none brings back, or, of the two that join, an addition.

>>> [rule.name for rule in INFERENCE][:3]
['drop-dropout', 'unpack-batch-norm', 'unpack-layer-norm']
"""

from __future__ import annotations

from typing import Final

from plica.ir.contract import reassociates
from plica.ir.graph import Operator
from plica.ir.op.activation import dropout
from plica.ir.op.normalize import (
    batch_norm,
    group_norm,
    instance_norm,
    l2_normalize,
    layer_norm,
    rms_norm,
)
from plica.rewrite.closed import are_finite, closed, varying
from plica.rewrite.make import tabled as rule
from plica.rewrite.match import PatternMatch
from plica.rewrite.pack import Pack, pack
from plica.rewrite.packs.word import by_definition, spoken
from plica.rewrite.pattern import either, hole, holes
from plica.rewrite.rule import Rule

x = varying("x")
(r,) = holes("r")
m, s, b = map(closed, "msb")


def unpacked(record: Operator, **ranks: int | tuple[int, ...]) -> Rule:
    """The rule that replaces an operator by its definition in terms of others: bit for bit.

    The rank constraints, implied by the type relation, help to find instances.
    """
    args = [hole(name, rank=ranks.get(name)) for name in record.inputs]
    settings = [hole(attribute.name) for attribute in record.attributes]
    return rule(f"unpack-{spoken(record.name)}", *by_definition(record, args, settings))


def scales_join(found: PatternMatch) -> bool:
    """Whether no product of scales is infinite: times zero it is no number."""
    return are_finite(found.m, found.s)


def shift_joins(found: PatternMatch) -> bool:
    """Whether a scaled shift's contribution to a bias is finite."""
    return scales_join(found) and are_finite(found.b - found.m * found.s)


scaled = either((x * m) * s, s * (x * m))
shifted = either((x - m) * s + b, b + (x - m) * s)

# fmt: off
INFERENCE: Final[Pack] = pack(
    "inference",
    rule("drop-dropout",    dropout(x, r),                            x),
    unpacked(batch_norm,    gamma=1, beta=1, mean=1, variance=1),
    unpacked(layer_norm),
    unpacked(rms_norm),
    unpacked(instance_norm, x=(3, 4, 5), gamma=1, beta=1),
    unpacked(group_norm,    x=(3, 4, 5), gamma=1, beta=1),
    unpacked(l2_normalize),
    rule("join-scales",     scaled,  x * (m * s),         float=reassociates, when=scales_join),
    rule("unshift-scaled",  shifted, x * s + (b - m * s), float=reassociates, when=shift_joins),
    version="1",
    doc="What training needed is written out or dropped.",
)
# fmt: on
