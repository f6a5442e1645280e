"""Checking rules: instances of the left side, both sides interpreted, compared under the contract.

check(rule)  -> Proved | Tested(n) | Untested(why) | Refuted(counterexample)
check(pack)  -> a verdict for each rule; a pack can be given by its name
check(operator) -> one on its meaning, one on its gradient

>>> [word for word, _ in MOVES][:3]
['negate', 'double', 'next']
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, TypeAlias, overload

import hypothesis
import numpy as np
from hypothesis import strategies as st

from plica.core import EvaluationError, IllTyped, RuleFailed, Term
from plica.core.extension import said
from plica.ir.contract import fused
from plica.ir.graph import Expr, Operator
from plica.ir.loop.scalar import Scalar
from plica.ir.type import dtype, type_of
from plica.rewrite.check.compare import array_in_f64, distance
from plica.rewrite.check.data import TAPE, reader
from plica.rewrite.check.index import check_index
from plica.rewrite.check.instance import Instance
from plica.rewrite.check.operator import check_operator
from plica.rewrite.check.probe import ill_formed, offered
from plica.rewrite.check.region import chains
from plica.rewrite.check.report import Declined, as_pytest
from plica.rewrite.check.sample import samples
from plica.rewrite.check.simplify_data import plainer
from plica.rewrite.check.trial import Inputs, SidesDiffer, Trial
from plica.rewrite.check.verdict import Counterexample, Refuted, Tested, Untested, Verdict
from plica.rewrite.pack import Pack, as_rules
from plica.rewrite.packs import find_pack
from plica.rewrite.pattern import Dominator
from plica.rewrite.rule import Rule
from plica.runtime.error import wrong_argument

Array: TypeAlias = np.ndarray[Any, Any]
Move: TypeAlias = Callable[[Array, int, random.Random], Any]  # a new value for one element

CLIMB_STEPS: Final = 30  # changes tried on one instance


def climb(trial: Trial, start: Inputs, seed: int, steps: int = CLIMB_STEPS) -> SidesDiffer | None:
    """The final state if the sides differ, or None if they never did."""
    places = [i for i, array in enumerate(start) if array.size and dtype(array.dtype).is_float]
    if not places:
        return None
    source = random.Random(seed)
    best, top = list(start), height(trial, start)
    for _ in range(steps):
        inputs = _changed(best, places, source)
        if isinstance(found := trial.outcome(inputs), SidesDiffer):
            return found
        here = height(trial, inputs)
        if here >= top:
            best, top = inputs, here
    return None


def height(trial: Trial, inputs: Inputs) -> float:
    """How far the sides are apart, or how much of the left side is rounding."""
    try:
        found = trial.values(inputs)
        apart = distance(found[0], found[1])
        if apart > 0 or trial.wide is None:
            return 1.0 + apart if apart > 0 else 0.0
        wide = trial.wide.values([array_in_f64(array) for array in inputs])
    except EvaluationError:
        return 0.0
    return min(1.0, distance(found[0], wide[0]) * 2.0**20)


def _changed(inputs: list[Array], places: list[int], source: random.Random) -> list[Array]:
    """The inputs with one element changed, or a few."""
    arrays = list(inputs)
    for _ in range(source.choice((1, 1, 2, 3))):
        at = source.choice(places)
        array = arrays[at] = arrays[at].copy()
        flat = array.reshape(-1)
        element = source.randrange(flat.size)
        if source.random() < 0.3:  # what another place holds
            other = arrays[source.choice(places)].reshape(-1)
            value = other[source.randrange(other.size)]
        else:
            value = source.choice(MOVES)[1](flat, element, source)
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            flat[element] = np.asarray(value).astype(array.dtype)
    return arrays


def _next(flat: Array, at: int, source: random.Random) -> Any:
    """The number one step of its dtype away."""
    step = 2.0 ** (1 - dtype(flat.dtype).row.digits)
    return float(flat[at]) * (1 + source.choice((-step, step)))


MOVES: Final[tuple[tuple[str, Move], ...]] = (
    ("negate", lambda flat, at, source: -float(flat[at])),
    ("double", lambda flat, at, source: float(flat[at]) * 2.0 ** source.randint(-6, 6)),
    ("next", _next),
    ("fresh", lambda flat, at, source: source.uniform(-2, 2)),
    ("swap with opposite", lambda flat, at, source: -float(flat[source.randrange(flat.size)])),
)
"""Changes of one element, by name."""


@overload
def check(of: Rule, examples: int = 200, seed: int = 0) -> Verdict: ...
@overload
def check(
    of: Pack | Operator | str | Iterable[Rule], examples: int = 200, seed: int = 0
) -> tuple[Verdict, ...]: ...
def check(
    of: Rule | Pack | Operator | str | Iterable[Rule], examples: int = 200, seed: int = 0
) -> Verdict | tuple[Verdict, ...]:
    """What can be said of a rule, of each rule of a pack, or of an operator."""
    for name, given, least in (("examples", examples, 1), ("seed", seed, 0)):
        if type(given) is not int or given < least:
            message = f"The {name} of a check must be a whole number, at least {least}."
            raise wrong_argument(message, f"an integer, at least {least}", given)
    if isinstance(of, Operator):
        return check_operator(of, examples, seed)
    if not isinstance(of, Rule):
        rules = find_pack(of) if isinstance(of, str) else as_rules(of)
        return tuple(check(rule, examples, seed) for rule in rules)
    if isinstance(of.left, Scalar):
        return check_index(of)
    if isinstance(of.left, Dominator):
        return _check_region(of, examples, seed)
    return _test(of, examples, seed)


def _check_region(rule: Rule, examples: int, seed: int) -> Verdict:
    """What can be said of a rule of regions: it is tested on chains."""
    ways = chains(rule)
    share = max(1, examples // max(1, len(ways)))
    cases = overflowed = sets = 0
    for way in ways:
        found = _test(way, share, seed)
        if isinstance(found, Untested):
            continue
        if not isinstance(found, Tested):
            return found
        cases, overflowed = cases + found.cases, overflowed + found.overflowed
        sets += found.sets
    if not cases:
        return Untested(rule.name, "no chain of the path was found that the rule changes")
    return Tested(rule.name, cases, overflowed, "on chains of the path", sets)


def refutation(rule: Rule, examples: int = 100, seed: int = 0) -> Refuted | None:
    """The first instance that refutes a rule of graphs, as it is found: `check` makes it small."""
    search, source = _Search(rule), random.Random(f"{rule.name} {seed}")
    for _ in range(examples):
        answer = search.answer(source.randbytes(TAPE))
        if answer is None or isinstance(answer, bool):
            continue
        _, found, instance, after = answer
        if isinstance(found, str):
            return Refuted(rule.name, _counterexample(rule, instance, after, None, found))
        values = found.left, found.right
        return Refuted(
            rule.name, _counterexample(rule, found.made, found.after, values, found.reason)
        )
    return None


MAX_SHRINKS: Final = 400  # instances tried to make a counterexample smaller
SHRINK_CHUNKS: Final = (48, 16, 4, 1)  # bytes of a tape that are made simple together
CLIMB_BELOW_BYTE: Final = 32
"""Below this last byte of its tape an instance is searched: one in eight."""


MIN_EXAMPLES_TO_DOUBLE: Final = 100
"""The number of instances from which rounding instances are doubled; smaller budgets are spread
over all kinds."""
ROUNDING_FILLS: Final = ("plain", "even", "wide", "cancel", "short", "extreme")
"""Data on which the order of sums and products shows."""

Found: TypeAlias = tuple["Trial | None", "SidesDiffer | str", Instance, "Term | None"]
"""A failing trial and its difference; or a reason without one, with the instance and its result."""


class Differs(AssertionError):
    """Raised inside hypothesis where the sides of a rule differ."""


class _Search:
    """The trials of one rule; deterministic in the tape."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.seen = self.overflowed = self.sets = 0
        self.declined = Declined()
        self.found: Found | None = None
        self.tape = b""

    def look(self, tape: bytes) -> None:
        """Try one instance; raises `Differs` where the sides do."""
        answer = self.found or self.answer(tape)
        if answer is None:
            hypothesis.reject()
        if not isinstance(answer, bool):
            self.found = answer
            self.tape = self.tape or tape
            raise Differs  # and again where hypothesis asks for what it has found
        self.seen += 1
        self.overflowed += answer

    def answer(self, tape: bytes, steps: int = CLIMB_STEPS) -> Found | bool | None:
        """How an instance refutes the rule, otherwise whether it overflowed; None if it is none."""
        rule = self.rule
        instance = offered(rule, reader(tape))
        if instance is None:
            self.declined.add(None)
            return None
        try:
            after = rule.at(instance.term)
        except RuleFailed as error:
            return None, f"the rule fails with {said(error.__cause__ or error)}", instance, None
        if after is None:
            self.declined.add(instance)
            return None
        if (wrong := ill_formed(after)) is not None:
            return None, f"the right side is ill-formed: {wrong}", instance, None
        trial = Trial(rule, instance, after)
        if trial.ill_made is not None:
            return None, trial.ill_made, instance, after
        return self._try(trial, tape, steps)

    def _try(self, trial: Trial, tape: bytes, steps: int) -> Found | bool | None:
        """The data of the instance, data sets of every kind, and for some instances a search."""
        instance, seed = trial.made, zlib.crc32(tape)
        own = [array for _, array in instance.inputs]
        random_sets: Iterable[Any] = ()
        if any(each.size for each in own):
            random_sets = samples(trial.types, seed, constants=trial.constants)
        some = overflowed = False
        for inputs in (own, *random_sets):
            found = trial.outcome(inputs)
            self.sets += 1
            if isinstance(found, SidesDiffer):
                return trial, found, instance, trial.after
            some, overflowed = some or found.has_value, overflowed or found.overflowed
        if steps and tape[-1] < CLIMB_BELOW_BYTE:
            start = next(iter(samples(trial.types, seed)), own)
            beyond = climb(trial, start, seed, steps)
            if beyond is not None:
                return trial, beyond, instance, trial.after
        return overflowed if some else None

    def round_off(self, count: int, seed: int) -> bool:
        """Whether one of a number of rounding instances refutes a claim of equal bits."""
        source = random.Random(f"{self.rule.name} {seed}")
        for _ in range(count):
            tape = source.randbytes(TAPE)
            instance = offered(self.rule, reader(tape), rounds=True)
            after = None if instance is None else self.rule.at(instance.term)
            if instance is None or after is None or not instance.inputs:
                continue
            trial = Trial(self.rule, instance, after)
            if trial.ill_made is not None:
                continue
            for inputs in samples(trial.types, zlib.crc32(tape), ROUNDING_FILLS):
                self.sets += 1
                found = trial.outcome(inputs)
                if isinstance(found, SidesDiffer):
                    self.found = trial, found, instance, after
                    return True
        return False

    def counterexample(self) -> Counterexample:
        """The smallest that is found."""
        assert self.found is not None
        trial, found, instance, after = self._smaller(self.tape, self.found)
        if isinstance(found, str):
            return _counterexample(self.rule, instance, after, None, found)
        assert trial is not None
        plain = plainer(trial, found)
        values = plain.left, plain.right
        return _counterexample(self.rule, plain.made, plain.after, values, plain.reason)

    def _smaller(self, tape: bytes, found: Found) -> Found:
        """Shrinks the tape of a counterexample: bytes become 0, or are halved."""
        steps = CLIMB_STEPS if self._refutes(tape, 0) is None else 0
        tries, last = 0, b""
        while tape != last and tries < MAX_SHRINKS:
            last = tape
            for start, part, plain in _simpler(tape):
                if tape[start : start + len(part)] != part or tries == MAX_SHRINKS:
                    continue  # an earlier part has changed
                tries += 1
                simpler = tape[:start] + plain + tape[start + len(part) :]
                answer = self._refutes(simpler, steps)
                if answer is not None:
                    tape, found = simpler, answer
        return found

    def _refutes(self, tape: bytes, steps: int) -> Found | None:
        answer = self.answer(tape, steps)
        return None if answer is None or isinstance(answer, bool) else answer


def _simpler(tape: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Slices of a tape with their offset and a simpler replacement."""
    for size in SHRINK_CHUNKS:
        for start in range(0, len(tape), size):
            part = tape[start : start + size]
            if any(part):
                yield start, part, bytes(len(part))
    for start, byte in enumerate(tape):
        if byte > 1:
            yield start, bytes([byte]), bytes([byte >> 1])
            yield start, bytes([byte]), bytes([byte * 3 >> 2])


def _test(rule: Rule, examples: int, seed: int) -> Verdict:
    search = _Search(rule)

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=(hypothesis.Phase.generate,),
        suppress_health_check=list(hypothesis.HealthCheck),
        report_multiple_bugs=False,
        print_blob=False,
        verbosity=hypothesis.Verbosity.quiet,
    )
    @hypothesis.given(st.binary(min_size=TAPE, max_size=TAPE))
    def compare(tape: bytes) -> None:
        search.look(tape)

    note = ""
    why = "the guard" if rule.when is not None else "the right side"
    try:
        compare()
    except Differs:
        return Refuted(rule.name, search.counterexample())
    except hypothesis.errors.Unsatisfiable:
        note = f"{why} declines nearly every instance"
    if not search.seen:
        return Untested(rule.name, search.declined.why(rule))
    asked = rule.contract <= fused and not rule.examples
    if asked and search.round_off(
        2 * examples if examples >= MIN_EXAMPLES_TO_DOUBLE else examples // 2, seed
    ):
        return Refuted(rule.name, search.counterexample())
    return Tested(rule.name, search.seen, search.overflowed, note, search.sets)


def _counterexample(
    rule: Rule, made: Instance, after: Term | None, values: tuple[Any, Any] | None, reason: str
) -> Counterexample:
    inputs = tuple((str(var.name), array) for var, array in made.inputs)
    left, right = values or (None, None)
    typed = isinstance(after, Expr) and _has_type(after)
    text = as_pytest(rule, made, after, reason, typed)
    return Counterexample(made.term, after, inputs, left, right, reason, text)


def _has_type(term: Expr) -> bool:
    try:
        type_of(term)
    except IllTyped:
        return False
    return True
