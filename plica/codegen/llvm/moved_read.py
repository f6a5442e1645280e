"""Moved reads: vectors of a row that begin or end outside of it, where none is read in part.

    lanes      -1  0  1  2        of a row of 7, of which the first is outside
    is read         0  1  2  3    from the first column that is inside on
    moved       .  0  1  2        as the lanes want it, 0 in the first

>>> moved_vector(-1, 7, 4), moved_vector(5, 7, 4)
((0, (4, 0, 1, 2)), (3, (2, 3, 4, 4)))
>>> moved_vector(2, 7, 4), moved_vector(7, 7, 4)
((2, (0, 1, 2, 3)), (3, (4, 4, 4, 4)))
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from attrs import frozen

from plica.codegen.llvm.lane import LaneValue

Shuffle: TypeAlias = Callable[[str, str, str, Sequence[int]], str]
"""Lanes of two vectors of a kind, those of the second behind those of the first."""


@frozen
class RowLanes:
    """The column of the first lane, how far apart lanes are, and how many columns a row has."""

    first: int
    step: int
    columns: int


def row_lanes(
    places: Sequence[LaneValue],
    unsure: Sequence[tuple[LaneValue, LaneValue]],
    lanes: int,
    exceeds: Callable[[int], bool],
) -> RowLanes | None:
    """The columns of an element whose last index alone varies per lane and may be out of bounds, or
    None if unknown.

    Of a row of open length, which `exceeds` some numbers, either end may be known: lanes are so
    far from its begin, or from its end.
    """
    if len(unsure) != 1 or any(not each.is_uniform for each in places[:-1]):
        return None
    place, count = unsure[0]
    if place is not places[-1] or not place.step or place.step < 0:
        return None
    step = place.step
    if not place.text and count.number is not None:
        return RowLanes(place.plus, step, count.number)
    if not place.text:  # all that is read of it before its end is there
        columns = max(lanes, place.plus + step * (lanes - 1) + 1)
        return RowLanes(place.plus, step, columns) if exceeds(columns - 1) else None
    if place.text != count.text:
        return None
    # As if the row began with the first vector that is read.
    from_end = place.plus - count.plus
    columns = max(-from_end, lanes * step)
    return RowLanes(from_end + columns, step, columns) if exceeds(columns - 1) else None


def moved_vector(first: int, columns: int, lanes: int) -> tuple[int, tuple[int, ...]]:
    """The base column of a contiguous vector, and the element for each lane: an out-of-range number
    for columns outside.

    The row has at least as many columns as there are lanes.
    """
    start = max(0, min(first, columns - lanes))
    wanted = range(first, first + lanes)
    return start, tuple([at - start if 0 <= at < columns else lanes for at in wanted])


def moved(row: RowLanes, n: int, kind: str, read: Callable[[int], str], shuffle: Shuffle) -> str:
    """Lanes out of vectors that `read` gives from a column of the row on; 0 in those outside."""
    shift = row.first % row.step
    vectors = []
    for part in range(row.step):
        start, order = moved_vector(row.first - shift + n * part, row.columns, n)
        if min(order) == n:
            vectors.append("zeroinitializer")
        elif order == tuple(range(n)):
            vectors.append(read(start))
        else:
            vectors.append(shuffle(kind, read(start), "zeroinitializer", order))
    return unzipped(vectors, shift, n, kind, shuffle)


def unzipped(vectors: Sequence[str], first: int, n: int, kind: str, shuffle: Shuffle) -> str:
    """Every few elements of vectors one behind the other, as many of them, from one on."""
    step = len(vectors)
    if step == 1:
        return vectors[0]
    found, begun = "poison", 0
    for part, vector in enumerate(vectors):
        taken = {lane: first + step * lane - n * part for lane in range(begun, n)}
        inside = {lane: place for lane, place in taken.items() if place < n}
        order = [n + inside[lane] if lane in inside else lane for lane in range(n)]
        found = shuffle(kind, found, vector, order)
        begun += len(inside)
    return found


def whole_shift(at: LaneValue, beside: tuple[int, int]) -> int | None:
    """How many elements before the first lane the vectors of strided lanes begin, so that none
    leaves the known range `beside` them; None if there is not enough room.

    Lanes offset by one element use the same vectors, if there is a choice.
    """
    step, (before, behind) = at.step or 0, beside
    shifts = [at.plus % step, *range(step)] if step > 0 else []
    return next((n for n in shifts if n <= before and step - 1 - n <= behind), None)


def beside_lanes(
    places: Sequence[LaneValue], interval: tuple[int, int], columns: object,
    is_inside: Callable[[int], bool],
) -> tuple[int, int]:  # fmt: skip
    """How many elements of a row are before, and behind, those of all lanes, whose columns are in
    an interval; of a row of open length, as many as a stride needs, if those so far from them are
    shown to be inside."""
    if any(not place.is_uniform for place in places[:-1]):
        return 0, 0
    if isinstance(columns, int):
        return max(0, interval[0]), max(0, columns - 1 - interval[1])
    apart = (places[-1].step or 1) - 1
    before, behind = [
        max([n for n in range(apart + 1) if n == 0 or is_inside(way * n)]) for way in (-1, 1)
    ]
    return before, behind
