"""Rows of elementwise operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from plica.frontend.special_function import SPECIAL
from plica.frontend.stablehlo.node import HloNode
from plica.frontend.word import dtype, like, same_bits, to, whole_power
from plica.ir.graph.expression import Expr
from plica.ir.op.namespace import op
from plica.ir.type.dtype import DType, bool_, f32, f64

Row = Callable[[HloNode], Expr]


def unary(name: str) -> Row:
    """A row that is an operator of one operand."""
    space, _, rest = name.rpartition(".")

    def row(node: HloNode) -> Expr:
        return getattr(op.nn if space else op, rest)(node.x)  # type: ignore[no-any-return]  # a term

    return row


def binary(numbers: str, integers: str = "", bools: str = "") -> Row:
    """A row that is an operator of two operands, another one of integers and of bools."""

    def row(node: HloNode) -> Expr:
        of = dtype(node.x)
        name = bools if of is bool_ else integers if of.is_integer and integers else numbers
        if not name:
            node.unsupported("The operation is not for such elements.", found=str(of))
        return getattr(op, name)(*node.operands)  # type: ignore[no-any-return]  # a term

    return row


def _power(node: HloNode) -> Expr:
    x, y = node.operands
    return whole_power(x, y) if dtype(x).is_integer else op.power(x, y)


def _quotient(node: HloNode) -> Expr:
    """Of integers by zero all bits are set, as XLA has it."""
    x, y = node.operands
    if dtype(x).is_float:
        return op.divide(x, y)
    return op.where(op.equal(y, like(0, y)), like(-1, x), op.trunc_divide(x, y))


def _remainder(node: HloNode) -> Expr:
    """Of integers by zero it is x, as XLA has it."""
    x, y = node.operands
    if dtype(x).is_float:
        return op.fmod(x, y)
    return op.where(op.equal(y, like(0, y)), x, op.fmod(x, y))


def _not(node: HloNode) -> Expr:
    return op.logical_not(node.x) if dtype(node.x) is bool_ else op.bitwise_not(node.x)


def _negate(node: HloNode) -> Expr:
    return like(0, node.x) - node.x if dtype(node.x).kind == "uint" else -node.x


def _sign(node: HloNode) -> Expr:
    """The sign; zeros keep theirs."""
    x = node.x
    return op.where(op.equal(x, like(0, x)), x, op.sign(x)) if dtype(x).is_float else op.sign(x)


def _cbrt(node: HloNode) -> Expr:
    """The cube root, refined by a Newton step; 0, infinity and NaN are unchanged."""
    x = node.x
    wide = to(x, f64)
    y = op.copysign(op.power(op.absolute(wide), like(1 / 3, wide)), wide)
    better = y - (y * y * y - wide) / (like(3, y) * y * y)
    stays = op.logical_or(op.equal(wide, like(0, wide)), op.logical_not(op.isfinite(wide)))
    return to(op.where(stays, wide, better), dtype(x))


def _round_away(node: HloNode) -> Expr:
    """Halves are rounded away from zero."""
    x = node.x
    low = op.trunc(x)
    up = op.absolute(x - low) >= like(0.5, x)
    return op.where(up, low + op.copysign(like(1, x), x), op.copysign(low, x))


def _clamp(node: HloNode) -> Expr:
    low, x, high = node.operands
    return op.minimum(op.maximum(low, x), high)


def _select(node: HloNode) -> Expr:
    return op.where(*node.operands)


def _convert(node: HloNode) -> Expr:
    x, wanted = node.x, node.dtype()
    if wanted is bool_ and dtype(x) is not bool_:
        return op.not_equal(x, like(0, x))
    return to(x, wanted)


COMPARE: Final = {
    "EQ": "equal", "NE": "not_equal", "LT": "less", "LE": "less_equal", "GT": "greater",
    "GE": "greater_equal",
}  # fmt: skip


def _compare(node: HloNode) -> Expr:
    flags = node.attribute("flags", default=[])
    direction = node.word("comparison_direction", default=flags[0] if flags else "")
    kind = node.word("compare_type", default=flags[1] if len(flags) > 1 else "")
    if direction not in COMPARE:
        node.unsupported("The direction is unknown.", ", ".join(COMPARE), direction)
    x, y = node.operands
    if kind == "TOTALORDER":
        x, y = total_order(x), total_order(y)
    elif dtype(x) is bool_ and direction not in ("EQ", "NE"):
        x, y = to(x, DType("u8")), to(y, DType("u8"))
    return getattr(op, COMPARE[direction])(x, y)  # type: ignore[no-any-return]  # a term


def total_order(x: Expr) -> Expr:
    """Integers in the total order of floats: -nan, -inf, …, -0, 0, …, inf, nan."""
    bits = op.bits_of(to(x, f32) if dtype(x).is_narrow else x)
    of = DType(f"i{dtype(bits).bits}")
    code = to(bits, of)
    greatest = like((1 << (of.bits - 1)) - 1, code)
    return op.where(code < like(0, code), op.bitwise_xor(code, greatest), code)


def _bitcast(node: HloNode) -> Expr:
    x, wanted = node.x, node.dtype()
    of = dtype(x)
    if of.bits != wanted.bits or bool_ in (of, wanted):
        node.unsupported("Elements keep their width.", f"elements of {of.bits} bits", str(wanted))
    return same_bits(x, wanted)


def _shift_right_logical(node: HloNode) -> Expr:
    x, y = node.operands
    free = DType(f"u{dtype(x).bits}")
    return to(op.right_shift(to(x, free), to(y, free)), dtype(x))


def _popcount(x: Expr) -> Expr:
    """The number of ones among 64 bits, by sums of neighbours."""

    def mask(x: Expr, word: int) -> Expr:
        return op.bitwise_and(x, like(word, x))

    def down(x: Expr, by: int) -> Expr:
        return op.right_shift(x, like(by, x))

    x = x - mask(down(x, 1), 0x5555555555555555)
    x = mask(x, 0x3333333333333333) + mask(down(x, 2), 0x3333333333333333)
    x = mask(x + down(x, 4), 0x0F0F0F0F0F0F0F0F)
    return down(x * like(0x0101010101010101, x), 56)


def _unsigned(x: Expr) -> Expr:
    return to(to(x, DType(f"u{dtype(x).bits}")), DType("u64"))


def _popcnt(node: HloNode) -> Expr:
    return to(_popcount(_unsigned(node.x)), dtype(node.x))


def _leading_zeros(node: HloNode) -> Expr:
    x = _unsigned(node.x)
    for by in (1, 2, 4, 8, 16, 32):
        x = op.bitwise_or(x, op.right_shift(x, like(by, x)))
    return to(like(dtype(node.x).bits, x) - _popcount(x), dtype(node.x))


def _reduce_precision(node: HloNode) -> Expr:
    x, text = node.x, node.word("format")
    if text:
        exponent, mantissa = (int(each) for each in text.removeprefix("e").split("m"))
    else:
        exponent, mantissa = node.attribute("exponent_bits"), node.attribute("mantissa_bits")
    row = dtype(x).row
    if exponent >= row.exponent and mantissa >= row.digits - 1:
        return x
    if dtype(x) is f32 and (exponent, mantissa) == (8, 7):
        return to(to(x, DType("bf16")), f32)
    return node.unsupported("Such a precision is not supported.", "e8m7", f"e{exponent}m{mantissa}")


def _next_after(node: HloNode) -> Expr:
    """The neighbour of x towards y: its code is one more or less."""
    x, y = node.operands
    zero, code = like(0, x), op.bits_of(x)
    of = dtype(code)
    smallest = op.copysign(op.bits_as(like(1, code), dtype=dtype(x)), y)
    away = op.equal(x < y, x > zero)
    beside = op.where(away, code + like(1, code), code - like(1, code))
    expr = op.where(op.equal(x, zero), smallest, op.bits_as(to(beside, of), dtype=dtype(x)))
    expr = op.where(op.equal(x, y), y, expr)
    return op.where(op.logical_or(op.not_equal(x, x), op.not_equal(y, y)), x + y, expr)


def _special(name: str) -> Row:
    """A function that is computed in f64."""

    def row(node: HloNode) -> Expr:
        return to(SPECIAL[name](to(node.x, f64)), dtype(node.x))

    return row


TABLE: Final[dict[str, Row]] = {
    "abs": lambda node: node.x if dtype(node.x).kind == "uint" else op.absolute(node.x),
    "add": binary("add", bools="logical_or"), "subtract": binary("subtract"),
    "multiply": binary("multiply", bools="logical_and"),
    "divide": _quotient, "remainder": _remainder,
    "maximum": binary("maximum", bools="logical_or"),
    "minimum": binary("minimum", bools="logical_and"),
    "power": _power, "atan2": binary("arctan2"),
    "and": binary("", "bitwise_and", "logical_and"), "or": binary("", "bitwise_or", "logical_or"),
    "xor": binary("", "bitwise_xor", "logical_xor"), "not": _not, "negate": _negate, "sign": _sign,
    "shift_left": binary("", "left_shift"), "shift_right_arithmetic": binary("", "right_shift"),
    "shift_right_logical": _shift_right_logical,
    "popcnt": _popcnt, "count_leading_zeros": _leading_zeros,
    "sqrt": unary("sqrt"), "rsqrt": unary("rsqrt"), "cbrt": _cbrt, "exponential": unary("exp"),
    "exponential_minus_one": unary("expm1"), "log": unary("log"), "log_plus_one": unary("log1p"),
    "logistic": unary("nn.sigmoid"), "sine": unary("sin"), "cosine": unary("cos"),
    "tan": unary("tan"), "tanh": unary("tanh"), "floor": unary("floor"), "ceil": unary("ceil"),
    "round_nearest_even": unary("round"), "round_nearest_afz": _round_away,
    "is_finite": unary("isfinite"), "clamp": _clamp, "select": _select, "convert": _convert,
    "compare": _compare, "bitcast_convert": _bitcast, "reduce_precision": _reduce_precision,
    "chlo.erf": unary("erf"), "chlo.erf_inv": _special("erfinv"), "chlo.square": unary("square"),
    "chlo.tan": unary("tan"), "chlo.acos": unary("arccos"), "chlo.asin": unary("arcsin"),
    "chlo.atan": unary("arctan"), "chlo.sinh": unary("sinh"), "chlo.cosh": unary("cosh"),
    "chlo.asinh": unary("arcsinh"), "chlo.acosh": unary("arccosh"), "chlo.atanh": unary("arctanh"),
    "chlo.is_inf": unary("isinf"), "chlo.next_after": _next_after,
    "chlo.erfc": _special("erfc"), "chlo.lgamma": _special("lgamma"),
    "chlo.digamma": _special("digamma"),
}  # fmt: skip
"""Rows by the name of the operation; those of StableHLO without its name before the dot."""

BINARY: Final = (
    "add", "subtract", "multiply", "divide", "remainder", "maximum", "minimum", "power", "atan2",
    "and", "or", "xor", "shift_left", "shift_right_arithmetic", "shift_right_logical", "compare",
    "chlo.next_after",
)  # fmt: skip
UNARY: Final = tuple([each for each in TABLE if each not in (*BINARY, "clamp", "select")])
