"""Draws: real numbers of a domain, indices and sizes, from which calls of operators are made."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, TypeAlias

import attrs
import numpy as np

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]


@attrs.frozen(eq=False)
class DrawnCall:
    """An operator, arrays for its arguments, and its attributes."""

    op: str
    args: tuple[Array, ...]
    attrs: Mapping[str, Any]


@attrs.frozen(eq=False)
class RealDraw:
    """What rows draw from: real numbers of a domain, sizes up to a largest."""

    random: Random
    low: float
    high: float
    most: int = 3
    shapes: tuple[Shape, ...] = ()
    """Choices taken from existing tensors, so that a call may fit them."""

    def size(self, least: int = 1, more: int | None = None) -> int:
        """A size."""
        return self.random.randint(least, max(least, self.most if more is None else more))

    def shape(self, least: int = 0, most: int = 3) -> Shape:
        """A shape with few axes, or that of an existing tensor."""
        fit = [each for each in self.shapes if least <= len(each) <= most]
        if fit and self.maybe():
            return self.random.choice(fit)
        return tuple([self.size() for _ in range(self.random.randint(least, most))])

    def real(self, *shape: int) -> Array:
        """Numbers that are not near zero, unless the domain is."""
        given = np.random.default_rng(self.random.randrange(1 << 32)).uniform(
            self.low, self.high, shape
        )
        if self.low < 0 < self.high:
            given = np.where(np.abs(given) < 0.1, given + 0.2, given)
        return np.asarray(given, np.float64)

    def whole(self, below: int, *shape: int) -> Array:
        """Indices."""
        seed = self.random.randrange(1 << 32)
        return np.asarray(np.random.default_rng(seed).integers(0, max(1, below), shape), np.int64)

    def axis(self, rank: int) -> int:
        """An axis, counted from either end."""
        return self.random.randrange(-rank, rank)

    def maybe(self) -> bool:
        """One of two."""
        return self.random.random() < 0.5

    def pick(self, options: Sequence[Any]) -> Any:
        """One of several."""
        return self.random.choice(options)

    def axes(self, rank: int) -> Any:
        """All axes, or some."""
        if self.random.random() < 0.3 or not rank:
            return None
        return tuple(self.random.sample(range(rank), self.random.randint(1, rank)))


Drawn: TypeAlias = "tuple[tuple[Array, ...], dict[str, Any]]"
Row: TypeAlias = Callable[[RealDraw], Drawn]
