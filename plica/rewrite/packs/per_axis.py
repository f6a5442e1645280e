"""Numbers for each axis: what right sides and guards of slices, pads and joins compute with.

Each function takes tuples with one number for each axis, and has the same meaning along every axis,
by which the prover reads it (`plica.rewrite.prove.coordinate`).

>>> plain(sums.compute((1, 2), (3, 4)))
(4, 6)
>>> widths.compute((1, 0), (2, 5))
((1, 2), (0, 5))
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import eq, le, lt
from typing import Any, Final, Literal, TypeAlias

import attrs

from plica.core import Term
from plica.ir.graph.expression import Expr
from plica.ir.loop.scalar import index
from plica.rewrite.instantiate import plan
from plica.rewrite.match import PatternMatch, plain
from plica.rewrite.packs.axes import rank_of
from plica.rewrite.packs.word import shape
from plica.rewrite.pattern import Hole, derived

Numbers: TypeAlias = tuple[Any, ...]  # Any: index terms, or integers
Given: TypeAlias = Numbers | int  # numbers along each axis; an integer is that number along each
Relation: TypeAlias = Literal["<=", "<", "=="]

RELATIONS: Final[dict[Relation, Callable[[int, int], bool]]] = {"<=": le, "<": lt, "==": eq}


def _together(*given: Given) -> list[tuple[int, ...]] | None:
    """The numbers along each axis, None where there are not as many everywhere."""
    found = [plain(each) for each in given]
    ranks = {len(each) for each in found if not isinstance(each, int)}
    if len(ranks) != 1:
        return None
    (rank,) = ranks
    rows = [(each,) * rank if isinstance(each, int) else each for each in found]
    known = all(type(number) is int for row in rows for number in row)
    return list(zip(*rows, strict=True)) if known else None


def _placed(numbers: Sequence[int]) -> Numbers:
    return tuple(map(index, numbers))


@derived
def sums(first: Given, second: Given) -> Numbers | None:
    """The sum along each axis."""
    pairs = _together(first, second)
    return None if pairs is None else _placed([a + b for a, b in pairs])


@derived
def differences(first: Given, second: Given) -> Numbers | None:
    """The difference along each axis."""
    pairs = _together(first, second)
    return None if pairs is None else _placed([a - b for a, b in pairs])


@derived
def greatest(first: Given, second: Given) -> Numbers | None:
    """The greater number along each axis."""
    pairs = _together(first, second)
    return None if pairs is None else _placed([max(a, b) for a, b in pairs])


@derived
def where_zero(numbers: Given, zero: Given, other: Given) -> Numbers | None:
    """One number along the axes where the first is 0, another along the others."""
    rows = _together(numbers, zero, other)
    return None if rows is None else _placed([b if a else z for a, z, b in rows])


@derived
def counts(starts: Given, stops: Given, steps: Given) -> Numbers | None:
    """How many elements a slice has along each axis."""
    rows = _together(starts, stops, steps)
    if rows is None or any(step < 1 for _, _, step in rows):
        return None
    return _placed([len(range(*row)) for row in rows])


@derived
def extents(of: Expr) -> Numbers:
    """The size of each axis."""
    return shape(of)


@derived
def extent_along(of: Expr, axis: int) -> Numbers:
    """The size of one axis, and 0 along the others."""
    found, at = plain(shape(of)), axis % rank_of(of)
    return _placed([size if here == at else 0 for here, size in enumerate(found)])


@derived
def extents_beside(of: Expr, axis: int) -> Numbers:
    """The sizes of all axes but one, and 0 along that."""
    found, at = plain(shape(of)), axis % rank_of(of)
    return _placed([0 if here == at else size for here, size in enumerate(found)])


@derived
def along(axis: int, numbers: Numbers) -> Numbers | None:
    """The number of one axis, and 0 along the others."""
    if not -len(numbers) <= axis < len(numbers):
        return None
    at = axis % len(numbers)
    return _placed([number if here == at else 0 for here, number in enumerate(plain(numbers))])


@derived
def beside(axis: int, numbers: Numbers) -> Numbers | None:
    """The numbers of all axes but one, and 0 along that."""
    if not -len(numbers) <= axis < len(numbers):
        return None
    at = axis % len(numbers)
    return _placed([0 if here == at else number for here, number in enumerate(plain(numbers))])


@derived
def flipped_along(
    axes: tuple[int, ...] | None, there: Numbers, elsewhere: Numbers
) -> Numbers | None:
    """The numbers of the first tuple along some axes, those of the second along the others."""
    rank, pairs = len(there), _together(there, elsewhere)
    if pairs is None:
        return None
    chosen = range(rank) if axes is None else {axis % rank for axis in axes}
    return _placed([a if at in chosen else b for at, (a, b) in enumerate(pairs)])


@derived
def integers(numbers: Numbers) -> tuple[int, ...]:
    """Numbers that an attribute takes as integers."""
    found: tuple[int, ...] = plain(numbers)
    return found


@derived
def before(pads: Any) -> Numbers | None:
    """What a padding puts before each axis; None where it names no axes."""
    return _placed([low for low, _ in pads]) if isinstance(pads, tuple) else None


@derived
def behind(pads: Any) -> Numbers | None:
    """What a padding puts behind each axis; None where it names no axes."""
    return _placed([high for _, high in pads]) if isinstance(pads, tuple) else None


@derived
def widths(low: Given, high: Given) -> tuple[tuple[int, ...], ...] | None:
    """The padding of that many elements before and behind each axis."""
    pairs = _together(low, high)
    return None if pairs is None else tuple(pairs)


@derived
def widths_together(first: Any, second: Any, of: Expr) -> tuple[tuple[int, int], ...]:
    """What two paddings, one after the other, put around a tensor.  Any: pairs, or a number."""
    pairs = [
        given if isinstance(given, tuple) else ((given, given),) * rank_of(of)
        for given in (first, second)
    ]
    return tuple((i + k, j + n) for (i, j), (k, n) in zip(*pairs, strict=True))


@attrs.frozen
class AlongEachAxis:
    """A guard: numbers stand in relations along each axis of a tensor or of an attribute.

    There is one number for each of its axes; an integer is that number along each.
    """

    of: str
    relations: tuple[tuple[Any, Relation, Any], ...]
    least_rank: int = 0

    def __call__(self, match: PatternMatch) -> bool:
        rank = rank_of(match[self.of])
        return rank >= self.least_rank and all(
            self._holds(rank, self._numbers(a, match, rank), word, self._numbers(b, match, rank))
            for a, word, b in self.relations
        )

    @staticmethod
    def _holds(rank: int, a: Numbers | None, word: Relation, b: Numbers | None) -> bool:
        if (
            a is None
            or b is None
            or not len(a) == len(b) == rank
            or not all(type(each) is int for each in (*a, *b))
        ):
            return False
        return all(map(RELATIONS[word], a, b))

    @staticmethod
    def _numbers(given: Any, match: PatternMatch, rank: int) -> Numbers | None:
        if isinstance(given, int):
            return (given,) * rank
        assert isinstance(given, Term)
        if isinstance(given, Hole):
            found = plain(match[given.name])
        else:
            found = plain(plan(given)(match.filling))
        return found if isinstance(found, tuple) else None


def in_bounds(of: Any, starts: Any, stops: Any) -> tuple[tuple[Any, Relation, Any], ...]:
    """The relations that make a slice one whose bounds are places, in order."""
    return ((0, "<=", starts), (starts, "<=", stops), (stops, "<=", extents(of)))
