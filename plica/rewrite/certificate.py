"""Certificates of derivations: what `plica.runtime.derivation_check` needs to follow the steps.

    certificate ::= {nodes, rules, groups, root, end, source, result, digests}
    node        ::= [pieces of text, children, whether it is a variable]
    rule        ::= [name, contract, kind, digest, alternatives];  alternative ::= [left, right]
    side        ::= nodes in post-order, each [kind, text or pieces, children]
    group       ::= [kind of sweep, path, the term there, steps, the whole term after it]
    step        ::= [rule, alternative, before, after, matching, site, whole, inner]

A side is spelled as terms are, with holes where a matching tells what stands there.

>>> from plica.ir.graph.expression import Const, Literal
>>> made = Spelling()
>>> made.value((1, Literal(2)))
(['(;1;', ')'], [0])
>>> made.nodes
[[['Literal(2)'], [], 0]]
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeAlias

from plica.core import CompilerBug, Term, post_order
from plica.core.digest import digests
from plica.ir.graph.expression import Const, Literal
from plica.ir.type import DType
from plica.rewrite.binder import move
from plica.rewrite.derivation import Derivation, DerivationStep, at as term_at
from plica.rewrite.pattern import (
    Derived,
    Dominator,
    Hole,
    IndexHole,
    Outputs,
    Recursive,
    Rest,
    alternatives,
)
from plica.rewrite.rule import Rule

VERSION: Final = 1
Json: TypeAlias = Any  # what json.dumps takes
Value: TypeAlias = tuple[list[str], list[int]]


class Spelling:
    """Terms as labelled nodes, each once."""

    def __init__(self) -> None:
        self.nodes: list[Json] = []
        self._known: dict[Term, int] = {}

    def term(self, root: Term, _: object = None) -> int:
        """The number of a term."""
        if root not in self._known:
            for node in post_order(root):
                if node not in self._known:
                    pieces, kids = self.label(node)
                    self._known[node] = len(self.nodes)
                    self.nodes.append([pieces, kids, int(type(node).variable)])
        return self._known[root]

    def label(self, node: Term) -> Value:
        """The text of a node, and its children between the pieces."""
        if isinstance(node, Const):
            content = digests([node])[0] if node.shape else repr(node.numpy()[()].item())
            return [f"Const({node.dtype.name};{_plain(node.shape)};{content})"], []
        return _label(node, _ABSENT, self.term)

    def value(self, value: Any) -> Value:  # Any: of a field or a hole
        """A value as pieces of text with terms between them."""
        pieces, kids = [""], list[int]()
        _append(value, _ABSENT, pieces, kids, self.term)
        return pieces, kids

    def items(self, values: Sequence[Any]) -> Value:
        """What a `Rest` stands for: some items of a tuple."""
        pieces, kids = [""], list[int]()
        for value in values:
            pieces[-1] += ";"
            _append(value, _ABSENT, pieces, kids, self.term)
        return pieces, kids

    def digests(self) -> list[str]:
        """A digest of each node with all that is below it."""
        found: list[str] = []
        for pieces, kids, variable in self.nodes:
            whole = json.dumps([pieces, [found[kid] for kid in kids], bool(variable)])
            found.append(hashlib.sha256(whole.encode()).hexdigest()[:32])
        return found


def _plain(value: Any) -> str:
    if value.__class__ is tuple:
        return f"({''.join(f';{_plain(each)}' for each in value)})"
    if isinstance(value, DType):
        return value.name
    if callable(value) and hasattr(value, "__qualname__"):
        return f"{value.__module__}.{value.__qualname__}"
    return repr(value)


_ABSENT: Final = object()  # what a pattern stands for where no term is given
Numbering: TypeAlias = Callable[[Term, Any], int]
"""The number of a node of a term or pattern, given what that stands for."""


def _label(node: Term, of: Any, number: Numbering) -> Value:
    """A node's text and children, field by field; `of` is the node that a pattern stands for."""
    pieces, kids = [f"{type(node).__name__}("], list[int]()
    for at, name in enumerate(type(node)._fields):
        pieces[-1] += ";" if at else ""
        given = of if of is _ABSENT else getattr(of, name)
        _append(getattr(node, name), given, pieces, kids, number)
    pieces[-1] += ")"
    return pieces, kids


def _append(value: Any, of: Any, pieces: list[str], kids: list[int], number: Numbering) -> None:
    """Appends a value as text, with terms between the pieces; recursion over one field."""
    if isinstance(value, Term):
        kids.append(number(value, of))
        pieces.append("")
    elif value.__class__ is tuple:
        pieces[-1] += "("
        at = 0
        for item in value:
            if many := isinstance(item, Rest):
                end = at if of is _ABSENT else at + len(of) - len(value) + 1
            else:
                end = at + 1
                pieces[-1] += ";"
            given = of if of is _ABSENT else of[at:end] if many else of[at]
            _append(item, given, pieces, kids, number)
            at = end
        pieces[-1] += ")"
    else:
        pieces[-1] += _plain(value)


class _Side:
    """A pattern as nodes, and what stands for its holes in a term that it matches."""

    def __init__(self, prefix: str, terms: Spelling) -> None:
        self.prefix, self.terms = prefix, terms
        self.nodes: list[Json] = []
        self.matching: dict[str, Json] = {}

    def spelled(self, pattern: Term, of: Any = _ABSENT) -> int:
        """Adds a pattern, and what it stands for in a term; recursion over a pattern."""
        match pattern:
            case Hole(name) | IndexHole(name) | Rest(name):
                return self._filled("hole", name, name, pattern, of)
            case Literal(value):
                return self._filled("number", repr(value), "", pattern, of)
            case Derived(function):
                return self._filled("derived", function.name, "", pattern, of)
        if of is not _ABSENT and type(of) is not type(pattern):
            raise CompilerBug(f"A {type(of).__name__} is no {type(pattern).__name__}.")
        if isinstance(pattern, Const):
            return self._add("term", *self.terms.label(pattern))
        return self._add("term", *_label(pattern, of, self.spelled))

    def _filled(self, kind: str, text: str, name: str, pattern: Term, of: Any) -> int:
        if of is not _ABSENT:
            spell = self.terms.items if isinstance(pattern, Rest) else self.terms.value
            self.matching[name or f"{self.prefix}{len(self.nodes)}"] = spell(of)
        return self._add(kind, text, [])

    def _add(self, kind: str, text: Json, kids: list[int]) -> int:
        self.nodes.append([kind, text, kids])
        return len(self.nodes) - 1


def certificate(of: Derivation) -> dict[str, Json]:
    """The certificate of a derivation, as data for JSON."""
    return _Certificate(of).data()


class _Certificate:
    def __init__(self, of: Derivation) -> None:
        self.of = of
        self.terms = Spelling()
        self.rules: dict[Rule, int] = {}
        self.told: dict[int, None] = {}

    def data(self) -> dict[str, Json]:
        """All parts."""
        root = self.terms.term(self.of.source)
        self.told[root] = None
        groups: list[Json] = []
        here = self.of.source
        for (path, sweep), group in itertools.groupby(
            self.of.steps, lambda step: (step.path, step.sweep)
        ):
            for kind, steps in _parts("once" if sweep is None else sweep.kind, tuple(group)):
                start = self.terms.term(_inside(here, path))
                sites: dict[int, int] = {}
                told = [self._step(step, kind, sites) for step in steps]
                here = term_at(Derivation(here, steps), len(steps))
                after = self.terms.term(here)
                self.told |= {start: None, after: None}
                groups.append([kind, list(path), start, told, after])
        end = self.terms.term(here)
        found = self.terms.digests()
        return {
            "version": VERSION, "nodes": self.terms.nodes,
            "rules": [self._rule(rule) for rule in self.rules], "groups": groups,
            "root": root, "end": end, "source": found[root], "result": found[end],
            "digests": [[node, found[node]] for node in self.told],
        }  # fmt: skip

    def _step(self, step: DerivationStep, sweep: str, sites: dict[int, int]) -> Json:
        number = self.rules.setdefault(step.rule, len(self.rules))
        before, after = self.terms.term(step.before), self.terms.term(step.after)
        kind, alternative, matching = _kind(step.rule), 0, dict[str, Json]()
        self.told |= {before: None, after: None}
        if kind not in ("pass", "region"):
            alternative = _matching_alternative(step)
            left, right = _sides(step.rule)[alternative]
            side = _Side("l", self.terms)
            side.spelled(left, step.before)
            matching |= side.matching
            if right is not None:
                other = _Side("r", self.terms)
                other.spelled(right, step.after)
                matching |= other.matching
        where: list[Json] = [0, None, []]
        if sweep in ("up", "down"):
            whole = None if step.whole is None else self.terms.term(step.whole)
            where = [sites.setdefault(step.site, len(sites)), whole, [*step.inner]]
        return [number, alternative, before, after, matching, *where]

    def _rule(self, rule: Rule) -> Json:
        sides: list[Json] = []
        for left, right in _sides(rule) if _kind(rule) in ("computed", "equation") else ():
            pair = [_Side(prefix, self.terms) for prefix in "lr"]
            for side, pattern in zip(pair, (left, right), strict=True):
                if pattern is not None:
                    side.spelled(pattern)
            sides.append([pair[0].nodes, pair[1].nodes])
        says = [rule.name, str(rule.contract), _kind(rule), sides]
        digest = hashlib.sha256(json.dumps(says).encode()).hexdigest()[:32]
        return [*says[:3], digest, sides]


def _parts(
    kind: str, steps: tuple[DerivationStep, ...]
) -> Iterator[tuple[str, tuple[DerivationStep, ...]]]:
    """Single steps in runs of passes and of rules; a sweep is one run."""
    if kind != "once":
        yield kind, steps
        return
    for is_pass, run in itertools.groupby(steps, lambda step: step.rule.is_pass):
        yield ("pass" if is_pass else "once"), tuple(run)


def _inside(term: Term, path: tuple[int, ...]) -> Term:
    for number in path:
        term = term._children[number]
    return term


def _kind(rule: Rule) -> str:
    if rule.is_pass:
        return "pass"
    if any(isinstance(node, Dominator | Outputs | Recursive) for node in post_order(rule.left)):
        return "region"
    still = isinstance(rule.right, Term) and move(rule.left, rule.right) is None
    return "equation" if still else "computed"


def _sides(rule: Rule) -> list[tuple[Term, Term | None]]:
    """The alternatives of the left side, each with the right side where that is a term."""
    right = rule.right if _kind(rule) == "equation" and isinstance(rule.right, Term) else None
    return [(left, right) for left in alternatives(rule.left)]


def _matching_alternative(step: DerivationStep) -> int:
    """Which alternative of a rule's left side a step was made by."""
    found = [
        number for number, (_, matcher) in enumerate(step.rule.matchers) if matcher(step.before, {})
    ]
    for number in found:
        matcher = step.rule.matchers[number][1]
        if len(found) == 1 or step.rule.apply(matcher, step.before) is step.after:
            return number
    raise CompilerBug(f"{step.rule.name} does not give what its step says.")
