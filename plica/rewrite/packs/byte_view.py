"""Byte views: bytes are seen in another shape before they are widened, not after.

    before:  reshape(cast(x, "i32"), shape)                                         x of i8 or u8
    after:   cast(reshape(x, shape), "i32")

A product reads bytes as they lie where the cast is the last thing before it; other rules move
casts the other way, so these run after them, where memory is scarce.

Measure: each rule brings a cast nearer to the results.

>>> [rule.name for rule in BYTE_VIEWS]
['reshape-of-bytes', 'flatten-of-bytes']
"""

from __future__ import annotations

from typing import Any, Final

from plica.ir.op.elementwise import cast
from plica.ir.op.shape import flatten, reshape
from plica.ir.type import i8, i32, u8
from plica.rewrite.make import tabled as rule
from plica.rewrite.pack import Pack, pack
from plica.rewrite.pattern import hole

x: Any = hole("x", dtypes=(i8, u8))
r: Any = hole("r")
a: Any = hole("a")
wide: Any = cast(x, dtype=i32)

# fmt: off
BYTE_VIEWS: Final[Pack] = pack(
    "byte-views",
    rule("reshape-of-bytes", reshape(wide, r),      cast(reshape(x, r), dtype=i32)),
    rule("flatten-of-bytes", flatten(wide, axis=a), cast(flatten(x, axis=a), dtype=i32)),
    version="1",
    doc="Bytes are seen in another shape before they are widened.",
)
# fmt: on
