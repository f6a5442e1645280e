"""Packs: named, versioned sets of rules, and library extensions.

>>> from plica.rewrite.pattern import holes
>>> from plica.rewrite.make import rule
>>> x, = holes("x")
>>> tidy = pack("tidy", rule("double-negative", -(-x), x), version="1")
>>> [each.name for each in tidy]
['double-negative']

Packs add with `+`.  A library ships one under the entry-point group `plica.packs`, where
`plica.rewrite.packs` finds it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any, Final, TypeAlias

import attrs

from plica.core import RuleRefused, Term, post_order
from plica.ir.contract import Contract, join, named, unknown_contract
from plica.ir.graph.module import Module
from plica.rewrite.derivation import Derivation, DerivationStep, Rewritten
from plica.rewrite.discriminate import Index
from plica.rewrite.engine import rewrite_with
from plica.rewrite.pattern import Dominator, Outputs
from plica.rewrite.rule import Rule
from plica.runtime.error import Diagnostic
from plica.runtime.late import lazy_imports

with lazy_imports(__name__):
    from plica.rewrite.dominate import rewrite_dominated
    from plica.rewrite.output_groups import rewrite_outputs

Whole: TypeAlias = Callable[[Term, Sequence[Term]], bool]
"""Whether a term with these other users must not be decomposed for one of them."""

Asked: TypeAlias = Callable[[Term, Mapping[Term, Sequence[Term]]], bool]
"""Whether a term must stay as it was requested, given the users of every term."""


@attrs.frozen(eq=False)
class Pack:
    """Rules under one name; their names are unique, their order changes cost, not meaning.

    With `whole` a pack says which shared values its rules must not look into; with `asked`, which
    values no rule of it replaces.
    """

    name: str
    rules: tuple[Rule, ...]
    version: str
    doc: str = ""
    whole: Whole | None = None
    asked: Asked | None = None

    def __attrs_post_init__(self) -> None:
        counted = Counter(rule.name for rule in self.rules)
        if twice := sorted(name for name, count in counted.items() if count > 1):
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

    @cached_property
    def local(self) -> Pack:
        """The rules that look at a term alone, not at who uses it."""
        kept = tuple(rule for rule in self.rules if not isinstance(rule.left, Dominator | Outputs))
        return self if len(kept) == len(self.rules) else attrs.evolve(self, rules=kept)

    def within(self, contract: Contract) -> Pack:
        """The rules that keep at least this contract."""
        return _within(self, contract)


@lru_cache(maxsize=256)  # so that the index of what is kept is made once
def _within(of: Pack, contract: Contract) -> Pack:
    kept = tuple(rule for rule in of.rules if rule.contract <= contract)
    return of if len(kept) == len(of.rules) else attrs.evolve(of, rules=kept)


def pack(
    name: str,
    *rules: Rule | Iterable[Rule],
    version: str = "",
    doc: str = "",
    whole: Whole | None = None,
    asked: Asked | None = None,
) -> Pack:
    """A pack of rules, or of tables of rules."""
    given: object = name  # whatever a user gives
    if not isinstance(given, str) or not given.strip():
        message = "A pack has a name, by which it is asked for."
        raise RuleRefused(Diagnostic("bad-rule", message, None, "a name", repr(name)))
    stated: object = version  # whatever a user gives
    if not isinstance(stated, str) or not stated:
        message = f"The version of the pack {name} is a text."
        hint = "Give a version, and change it with the rules."
        raise RuleRefused(
            Diagnostic("bad-rule", message, None, "a text such as '1'", repr(version), hint)
        )
    flat: list[Rule] = []
    for rule in rules:
        flat.extend([rule] if isinstance(rule, Rule) else as_rules(rule))
    return Pack(name, tuple(flat), version, doc, whole, asked)


def as_rules(rules: Any) -> tuple[Rule, ...]:  # Any: whatever a user gives
    """The rules of a pack or an iterable; anything else is refused."""
    if isinstance(rules, Pack):
        return rules.rules
    if isinstance(rules, Iterable) and not isinstance(rules, str):
        found = tuple(rules)
        if all(isinstance(each, Rule) for each in found):
            return found
    hint = f"find_pack({rules!r}) gives a pack by its name." if isinstance(rules, str) else None
    message = "This is no pack and no rules."
    raise RuleRefused(Diagnostic("bad-rule", message, None, "a Pack, or rules", repr(rules), hint))


def rewrite(
    term: Term, rules: Pack | Iterable[Rule], contract: Contract | str | None = None
) -> tuple[Term, Derivation]:
    """`term` in normal form under the rules within `contract`, and the derivation to it.

    A module is also rewritten by rules of regions and of several outputs.
    """
    used = rules if isinstance(rules, Pack) else Pack("rules", as_rules(rules), "0")
    given: object = term  # whatever a user gives
    if not isinstance(given, Term):
        message = "Only a term can be rewritten; `.module` is that of a function in Python."
        raise RuleRefused(Diagnostic("bad-rule", message, None, "a term", repr(given)))
    if contract is not None:
        found = named(contract) if isinstance(contract, str) else contract
        if not isinstance(found, Contract):
            raise RuleRefused(unknown_contract(contract, "bad-rule"))
        used = used.within(found)
    done = rewrite_under(term, used)
    return done.term, Derivation(term, done.steps)


def rewrite_under(term: Term, pack: Pack) -> Rewritten:
    """`term` in normal form under all rules of a pack, with the steps to it.

    Rules of regions and of several outputs ask who uses a term, so they need a module.
    """
    if isinstance(term, Module) and pack.local is not pack:
        done: Rewritten = rewrite_module(term, pack)
        return done
    if pack.whole is None and pack.asked is None:
        return rewrite_with(term, pack.index)
    users: dict[Term, list[Term]] = {}
    for node in post_order(term):
        for kid in dict.fromkeys(node._children):
            users.setdefault(kid, []).append(node)
    whole, asked = pack.whole, pack.asked
    shared = [item for item in users.items() if len(item[1]) > 1 and whole is not None]
    kept = [node for node, using in shared if whole is not None and whole(node, using)]
    still = [node for node in users if asked is not None and asked(node, users)]
    return rewrite_with(term, pack.index, whole=kept, asked=still)


# --- module rewriting --------------------------------------------------------------------------


MAX_ROUNDS: Final = 100
"""Alternations of both kinds of rules after which they are reported as looping."""


def rewrite_module(module: Module, pack: Pack) -> Rewritten:
    """A module under all rules of a pack, with the steps to it."""
    regions = tuple(rule for rule in pack if isinstance(rule.left, Dominator))
    groups = tuple(rule for rule in pack if isinstance(rule.left, Outputs))
    steps: list[DerivationStep] = []
    for _ in range(MAX_ROUNDS):
        done = rewrite_under(module, pack.local)
        assert isinstance(done.term, Module)  # no rule speaks of modules
        found, of_regions = rewrite_dominated(done.term, regions)
        module, of_groups = rewrite_outputs(found, groups)
        asked = of_regions.steps + of_groups.steps
        steps.extend(done.steps + asked)
        if not asked:
            return Rewritten(module, tuple(steps))
    names = list(dict.fromkeys(step.rule.name for step in steps[-50:]))
    message = "Rewriting does not come to an end."
    expected, found_here = "rules that decrease some measure", f"a cycle through {', '.join(names)}"
    raise RuleRefused(
        Diagnostic("looping-rules", message, steps[-1].rule.place, expected, found_here)
    )
