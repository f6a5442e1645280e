"""The driver of fuzzers: one random case of a strategy, made smaller by hypothesis if it fails.

Each case is made from the seed and its own number: fewer examples are the first of more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import hypothesis
from hypothesis.strategies import SearchStrategy

C = TypeVar("C")


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
