"""What scalar operators mean where neither Python nor numpy has them: on arrays and on numbers.

The laws stand in `plica.ir.loop.scalar`; `plica.ir.loop.scalar_table` says which operator has
which meaning.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, Final

import numpy as np

from plica.runtime.late import lazy_imports

with lazy_imports(__name__):
    from plica.ir.loop.array_formula import pair_by_formula

# --- arrays --------------------------------------------------------------------------------------


def array_power(x: Any, y: Any) -> Any:
    """`x ** y`; a negative power of an integer is 0."""
    if np.asarray(x).dtype.kind in "iu":
        # Numpy refuses negative powers of integers; ours are 0.
        return np.where(y < 0, np.zeros_like(x), np.power(x, np.maximum(y, np.zeros_like(y))))
    if np.asarray(x).dtype == np.float32:
        return pair_by_formula("pow", x, y)
    # With a single exponent, numpy computes square roots instead of powers for -inf and -0.0; a
    # full array of exponents avoids that.
    bases, exponents = np.broadcast_arrays(x, y)
    found = np.power(bases.reshape(-1), exponents.flatten()).reshape(bases.shape)
    # Numpy's vector code is off by a last digit even for the first power.
    return np.where(exponents == 1, bases, found)


def array_least(x: Any, y: Any) -> Any:
    """IEEE 754's minimum."""
    found = np.minimum(x, y)
    zeros = _both_zero(x, y, found)
    return found if zeros is None else np.where(zeros, np.negative(-x - y), found)


def array_greatest(x: Any, y: Any) -> Any:
    """IEEE 754's maximum."""
    found = np.maximum(x, y)
    zeros = _both_zero(x, y, found)
    return found if zeros is None else np.where(zeros, x + y, found)


def _both_zero(x: Any, y: Any, like: Any) -> Any:
    """Where two floats are zeros, None if nowhere: numpy gives the sign of either."""
    if like.dtype.kind in "biu":
        return None
    zeros = np.logical_not(np.logical_or(x, y))
    return zeros if zeros.any() else None


_erf_one: Final = np.frompyfunc(math.erf, 1, 1)


def array_erf(x: Any) -> Any:
    """The error function, in f64."""
    array = np.asarray(x)
    return np.asarray(_erf_one(array.astype(np.float64)), np.float64).astype(array.dtype)


def array_rsqrt(x: Any) -> Any:
    """`1 / sqrt(x)`, rounded twice."""
    root = np.sqrt(x)
    return np.divide(np.ones_like(root), root)


def array_fma(x: Any, y: Any, z: Any) -> Any:
    """`x * y + z`, rounded once; f16 as f32, and then once more."""
    of = np.result_type(x, y, z)
    wide = np.float64 if of == np.float64 else np.float32
    arrays = np.broadcast_arrays(*[np.asarray(each, np.float64) for each in (x, y, z)])
    exact = np.frompyfunc(lambda a, b, c: number_fma(a, b, c, wide), 3, 1)
    return np.asarray(exact(*arrays), np.float64).astype(wide).astype(of)


def array_sign(x: Any) -> Any:
    """-1, 0 or 1; nan is itself, and so is a bool, of which numpy has no sign."""
    return x if np.asarray(x).dtype == np.bool_ else np.sign(x)


def array_truncdiv(x: Any, y: Any) -> Any:
    """The quotient of integers rounded towards 0; by 0 it is 0."""
    with np.errstate(divide="ignore", over="ignore"):
        return np.floor_divide(x - array_truncmod(x, y), y)


def array_truncmod(x: Any, y: Any) -> Any:
    """What that leaves, with the sign of the left side; by 0 it is 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.fmod(x, y)


def array_popcount(x: Any) -> Any:
    """How many bits are set."""
    array = np.asarray(x)
    return np.bitwise_count(array.view(f"u{array.itemsize}")).astype(array.dtype)


# --- numbers -------------------------------------------------------------------------------------


def number_divide(a: float, b: float) -> float:
    """`a / b`; by zero too."""
    if b:
        return a / b
    if a == 0 or math.isnan(a):
        return math.nan
    return math.copysign(math.inf, a) * math.copysign(1.0, b)


def number_least(a: Any, b: Any) -> Any:
    """IEEE 754's minimum."""
    if a == b:  # -0.0 is the lesser zero
        return a if math.copysign(1.0, a) < 0 else b
    return a if math.isnan(a) or a < b else b


def number_greatest(a: Any, b: Any) -> Any:
    """IEEE 754's maximum."""
    if a == b:  # 0.0 is the greater zero
        return b if math.copysign(1.0, a) < 0 else a
    return a if math.isnan(a) or a > b else b


def number_power(a: int, b: int) -> int:
    """`a ** b` up to a multiple of every dtype's span; 0 for a negative power."""
    return int(pow(a, b, 1 << 64)) if b >= 0 else 0


def number_truncdiv(a: int, b: int) -> int:
    """`a / b` rounded towards 0; 0 where b is."""
    return abs(a) // abs(b) * (-1 if (a < 0) != (b < 0) else 1) if b else 0


def number_truncmod(a: int, b: int) -> int:
    """What that leaves, with the sign of a; 0 where b is."""
    return a - number_truncdiv(a, b) * b if b else 0


def number_shift_left(a: int, b: int, bits: int) -> int:
    """`a << b` of a given number of bits, before it wraps around."""
    return a << b if 0 <= b < bits else 0


def number_shift_right(a: int, b: int, bits: int) -> int:
    """`a >> b` of a given number of bits."""
    return a >> (b if 0 <= b < bits else bits)


def number_fma(a: float, b: float, c: float, wide: Any = np.float64) -> float:
    """`a * b + c`, rounded once to f32 or f64."""
    if not (math.isfinite(a) and math.isfinite(b) and math.isfinite(c)):
        return float(np.float64(a) * np.float64(b) + np.float64(c))
    product = Fraction(a) * Fraction(b)
    exact = product + Fraction(c)
    if not exact:  # the sign of a zero is that of the sum of signed zeros
        signed = math.copysign(0.0, a) * math.copysign(1.0, b) if not product else 0.0
        return signed + c if not product else 0.0
    return _nearest(exact, wide)


def _nearest(exact: Fraction, wide: Any) -> float:
    """A fraction rounded to nearest, ties to even."""
    digits, least = (53, -1074) if wide is np.float64 else (24, -149)
    size = abs(exact)
    power = size.numerator.bit_length() - size.denominator.bit_length()
    if size < Fraction(2) ** power:
        power -= 1
    step = Fraction(2) ** max(power - digits + 1, least)
    fraction = round(size / step) * step  # Python rounds ties to even
    greatest = float(np.finfo(wide).max)
    result = math.inf if fraction > greatest else float(fraction)
    return math.copysign(result, 1.0 if exact > 0 else -1.0)
