"""Terms of a sum that are written out: how many the text of an innermost loop has."""

from __future__ import annotations

from collections.abc import Sequence

from plica.schedule import primitive as st
from plica.schedule.default.tile import RegisterTile
from plica.schedule.do import Body
from plica.schedule.handle import Handle

MOST = 27  # multiply-adds in the text of the innermost loop, at most
LONGEST = 160  # the same, if the operand read by elements has an address without an index register
WINDOW = 192
"""The same of a row of a window, where vectors are short: it would be a loop of few cycles."""

BRIEF = 16  # bytes of a short vector
HELD = 28  # sums, and vectors of elements for their steps, in registers of short vectors
SCALED = 8  # bytes by which an index in an address is scaled, at most
SHORT = 8  # a sum over so few places of a window is written out


def has_rows(extents: Sequence[int]) -> bool:
    """Whether the innermost terms are so few that all of them are written out."""
    return 1 < last_terms(extents) <= SHORT


def last_terms(extents: Sequence[int]) -> int:
    """The number of innermost terms."""
    return next((extent for extent in reversed(extents) if extent > 1), 1)


def written_out(
    extents: Sequence[int],
    tile: RegisterTile,
    terms: Sequence[Handle],
    near: int = 0,
    wide: int = 0,
) -> Body:
    """Unrolls the innermost terms, a few of them if there are many; for a window a whole row, with
    a longer text for short vectors (`wide` bytes), and then all rows if that is no longer.

    If one vector is multiplied, a product and the read of its element, which is used once, are one
    instruction: unless the address has an index, which it gets where terms lie so `near` one
    another that the index can be scaled.  So as many are written out as make the step longer.
    """
    count = tile.vectors * tile.steps
    at = max([n for n, each in enumerate(extents) if each > 1], default=0)
    extent = extents[at]
    plain = tile.vectors == 1 and 0 < near <= SCALED
    longest = LONGEST if plain else WINDOW if 0 < wide <= BRIEF else MOST
    if extent <= SHORT and extent * count <= longest:
        rows = extents[at - 1] if at else 0
        if longest == WINDOW and 1 < rows <= SHORT and rows * extent * count <= WINDOW:
            yield st.unroll(terms[at - 1])
        yield st.unroll(terms[at])
        return
    # Elements of four terms are one short vector, of which products take the lanes.
    picked = longest == WINDOW and count + tile.steps <= HELD
    few = [(4, WINDOW if picked else MOST // 2), (2, MOST // 2)]
    if plain:
        few = [(factor, LONGEST) for factor in (4, 3, 5, 7, 2) if factor * near > SCALED]
    for factor, most in few:
        if extent % factor == 0 and factor * count <= most:
            _, inner = yield st.split(terms[at], (None, factor))
            yield st.unroll(inner)
            return
