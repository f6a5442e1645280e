"""Array formulas: the numpy meaning of the functions that Plica defines itself.

The definitions are `plica.ir.loop.formula`'s, each product rounded before anything is added to it:
under the contract `exact` native code does the same, and has the same bits.  In f64 they mean what
numpy says.

>>> by_formula("exp", np.exp, np.float32([0, 1])), bool(by_formula("exp", np.exp, 1.0) == np.e)
(array([1.      , 2.718282], dtype=float32), True)
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, Literal

import numpy as np
from attrs import frozen

from plica.ir.loop.formula import FORMULAS, PAIR_FORMULAS, Bitwise, CarriedNumber, Order
from plica.ir.loop.quarter_turn import turns

# Any: arrays and numbers of numpy alike.
Function = Callable[..., Any]

_ORDERS: Final[dict[Order, Function]] = {
    "olt": np.less, "ogt": np.greater, "oeq": np.equal, "sgt": np.greater, "ne": np.not_equal,
}  # fmt: skip


@frozen(eq=False)
class ArrayNumber(CarriedNumber):
    """An array as a number of its dtype."""

    array: Any

    def like(self, other: ArrayNumber | float) -> Any:
        return other.array if isinstance(other, ArrayNumber) else self.array.dtype.type(other)

    def apply(self, how: Function, other: ArrayNumber | float) -> ArrayNumber:
        return ArrayNumber(how(self.array, self.like(other)))

    def __add__(self, other: ArrayNumber | float) -> ArrayNumber:
        return self.apply(operator.add, other)

    def __sub__(self, other: ArrayNumber | float) -> ArrayNumber:
        return self.apply(operator.sub, other)

    def __mul__(self, other: ArrayNumber | float) -> ArrayNumber:
        return self.apply(operator.mul, other)

    def __truediv__(self, other: ArrayNumber | float) -> ArrayNumber:
        return self.apply(operator.truediv, other)

    def bitwise(self, word: Bitwise, other: ArrayNumber | int) -> ArrayNumber:
        match word:
            case "and":
                return self.apply(operator.and_, other)
            case "or":
                return self.apply(operator.or_, other)
            case "xor":
                return self.apply(operator.xor, other)
            case "shl":
                return self.apply(operator.lshift, other)
            case "ashr":
                return self.apply(operator.rshift, other)
            case "lshr":
                by = np.asarray(self.like(other)).view(np.uint32)
                return ArrayNumber((self.array.view(np.uint32) >> by).view(np.int32))

    def is_(self, order: Order, other: ArrayNumber | float) -> ArrayNumber:
        return self.apply(_ORDERS[order], other)

    def choose(self, then: ArrayNumber, orelse: ArrayNumber | float) -> ArrayNumber:
        return ArrayNumber(np.where(self.array, then.array, then.like(orelse)))

    def number(self, value: float) -> ArrayNumber:
        return ArrayNumber(np.asarray(value, self.array.dtype))

    def whole(self, value: int) -> ArrayNumber:
        return ArrayNumber(np.asarray(value, np.int32))

    def bits(self) -> ArrayNumber:
        return ArrayNumber(self.array.view(np.int32))

    def real(self) -> ArrayNumber:
        return ArrayNumber(self.array.view(np.float32))

    def to_float(self) -> ArrayNumber:
        return ArrayNumber(self.array.astype(np.float32))

    def widened(self) -> ArrayNumber:
        return ArrayNumber(self.array.astype(np.float64))

    def narrowed(self) -> ArrayNumber:
        return ArrayNumber(self.array.astype(np.float32))

    def low_word(self) -> ArrayNumber:
        return ArrayNumber(self.array.view(np.int64).astype(np.int32))

    def size(self) -> ArrayNumber:
        return ArrayNumber(np.abs(self.array))

    def with_sign(self, other: ArrayNumber) -> ArrayNumber:
        return ArrayNumber(np.copysign(self.array, other.array))

    def root(self) -> ArrayNumber:
        return ArrayNumber(np.sqrt(self.array))

    def turn(self, part: Literal["high", "low"]) -> ArrayNumber:
        return ArrayNumber(_turns()[part == "low"][self.array])


@lru_cache(maxsize=1)
def _turns() -> tuple[Any, Any]:
    high, low = turns()
    return np.array(high), np.array(low)


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
