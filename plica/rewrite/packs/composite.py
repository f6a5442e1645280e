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
from plica.ir.graph.expression import const
from plica.ir.op.relation import axes_of
from plica.ir.type import i64
from plica.rewrite.make import tabled as rule
from plica.rewrite.match import PatternMatch
from plica.rewrite.pack import Pack, pack
from plica.rewrite.packs.word import op, shape, sizes, tensor, unfolded, x
from plica.rewrite.pattern import holes

broadcast_to, iota, size, copy = map(op, ["broadcast_to", "iota", "size", "copy"])
full, zeros, ones = map(op, ["full", "zeros", "ones"])
full_like, zeros_like, ones_like, iota_like = map(
    op, ["full_like", "zeros_like", "ones_like", "iota_like"]
)
shape_of = op("shape_of")

# Any: holes for attributes.
a, t, u, p = holes("a t u p")

UNFOLDED: Final = ("mean", "nn.bias_add", "nn.global_avg_pool", "nn.global_max_pool")


def filled(value: Any, dims: Any, of: Any) -> Term:
    """A value in every place of a shape."""
    done: Term = broadcast_to(const(value, of), dims)
    return done


def filled_like(match: PatternMatch, value: Any) -> Term:
    of = tensor(match.x)
    return filled(value, of.shape, of.dtype if match.p is None else match.p)


def counted_like(match: PatternMatch) -> Term:
    done: Term = iota(shape(match.x), match.a, match.p)
    return done


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
    rule("full-is-broadcast",                 full(t, u, p),                               lambda match: filled(match.u, match.t, match.p)),
    rule("zeros-is-broadcast",                zeros(t, p),                                 lambda match: filled(0, match.t, match.p)),
    rule("ones-is-broadcast",                 ones(t, p),                                  lambda match: filled(1, match.t, match.p)),
    rule("full-like-is-broadcast",            full_like(x, u, p),                          lambda match: filled_like(match, match.u)),
    rule("zeros-like-is-broadcast",           zeros_like(x, p),                            lambda match: filled_like(match, 0)),
    rule("ones-like-is-broadcast",            ones_like(x, p),                             lambda match: filled_like(match, 1)),
    rule("iota-like-is-iota",                 iota_like(x, a, p),                          counted_like),
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
