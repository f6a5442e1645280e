"""Packs: named, versioned sets of rules, and library extensions.

>>> from plica.rewrite.pattern import holes
>>> from plica.rewrite.make import rule
>>> x, = holes("x")
>>> tidy = pack("tidy", rule("double-negative", -(-x), x), version="1")
>>> [each.name for each in tidy]
['double-negative']

Packs add with `+`.  A library ships one under the entry-point group `plica.packs`; `find` looks
there and among Plica's own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cached_property, lru_cache
from importlib import metadata
from typing import Final

import attrs

from plica.core.diagnostic import RuleRefused, did_you_mean
from plica.core.term import Term
from plica.rewrite.contract import Contract, join
from plica.rewrite.derivation import Derivation
from plica.rewrite.discriminate import Index
from plica.rewrite.engine import rewrite_with
from plica.rewrite.rule import Rule
from plica.runtime.error import Diagnostic

GROUP: Final = "plica.packs"


@attrs.frozen(eq=False)
class Pack:
    """Rules under one name; their names are unique, their order changes cost, not meaning."""

    name: str
    rules: tuple[Rule, ...]
    version: str
    doc: str = ""

    def __attrs_post_init__(self) -> None:
        counted = Counter(rule.name for rule in self.rules)
        twice = sorted(name for name, count in counted.items() if count > 1)
        if twice:
            message = f"The pack {self.name} has two rules of one name: {', '.join(twice)}."
            raise RuleRefused(Diagnostic("duplicate-name", message))

    @cached_property
    def index(self) -> Index:
        """The rules by what their left sides look like; made when they are first used."""
        return Index(self.rules)

    def __iter__(self) -> Iterator[Rule]:
        return iter(self.rules)

    def __len__(self) -> int:
        return len(self.rules)

    def __add__(self, other: Pack) -> Pack:
        return Pack(f"{self.name}+{other.name}", self.rules + other.rules, self.version)

    @property
    def contract(self) -> Contract:
        """The join of the contracts of the rules."""
        return join(rule.contract for rule in self.rules)

    def within(self, contract: Contract) -> Pack:
        """The rules that keep at least this contract."""
        return _within(self, contract)


@lru_cache(maxsize=256)  # so that the index of what is kept is made once
def _within(of: Pack, contract: Contract) -> Pack:
    kept = tuple(rule for rule in of.rules if rule.contract <= contract)
    return of if len(kept) == len(of.rules) else Pack(of.name, kept, of.version, of.doc)


def pack(name: str, *rules: Rule | Iterable[Rule], version: str, doc: str = "") -> Pack:
    """A pack of rules, or of tables of rules."""
    flat: list[Rule] = []
    for each in rules:
        flat.extend([each] if isinstance(each, Rule) else each)
    return Pack(name, tuple(flat), version, doc)


def rewrite(
    term: Term, rules: Pack | Iterable[Rule], contract: Contract | None = None
) -> tuple[Term, Derivation]:
    """`term` in normal form under the rules within `contract`, and the derivation to it."""
    used = rules if isinstance(rules, Pack) else Pack("rules", tuple(rules), "0")
    if contract is not None:
        used = used.within(contract)
    done = rewrite_with(term, used.index)
    return done.term, Derivation(term, done.steps)


def installed() -> dict[str, metadata.EntryPoint]:
    """The packs that installed libraries offer, by name; none is imported by asking."""
    return {point.name: point for point in metadata.entry_points(group=GROUP)}


def find(name: str, among: Iterable[str] = ()) -> Pack:
    """The installed pack of that name; `among` are other names that would have been right."""
    points = installed()
    if name not in points:
        others = sorted({*points, *among})
        raise RuleRefused(
            Diagnostic(
                "unknown-pack",
                f"There is no rule pack {name!r}.",
                expected=f"one of {', '.join(others)}" if others else None,
                suggestion=did_you_mean(name, others),
            )
        )
    found = points[name].load()
    if not isinstance(found, Pack):
        message = f"The entry point {name} of {GROUP} is no pack but {found!r}."
        raise RuleRefused(Diagnostic("bad-rule", message))
    return found
