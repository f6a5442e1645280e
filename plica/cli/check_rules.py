"""Checks many rules: one after another or in processes, with verdicts as they come, within a time
limit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import lru_cache
from time import monotonic
from typing import Final

from attrs import evolve

from plica.cli.named_pack import named_packs
from plica.rewrite.check.run import check
from plica.rewrite.check.verdict import Proved, Refuted, Tested, Untested, Verdict
from plica.rewrite.rule import Rule

FIRST: Final = 8  # instances of each rule in the first round, where the time is limited


def checked(
    source: str,
    rules: Sequence[Rule],
    examples: int,
    seed: int,
    *,
    seconds: float | None = None,
    jobs: int = 1,
) -> Iterator[Verdict]:
    """The verdict of each rule of a pack or file, as soon as it is known.

    With several jobs rules are found again by their numbers in the `source`, in processes.
    """
    end = None if seconds is None else monotonic() + seconds
    if jobs == 1:
        yield from _here(rules, examples, seed, end)
        return
    numbers = _numbers(source)
    with ProcessPoolExecutor(jobs) as pool:
        waiting = [pool.submit(_there, source, numbers[rule.name, rule.place], examples, seed,
                               None if seconds is None else seconds * jobs / len(rules))
                   for rule in rules]  # fmt: skip
        for done in as_completed(waiting):
            yield done.result()


def _here(rules: Sequence[Rule], examples: int, seed: int, end: float | None) -> Iterator[Verdict]:
    if end is None:
        for rule in rules:
            yield check(rule, examples, seed)
        return
    known: dict[Rule, Verdict] = {}
    open_, done, share = list(rules), 0, min(FIRST, examples)
    while open_ and done < examples:
        for rule in list(open_):
            if monotonic() > end:
                break
            known[rule] = _together(known.get(rule), check(rule, share, seed + done))
            if isinstance(known[rule], Refuted | Proved):
                open_.remove(rule)
                yield known[rule]
        done += share
        share = min(2 * share, examples - done)
        if monotonic() > end:
            break
    for rule in open_:
        yield known.get(rule) or Untested(rule.name, "no time was left for it")


def _together(old: Verdict | None, new: Verdict) -> Verdict:
    """What two rounds say of one rule."""
    if isinstance(old, Tested) and isinstance(new, Tested):
        return evolve(new, cases=old.cases + new.cases, overflowed=old.overflowed + new.overflowed)
    return old if isinstance(old, Tested) and isinstance(new, Untested) else new


def _there(source: str, number: int, examples: int, seed: int, seconds: float | None) -> Verdict:
    """Checks a rule of a source in a separate process."""
    end = None if seconds is None else monotonic() + seconds
    (verdict,) = _here([_rules(source)[number]], examples, seed, end)
    return verdict


@lru_cache(maxsize=4)
def _rules(source: str) -> tuple[Rule, ...]:
    return tuple(dict.fromkeys(rule for pack in named_packs(source) for rule in pack))


def _numbers(source: str) -> dict[tuple[str, object], int]:
    return {(rule.name, rule.place): number for number, rule in enumerate(_rules(source))}
