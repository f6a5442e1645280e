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
from collections.abc import Iterator, Sequence
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

    def term(self, root: Term) -> int:
        """The number of a term."""
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
        pieces, kids = [f"{type(node).__name__}("], list[int]()
        for at, name in enumerate(type(node)._fields):
            pieces[-1] += ";" if at else ""
            self._append(getattr(node, name), pieces, kids)
        pieces[-1] += ")"
        return pieces, kids

    def value(self, value: Any) -> Value:  # Any: of a field or a hole
        """A value as pieces of text with terms between them."""
        pieces, kids = [""], list[int]()
        self._append(value, pieces, kids)
        return pieces, kids

    def items(self, values: Sequence[Any]) -> Value:
        """What a `Rest` stands for: some items of a tuple."""
        pieces, kids = [""], list[int]()
        for value in values:
            pieces[-1] += ";"
            self._append(value, pieces, kids)
        return pieces, kids

    def _append(self, value: Any, pieces: list[str], kids: list[int]) -> None:
        if isinstance(value, Term):
            kids.append(self._known[value] if value in self._known else self.term(value))
            pieces.append("")
        elif value.__class__ is tuple:
            pieces[-1] += "("
            for each in value:
                pieces[-1] += ";"
                self._append(each, pieces, kids)
            pieces[-1] += ")"
        else:
            pieces[-1] += _plain(value)

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


class _Side:
    """A pattern as nodes, and what stands for its holes in a term that it matches."""

    def __init__(self, prefix: str, terms: Spelling) -> None:
        self.prefix, self.terms = prefix, terms
        self.nodes: list[Json] = []
        self.matching: dict[str, Json] = {}

    def spelled(self, pattern: Term, of: Term | None) -> int:
        """Adds a pattern, and what it stands for in a term; recursion over a pattern."""
        if isinstance(pattern, Hole | IndexHole | Rest):
            if of is not None:
                self._fill(pattern.name, self.terms.value(of))
            return self._add("hole", pattern.name, [])
        if isinstance(pattern, Literal | Derived):
            kind = "number" if isinstance(pattern, Literal) else "derived"
            text = repr(pattern.value) if isinstance(pattern, Literal) else pattern.function.name
            if of is not None:
                self._fill(f"{self.prefix}{len(self.nodes)}", self.terms.value(of))
            return self._add(kind, text, [])
        if of is not None and type(of) is not type(pattern):
            raise CompilerBug(f"A {type(of).__name__} is no {type(pattern).__name__}.")
        if isinstance(pattern, Const):
            return self._add("term", self.terms.label(pattern)[0], [])
        pieces, kids = [f"{type(pattern).__name__}("], list[int]()
        for at, name in enumerate(type(pattern)._fields):
            pieces[-1] += ";" if at else ""
            given = None if of is None else (getattr(of, name),)
            self._append(getattr(pattern, name), given, pieces, kids)
        pieces[-1] += ")"
        return self._add("term", pieces, kids)

    def _append(
        self, wanted: Any, of: tuple[Any] | None, pieces: list[str], kids: list[int]
    ) -> None:
        if isinstance(wanted, Hole | Derived):
            name = wanted.name if isinstance(wanted, Hole) else f"{self.prefix}{len(self.nodes)}"
            if of is not None:
                self._fill(name, self.terms.value(of[0]))
            hole = isinstance(wanted, Hole)
            text = wanted.name if isinstance(wanted, Hole) else wanted.function.name
            kids.append(self._add("hole" if hole else "derived", text, []))
            pieces.append("")
        elif isinstance(wanted, Term):
            kids.append(self.spelled(wanted, None if of is None else of[0]))
            pieces.append("")
        elif wanted.__class__ is tuple:
            self._append_items(wanted, of, pieces, kids)
        else:
            pieces[-1] += _plain(wanted)

    def _append_items(
        self, wanted: tuple[Any, ...], of: tuple[Any] | None, pieces: list[str], kids: list[int]
    ) -> None:
        pieces[-1] += "("
        at = 0
        for each in wanted:
            if isinstance(each, Rest):
                many = 0 if of is None else len(of[0]) - len(wanted) + 1
                if of is not None:
                    self._fill(each.name, self.terms.items(of[0][at : at + many]))
                kids.append(self._add("hole", each.name, []))
                pieces.append("")
                at += many
                continue
            pieces[-1] += ";"
            self._append(each, None if of is None else (of[0][at],), pieces, kids)
            at += 1
        pieces[-1] += ")"

    def _fill(self, name: str, value: Value) -> None:
        self.matching[name] = value

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
                    side.spelled(pattern, None)
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
