"""Random data sets for one instance of a rule, each of a kind that reveals another sort of error.

    plain    full mantissas near 1                 places, operators, roundings
    wide     full mantissas, far exponents         the order of a sum, what is absorbed
    cancel   large numbers and their opposites     the order of a sum, in narrow floats too, which
             beside small ones, or signs alone     are added up in f32
    close    few values, their opposites and       cancellation, ties of comparisons and extremes
             neighbours, shared by all arrays
             and with the constants
    special  nan, inf, zeros of both signs,        what is said of all numbers
             edges of the range among others
    extreme  the whole range, denormals included   overflow, underflow, wrapping round
    halves   small multiples of a half             roundings to integers, equal elements
    short    mantissas so short that products      sums of products, whether they are fused or not
             are exact
    even     full mantissas from 1 to 2            the order of products, and of sums of what is
                                                   not negative
    zeros    zeros of both signs, ones among them  which zero comes out
    vast     close to the end of the range         what is made of constants alone, and overflows

Integers follow the same words: random bits, numbers near the edges, small ones.

>>> from plica.ir.type.dtype import f32, i8
>>> flat("halves", f32, 3, seed=1).dtype, [each.shape for each in next(samples([(i8, (2,))], 0))]
(dtype('float32'), [(2,)])
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from plica.ir.type import DType, bool_, dtype, f32

Array: TypeAlias = np.ndarray[Any, Any]
Sets: TypeAlias = Sequence[tuple[DType, tuple[int, ...]]]

FILLS: Final = (
    "plain", "wide", "cancel", "close", "special", "extreme", "halves", "short", "even", "zeros",
)  # fmt: skip
"""The kinds of data, the tamest first; `vast` is for constants."""


MAX_OF_ONE: Final = 8  # elements of a constant that data have in common with it


def flat(fill: str, of: DType, count: int, seed: int) -> Array:
    """Random numbers of a dtype and kind."""
    return _Source(seed).numbers(fill, of, count)


def samples(
    types: Sets, seed: int, fills: Sequence[str] = FILLS, constants: Iterable[Array] = ()
) -> Iterator[list[Array]]:
    """Data sets for arrays of these dtypes and shapes: one of each kind, and one of mixed kinds."""
    source = _Source(seed, constants)
    for fill in fills:
        yield [source.array(fill, of, shape) for of, shape in types]
    yield [source.array(source.pick(fills), of, shape) for of, shape in types]


class _Source:
    """A seeded generator; what it draws of one kind for several arrays has values in common."""

    def __init__(self, seed: int, constants: Iterable[Array] = ()) -> None:
        self.random = np.random.Generator(np.random.PCG64(seed))
        self.pools: dict[DType, Array] = {}
        self.constants: dict[DType, list[Array]] = {}
        for array in constants:
            if array.size:
                self.constants.setdefault(dtype(array.dtype), []).append(array.ravel()[:MAX_OF_ONE])

    def pick(self, options: Sequence[str]) -> str:
        return options[int(self.random.integers(len(options)))]

    def array(self, fill: str, of: DType, shape: tuple[int, ...]) -> Array:
        count = 1
        for size in shape:
            count *= size
        return self.numbers(fill, of, count).reshape(shape)

    def numbers(self, fill: str, of: DType, count: int) -> Array:
        if of is bool_:
            return self.random.integers(0, 2, count).astype(bool)
        if not of.is_float:
            return self._integers(fill, of, count)
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            return self._floats(fill, of, count).astype(of.numpy)

    def _floats(self, fill: str, of: DType, count: int) -> Array:
        digits, reach = of.row.digits, 1 << of.row.exponent - 1
        match fill:
            case "plain":
                return self._scaled(count, -2, 2)
            case "wide":  # sums of narrow floats are kept in f32
                far = min(max(digits, f32.row.digits), reach - 1)
                return self._scaled(count, -far, far)
            case "cancel":
                if self.random.random() < 0.5:
                    return self.random.choice(np.array([1.0, -1.0]), count)
                far = min(f32.row.digits // 2, reach - 2)
                large = np.ldexp(1 + self.random.random(), far)
                array = self._scaled(count, -far, 3 - far)
                signs = self.random.integers(-1, 2, count)
                return np.where(signs == 0, array, signs * large)
            case "vast":
                return self._scaled(count, reach - 3, reach)
            case "even":
                return 1 + self.random.random(count)
            case "zeros":
                return self.random.choice(np.array([0.0, -0.0, 0.0, -0.0, 1.0, -1.0]), count)
            case "close":
                return self._pooled(of, count)
            case "special":
                array = self._scaled(count, -2, 2)
                odd = self.random.choice(_specials(of), count)
                return np.where(self.random.random(count) < 0.4, odd, array)
            case "extreme":  # or half of it, in which single products stay and longer ones do not
                share = int(self.random.integers(1, 3))
                return self._scaled(count, (3 - reach - digits) // share, reach // share)
            case "halves":
                return self.random.integers(-9, 10, count) / 2
            case _:
                own = max(1, digits // 4 - 1)
                whole = self.random.integers(-(1 << own), (1 << own) + 1, count)
                # Two of them side by side are a little too long together: their sum is rounded.
                apart = np.array([0, digits - own, digits - own + 1, digits - 1])
                short: Array = np.ldexp(whole.astype(np.float64), self.random.choice(apart, count))
                return short

    def _scaled(self, count: int, low: int, high: int) -> Array:
        """Numbers of both signs, all of whose digits count, with exponents in a range."""
        mantissas = 1 + self.random.random(count)
        signs = self.random.integers(0, 2, count) * 2 - 1
        return np.ldexp(mantissas * signs, self.random.integers(low, high, count))

    def _pooled(self, of: DType, count: int) -> Array:
        pool = self.pools.get(of)
        if pool is None:
            few = self._scaled(2, -1, 2)
            step = 2.0 ** (1 - of.row.digits)
            pool = np.concatenate([few, -few, few * (1 + step), few * (step - 1), few * 2, [0.0]])
            known = self.constants.get(of)
            if known is not None:
                every = np.concatenate(known).astype(np.float64)
                pool = np.concatenate([pool, every, -every])
            self.pools[of] = pool
        return self.random.choice(pool, count)

    def _integers(self, fill: str, of: DType, count: int) -> Array:
        low, high = of.bounds
        match fill:
            case "plain" | "wide":
                bits = self.random.integers(0, 256, (count, of.bytes), np.uint8)
                array = np.frombuffer(bits.tobytes(), f"{'u' if low == 0 else 'i'}{of.bytes}")
                if fill == "wide" and of.bits >= 8:  # of any length
                    array = array >> self.random.integers(0, of.bits, count).astype(array.dtype)
                return array.astype(of.numpy)
            case "close":
                pool = self.pools.get(of)
                if pool is None:
                    few = self._integers("wide", of, 3)
                    pool = self.pools[of] = np.concatenate([few, *self.constants.get(of, ())])
                return pool[self.random.integers(0, len(pool), count)]
            case "special" | "extreme" | "vast":
                edges = _edges(of)
                return edges[self.random.integers(0, len(edges), count)]
            case _:
                most = of.bits + 1 if fill == "short" else 4
                least = max(low, 0 if fill == "short" else -4)
                return self.random.integers(least, min(high, most) + 1, count).astype(of.numpy)


@functools.lru_cache(maxsize=32)
def _specials(of: DType) -> Array:
    digits = of.row.digits
    least = 2.0 ** (2 - (1 << of.row.exponent - 1))
    great = float(of.greatest)
    ends = [np.inf, -np.inf] if of.row.has_infinity else []
    few = [
        np.nan,
        0.0,
        -0.0,
        least,
        least * 2.0 ** (1 - digits),
        great,
        -great,
        2.0 ** (digits - 1),
    ]
    return np.array([*ends, *few, 1.0, -1.0, 0.5, 1.5, -2.5])


@functools.lru_cache(maxsize=32)
def _edges(of: DType) -> Array:
    low, high = of.bounds
    near = {low, low + 1, high, high - 1, 0, 1, 2, of.bits - 1, of.bits, high // 2, high // 2 + 1}
    if low < 0:
        near |= {-1, -2, low // 2, low // 2 - 1}
    return np.array(sorted(n for n in near if low <= n <= high), of.numpy)
