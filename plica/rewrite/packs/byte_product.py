"""Byte products: matrices of restored bytes are multiplied as the integers they are.

    before:  matmul(cast(cast(q, i32) - z, f32) * s, cast(cast(w, i32) - y, f32) * t)
    after:   cast(matmul(cast(q, i32) - z, w - y), f32) * (s * t)

Models say so that were quantised between floats, of constants w.  Sums of products of bytes are
exact in i32, and a processor with an instruction for them adds four at once.

Measure: each rule removes a product of floats.

>>> [rule.name for rule in BYTE_PRODUCTS][:2]
['byte-product', 'byte-product-at-zero']
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from plica.ir.graph.expression import Expr, const
from plica.ir.op.elementwise import cast, multiply, subtract
from plica.ir.op.linear import matmul
from plica.ir.type.dtype import f32, i8, i32, u8
from plica.rewrite.closed import closed, value_of
from plica.rewrite.contract import reassociates
from plica.rewrite.make import tabled as rule
from plica.rewrite.match import PatternMatch
from plica.rewrite.pack import Pack, pack
from plica.rewrite.pattern import hole

Array = np.ndarray[Any, Any]

DEEPEST: Final = 1 << 15
"""So many products of two bytes are less than 2**31 together."""

TAME: Final = (1e-15, 1e15)
"""Scales between these, whose products are neither infinite nor without bits."""

SHALLOWEST: Final = 16
"""Sums of fewer terms leave an instruction that takes four of them half empty."""

q: Any = hole("q", dtypes=(i8, u8))
w: Any = hole("w", constant=True, dtypes=(i8, u8), rank=2)
s, t = closed("s", dtypes=f32), closed("t", dtypes=f32)
z, y = closed("z", dtypes=i32), closed("y", dtypes=i32)


def _number(of: Expr) -> Any:
    """The one number that a closed term is, None where it is several."""
    found = value_of(of)
    return None if found is None or found.size != 1 else found.reshape(()).item()


def _is_tame(scales: Array) -> bool:
    low, high = TAME
    return bool(scales.size and ((low < np.abs(scales)) & (np.abs(scales) < high)).all())


def _scales(m: PatternMatch) -> Array | None:
    """The scale of each column of the result, or of all."""
    left, right = value_of(m.s), value_of(m.t)
    if left is None or right is None or left.size != 1 or not (_is_tame(left) and _is_tame(right)):
        return None
    columns = m.w.numpy().shape[1]
    if right.size == 1:
        return np.asarray(right.reshape(()) * left.reshape(()), np.float32)
    if right.shape[-1:] != (columns,) or right.size != columns:
        return None  # a scale for each row would stay inside of the sum
    return np.asarray(right.reshape(columns) * left.reshape(()), np.float32)


def _weight(m: PatternMatch) -> Array | None:
    """The numbers of the weight less their zero point, None where they are no bytes then, or where
    sums are too short or too long."""
    found: Array = m.w.numpy().astype(np.int32)
    if "y" in m.filling:
        zero = value_of(m.y)
        if zero is None or np.broadcast_shapes(zero.shape, found.shape) != found.shape:
            return None
        found = found - zero
    low, high = i8.bounds
    fits = found.size and low <= found.min() and found.max() <= high
    return found if fits and SHALLOWEST <= found.shape[0] <= DEEPEST else None


def in_integers(m: PatternMatch) -> Expr | None:
    """The product of integers, in its scale."""
    scales, weight = _scales(m), _weight(m)
    if scales is None or weight is None:
        return None
    data = cast(m.q, i32)
    if "z" in m.filling:
        zero = _number(m.z)
        if zero is None or abs(zero) > max(map(abs, u8.bounds)):
            return None
        data = subtract(data, const(int(zero), i32))
    whole = cast(matmul(data, const(weight, i32)), f32)
    return multiply(whole, const(scales, f32))


moved, at_zero = cast(cast(q, i32) - z, f32) * s, cast(q, f32) * s
by, by_zero = cast(cast(w, i32) - y, f32) * t, cast(w, f32) * t

# fmt: off
BYTE_PRODUCTS: Final[Pack] = pack(
    "bytes",
    rule("byte-product",          matmul(moved, by),        in_integers, float=reassociates),
    rule("byte-product-at-zero",  matmul(at_zero, by),      in_integers, float=reassociates),
    rule("byte-product-of-bytes", matmul(moved, by_zero),   in_integers, float=reassociates),
    rule("byte-product-all-zero", matmul(at_zero, by_zero), in_integers, float=reassociates),
    version="1",
    doc="Matrices of restored bytes are multiplied as integers.",
)
# fmt: on
