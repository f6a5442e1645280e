"""Scalars on whole arrays: what each scalar operator of Plica means in the words of a dialect.

Integers wrap around, a division by zero gives 0, a cast saturates: where the words of dialects are
not defined, what they are given is kept from it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, NoReturn

import numpy as np

from plica.frontend.whole_array.dialect import ArrayDialect, ArrayValue
from plica.ir.type.dtype import DType, bool_, f32, f64, i32
from plica.runtime.error import Place, UnsupportedError

Meaning = Callable[..., ArrayValue]  # (dialect, *values)

COMPARE: Final = {"Eq": "EQ", "Ne": "NE", "Lt": "LT", "Le": "LE"}
WORDS: Final = {
    "Add": "add", "Sub": "subtract", "Mul": "multiply", "Min": "minimum", "Max": "maximum",
    "BitAnd": "and", "BitOr": "or", "BitXor": "xor", "And": "and", "Or": "or", "Not": "not",
    "Div": "divide", "exp": "exponential", "expm1": "exponential_minus_one", "log": "log",
    "log1p": "log_plus_one", "sqrt": "sqrt", "sin": "sine", "cos": "cosine",
    "tan": "tan", "tanh": "tanh", "floor": "floor", "ceil": "ceil", "round": "round_nearest_even",
    "atan2": "atan2", "asin": "asin", "acos": "acos", "atan": "atan", "sinh": "sinh",
    "cosh": "cosh", "asinh": "asinh", "acosh": "acosh", "atanh": "atanh", "erf": "erf",
    "popcount": "popcnt",
}  # fmt: skip
"""Scalar operators that dialects have a word for."""

ROUNDED: Final = ("floor", "ceil", "round", "trunc")


def number(d: ArrayDialect, value: float, like: ArrayValue) -> ArrayValue:
    """A number to combine with an array, in its dtype."""
    single = np.asarray(value, like.dtype.numpy)
    return d.spread(d.constant(single, like.dtype), (), like.shape, whole=False)


def cast(d: ArrayDialect, x: ArrayValue, to: DType) -> ArrayValue:
    """Another dtype: to integers truncated and saturated, nan as 0; to bool `!= 0`."""
    if x.dtype is to:
        return x
    if to is bool_:
        return d.compare("NE", x, number(d, 0, x))
    if not x.dtype.is_float or to.is_float:
        return d.convert(x, to)
    wide = x if x.dtype in (f32, f64) else d.convert(x, f32)
    low, high = to.bounds
    array_value = d.convert(wide, to)
    above = d.compare("GE", wide, number(d, float(high + 1), wide))
    below = d.compare("LT", wide, number(d, float(low), wide))
    array_value = d.select(above, number(d, high, array_value), array_value)
    array_value = d.select(below, number(d, low, array_value), array_value)
    return d.select(d.compare("NE", wide, wide), number(d, 0, array_value), array_value)


def _is_zero(d: ArrayDialect, x: ArrayValue) -> ArrayValue:
    return d.compare("EQ", x, number(d, 0, x))


def _negative(d: ArrayDialect, x: ArrayValue) -> ArrayValue:
    return d.apply("negate", x) if x.dtype.is_float else d.apply("subtract", number(d, 0, x), x)


def _safe(d: ArrayDialect, x: ArrayValue, y: ArrayValue) -> tuple[ArrayValue, ArrayValue]:
    """A divisor of integers for which the quotient is defined, and where it is another one.

    The least integer by -1 is what negating it by 1 wraps to.
    """
    zero = _is_zero(d, y)
    return zero, d.select(zero, number(d, 1, y), y)


def _truncdiv(d: ArrayDialect, x: ArrayValue, y: ArrayValue) -> ArrayValue:
    zero, divisor = _safe(d, x, y)
    if x.dtype.kind == "int":
        minus = d.compare("EQ", y, number(d, -1, y))
        plain = d.apply("divide", x, d.select(minus, number(d, 1, y), divisor))
        array_value = d.select(minus, _negative(d, x), plain)
    else:
        array_value = d.apply("divide", x, divisor)
    return d.select(zero, number(d, 0, x), array_value)


def _truncmod(d: ArrayDialect, x: ArrayValue, y: ArrayValue) -> ArrayValue:
    return d.apply("subtract", x, d.apply("multiply", _truncdiv(d, x, y), y))


def _truncmod_by_zero(d: ArrayDialect, x: ArrayValue, y: ArrayValue) -> ArrayValue:
    return d.select(_is_zero(d, y), number(d, 0, x), _truncmod(d, x, y))


def _float_mod(d: ArrayDialect, x: ArrayValue, y: ArrayValue) -> ArrayValue:
    """The remainder with the sign of the divisor."""
    left = d.apply("remainder", x, y)
    zero = _is_zero(d, left)
    apart = d.compare("NE", d.compare("LT", left, number(d, 0, x)),
                      d.compare("LT", y, number(d, 0, y)))  # fmt: skip
    moved = d.select(apart, d.apply("add", left, y), left)
    return d.select(zero, _copysign(d, number(d, 0, x), y), moved)


def _floor_mod(d: ArrayDialect, x: ArrayValue, y: ArrayValue) -> ArrayValue:
    if x.dtype.is_float:
        return _float_mod(d, x, y)
    left = _truncmod(d, x, y)
    if x.dtype.kind == "int":
        apart = d.compare("LT", d.apply("xor", left, y), number(d, 0, x))
        moved = d.apply("and", apart, d.apply("not", _is_zero(d, left)))
        left = d.select(moved, d.apply("add", left, y), left)
    return d.select(_is_zero(d, y), number(d, 0, x), left)


def _floor_div(d: ArrayDialect, x: ArrayValue, y: ArrayValue) -> ArrayValue:
    if x.dtype.is_float:
        return _float_floor_div(d, x, y)
    array_value = _truncdiv(d, x, y)
    if x.dtype.kind != "int":
        return array_value
    left = d.apply("subtract", x, d.apply("multiply", array_value, y))
    apart = d.compare("LT", d.apply("xor", left, y), number(d, 0, x))
    lower = d.apply("and", apart, d.apply("not", _is_zero(d, left)))
    lower = d.apply("and", lower, d.apply("not", _is_zero(d, y)))
    return d.select(lower, d.apply("subtract", array_value, number(d, 1, x)), array_value)


def _float_floor_div(d: ArrayDialect, x: ArrayValue, y: ArrayValue) -> ArrayValue:
    """As numpy has it: what is left of the exact remainder is divided, and rounded."""
    quotient = d.apply("divide", d.apply("subtract", x, d.apply("remainder", x, y)), y)
    left = d.apply("remainder", x, y)
    apart = d.compare("NE", d.compare("LT", left, number(d, 0, x)),
                      d.compare("LT", y, number(d, 0, y)))  # fmt: skip
    lower = d.apply("and", apart, d.apply("not", _is_zero(d, left)))
    quotient = d.select(lower, d.apply("subtract", quotient, number(d, 1, x)), quotient)
    down = d.apply("floor", quotient)
    far = d.compare("GT", d.apply("subtract", quotient, down), number(d, 0.5, x))
    value = d.select(far, d.apply("add", down, number(d, 1, x)), down)
    through = d.apply("divide", x, y)
    value = d.select(_is_zero(d, quotient), _copysign(d, number(d, 0, x), through), value)
    return d.select(_is_zero(d, y), through, value)


def _copysign(d: ArrayDialect, x: ArrayValue, y: ArrayValue) -> ArrayValue:
    size = d.apply("abs", x)
    return d.select(d.signbit(y), d.apply("negate", size), size)


def _power(d: ArrayDialect, x: ArrayValue, y: ArrayValue) -> ArrayValue:
    if x.dtype.is_float:
        return d.apply("power", x, y)
    if x.dtype.kind == "uint":
        return d.apply("power", x, y)
    below = d.compare("LT", y, number(d, 0, y))
    array_value = d.apply("power", x, d.select(below, number(d, 0, y), y))
    return d.select(below, number(d, 0, x), array_value)


def _shift(word: str) -> Meaning:
    """A shift by the width or more leaves nothing, or all sign bits."""

    def meaning(d: ArrayDialect, x: ArrayValue, y: ArrayValue) -> ArrayValue:
        bits = x.dtype.bits
        inside = d.compare("LT", y, number(d, bits, y))
        if y.dtype.kind == "int":
            inside = d.apply("and", inside, d.compare("GE", y, number(d, 0, y)))
        signed = word == "shift_right" and x.dtype.kind == "int"
        full = {"shift_left": "shift_left"}.get(
            word, "shift_right_arithmetic" if signed else "shift_right_logical"
        )
        array_value = d.apply(full, x, d.select(inside, y, number(d, bits - 1, y)))
        return array_value if signed else d.select(inside, array_value, number(d, 0, x))

    return meaning


def _abs(d: ArrayDialect, x: ArrayValue) -> ArrayValue:
    return d.apply("abs", x) if x.dtype.kind in ("float", "int") else x


def _sign(d: ArrayDialect, x: ArrayValue) -> ArrayValue:
    """-1, 0 or 1; a zero has no sign, nan is itself, and so is a bool."""
    if x.dtype is bool_:
        return x
    zero, one = number(d, 0, x), number(d, 1, x)
    if x.dtype.kind == "uint":
        return d.select(_is_zero(d, x), zero, one)
    size = d.select(d.compare("LT", x, zero), number(d, -1, x), x)
    return d.select(d.compare("GT", x, zero), one, d.select(_is_zero(d, x), zero, size))


def _trunc(d: ArrayDialect, x: ArrayValue) -> ArrayValue:
    return _copysign(d, d.apply("floor", d.apply("abs", x)), x)


def _isnan(d: ArrayDialect, x: ArrayValue) -> ArrayValue:
    return d.compare("NE", x, x)


def _isinf(d: ArrayDialect, x: ArrayValue) -> ArrayValue:
    if not x.dtype.is_float:
        return d.compare("NE", x, x)
    return d.compare("EQ", d.apply("abs", x), number(d, math.inf, x))


def _fma(d: ArrayDialect, x: ArrayValue, y: ArrayValue, z: ArrayValue) -> ArrayValue:
    """The product of two f32 is exact in f64."""
    if x.dtype is f64:
        refuse(d, "fma", x.dtype)
    a, b, c = (d.convert(array_value, f64) for array_value in (x, y, z))
    return d.convert(d.apply("add", d.apply("multiply", a, b), c), x.dtype)


def _scaled(word: str, factor: float) -> Meaning:
    def meaning(d: ArrayDialect, x: ArrayValue) -> ArrayValue:
        array_value = d.apply("log", d.convert(x, f64))
        return d.convert(d.apply("multiply", array_value, number(d, factor, array_value)), x.dtype)

    return meaning


def _exp2(d: ArrayDialect, x: ArrayValue) -> ArrayValue:
    wide = d.convert(x, f64)
    return d.convert(d.apply("power", number(d, 2, wide), wide), x.dtype)


MEANING: Final[dict[str, Meaning]] = {
    "Select": lambda d, c, x, y: d.select(c, x, y),
    "FloorDiv": _floor_div, "FloorMod": _floor_mod, "Pow": _power,
    "ShiftLeft": _shift("shift_left"), "ShiftRight": _shift("shift_right"),
    "abs": _abs, "sign": _sign, "trunc": _trunc, "isnan": _isnan, "isinf": _isinf,
    "truncdiv": _truncdiv, "truncmod": _truncmod_by_zero,
    "fmod": lambda d, x, y: d.apply("remainder", x, y), "copysign": _copysign, "fma": _fma,
    "log2": _scaled("log", 1 / math.log(2)), "log10": _scaled("log", 1 / math.log(10)),
    "exp2": _exp2, "rsqrt": lambda d, x: d.apply("divide", number(d, 1, x), d.apply("sqrt", x)),
    "bits_of_f32": lambda d, x: d.bitcast(x, DType("u32")),
    "bits_of_f64": lambda d, x: d.bitcast(x, DType("u64")),
    "f32_of_bits": lambda d, x: d.bitcast(cast(d, x, DType("u32")), f32),
    "f64_of_bits": lambda d, x: d.bitcast(cast(d, x, DType("u64")), f64),
}  # fmt: skip
"""Scalar operators that several words say."""


def scalar(d: ArrayDialect, name: str, *values: ArrayValue) -> ArrayValue:
    """A scalar operator, the name of a row of `plica.ir.loop.scalar_table`, on arrays."""
    first = values[0]
    if name in COMPARE:
        narrow = first.dtype is bool_ and name not in ("Eq", "Ne")
        x, y = (d.convert(value, i32) for value in values) if narrow else values
        return d.compare(COMPARE[name], x, y)
    if name in ROUNDED and not first.dtype.is_float:
        return first
    if name == "isnan" and not first.dtype.is_float:
        return d.compare("NE", first, first)
    if (meaning := MEANING.get(name)) is not None:
        return meaning(d, *values)
    if name.endswith("_of_bits"):
        of = DType(name.removesuffix("_of_bits"))
        return d.bitcast(cast(d, first, DType(f"u{of.bits}")), of)
    if name not in WORDS:
        refuse(d, name, first.dtype)
    word = WORDS[name]
    if first.dtype is bool_:
        word = OF_BOOLS.get(word, word)
    return d.apply(word, *values)


OF_BOOLS: Final = {
    "add": "or", "multiply": "and", "maximum": "or", "minimum": "and", "subtract": "xor",
}  # fmt: skip


def refuse(d: ArrayDialect, name: str, of: object) -> NoReturn:
    """Refuse a scalar operator."""
    message = f"The scalar operator {name} of {of} is not written as {d.name}."
    raise UnsupportedError.of("unsupported", message, Place(node=name))
