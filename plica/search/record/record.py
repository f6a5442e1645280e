"""Records: what one trial was, and what came of it, as plain data that can be checked.

    Record ::= Record(key, target, trace_json, form, costs, noise, seed, versions, error)

`key` is the digest of the work, `target` the fingerprint of the machine, `form` the kernel that the
trace starts from. Costs are seconds; a failed trial has none, but an `error` and a `message`. The
identity is what was tried, not its outcome. Two records of one trial join by a total order: the
better one stays.

>>> slow = record("ab12", "cpu", "{}", "blocked", costs=(2e-3,))
>>> fast = record("ab12", "cpu", "{}", "blocked", costs=(1e-3, 1.1e-3))
>>> slow.identity == fast.identity, joined(slow, fast).cost
(True, 0.001)
"""

from __future__ import annotations

import hashlib
import json
import math
from typing import Any, Final, NoReturn

from attrs import fields, frozen

from plica.codegen.lower.workload import Equality, equality_of
from plica.core import Malformed
from plica.runtime.error import Diagnostic

ERRORS: Final = ("", "refused", "build", "wrong", "crash", "timeout")
"""Kinds of failure; the first is none."""

MAX_COSTS: Final = 1024
LONGEST_TRACE: Final = 1 << 22
LONGEST_TEXT: Final = 4096
LONGEST_TIME: Final = 1e6  # seconds


@frozen(order=False)
class Record:
    """One trial: what was tried, where, and its seconds or why it failed."""

    key: str
    target: str
    trace_json: str
    form: str
    costs: tuple[float, ...]
    noise: float
    seed: int
    versions: tuple[tuple[str, str], ...]
    error: str = ""
    policy: str = ""
    message: str = ""
    trial: int = 0  # which trial of its run it was

    def __attrs_post_init__(self) -> None:
        _check(self)

    @property
    def identity(self) -> str:
        """A digest of what was tried, without its outcome and date."""
        tried = [self.key, self.target, self.form, self.trace_json, self.seed, self.policy]
        text = json.dumps([*tried, [list(version) for version in self.versions]])
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def equality(self) -> Equality:
        """By which equality of works it was recorded: its key says so."""
        return equality_of(self.key)

    @property
    def cost(self) -> float | None:
        """The minimum time, or None if the trial failed."""
        return min(self.costs) if self.costs else None


def record(  # the first five are what every record has
    key: str,
    target: str,
    trace_json: str,
    form: str,
    costs: tuple[float, ...] = (),
    *,
    noise: float = 0.0,
    seed: int = 0,
    versions: tuple[tuple[str, str], ...] = (),
    **more: Any,
) -> Record:
    """A record with defaults for the usual fields."""
    return Record(key, target, trace_json, form, costs, noise, seed, versions, **more)


def joined(one: Record, other: Record) -> Record:
    """The better of two records of one trial."""
    return min(one, other, key=_rank)


def _rank(of: Record) -> tuple[Any, ...]:
    """Every field takes part, so different records never compare equal."""
    cost = of.cost
    rest = [of.costs, of.noise, of.error, of.message, of.trial]
    return (cost is None, 0.0 if cost is None else cost, -len(of.costs), *rest)


# --- what is believed -----------------------------------------------------------------------------


def to_row(of: Record) -> tuple[Any, ...]:
    """A record as a row of a table, its identity first."""
    plain = {field.name: getattr(of, field.name) for field in fields(Record)}
    plain["costs"] = json.dumps(of.costs)
    plain["versions"] = json.dumps(of.versions)
    return of.identity, *plain.values()


def from_row(row: tuple[Any, ...]) -> Record:
    """The record of a row; raises `Malformed` where the row is none."""
    identity, key, target, trace, form, costs, noise, seed, versions, *rest = row
    if not (isinstance(costs, str) and isinstance(versions, str)):
        _refuse("Its costs or its versions are no text.", repr(costs))
    if len(costs) > 64 * MAX_COSTS or len(versions) > 4 * LONGEST_TEXT:
        _refuse("Its costs or its versions are too long.", str(len(costs)))
    try:
        times, named = json.loads(costs), json.loads(versions)
    except (ValueError, RecursionError) as reason:
        _refuse("Its costs or its versions are not JSON.", str(reason))
    if not isinstance(times, list) or not isinstance(named, list):
        _refuse("Its costs or its versions are no list.", repr(costs)[:80])
    pairs = tuple([tuple(each) if isinstance(each, list) else each for each in named])
    found = Record(key, target, trace, form, tuple(times), noise, seed, pairs, *rest)
    if found.identity != identity:
        _refuse("What was tried is not what its identity says.", str(identity)[:80])
    return found


def _check(of: Record) -> None:
    """Illegal records cannot be built."""
    # Any: a row of a file may hold anything.
    texts: tuple[Any, ...] = (of.key, of.target, of.form, of.error, of.policy, of.message)
    if not all(isinstance(text, str) and len(text) <= LONGEST_TEXT for text in texts):
        _refuse(f"A text in it is none, or longer than {LONGEST_TEXT} characters.", repr(texts))
    if not of.key or not of.target:
        _refuse("It does not say for which work or which machine it is.", repr(texts))
    trace: Any = of.trace_json
    if not isinstance(trace, str) or len(trace) > LONGEST_TRACE:
        _refuse(f"Its trace is no text, or longer than {LONGEST_TRACE} characters.", of.key)
    if of.error not in ERRORS:
        _refuse("Its kind of failure is not known.", of.error)
    if type(of.seed) is not int or type(of.trial) is not int or abs(of.seed) >= 1 << 63:
        _refuse("Its seed or its trial is no integer.", repr((of.seed, of.trial)))
    numbers = (*of.costs, of.noise)
    if len(numbers) > MAX_COSTS or not all(
        type(each) is float and math.isfinite(each) and 0 <= each < LONGEST_TIME for each in numbers
    ):
        _refuse("Its costs are not a few positive numbers.", repr(of.costs)[:80])
    if bool(of.error) == bool(of.costs):
        _refuse("It has costs and a failure, or neither.", repr((of.error, of.costs))[:80])
    for each in of.versions:
        match each:
            case (str(name), str(version)) if len(name) + len(version) <= LONGEST_TEXT:
                continue
            case _:
                _refuse("A version in it is no name and a text.", repr(each)[:80])


def _refuse(message: str, found: str) -> NoReturn:
    whole = f"This is no tuning record.  {message}"
    raise Malformed(Diagnostic("bad-record", whole, found=found[:LONGEST_TEXT]))
