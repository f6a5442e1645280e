"""The driver of fuzzers: no case takes for ever, and the others run."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import pytest
from attrs import evolve
from hypothesis import strategies as st

from plica.ir.contract import exact
from plica.ir.text.script import from_text
from plica.rewrite.fuzz import difference
from plica.rewrite.fuzz.difference import Meaning
from plica.rewrite.fuzz.driver import (
    SMALLER,
    ByNumber,
    ByStrategy,
    Campaign,
    Skipped,
    Tally,
    TimeUp,
    least,
    one_case,
    watched,
)
from plica.rewrite.fuzz.report import Finding

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

    def one(number: int, _: int, tally: Tally) -> None:
        seen.append(number)
        if number == 1:
            endless()

    def ends(found: Sequence[Finding]) -> bool:
        return False

    campaign = Campaign(Finding, ByNumber(lambda number: number), one, ends=ends, seconds=0.05)
    done = campaign.run(4)
    assert seen == [0, 1, 2, 3]
    assert [(each.case, each.kind) for each in done.findings] == [(1, "endless")]
    assert done.examples == 4


def test_a_smaller_case_goes_wrong_in_the_same_way() -> None:
    """Those of another kind, and all after this many, are passed over."""
    tried: list[tuple[int, ...]] = []

    def judge(case: tuple[int, ...], number: int, tally: Tally) -> Finding | None:
        tried.append(case)
        tally["lengths"][str(len(case))] += 1
        kind = "short" if len(case) < 12 else "long"
        return Finding(kind, "sum", f"{len(case)} numbers", parts=tuple(map(str, case)))

    drawn = st.lists(st.integers(0, 9), min_size=3, max_size=30).filter(lambda each: len(each) != 5)
    strategy = drawn.map(tuple)
    generator = ByStrategy(lambda number: strategy, key=hash, attempts=60)
    seeds = [Campaign(Finding, generator, judge).run(1, seed) for seed in range(6)]
    found = [each.finding for each in seeds]
    assert {each.kind for each in found if each} == {"short", "long"}
    for report, each in zip(seeds, found, strict=True):
        assert each is not None
        assert each.kind == "short" or len(each.parts) == 12
        assert sum(report["lengths"].values()) == 1  # smaller cases are no examples
    assert len(tried) <= 6 * 62


def test_a_case_made_from_a_number_is_made_smaller_and_explained() -> None:
    def judge(case: int, number: int, tally: Tally) -> Finding | Skipped | None:
        if case % 2:
            return Skipped("odd")
        return Finding("large", "", f"{case} is large") if case > 9 else None

    def smaller(case: int, fails: Callable[[int], bool]) -> int:
        return least(case, lambda each: (each - 1, each - 2), fails)

    def explained(case: int, finding: Finding) -> Finding:
        return evolve(finding, guilty=f"number {case}")

    campaign = Campaign(Finding, ByNumber(lambda n: 7 * n, smaller), judge, 4, explained)
    report = campaign.run(9)
    assert str(report.finding).startswith("number 10: 10 is large")
    assert (report.examples, report["skipped"]) == (2, {"odd": 1})


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
    monkeypatch.setattr(difference, "CALL_LIMITS", (1 << 7, 1 << 11))
    assert not Meaning(from_text(COUNTS.format(stop=0, step=-1)), (5,), exact).defined
