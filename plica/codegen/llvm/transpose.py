"""Transposes: columns of a tile in registers, where the registers are rows of it.

    rows   a0 a1 a2 a3        columns   a0 b0 c0 d0
           b0 b1 b2 b3                  a1 b1 c1 d1
           c0 c1 c2 c3                  …
           d0 d1 d2 d3

>>> [list(each.lanes) for each in network(4, 4, 8).rounds[0][:2]]
[[0, 4, 2, 6], [1, 5, 3, 7]]
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final, NamedTuple

from attrs import frozen

from plica.codegen.llvm.lane import Lanes
from plica.codegen.llvm.writer import SHORT
from plica.core import CompilerBug

BLOCK: Final = 16  # the bytes of a block
FENCED: Final = 256
"""The register width in bits from which transposing a tile takes more than two rounds."""


class Exchange(NamedTuple):
    """A row made of two others: which lanes, those of the second counted after the first's."""

    first: int
    second: int
    lanes: tuple[int, ...]


@frozen
class Network:
    """Rounds of exchanges, each of which replaces all rows; and the final row of each column."""

    rounds: tuple[tuple[Exchange, ...], ...]
    columns: tuple[int, ...]


@lru_cache(maxsize=64)
def network(count: int, width: int, size: int) -> Network:
    """The rounds that turn a given number of rows of `width` elements of some bytes, all powers of
    2.

    With fewer rows than elements a column is followed by those that are `count` further on.
    """
    block = max(1, BLOCK // size)
    rounds: list[tuple[Exchange, ...]] = []
    if count == width >= block and width // block <= 4:
        unit = 1
        while unit < block:
            rounds.append(_round(count, unit, _zipped(unit, block, width)))
            unit *= 2
        if width > 2 * block:
            rounds.append(_round(count, block, _halves(width)))
            rounds.append(_round(count, 2 * block, _alternate(block, width)))
        elif width > block:
            rounds.append(_round(count, block, _halves(width)))
    else:
        apart = 1
        while apart < count:
            rounds.append(_round(count, apart, _swapped(apart, width)))
            apart *= 2
    return Network(tuple(rounds), _columns(rounds, count, width))


Sides = tuple[list[int], list[int]]  # the lanes of the two rows that a pair of rows gives


def _zipped(unit: int, block: int, width: int) -> Sides:
    """Interleaves units from the first halves of both rows' blocks, and from the second halves."""
    sides: Sides = ([], [])
    for start in range(0, width, block):
        for side in (0, 1):
            for at in range(0, block // 2, unit):
                first = start + side * block // 2 + at
                sides[side].extend(range(first, first + unit))
                sides[side].extend(range(width + first, width + first + unit))
    return sides


def _halves(width: int) -> Sides:
    """The first halves of both rows, and the second."""
    first = list(range(width // 2))
    second = list(range(width // 2, width))
    return [*first, *[width + at for at in first]], [*second, *[width + at for at in second]]


def _alternate(block: int, width: int) -> Sides:
    """Every other block of both rows, and the rest."""
    even = [at for at in range(2 * width) if at // block % 2 == 0]
    return even, [at + block for at in even]


def _swapped(apart: int, width: int) -> Sides:
    """Exchanges lane blocks: the even ones of both rows, and the odd ones."""
    even = [(at & ~apart) + (width if at & apart else 0) for at in range(width)]
    return even, [at + apart for at in even]


def _round(count: int, apart: int, sides: Sides) -> tuple[Exchange, ...]:
    """Pairs of rows so far apart: the first becomes one side, the second the other."""
    return tuple(
        [
            Exchange(at & ~apart, at | apart, tuple(sides[1 if at & apart else 0]))
            for at in range(count)
        ]
    )


def _columns(rounds: list[tuple[Exchange, ...]], count: int, width: int) -> tuple[int, ...]:
    """Which row each column is in the end: found by doing it."""
    rows = [[(row, column) for column in range(width)] for row in range(count)]
    for each in rounds:
        rows = [[(rows[a] + rows[b])[lane] for lane in lanes] for a, b, lanes in each]
    found: dict[int, int] = {}
    for at, row in enumerate(rows):
        column = row[0][1]
        wanted = [(lane % count, column + lane // count * count) for lane in range(width)]
        if row != wanted:
            raise CompilerBug(f"Turning {count} rows of {width} leaves row {at} as {row}.")
        found[column] = at
    return tuple([found[column] for column in range(count)])


@lru_cache(maxsize=512)
def _mask(lanes: tuple[int, ...]) -> str:
    """Which lanes a row is made of."""
    order = ", ".join([f"i32 {lane}" for lane in lanes])
    return f"<{len(lanes)} x i32> <{order}>"


class RegisterTranspose:
    """Columns that were made, by the place of the tile they are of."""

    def __init__(self, lanes: Lanes) -> None:
        self.lanes = lanes
        self.fenced = lanes.w.traits.width >= FENCED
        """Whether to hide the chain of rounds from LLVM.

        LLVM searches for better exchanges along chains of them, which for many is slower than
        everything else in a kernel with 16-row tiles, and finds none.
        """
        self._made: dict[str, list[str]] = {}

    def column(  # what is turned, and which part of it
        self, of: str, key: str, number: int, shape: tuple[str, int, int], row: Callable[[int], str]
    ) -> str:
        """A column of as many rows as there are lanes, both powers of 2, with rows at least as
        long.

        `of` identifies the memory, and the key its place; the shape is that of a row: element type,
        element bytes, and length.
        """
        kind, size, width = shape
        count = self.lanes.count
        many = f"<{width} x {kind}>"
        wanted = f"turned {of} {key} {number % count}"
        if not self.lanes.is_known(wanted):  # all columns are remembered, and forgotten, together
            known = [f"turned {of} {key} {at}" for at in range(count)]
            how = network(count, width, size)
            rows = [row(at) for at in range(count)]
            for number_, each in enumerate(how.rounds):
                rows = self._exchanged(rows, each, many)
                if self.fenced and number_ == 1 and len(how.rounds) > 2 and kind in SHORT:
                    rows = [self._fenced(each, many, f"v{width}{SHORT[kind]}") for each in rows]
            for name, at in zip(known, how.columns, strict=True):
                self.lanes.remember(name, rows[at])
            self._made.setdefault(of, []).extend(known)
        found = self.lanes.recall(wanted)
        if width == count:
            return found
        first = number // count * count
        picked = ", ".join(f"i32 {first + lane}" for lane in range(count))
        shuffle = f"shufflevector {many} {found}, {many} poison, <{count} x i32> <{picked}>"
        return self.lanes.w.let(shuffle)

    def _exchanged(self, rows: list[str], round_: tuple[Exchange, ...], many: str) -> list[str]:
        found = []
        for one, two, lanes in round_:
            pair = f"{many} {rows[one]}, {many} {rows[two]}"
            found.append(self.lanes.w.let(f"shufflevector {pair}, {_mask(lanes)}"))
        return found

    def _fenced(self, row: str, many: str, end: str) -> str:
        return self.lanes.w.let(f"call {many} @llvm.arithmetic.fence.{end}({many} {row})")

    def forget(self, of: str) -> None:
        """Something is stored in some memory."""
        for each in self._made.pop(of, ()):
            self.lanes.forget(each)
