"""Byte rows: products of bytes over several axes of rows, some of them open, have one axis of rows.

    before:  matmul(cast(q, i32) - z, w)                            q (1, n, k), w (k, m)
    after:   reshape(matmul(cast(reshape(q, (n, k)), i32) - z, w), (1, n, m))

Rows of one open number are made some at a time, with an instruction for bytes: first axes that are
all open are such rows as they stand, and others become so.

Measure: axes of rows.

>>> [rule.name for rule in BYTE_ROWS]
['byte-rows', 'byte-rows-zero', 'byte-rows-known']

Byte views: bytes are seen in another shape before they are widened, not after.

    before:  reshape(cast(x, "i32"), shape)                                         x of i8 or u8
    after:   cast(reshape(x, shape), "i32")

A product reads bytes as they lie where the cast is the last thing before it; other rules move
casts the other way, so these run after them, where memory is scarce.

Measure: each rule brings a cast nearer to the results.

>>> [rule.name for rule in BYTE_VIEWS]
['reshape-of-bytes', 'flatten-of-bytes']
"""

from __future__ import annotations

from math import prod
from typing import Any, Final

from plica.ir.graph.expression import Expr
from plica.ir.op.elementwise import add, cast, subtract
from plica.ir.op.linear import matmul
from plica.ir.op.shape import flatten, reshape
from plica.ir.type import i8, i32, known, product, u8
from plica.rewrite.closed import closed
from plica.rewrite.make import tabled as rule
from plica.rewrite.match import PatternMatch
from plica.rewrite.pack import Pack, pack
from plica.rewrite.packs.word import op, shape, sizes
from plica.rewrite.pattern import hole

x: Any = hole("x", dtypes=(i8, u8))
r: Any = hole("r")
b: Any = hole("a")
wide: Any = cast(x, dtype=i32)

# fmt: off
BYTE_VIEWS: Final[Pack] = pack(
    "byte-views",
    rule("reshape-of-bytes", reshape(wide, r),      cast(reshape(x, r), dtype=i32)),
    rule("flatten-of-bytes", flatten(wide, axis=b), cast(flatten(x, axis=b), dtype=i32)),
    version="1",
    doc="Bytes are seen in another shape before they are widened.",
)
# fmt: on


q: Any = hole("q", dtypes=(i8, u8), rank=(3, 4, 5))
n: Any = hole("z", dtypes=i32)
a = closed("a", dtypes=i32, rank=0)
w: Any = hole("w", dtypes=i32, rank=2)


def in_one_axis(m: PatternMatch) -> Expr | None:
    """The product with its row axes merged; None if their sizes are all known, or all open, or if a
    zero point is not a scalar."""
    *rows, depth = shape(m.q)
    open_ones = [known(size) is None for size in rows]
    if not any(open_ones) or all(open_ones):
        return None
    data = cast(op("reshape")(m.q, shape=(product(rows), depth)), i32)
    if "a" in m.filling:
        data = add(data, m.a)
    if "z" in m.filling:
        of_zero = sizes(shape(m.z))
        if of_zero is None or prod(of_zero) != 1:
            return None
        data = subtract(data, op("reshape")(m.z, shape=()) if of_zero else m.z)
    expr: Expr = op("reshape")(matmul(data, m.w), shape=(*rows, shape(m.w)[-1]))
    return expr


# fmt: off
BYTE_ROWS: Final = (
    rule("byte-rows",       matmul(cast(q, i32) - n, w), in_one_axis),
    rule("byte-rows-zero",  matmul(cast(q, i32), w),     in_one_axis),
    rule("byte-rows-known", matmul(cast(q, i32) + a, w), in_one_axis),
)
# fmt: on
