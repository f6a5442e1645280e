"""Campaigns: runs numbered cases until one fails, then shrinks it.

A kind of fuzzing is a generator, an oracle and a shrinker; the rest is written here, once.

    generator   the case of a number, made from it (`ByNumber`) or drawn from a strategy of
                hypothesis (`ByStrategy`): fewer examples are the first of more
    oracle      what is wrong with a case; it counts what fired in those that are examples
    shrinker    a smaller case that goes wrong; hypothesis does that for what it drew
    explain     what is worth doing for the smallest case only: who is guilty, a test

Cases have a time limit: exceeding it is a finding, and the smallest one found so far is reported.

>>> odd = Campaign(Finding, ByNumber(lambda n: Skipped("odd") if n % 2 else n), lambda *_: None, 4)
>>> odd.run(2).counts
{'skipped': {'odd': 1}}

>>> least(100, lambda number: (number // 2, number - 1), lambda number: number > 7)
8
"""

from __future__ import annotations

import signal
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, Generic, TypeAlias, TypeVar

import hypothesis
from attrs import evolve, field, frozen
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from plica.rewrite.fuzz.report import SKIPPED, Finding, FuzzReport, added

CASE_SECONDS: Final = 60.0  # the time limit of a case, and again of shrinking or reporting it


class TimeUp(KeyboardInterrupt):
    """A case takes too long: a KeyboardInterrupt, so that tested code does not catch it.

    Hypothesis stops at once on an interrupt.
    """


@contextmanager
def watched(seconds: float) -> Iterator[None]:
    """Raises `TimeUp` inside after the given number of seconds, and repeatedly after that.

    Only the main thread can be interrupted; elsewhere, and without such timers, there is no limit.
    """
    here = threading.current_thread() is threading.main_thread()
    if not here or not hasattr(signal, "setitimer"):
        yield
        return
    before = signal.signal(signal.SIGVTALRM, _up)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def _up(*_: object) -> None:
    raise TimeUp


SMALLER: Final = 120  # the maximum number of cases drawn to shrink a failure
ENDLESS: Final = "does not end"  # the blame for a case that exceeds its time
TOO_LONG: Final = f"the case takes more than {CASE_SECONDS:.0f} seconds of the processor"

C = TypeVar("C")
F = TypeVar("F", bound=Finding)

Say: TypeAlias = Callable[[str], None]


class Tally(defaultdict[str, Counter[str]]):
    """What fired, by group and word, how often."""

    def __init__(self) -> None:
        super().__init__(Counter)


@frozen
class Skipped:
    """A case that says nothing here: why."""

    reason: str


class Wrong(Exception):
    """Raised by an oracle, or a part of one, that has a finding."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.reason)
        self.finding = finding


@frozen(eq=False)
class ByNumber(Generic[C]):
    """Cases made from a number, and what tries smaller ones than a case that `fails`."""

    make: Callable[[int], C | Skipped]
    shrinker: Callable[[C, Callable[[C], bool]], object] | None = None


@frozen(eq=False)
class ByStrategy(Generic[C]):
    """Cases drawn from a strategy by number; of those of one `key` one is judged.

    When a given number of `attempts` were made no smaller case is judged.
    """

    strategy: Callable[[int], SearchStrategy[C]]
    key: Callable[[C], Hashable] | None = None
    attempts: int | None = None


@frozen(eq=False)
class Campaign(Generic[C, F]):
    """A kind of fuzzing: generator, oracle, shrinker and explanation."""

    found: type[F]
    generator: ByNumber[C] | ByStrategy[C]
    oracle: Callable[[C, int, Tally], F | Skipped | None]
    tries: int = 1
    """How many cases are drawn at most for each that runs."""
    explain: Callable[[C, F], F] = lambda case, finding: finding
    ends: Callable[[Sequence[F]], object] = bool
    """Whether findings end it: the first does, unless this says otherwise."""
    seconds: float = CASE_SECONDS
    counters: Mapping[str, Sequence[str]] = field(factory=dict)
    """Groups of counts, and words in them, that a report has even where they are none."""
    settings: Mapping[str, Any] = field(factory=dict)

    def run(
        self, examples: int, seed: int = 0, *, first: int = 0, say: Say | None = None
    ) -> FuzzReport[F]:
        """Cases by their numbers, from the `first` on, until enough of them ran or findings end it.

        `say` is called before each case. A case that takes too long is a finding.
        """
        tally, skipped = Tally(), Counter[str]()
        for group, words in self.counters.items():
            tally[group].update(dict.fromkeys(words, 0))
        findings: list[F] = []
        ran = tried = 0
        while not self.ends(findings) and ran < examples and tried < self.tries * (examples + 1):
            if say is not None:
                say(f"{ran + 1} of {examples}")
            number = first + tried
            found: F | Skipped | None
            try:
                with watched(self.seconds):
                    found = self._one(seed, number, tally)
            except TimeUp:
                found = self.found("endless", ENDLESS, TOO_LONG)
            tried += 1
            if isinstance(found, Skipped):
                skipped[found.reason] += 1
                continue
            ran += 1
            if found is not None:
                findings.append(evolve(found, case=number))
        counts = added(tally, {SKIPPED: skipped} if skipped else {})
        return FuzzReport(ran, seed, counts, tuple(findings), self.settings)

    def _one(self, seed: int, number: int, tally: Tally) -> F | Skipped | None:
        """The finding of a case, made smaller and explained."""
        match self.generator:
            case ByNumber(make, shrinker):
                case = make(number)
                if isinstance(case, Skipped):
                    return case
                found = self._judged(case, number, tally)
                if found is None or isinstance(found, Skipped):
                    return found
                if shrinker is None:
                    return self.explain(case, found)
                kind, smallest = found.kind, (case, found)

                def fails(smaller: C) -> bool:
                    nonlocal smallest
                    again = self._judged(smaller, number, Tally())
                    if not isinstance(again, self.found) or again.kind != kind:
                        return False
                    smallest = smaller, again
                    return True

                shrinker(case, fails)
                return self.explain(*smallest)
            case ByStrategy() as drawn:
                return self._drawn(drawn, seed, number, tally)

    def _judged(self, case: C, number: int, tally: Tally) -> F | Skipped | None:
        try:
            return self.oracle(case, number, tally)
        except Wrong as wrong:
            found = wrong.finding
        assert isinstance(found, self.found)
        return found

    def _drawn(
        self, drawn: ByStrategy[C], seed: int, number: int, tally: Tally
    ) -> F | Skipped | None:
        known: dict[Hashable, F | Skipped | None] = {}
        outcome: F | Skipped | None = None
        smallest: tuple[C, F] | None = None

        def tried(case: C, counts: bool) -> None:
            nonlocal outcome, smallest
            key = object() if drawn.key is None else drawn.key(case)
            if key not in known:
                if drawn.attempts is not None and len(known) > drawn.attempts:
                    return
                known[key] = self._judged(case, number, tally if counts else Tally())
            found = known[key]
            outcome = found if counts else outcome
            if found is None or isinstance(found, Skipped):
                return
            if smallest is None or found.kind == smallest[1].kind:
                smallest = case, found
                raise Wrong(found)

        with suppress(Wrong):
            one_case(tried, drawn.strategy(number), seed, number, Wrong)
        return outcome if smallest is None else self.explain(*smallest)


def one_case(
    run: Callable[[C, bool], None],
    drawn: SearchStrategy[C],
    seed: int,
    number: int,
    raises: type[Exception],
) -> None:
    """Tries one case; raises what `run` raises, for the smallest similar case found.

    `run` is told whether a case counts or only serves shrinking. Hypothesis starts with the
    simplest case, always the same: it is skipped.
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


def least(
    of: C,
    smaller: Callable[[C], Iterable[C]],
    fails: Callable[[C], bool],
    attempts: int | None = 400,
) -> C:
    """A case that fails as `of` does, and of which nothing smaller was found to fail.

    A given number of smaller ones are tried at most, all of them where no number is given, and none
    once time is up.
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
