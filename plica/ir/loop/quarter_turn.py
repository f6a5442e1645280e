"""Quarter turns: 2/pi with enough digits for the argument reduction of every f32.

>>> high, low = turns()
>>> high[0] + low[0] == 2 / 3.141592653589793
True
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

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
