"""The driver of fuzzers: no case takes for ever, and the others run."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import strategies as st

from plica.ir.contract import exact
from plica.ir.text.script import from_text
from plica.rewrite.fuzz import difference
from plica.rewrite.fuzz.difference import Meaning
from plica.rewrite.fuzz.driver import SMALLER, campaign, least, one_case
from plica.rewrite.fuzz.watch import TimeUp, watched

COUNTS = """
import plica
from plica import op
from plica.script import Tensor, i64

@plica.function
def down(count: Tensor[(), i64]) -> Tensor[(), i64]:
    if count <= {stop}:
        return count
    else:
        return down(count - {step})

@plica.function
def main(count: Tensor[(), i64]) -> Tensor[(), i64]:
    return down(count)
"""


class Odd(AssertionError):
    """A case that goes wrong."""


def endless() -> None:
    for _ in itertools.count():
        pass


def test_a_case_that_does_not_end_is_a_finding_and_the_others_run() -> None:
    seen = []

    def one(number: int) -> str | None:
        seen.append(number)
        if number == 1:
            endless()
        return None

    done = campaign(
        one, 4, hangs=lambda number: f"{number} hangs", seconds=0.05, ends=lambda found: False
    )
    assert seen == [0, 1, 2, 3]
    assert done.findings == ("1 hangs",)
    assert done.ran == 4


def test_the_smallest_case_so_far_is_told_when_time_is_up() -> None:
    def fails(number: int) -> bool:
        if number < 90:
            endless()
        return True

    with watched(0.05):
        assert least(100, lambda number: (number - 1,), fails) == 90


def test_a_case_is_made_smaller_in_so_many_tries() -> None:
    tried = []

    def run(case: list[int], first: bool) -> None:
        tried.append(case)
        if sum(case) % 2 and len(case) > 20:
            raise Odd(str(len(case)))

    lists = st.lists(st.integers(0, 1 << 30), min_size=40).filter(lambda each: sum(each) % 2)
    with pytest.raises(Odd):
        one_case(run, lists, 0, 0, Odd)
    assert len(tried) <= SMALLER + 2


def test_a_case_that_does_not_end_has_no_smaller_one() -> None:
    with pytest.raises(TimeUp), watched(0.05):
        one_case(lambda case, first: endless(), st.lists(st.integers()), 0, 3, Odd)


def test_a_program_that_no_longer_ends_is_wrong() -> None:
    right = Meaning(from_text(COUNTS.format(stop=0, step=1)), (5,), exact)
    reason = right.differs(from_text(COUNTS.format(stop=0, step=-1)))
    assert reason is not None
    assert "does not end" in reason
    assert right.differs(from_text(COUNTS.format(stop=0, step=1))) is None


def test_a_program_that_makes_many_calls_has_a_value_and_one_without_end_has_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert Meaning(from_text(COUNTS.format(stop=0, step=1)), (5_000,), exact).defined
    monkeypatch.setattr(difference, "CALLS", (1 << 7, 1 << 11))
    assert not Meaning(from_text(COUNTS.format(stop=0, step=-1)), (5,), exact).defined
