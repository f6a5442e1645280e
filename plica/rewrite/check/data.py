"""Data that rules are sensitive to: zeros of both signs, nan, inf, extremes, small numbers.

>>> from plica.ir.type.term import tensor
>>> array(tensor((2, 2), "i8"), lambda options: options[0]).tolist()
[[0, 0], [0, 0]]
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from plica.ir.type import DType, TensorType, Type, bool_, known
from plica.rewrite.check.sample import FILLS, flat

Choose: TypeAlias = Callable[[Sequence[Any]], Any]  # Any: whatever the sequence holds
Shape: TypeAlias = tuple[int, ...]

SEEDS: Final = range(1 << 16)  # from which the numbers of a random array are drawn


def seeded(seed: int) -> Choose:
    """Choices of a generator, as often as one likes."""
    source = random.Random(seed)

    def choose(options: Sequence[Any]) -> Any:
        return options[source.randrange(len(options))]

    return choose


TAPE: Final = 96
"""Bytes that decide an instance: one draw of many bytes costs far less than many draws."""


def reader(tape: bytes) -> Choose:
    """Choices read from a tape; lower bytes mean simpler choices, beyond its end the simplest."""
    position = 0

    def choose(options: Sequence[Any]) -> Any:
        nonlocal position
        width = 1 if len(options) <= 256 else 2
        number = int.from_bytes(tape[position : position + width].ljust(width, b"\0"))
        position += width
        return options[number * len(options) >> 8 * width]

    return choose


def array(of: Type | None, choose: Choose) -> np.ndarray[Any, Any]:
    """An array of a type: a few values repeated, a ramp that tells places apart, or random ones."""
    assert isinstance(of, TensorType)
    shape = sizes(of)
    count = int(np.prod(shape, dtype=np.int64))
    if choose((False, False, False, True)):
        return flat(choose(FILLS), of.dtype, count, choose(SEEDS)).reshape(shape)
    values = [choose(numbers(of.dtype)) for _ in range(choose((1, 2, 3, 4)))]
    few = np.resize(np.array(values, of.dtype.numpy), count)
    if of.dtype is not bool_ and choose((False, True)):
        with np.errstate(over="ignore", invalid="ignore"):
            few = few + np.arange(count).astype(of.dtype.numpy)
    return few.astype(of.dtype.numpy).reshape(shape)


def odd_array(of: TensorType, choose: Choose) -> np.ndarray[Any, Any]:
    """An array with nan, inf and the edges of the range among its numbers."""
    shape = sizes(of)
    count = int(np.prod(shape, dtype=np.int64))
    return flat("special", of.dtype, count, choose(SEEDS)).reshape(shape)


def numbers(of: DType) -> Sequence[Any]:
    """Numbers of a dtype, the simple ones first."""
    if of is bool_:
        return (False, True)
    if of.is_float:
        big = 3e38 if of.bits >= 32 else 3e4
        small = 1e-40 if of.bits >= 32 else 1e-6
        inf, nan = float("inf"), float("nan")
        usual = (0.0, 1.0, -0.0, -1.0, 2.0, 0.5, 0.0, -0.0)
        plain = (*usual, 3.0, -2.0, 1.25, -0.75, 5.0, -7.0, 0.1)
        return (*plain, inf, -inf, nan, small, -small, 100.0, big, -big)
    low, high = of.bounds
    near = (0, 1, 2, 3, 5) + ((-1, -2, -3) if low < 0 else ())
    return (*near, high, low, high - 1, low + 1)


def sizes(of: TensorType) -> Shape:
    """The shape in numbers; a symbolic size counts as none."""
    return tuple(known(n) or 0 for n in of.shape)
