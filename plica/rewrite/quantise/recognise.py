"""Recognise: quantisation that was written out in arithmetic becomes its operators again.

    before:  cast(clip(round(x / s) + cast(z, f32), -128.0, 127.0), i8)
    after:   quantise(x, s, z)

    before:  cast(cast(q, i32) - cast(z, i32), f32) * s
    after:   dequantise(q, s, z)

Models that were read have it so.  Both are equal bit for bit.

>>> [rule.name for rule in RECOGNISE]
['see-quantise', 'see-quantise-at-zero', 'see-dequantise', 'see-dequantise-at-zero']
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from plica.ir.graph.expression import Const, Expr, const
from plica.ir.op.elementwise import cast, clip, round_
from plica.ir.op.quantise import dequantise, quantise
from plica.ir.type import DType, TensorType, f32, i8, i32, type_of, u8
from plica.rewrite.closed import closed, value_of
from plica.rewrite.make import tabled as rule
from plica.rewrite.match import PatternMatch
from plica.rewrite.pack import Pack, pack
from plica.rewrite.pattern import hole, holes
from plica.rewrite.quantise.word import STEP

x: Any = hole("x", dtypes=f32)
q: Any = hole("q", dtypes=(i8, u8, i32))
s: Any = closed("s", dtypes=f32)
z: Any = closed("z", dtypes=(f32, i32))
o: Any = closed("o", dtypes=(i8, u8, i32))
low, high, into = holes("low high into")


def holds(m: PatternMatch) -> bool:
    """Whether the bounds are whole numbers of the dtype."""
    if not isinstance(m.into, DType) or m.into not in (i8, u8):
        return False
    bottom, top = m.into.bounds
    if m.low is None or m.high is None or not bottom <= m.low <= m.high <= top:
        return False
    return bool(int(m.low) == m.low and int(m.high) == m.high)


def seen(m: PatternMatch) -> Expr | None:
    """The operator that rounds."""
    if not holds(m):
        return None
    zero = Const(m.into, (), b"\0")
    if "z" in m.filling:
        found = value_of(m.z)
        if found is None or not _is_of(found, m.into):
            return None
        zero = const(found.astype(m.into.numpy), m.into)
    ends = (int(m.low), int(m.high))
    plain = (None, None) if ends == tuple(map(int, m.into.bounds)) else ends
    return quantise(m.x, m.s, zero, "even", *plain)


def _is_of(values: Any, dtype: DType) -> bool:
    bottom, top = dtype.bounds
    wide = values.astype(np.float64)
    return bool(np.all((wide == np.rint(wide)) & (wide >= bottom) & (wide <= top)))


def restored(m: PatternMatch) -> Expr | None:
    """The operator that gives numbers back."""
    if "z" not in m.filling:
        return dequantise(m.q, m.s, const(0, _dtype(m.q)))
    if (found := value_of(m.z)) is None:
        return None
    own = _dtype(m.q)
    kind = own if _is_of(found, own) else i32
    return dequantise(m.q, m.s, const(found.astype(kind.numpy), kind))


def _dtype(of: Expr) -> DType:
    kind = type_of(of)
    assert isinstance(kind, TensorType)
    return kind.dtype


def tied_up(m: PatternMatch) -> Expr:
    """The same step, but the upper one in the middle of two."""
    return quantise(m.x, m.s, m.o, "up", m.low, m.high)


# fmt: off
RECOGNISE: Final[Pack] = pack(
    "recognise",
    rule("see-quantise",           cast(clip(round_(x / s) + z, low, high), into), seen),
    rule("see-quantise-at-zero",   cast(clip(round_(x / s), low, high), into),     seen),
    rule("see-dequantise",         cast(cast(q, i32) - z, f32) * s,                restored),
    rule("see-dequantise-at-zero", cast(q, f32) * s,                               restored),
    version="1",
    doc="Quantisation that was written out in arithmetic becomes its operators again.",
)

TIES_UP: Final[Pack] = pack(
    "ties-up",
    rule("tie-up", quantise(x, s, o, "even", low, high), tied_up, float=STEP),
    version="1",
    doc="Numbers in the middle of two steps go to the upper one, as with a shift to the right.",
)
# fmt: on
