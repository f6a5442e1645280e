"""Wide: products of narrow floats are made of wide ones, for machines that multiply no others.

    before:  nn.conv(x, w, padding=1)                                              of f16 or bf16
    after:   cast(nn.conv(cast(x, "f32"), cast(w, "f32"), padding=1), "f16")

A product of narrow floats is defined by its sum in f32, which is rounded once at its end: what the
right side says, to the bit.  Weights are constants, so their cast is folded away; that of the data
goes into the epilogue of the kernel before.  The greatest of a window is one of its numbers, so it
is the same in f32, where lanes know what to do.

Measure: each rule removes a contraction or a window of narrow floats.

>>> [rule.name for rule in WIDE][:2]
['wide-matmul', 'wide-nn-batch-matmul']
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from plica.ir.graph.expression import Expr
from plica.ir.graph.operator import Operator
from plica.ir.op.convolution import conv, conv_transpose
from plica.ir.op.elementwise import cast
from plica.ir.op.linear import batch_matmul, dense, matmul
from plica.ir.op.pool import max_pool
from plica.ir.type.dtype import bf16, f16, f32
from plica.rewrite.make import tabled as rule
from plica.rewrite.match import PatternMatch
from plica.rewrite.pack import Pack, pack
from plica.rewrite.packs.word import tensor
from plica.rewrite.pattern import hole
from plica.rewrite.rule import Rule

CONTRACTIONS: Final = (matmul, batch_matmul, dense, conv, conv_transpose)
NARROW: Final = (f16, bf16)

x: Any = hole("x", dtypes=NARROW)
y: Any = hole("y", dtypes=NARROW)


def widened(record: Operator, m: PatternMatch) -> Expr:
    """The contraction of the same numbers in f32, rounded to what they were."""
    settings = {each.name: getattr(m, each.name) for each in record.attributes}
    sides = (cast(each, dtype=f32) for each in (m.x, m.y))
    return cast(record(*sides, **settings), dtype=tensor(m.x).dtype)


def widened_window(m: PatternMatch) -> Expr:
    """The greatest of the same numbers in f32."""
    settings = {each.name: getattr(m, each.name) for each in max_pool.attributes}
    return cast(max_pool(cast(m.x, dtype=f32), **settings), dtype=tensor(m.x).dtype)


def wide(record: Operator) -> Rule:
    """The rule of one contraction, whatever its attributes are."""
    settings: dict[str, Any] = {each.name: hole(each.name) for each in record.attributes}
    name = record.name.replace(".", "-").replace("_", "-")
    return rule(f"wide-{name}", record(x, y, **settings), partial(widened, record))


WIDE: Final[Pack] = pack(
    "wide",
    *map(wide, CONTRACTIONS),
    rule(
        "wide-max-pool",
        max_pool(x, **{each.name: hole(each.name) for each in max_pool.attributes}),
        widened_window,
    ),
    version="1",
    doc="Products of narrow floats made of wide ones.",
)
