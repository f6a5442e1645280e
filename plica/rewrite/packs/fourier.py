"""Fourier: a transform of composite length is two short ones, with a turn between them.

    before:  dft(x, length=a * b)
    after:   dft(short transforms of length a, turned, length=b)                      `by_factor`

A length is factored while that saves products (Cooley-Tukey, any radix): sums of n² products become
n log n. The rest, prime or short, is one product with a matrix.

Rounding: each step adds one rotation and one short sum, so the error is below that of one long sum.

Measure: the length of each transform decreases.

>>> [rule.name for rule in FOURIER]
['dft-by-factors']
>>> first_factor(512, 512, 1, 257), first_factor(127, 127, 1, 64), first_factor(16, 16, 1, 9)
(16, None, None)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final

from plica.ir.contract import approx
from plica.ir.graph.expression import Expr
from plica.ir.op.fourier import by_factor, dft, extents
from plica.ir.type import f32, f64, known, tensor
from plica.rewrite.make import tabled as rule
from plica.rewrite.match import PatternMatch
from plica.rewrite.pack import Pack, pack
from plica.rewrite.packs.word import shape
from plica.rewrite.pattern import hole, holes

Choose = Callable[[Sequence[Any]], Any]  # Any: whatever the sequence holds

TURNING: Final = 100  # the cost of a rotation and its data movement, in products per element

x: Any = hole("x", dtypes=(f32, f64))
length, bins, parts, inverse = holes("length bins parts inverse")


def divisors(number: int) -> list[int]:
    """The divisors between 1 and a number."""
    small = [each for each in range(2, int(number**0.5) + 1) if number % each == 0]
    return sorted({*small, *[number // each for each in small]})


@lru_cache(maxsize=4096)
def complex_products(size: int) -> float:
    """Real products for each place of a complex transform, at best."""
    return min(
        [4.0 * size, *[4 * a + TURNING + complex_products(size // a) for a in divisors(size)]]
    )


def first_factor(size: int, given: int, planes: int, bins: int, parts: int = 2) -> int | None:
    """The factor by which to split a transform, or None if one product is cheaper.

    A given number of places of the signal are given, on one plane or two, and a given number of
    bins asked for.
    """
    least, best = planes * parts * given * (bins / size), None
    for a in divisors(size):
        rest = complex_products(size // a)
        if rest == 4.0 * (size // a):  # the last product makes nothing that nobody asked for
            rest *= -(-bins // a) * a / size * parts / 2
        if (cost := 2 * planes * a + TURNING + rest) < least:
            least, best = cost, a
    return best


def factored(m: PatternMatch) -> Expr | None:
    """A transform by the factor that saves most, if one does."""
    *_, given, size, _ = map(known, shape(m.x))
    if size is None or given is None:
        return None
    whole, wanted = extents({"length": m.length, "bins": m.bins}, size)
    factor = first_factor(whole, size, given, wanted, m.parts)
    return (
        None
        if factor is None
        else by_factor(m.x, factor, whole, wanted, parts=m.parts, inverse=m.inverse)
    )


def composite_length(choose: Choose) -> dict[str, Any]:
    """Signals long enough to be split, real or complex."""
    size = choose((45, 48))
    given = choose((size, size - 1))
    return {
        "x": tensor((*choose(((), (2,), (0,))), 2, given, choose((1, 2, 17))), f32),
        "length": size,
        "bins": choose((None, size - 2)),
        "parts": 2,
        "inverse": choose((False, True)),
    }


FOURIER: Final[Pack] = pack(
    "fourier",
    rule(
        "dft-by-factors",
        dft(x, length, bins, parts, inverse),
        factored,
        float=approx(1e-5),
        instances=composite_length,
    ),
    version="1",
    doc="Fourier transforms of composite length by short ones.",
)
