"""The driver of fuzzers: cases by number until one goes wrong, which is then made smaller.

Each case is made from the seed and its own number: fewer examples are the first of more.  Cases
that a strategy draws are made smaller by hypothesis (`one_case`), others by whatever gives smaller
ones of their kind (`least`).  A fuzzer is a generator, an oracle and one of these, in a `campaign`.
No case takes for ever: one that takes too long is a finding, and the smallest that was found until
then is told where there is one.

>>> campaign(lambda number: Skipped("odd") if number % 2 else None, 2, hangs=str, tries=4)
Campaign(ran=2, skipped={'odd': 1}, findings=())

>>> least(100, lambda number: (number // 2, number - 1), lambda number: number > 7)
8
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import suppress
from typing import Final, Generic, TypeVar

import hypothesis
from attrs import frozen
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from plica.rewrite.fuzz.watch import CASE_SECONDS, TimeUp, watched

SMALLER: Final = 120
"""How many cases are drawn at most to make one that goes wrong smaller."""
ENDLESS: Final = "does not end"
"""Who is guilty where a case takes too long."""
TOO_LONG: Final = f"the case takes more than {CASE_SECONDS:.0f} seconds of the processor"

C = TypeVar("C")
V = TypeVar("V")
F = TypeVar("F")


@frozen
class Skipped:
    """A case that says nothing here: why."""

    reason: str


@frozen
class Campaign(Generic[F]):
    """How many cases ran, why others did not, and what was found."""

    ran: int
    skipped: dict[str, int]
    findings: tuple[F, ...]

    @property
    def finding(self) -> F | None:
        """The first finding, if there is one."""
        return self.findings[0] if self.findings else None


def campaign(
    one: Callable[[int], F | Skipped | None],
    examples: int,
    *,
    hangs: Callable[[int], F],
    first: int = 0,
    tries: int = 1,
    ends: Callable[[Sequence[F]], object] = bool,
    seconds: float = CASE_SECONDS,
    say: Callable[[str], None] | None = None,
) -> Campaign[F]:
    """Cases by their numbers, from the `first` on, until so many ran or findings end it.

    The first finding does, unless `ends` says otherwise.  For each that runs so many `tries` are
    made at most; `say` is told of each as its turn comes.  A case that takes
    more `seconds` is the finding that `hangs` makes of its number.
    """
    skipped: Counter[str] = Counter()
    ran = tried = 0
    findings: list[F] = []
    while not ends(findings) and ran < examples and tried < tries * (examples + 1):
        if say is not None:
            say(f"{ran + 1} of {examples}")
        found: F | Skipped | None
        try:
            with watched(seconds):
                found = one(first + tried)
        except TimeUp:
            found = hangs(first + tried)
        tried += 1
        if isinstance(found, Skipped):
            skipped[found.reason] += 1
            continue
        ran += 1
        if found is not None:
            findings.append(found)
    return Campaign(ran, dict(sorted(skipped.items())), tuple(findings))


def one_case(
    run: Callable[[C, bool], None],
    drawn: SearchStrategy[C],
    seed: int,
    number: int,
    raises: type[Exception],
) -> None:
    """Try one case; what `run` raises is raised for the smallest case found that does the like.

    `run` is told whether a case counts, or only serves to make another smaller.  Hypothesis begins
    with the simplest case, the same each time: it is made to be none.
    """
    runs = drawings = 0
    smallest: Exception | None = None

    def kind(real: bool) -> SearchStrategy[C | None]:
        nonlocal drawings
        drawings += smallest is not None
        if drawings > SMALLER:
            raise TimeUp
        return drawn if real else st.none()

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
    @hypothesis.given(st.booleans().flatmap(kind))
    def one(case: C | None) -> None:
        nonlocal runs, smallest
        if case is not None:
            runs += 1
            try:
                run(case, runs == 1)
            except raises as wrong:
                smallest = wrong
                raise

    try:
        one()
    except (TimeUp, hypothesis.errors.Flaky):
        # Who stops in the midst of drawing draws less than before, which Hypothesis may not like.
        if smallest is None or drawings <= SMALLER:
            raise
        raise smallest from None


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
    of: C,
    smaller: Callable[[C], Iterable[C]],
    fails: Callable[[C], bool],
    attempts: int | None = 400,
) -> C:
    """A case that fails as `of` does, and of which nothing smaller was found to fail.

    So many smaller ones are tried at most, all of them where no number is given, and none once time
    is up.
    """
    tried = 0

    def still(each: C) -> bool:
        nonlocal tried
        tried += 1
        return (attempts is None or tried <= attempts) and fails(each)

    with suppress(TimeUp):
        while (found := next((each for each in smaller(of) if still(each)), None)) is not None:
            of = found
    return of
