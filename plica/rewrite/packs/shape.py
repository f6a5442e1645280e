"""Shapes: the algebra of operators that only arrange elements.

Measure: operators; at equal count transposes over reshapes, then attributes that are not explicit.
Forms that leave something open (`axes=None`, a negative axis, a dim -1) are made explicit first, so
that the other rules look at numbers.  What needs a known size does not apply to a symbolic one.

No element is computed here: every rule is exact.

>>> is_order((1, 0)), is_order((-1, 0))
(True, False)
"""

from __future__ import annotations

from typing import Any, Final

from plica.ir.type import known
from plica.rewrite.make import tabled as rule
from plica.rewrite.pack import Pack, pack
from plica.rewrite.packs.axes import KeepsOrder, PrependsAxes, SameShape, composed, explicit_order
from plica.rewrite.packs.word import op, refilled, reshaped, unfolded, v, x, y
from plica.rewrite.pattern import hole, holes

transpose, reshape, broadcast_to = map(op, ["transpose", "reshape", "broadcast_to"])
squeeze, expand_dims = op("squeeze"), op("expand_dims")
matmul, dense, batch_matmul, einsum = map(op, ["matmul", "nn.dense", "nn.batch_matmul", "einsum"])

UNFOLDED: Final = ("moveaxis", "nn.flatten", "ravel", "swapaxes")
"""Composite operators that only arrange."""

# Any: holes for attributes.
a, o, t, u = holes("a o t u")


def is_order(axes: Any) -> bool:
    """Whether a transpose names its axes from the front."""
    return isinstance(axes, tuple) and all(axis >= 0 for axis in axes)


def is_explicit(dims: Any) -> bool:
    """Whether no dim of a shape is -1."""
    return isinstance(dims, tuple) and all(known(dim) != -1 for dim in dims)


def is_identity(axes: Any) -> bool:
    return bool(axes == tuple(range(len(axes)))) if isinstance(axes, tuple) else False


p: Any = hole("p", when=is_order)
q: Any = hole("q", when=is_order)
r: Any = hole("r", when=is_explicit)


two: Final = (1, 0)
three: Final = (0, 2, 1)
first_, second_ = (hole(name, rank=2) for name in ("first", "second"))
left3, right3 = (hole(name, rank=3) for name in ("left", "right"))

# fmt: off
# ruff: noqa: E501  # a rule is one line
ARRANGEMENTS: Final = (
    *map(unfolded, UNFOLDED),
    rule("transpose-axes-explicit",     transpose(x, o),                              transpose(x, explicit_order(o, x)), when=lambda match: not is_order(match.o)),
    rule("transpose-identity",          transpose(x, hole("p", when=is_identity)),    x),
    rule("transpose-transpose",         transpose(transpose(x, p), q),                transpose(x, composed(p, q))),
    rule("transpose-of-ones",           *reshaped(transpose(x, p)),                   when=KeepsOrder("x", "p")),
    rule("reshape-shape-explicit",      *reshaped(reshape(x, hole("o", when=lambda dims: not is_explicit(dims))))),
    rule("reshape-same",                reshape(x, r),                                x, when=SameShape("x", "r")),
    rule("reshape-reshape",             reshape(reshape(x, r), t),                    reshape(x, t)),
    rule("squeeze-is-reshape",          *reshaped(squeeze(x, a))),
    rule("expand-dims-is-reshape",      *reshaped(expand_dims(x, a))),
    rule("broadcast-same",              broadcast_to(x, t),                           x, when=SameShape("x", "t")),
    rule("broadcast-broadcast",         broadcast_to(broadcast_to(x, t), u),          broadcast_to(x, u)),
    rule("broadcast-of-reshape",        broadcast_to(reshape(x, r), t),               broadcast_to(x, t), when=PrependsAxes("x", "r")),
    rule("transpose-of-filled",         *refilled(transpose(broadcast_to(v, t), p))),
    rule("reshape-of-filled",           reshape(broadcast_to(v, t), r),               broadcast_to(v, r)),
)
PRODUCTS: Final = (
    rule("matmul-of-transposes",        matmul(transpose(first_, two), transpose(second_, two)), transpose(matmul(second_, first_), two)),
    rule("matmul-transposed-is-dense",  matmul(x, transpose(second_, two)),           dense(x, second_)),
    rule("matmul-transposed-is-batches", matmul(left3, transpose(right3, three)),     batch_matmul(left3, right3, False, True)),
    rule("dense-transposed-is-matmul",  dense(x, transpose(second_, two)),            matmul(x, second_)),
    rule("batch-matmul-turns-left",     batch_matmul(transpose(x, three), y, False, a), batch_matmul(x, y, True, a)),
    rule("batch-matmul-turns-left-back", batch_matmul(transpose(x, three), y, True, a), batch_matmul(x, y, False, a)),
    rule("batch-matmul-turns-right",    batch_matmul(x, transpose(y, three), a, False), batch_matmul(x, y, a, True)),
    rule("batch-matmul-turns-right-back", batch_matmul(x, transpose(y, three), a, True), batch_matmul(x, y, a, False)),
    rule("einsum-is-matmul",            einsum((first_, second_), "ij,jk->ik"),       matmul(first_, second_)),
    rule("einsum-is-dense",             einsum((first_, second_), "ij,kj->ik"),       dense(first_, second_)),
    rule("einsum-is-transpose",         einsum((first_,), "ij->ji"),                  transpose(first_, two)),
)
# fmt: on

SHAPE: Final[Pack] = pack(
    "shape",
    ARRANGEMENTS,
    PRODUCTS,
    version="3",
    doc="The algebra of transposes, reshapes and broadcasts.",
)
