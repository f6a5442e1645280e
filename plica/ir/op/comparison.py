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
from plica.ir.loop import scalar as sc
from plica.ir.op.elementwise import binary, unary
from plica.ir.op.relation import ANY, BOOL, INTEGER, NUMBER
from plica.ir.type import DType, bool_


def _compare(
    name: str,
    value: Callable[[sc.Scalar, sc.Scalar], sc.Scalar],
    doc: str,
    onnx: str = "",
    admits: Collection[DType] = NUMBER,
) -> Operator:
    names = (onnx,) if onnx else ()
    return binary(name, value, doc, admits=admits, result=bool_, onnx=names)


def inverted(x: sc.Scalar) -> sc.Scalar:
    """Every bit the other way."""
    dtype = sc.dtype_of(x)
    if dtype is bool_:
        return sc.Not(x)
    return sc.BitXor(x, sc.like(dtype.bounds[1] if dtype.kind == "uint" else -1, x))


equal = _compare("equal", sc.Eq, "x == y.", "Equal", ANY)
not_equal = _compare("not_equal", sc.Ne, "x != y; true on nan.", "", ANY)
less = _compare("less", sc.Lt, "x < y.", "Less")
less_equal = _compare("less_equal", sc.Le, "x <= y.", "LessOrEqual")
greater = _compare("greater", lambda x, y: sc.Lt(y, x), "x > y.", "Greater")
greater_equal = _compare("greater_equal", lambda x, y: sc.Le(y, x), "x >= y.", "GreaterOrEqual")

logical_and = binary("logical_and", sc.And, "Logical AND.", admits=BOOL, onnx=("And",))
logical_or = binary("logical_or", sc.Or, "Logical OR.", admits=BOOL, onnx=("Or",))
logical_xor = binary("logical_xor", sc.Ne, "Logical XOR.", admits=BOOL, onnx=("Xor",))
logical_not = unary("logical_not", sc.Not, "Logical NOT.", admits=BOOL, onnx=("Not",))

bitwise_and = binary(
    "bitwise_and", sc.BitAnd, "Bitwise AND.", admits=INTEGER | BOOL, onnx=("BitwiseAnd",)
)
bitwise_or = binary(
    "bitwise_or", sc.BitOr, "Bitwise OR.", admits=INTEGER | BOOL, onnx=("BitwiseOr",)
)
bitwise_xor = binary(
    "bitwise_xor", sc.BitXor, "Bitwise XOR.", admits=INTEGER | BOOL, onnx=("BitwiseXor",)
)
bitwise_not = unary(
    "bitwise_not", inverted, "Bitwise NOT.", admits=INTEGER | BOOL, onnx=("BitwiseNot",),
    aliases=("invert", "bitwise_invert"),
)  # fmt: skip
left_shift = binary(
    "left_shift", sc.ShiftLeft, "Shift bits left by y; 0 if y is the width or more.",
    admits=INTEGER, aliases=("bitwise_left_shift",),
)  # fmt: skip
right_shift = binary(
    "right_shift", sc.ShiftRight, "Arithmetic shift right by y.",
    admits=INTEGER, aliases=("bitwise_right_shift",),
)  # fmt: skip
