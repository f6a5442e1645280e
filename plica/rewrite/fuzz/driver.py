"""The driver of fuzzers: cases by number until one goes wrong, which is then made smaller.

Each case is made from the seed and its own number: fewer examples are the first of more.  Cases
that a strategy draws are made smaller by hypothesis (`one_case`), others by whatever gives smaller
ones of their kind (`least`).

>>> least(100, lambda number: (number // 2, number - 1), lambda number: number > 7)
8
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

import hypothesis
from hypothesis.strategies import SearchStrategy

C = TypeVar("C")
V = TypeVar("V")


def one_case(
    run: Callable[[C, bool], None], drawn: SearchStrategy[C], seed: int, number: int
) -> None:
    """Try one case; what `run` raises is raised for the smallest case that does the like.

    `run` is told whether a case counts, or only serves to make another smaller.  Hypothesis begins
    with the simplest case, the same each time: that is passed over.
    """
    runs = 0

    @hypothesis.seed(seed * 1_000_003 + number)
    @hypothesis.settings(
        max_examples=2,
        deadline=None,
        database=None,
        phases=(hypothesis.Phase.generate, hypothesis.Phase.shrink),
        suppress_health_check=list(hypothesis.HealthCheck),
        report_multiple_bugs=False,
        print_blob=False,
        verbosity=hypothesis.Verbosity.quiet,
    )
    @hypothesis.given(drawn)
    def one(case: C) -> None:
        nonlocal runs
        runs += 1
        if runs > 1:
            run(case, runs == 2)

    one()


class Known(Generic[C, V]):
    """Verdicts of a case and of smaller ones: so many are asked for, then only known ones count."""

    def __init__(
        self, judge: Callable[[C], V], key: Callable[[C], Hashable], passed: V, tries: int
    ) -> None:
        self.judge, self.key, self.passed, self.tries = judge, key, passed, tries
        self.known: dict[Hashable, V] = {}

    def __call__(self, of: C) -> V:
        key = self.key(of)
        if key not in self.known:
            if len(self.known) > self.tries:
                return self.passed
            self.known[key] = self.judge(of)
        return self.known[key]


def least(
    of: C, smaller: Callable[[C], Iterable[C]], fails: Callable[[C], bool], attempts: int = 400
) -> C:
    """A case that fails as `of` does, and of which nothing smaller was found to fail."""
    left = attempts

    def still(each: C) -> bool:
        nonlocal left
        left -= 1
        return left >= 0 and fails(each)

    while (found := next((each for each in smaller(of) if still(each)), None)) is not None:
        of = found
    return of
