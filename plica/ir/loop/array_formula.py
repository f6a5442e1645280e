"""Array formulas: the numpy meaning of the functions that Plica defines itself.

The definitions are `plica.ir.loop.formula`'s, each product rounded before anything is added to it:
under the contract `exact` native code does the same, and has the same bits.  In f64 they mean what
numpy says.

>>> by_formula("exp", np.exp, np.float32([0, 1])), bool(by_formula("exp", np.exp, 1.0) == np.e)
(array([1.      , 2.718282], dtype=float32), True)

Quarter turns: 2/pi with enough digits for the argument reduction of every f32.

>>> high, low = turns()
>>> high[0] + low[0] == 2 / 3.141592653589793
True
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

import numpy as np
from attrs import frozen

from plica.ir.loop.formula import FORMULAS, PAIR_FORMULAS, CarriedNumber

# Any: arrays and numbers of numpy alike.
Function = Callable[..., Any]


@lru_cache(maxsize=1)
def _turns() -> tuple[Any, Any]:
    high, low = turns()
    return np.array(high), np.array(low)


_WORDS: Final[dict[str, Function]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv,
    "and": operator.and_, "or": operator.or_, "xor": operator.xor,
    "shl": operator.lshift, "ashr": operator.rshift,
    "lshr": lambda a, by: (a.view(np.uint32) >> by.view(np.uint32)).view(np.int32),
    "olt": np.less, "ogt": np.greater, "oeq": np.equal, "sgt": np.greater, "ne": np.not_equal,
    "select": np.where,
    "bits": lambda a: a.view(np.int32), "real": lambda a: a.view(np.float32),
    "to_float": lambda a: a.astype(np.float32), "widened": lambda a: a.astype(np.float64),
    "narrowed": lambda a: a.astype(np.float32),
    "low_word": lambda a: a.view(np.int64).astype(np.int32),
    "size": np.abs, "with_sign": np.copysign, "root": np.sqrt,
    "turn_high": lambda a: _turns()[0][a], "turn_low": lambda a: _turns()[1][a],
}  # fmt: skip


@frozen(eq=False)
class ArrayNumber(CarriedNumber):
    """An array as a number of its dtype."""

    array: Any

    def do(self, word: str, *others: ArrayNumber) -> ArrayNumber:
        arrays = [number.array for number in others]
        return ArrayNumber(np.asarray(_WORDS[word](self.array, *arrays)))

    def number(self, value: float) -> ArrayNumber:
        return ArrayNumber(np.asarray(value, self.array.dtype))

    def whole(self, value: int) -> ArrayNumber:
        return ArrayNumber(np.asarray(value, np.int32))


def by_formula(name: str, wide: Function, x: Any) -> Any:
    """The function of a name: by its formula in f32, and as numpy has it in f64."""
    array = np.asarray(x)
    if array.dtype != np.float32:
        return wide(x)
    with np.errstate(all="ignore"):
        made = FORMULAS[name](ArrayNumber(array.reshape(-1))).array  # of numbers numpy warns
    return made.reshape(array.shape)[()]


def pair_by_formula(name: str, x: Any, y: Any) -> Any:
    """The function of two arrays of f32, which are broadcast."""
    one, two = np.broadcast_arrays(x, y)
    with np.errstate(all="ignore"):
        numbers = ArrayNumber(one.reshape(-1)), ArrayNumber(two.reshape(-1))
        return PAIR_FORMULAS[name](*numbers).array.reshape(one.shape)[()]


LARGEST_EXPONENT: Final = 105
"""An f32 is a whole number of 24 bits times at most 2 to this (which infinity and nan have)."""


@lru_cache(maxsize=1)
def turns() -> tuple[tuple[float, ...], tuple[float, ...]]:
    """For each exponent e of a whole number m: `2/pi * 2^e` modulo 4, over 2^e, in two parts.

    The first has 29 bits, so that its product with m is exact; the second has the 53 that follow.
    """
    precision = 400
    quarter = _two_over_pi(precision)
    high, low = [], []
    for e in range(LARGEST_EXPONENT + 1):
        rest = (quarter << e) % (4 << precision) if e else quarter
        cut = max(0, rest.bit_length() - 29)
        first = (rest >> cut) << cut
        high.append(_ratio(first, precision + e))
        low.append(_ratio(rest - first, precision + e))
    return tuple(high), tuple(low)


def _ratio(number: int, power: int) -> float:
    """`number / 2 ** power`, rounded to the 53 bits of an f64."""
    return number / (1 << power)


def _two_over_pi(bits: int) -> int:
    """2/pi as a whole number of 2^-bits, from Machin's formula."""
    more = bits + 64

    def inverse_tangent(of: int) -> int:
        total, term, n = 0, (1 << more) // of, 1
        while term:
            total += term // n if n % 4 == 1 else -(term // n)
            term //= of * of
            n += 2
        return total

    pi = 4 * (4 * inverse_tangent(5) - inverse_tangent(239))
    return (2 << (more + bits)) // pi
