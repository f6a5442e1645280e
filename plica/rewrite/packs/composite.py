"""Composite operators: recognises those spelled out in base operators; filled tensors become
scalars.

Measure: (composite operators, filled tensors): a rule lowers the first of these that it changes.

- composite operators that only combine base operators become those;
- a tensor filled with one value is a scalar broadcast (`zeros`, `ones_like`, `full` …);
- shapes that are known are constants.

>>> UNFOLDED[0], COMPOSITE.rules[0].name
('mean', 'mean-unfolded')
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from plica.core import Term
from plica.ir.graph.expression import Expr, const
from plica.ir.op.relation import axes_of
from plica.ir.type import DType, i64
from plica.rewrite.make import tabled as rule
from plica.rewrite.match import PatternMatch
from plica.rewrite.pack import Pack, pack
from plica.rewrite.packs.word import Shape, op, shape, sizes, tensor, unfolded, x
from plica.rewrite.pattern import derived, holes

broadcast_to, iota, size, copy = map(op, ["broadcast_to", "iota", "size", "copy"])
full, zeros, ones = map(op, ["full", "zeros", "ones"])
full_like, zeros_like, ones_like, iota_like = map(
    op, ["full_like", "zeros_like", "ones_like", "iota_like"]
)
shape_of = op("shape_of")

# Any: holes for attributes.
a, t, u, p = holes("a t u p")

UNFOLDED: Final = ("mean", "nn.bias_add", "nn.global_avg_pool", "nn.global_max_pool")


@derived
def number(value: Any, of: DType) -> Term:
    """A scalar constant."""
    return const(value, of)


@derived
def own_dtype(given: DType | None, of: Expr) -> DType:
    """A dtype, by default that of a tensor."""
    return tensor(of).dtype if given is None else given


@derived
def dims(of: Expr) -> Shape:
    """The shape of a tensor."""
    return shape(of)


def known_size(match: PatternMatch) -> Term | None:
    of = shape(match.x)
    found = sizes(tuple(of[at] for at in axes_of("size", match.a, len(of))))
    return None if found is None else const(np.prod(found, dtype=np.int64), i64)


def known_shape(match: PatternMatch) -> Term | None:
    found = sizes(shape(match.x))
    return None if found is None else const(np.array(found, np.int64), i64)


# fmt: off
# ruff: noqa: E501  # a rule is one line
COMPOSITES: Final = (
    *map(unfolded, UNFOLDED),
    rule("copy-is-itself",                    copy(x),                                     x),
    rule("full-is-broadcast",                 full(t, u, p),                               broadcast_to(number(u, p), t)),
    rule("zeros-is-broadcast",                zeros(t, p),                                 broadcast_to(number(0, p), t)),
    rule("ones-is-broadcast",                 ones(t, p),                                  broadcast_to(number(1, p), t)),
    rule("full-like-is-broadcast",            full_like(x, u, p),                          broadcast_to(number(u, own_dtype(p, x)), dims(x))),
    rule("zeros-like-is-broadcast",           zeros_like(x, p),                            broadcast_to(number(0, own_dtype(p, x)), dims(x))),
    rule("ones-like-is-broadcast",            ones_like(x, p),                             broadcast_to(number(1, own_dtype(p, x)), dims(x))),
    rule("iota-like-is-iota",                 iota_like(x, a, p),                          iota(dims(x), a, p)),
    rule("size-is-known",                     size(x, a),                                  known_size),
    rule("shape-is-known",                    shape_of(x),                                 known_shape),
)
# fmt: on

COMPOSITE: Final[Pack] = pack(
    "composite",
    COMPOSITES,
    version="1",
    doc="Composite and filled operators become base operators.",
)
