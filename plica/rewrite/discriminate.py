"""Discrimination: the few rules of many whose left side can be a given term.

>>> from plica.core.name import Name
>>> from plica.ir.graph.expression import Var
>>> from plica.ir.type.term import tensor
>>> from plica.rewrite.make import rule
>>> from plica.rewrite.pattern import holes
>>> x, = holes("x")
>>> rules = Index([rule("double-negative", -(-x), x)])
>>> a = Var(Name("a"), tensor((), "f32"))
>>> len(rules.candidates(-a)), len(rules.candidates(-(-a)))
(0, 1)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, TypeAlias

from plica.core import Term
from plica.ir.graph.expression import Apply, Const, Literal
from plica.ir.loop.scalar import Lit, Scalar
from plica.rewrite.match import Matcher, head
from plica.rewrite.pattern import Hole, IndexHole, Rest, alternatives
from plica.rewrite.rule import Rule

Entry: TypeAlias = tuple[Rule, Matcher]
Key: TypeAlias = object  # the root of a term: its operator name, or else its class

MAX_CHILDREN: Final = 6  # how many children are looked at


class Index:
    """Rules by the shape of their left sides; candidates keep their order."""

    __slots__ = ("_found", "_general", "_wanted", "rows")

    def __init__(self, rules: Iterable[Rule]) -> None:
        placed: dict[Key, list[tuple[int, Entry]]] = {}
        general: list[tuple[int, Entry]] = []
        self._wanted: dict[Entry, tuple[Key | None, ...]] = {}
        number = 0
        for rule in rules:
            patterns = alternatives(rule.left)
            for pattern, (top, matcher) in zip(patterns, rule.matchers, strict=True):
                entry = (rule, matcher)
                self._wanted[entry] = _below(pattern)
                if top is None:
                    general.append((number, entry))
                else:
                    key = top[1] if top[1] is not None else top[0]
                    placed.setdefault(key, []).append((number, entry))
                number += 1
        self.rows: dict[Key, tuple[Entry, ...]] = {
            key: tuple(entry for _, entry in sorted([*found, *general], key=lambda item: item[0]))
            for key, found in placed.items()
        }
        self._general = tuple(entry for _, entry in general)
        self._found: dict[tuple[Key, ...], tuple[Entry, ...]] = {}

    def candidates(self, term: Term) -> tuple[Entry, ...]:
        """The rules whose left side may be `term`, in their order."""
        key = _head(term)
        if not (entries := self.rows.get(key, self._general)):
            return entries
        kids = term._children
        if len(kids) > MAX_CHILDREN:
            kids = kids[:MAX_CHILDREN]
        heads: tuple[Key, ...] = (key, *[_head(kid) for kid in kids])
        if (found := self._found.get(heads)) is None:
            found = tuple(entry for entry in entries if _fits(self._wanted[entry], heads[1:]))
            self._found[heads] = found
        return found


def _head(term: Any) -> Key:
    return term.op if term.__class__ is Apply else term.__class__


def _below(pattern: Any) -> tuple[Key | None, ...]:
    """The heads a pattern requires of a term's children; None for any."""
    if isinstance(pattern, Apply):
        parts: tuple[Any, ...] = pattern.args
    elif isinstance(pattern, Scalar) and type(pattern)._simple:
        parts = pattern._children
    else:
        return ()
    wanted: list[Key | None] = []
    for part in parts[:MAX_CHILDREN]:
        if isinstance(part, Rest):
            break
        wanted.append(_asked(part))
    return tuple(wanted)


def _asked(part: Any) -> Key | None:
    if isinstance(part, Literal):
        return _NUMBER
    if isinstance(part, Hole):
        return Const if part.constraint.constant else None
    if isinstance(part, IndexHole):
        return Lit if part.constraint.constant else None
    if (top := head(part)) is None:
        return None
    return top[1] if top[1] is not None else top[0]


_NUMBER: Final = "a number"  # a `Literal` in a pattern stands for a constant, or for itself


def _fits(wanted: tuple[Key | None, ...], found: tuple[Key, ...]) -> bool:
    if len(wanted) > len(found):
        return False
    for want, have in zip(wanted, found, strict=False):
        if want is None or want == have or (want is _NUMBER and (have is Const or have is Literal)):
            continue
        return False
    return True
