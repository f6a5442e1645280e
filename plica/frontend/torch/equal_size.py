"""Equal sizes: the simplest of the sizes that the guards of a program hold to be one.

Torch writes sizes as they were computed (`n - n // 2`, `4 * (n // 4)`), and records required
equalities as guards. Guards are asserted at each call, so both sides are interchangeable.

>>> from plica.ir.type.dim import dim_var
>>> n = dim_var("n")
>>> equal = EqualSizes([(n - n // 2, n // 2), (16 * (n // 4), 4 * n)])
>>> sizes = (n - n // 2 + 1, 8 * (n // 4), n // 3)
>>> [show_dim(equal.simplest(each), lambda v: str(v.name)) for each in sizes]
['n//2+1', '2*n', 'n//3']
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product
from math import gcd

from plica.ir.loop.scalar import Scalar, ScalarVar
from plica.ir.text.show.type import show_dim
from plica.ir.type.dim import from_polynomial, known, normal_dim, polynomial, quotient


class EqualSizes:
    """Pairs of sizes that are equal."""

    def __init__(self, pairs: Iterable[tuple[Scalar, Scalar]] = ()) -> None:
        zeros = [_without_factor(a - b) for a, b in pairs]
        self._zeros = [(each, _products(each)) for each in zeros if known(each) is None]
        self._simplest: dict[Scalar, Scalar] = {}

    def simplest(self, size: Scalar) -> Scalar:
        """The simplest size that is found to be equal to another."""
        if not self._zeros or isinstance(size, ScalarVar) or known(size) is not None:
            return size
        if (found := self._simplest.get(size)) is None:
            found = size
            while (simpler := min(self._equal(found), key=_order, default=found)) is not found:
                if _order(simpler) >= _order(found):
                    break
                found = simpler
            self._simplest[size] = found
        return found

    def _equal(self, size: Scalar) -> Iterator[Scalar]:
        """What each pair makes of a size that one of its products divides a product of."""
        products = _products(size)
        for zero, parts in self._zeros:
            for whole, part in product(products, parts):
                if known(part) is None and (times := quotient(whole, part)) is not None:
                    yield normal_dim(size - zero * times)


def _without_factor(zero: Scalar) -> Scalar:
    """A sum that is 0 where another is: what divides all of that leaves it."""
    terms = polynomial(zero)
    most = gcd(*[count for _, count in terms.values()])
    return from_polynomial({key: (atoms, count // most) for key, (atoms, count) in terms.items()})


def _products(of: Scalar) -> list[Scalar]:
    return [from_polynomial({key: each}) for key, each in polynomial(of).items()]


def _order(of: Scalar) -> tuple[bool, int, str]:
    """Numbers first, then short terms, independent of names, so that this terminates."""
    return known(of) is None, len(show_dim(of, lambda _: "n")), show_dim(of, repr)
