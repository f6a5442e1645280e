"""Turning: columns of a tile in registers, where the registers are rows of it.

    rows   a0 a1 a2 a3        columns   a0 b0 c0 d0
           b0 b1 b2 b3                  a1 b1 c1 d1
           c0 c1 c2 c3                  …
           d0 d1 d2 d3

One column alone would be put together element by element.  All of them together are a few rounds:
in each, rows exchange blocks of lanes in pairs, blocks of one lane first, then of twice as many.
What one column needs is written once and remembered for the others, while nothing is stored there.

>>> exchanged(0, 1, 4), exchanged(1, 1, 4)
([0, 4, 2, 6], [1, 5, 3, 7])
"""

from __future__ import annotations

from collections.abc import Callable

from plica.codegen.llvm.lane import Lanes


def exchanged(side: int, apart: int, width: int) -> list[int]:
    """Which lanes of a pair of rows one of them has afterwards: the first, or the second.

    The first keeps its blocks that are even and takes those of the second for the others.
    """
    keep = 0 if side == 0 else apart
    return [(lane & ~apart) + keep + (width if lane & apart else 0) for lane in range(width)]


class Turner:
    """Columns that were made, by the place of the tile they are of."""

    def __init__(self, lanes: Lanes) -> None:
        self.lanes = lanes
        self._made: dict[str, list[str]] = {}

    def column(
        self, of: str, key: str, number: int, shape: tuple[str, int], row: Callable[[int], str]
    ) -> str:
        """A column of as many rows as there are lanes, both powers of 2, rows being no shorter.

        It is `of` some memory, at a place that the key says; the shape is that of a row.
        """
        kind, width = shape
        count = self.lanes.count
        many = f"<{width} x {kind}>"
        known = [f"turned {of} {key} {at}" for at in range(count)]
        if not all(self.lanes.is_known(each) for each in known):
            rows = [row(at) for at in range(count)]
            apart = 1
            while apart < count:
                rows = self._round(rows, apart, many, width)
                apart *= 2
            for name, each in zip(known, rows, strict=True):
                self.lanes.remember(name, each)
            self._made.setdefault(of, []).extend(known)
        found = self.lanes.recall(known[number % count])
        if width == count:
            return found
        first = number // count * count
        picked = ", ".join(f"i32 {first + lane}" for lane in range(count))
        shuffle = f"shufflevector {many} {found}, {many} poison, <{count} x i32> <{picked}>"
        return self.lanes.w.let(shuffle)

    def _round(self, rows: list[str], apart: int, many: str, width: int) -> list[str]:
        found = list(rows)
        for at in range(len(rows)):
            if at & apart:
                continue
            pair = f"{many} {rows[at]}, {many} {rows[at + apart]}"
            for side in (0, 1):
                lanes = ", ".join(f"i32 {each}" for each in exchanged(side, apart, width))
                shuffle = f"shufflevector {pair}, <{width} x i32> <{lanes}>"
                found[at + side * apart] = self.lanes.w.let(shuffle)
        return found

    def forget(self, of: str) -> None:
        """Something is stored in some memory."""
        for each in self._made.pop(of, ()):
            self.lanes.forget(each)
