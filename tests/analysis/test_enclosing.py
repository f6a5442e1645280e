"""Tidying an index term: the simple form where that says the same with less."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as some

from plica.analysis.enclosing import tidy
from plica.analysis.index import EMPTY
from plica.core.binding import substitute
from plica.core.fold import post_order
from plica.ir.loop.scalar import FloorDiv, FloorMod, Lit, Scalar, index
from plica.ir.loop.tensor import axis

ROW, LANE = axis("i"), axis("j")


def _cuts(term: Scalar) -> int:
    return sum(isinstance(each, FloorDiv | FloorMod) for each in post_order(term))


def test_a_quotient_of_a_part_is_one_of_less() -> None:
    known = EMPTY.loop(ROW, 9).loop(LANE, 44)
    assert tidy((ROW * 44 + LANE) // 132, known) is tidy(ROW // 3, known)


def test_a_quotient_that_would_be_longer_stays() -> None:
    term = (ROW * 256 + LANE) // 196
    assert tidy(term, EMPTY.loop(ROW, 9).loop(LANE, 196)) is term


@given(
    some.integers(1, 40), some.integers(1, 40), some.integers(1, 60), some.integers(1, 12),
    some.data(),
)  # fmt: skip
def test_what_is_tidy_means_the_same_and_is_no_longer(
    width: int, step: int, cut: int, count: int, data: some.DataObject
) -> None:
    term = (ROW * step + LANE) // cut + (ROW * step + LANE) % cut % 7
    found = tidy(term, EMPTY.loop(ROW, count).loop(LANE, width))
    assert (_cuts(found), len(post_order(found))) <= (_cuts(term), len(post_order(term))) or (
        not _cuts(found)
    )
    i, j = data.draw(some.integers(0, count - 1)), data.draw(some.integers(0, width - 1))
    at = {ROW: index(i), LANE: index(j)}
    before, after = (tidy(substitute(each, at)) for each in (term, found))
    assert isinstance(before, Lit)
    assert before is after
