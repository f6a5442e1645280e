"""Comparison, logic and bits.

Comparisons are false on nan, except `not_equal`.  Logic is for bools; bits are for integers and
bools.  A shift by the width of the dtype or more, or by a negative number, shifts everything out.

>>> from plica.ir.type.term import tensor
>>> str(less.relation({}, tensor((3,), "f32"), tensor((), "f32")).dtype)
'bool'
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from plica.ir.graph.operator import Operator
from plica.ir.loop.scalar import (
    And,
    BitAnd,
    BitOr,
    BitXor,
    Eq,
    Le,
    Lt,
    Ne,
    Not,
    Or,
    Scalar,
    ShiftLeft,
    ShiftRight,
    dtype_of,
    like,
)
from plica.ir.op.elementwise import binary, unary
from plica.ir.op.relation import ANY, BOOL, INTEGER, NUMBER
from plica.ir.type.dtype import DType, bool_


def _compare(
    name: str,
    value: Callable[[Scalar, Scalar], Scalar],
    doc: str,
    onnx: str = "",
    admits: Collection[DType] = NUMBER,
) -> Operator:
    names = (onnx,) if onnx else ()
    return binary(name, value, doc, admits=admits, result=bool_, onnx=names)


def inverted(x: Scalar) -> Scalar:
    """Every bit the other way."""
    dtype = dtype_of(x)
    if dtype is bool_:
        return Not(x)
    return BitXor(x, like(dtype.bounds[1] if dtype.kind == "uint" else -1, x))


equal = _compare("equal", Eq, "x == y.", "Equal", ANY)
not_equal = _compare("not_equal", Ne, "x != y; true on nan.", "", ANY)
less = _compare("less", Lt, "x < y.", "Less")
less_equal = _compare("less_equal", Le, "x <= y.", "LessOrEqual")
greater = _compare("greater", lambda x, y: Lt(y, x), "x > y.", "Greater")
greater_equal = _compare("greater_equal", lambda x, y: Le(y, x), "x >= y.", "GreaterOrEqual")

logical_and = binary("logical_and", And, "Both hold.", admits=BOOL, onnx=("And",))
logical_or = binary("logical_or", Or, "Either holds.", admits=BOOL, onnx=("Or",))
logical_xor = binary("logical_xor", Ne, "Exactly one holds.", admits=BOOL, onnx=("Xor",))
logical_not = unary("logical_not", Not, "It does not hold.", admits=BOOL, onnx=("Not",))

bitwise_and = binary(
    "bitwise_and", BitAnd, "The bits set in both.", admits=INTEGER | BOOL, onnx=("BitwiseAnd",)
)
bitwise_or = binary(
    "bitwise_or", BitOr, "The bits set in either.", admits=INTEGER | BOOL, onnx=("BitwiseOr",)
)
bitwise_xor = binary(
    "bitwise_xor", BitXor, "The bits set in one.", admits=INTEGER | BOOL, onnx=("BitwiseXor",)
)
bitwise_not = unary(
    "bitwise_not",
    inverted,
    "The bits not set.",
    admits=INTEGER | BOOL,
    onnx=("BitwiseNot",),
    aliases=("invert", "bitwise_invert"),
)
left_shift = binary(
    "left_shift",
    ShiftLeft,
    "x with its bits moved up by y; 0 where y is the width or more.",
    admits=INTEGER,
    aliases=("bitwise_left_shift",),
)
right_shift = binary(
    "right_shift",
    ShiftRight,
    "x with its bits moved down by y, the sign filling in.",
    admits=INTEGER,
    aliases=("bitwise_right_shift",),
)
