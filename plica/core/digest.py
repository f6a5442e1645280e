"""Digest: a content hash that is the same for terms equal up to renaming, on any machine.

>>> from attrs import frozen
>>> @frozen(eq=False)
... class Say(Term):
...     what: str
>>> digest(Say("a")) == digest(Say("a")), alpha_equal(Say("a"), Say("b"))
(True, False)

Laws: `digest(a) == digest(b)` iff `a` and `b` differ only in the names of bound variables;
`first_difference(a, b) is None` iff they are alpha-equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

from attrs import frozen
from pyrsistent import PMap, pmap

from plica.core.binding import bound_by, fields_of_children, name_of
from plica.core.summary import Summary, finish, own_data, plain, same, summaries, summary
from plica.core.term import Term, field_names
from plica.runtime.error import wrong_argument

Path = tuple[str | int, ...]


class Meant(Protocol):
    """A term, or something that means one: a script."""

    def canonical(self) -> Term: ...


def digest(of: Meant) -> str:
    """The content hash of a term, or of the term a script denotes: 32 hexadecimal digits."""
    if not hasattr(of, "canonical"):
        raise wrong_argument("Terms and scripts have a digest.", "a term or a script", of)
    term = of.canonical()
    found = summary(term)
    return finish(found, _named(found))


def digests(of: Sequence[Term]) -> tuple[str, ...]:
    """The digest of each term; what they share is looked at once."""
    meant = [term.canonical() for term in of]
    known = summaries(_Several(tuple(meant)))
    return tuple([finish(known[term], _named(known[term])) for term in meant])


def _named(of: Summary) -> dict[Term, bytes]:
    """Free variables by their names: they have no binder, so that is all they have."""
    return {variable: plain(tuple(name_of(variable))) for variable in of[1]}


@frozen(eq=False)
class _Several(Term):
    """Terms side by side, to be looked at together."""

    parts: tuple[Term, ...]


def alpha_equal(a: Term, b: Term) -> bool:
    """Whether the two differ at most in the names of bound variables."""
    return a is b or digest(a) == digest(b)


def first_difference(a: Term, b: Term) -> Path | None:
    """The path to the first subterm in which `a` and `b` differ, or None if they are equal.

    `at(a, path)` is that subterm of `a`; two modules are compared definition by definition in the
    order of their names.
    """
    if a is b or (a.canonical() is not a and alpha_equal(a, b)):
        return None
    left, right = summaries(a), summaries(b)
    scope: _Scope = pmap(), pmap()
    path: list[str | int] = []
    if same(left[a], right[b], *scope):
        return None
    while type(a) is type(b) and own_data(a) == own_data(b):
        if len(a._children) != len(b._children):
            break
        found = None
        scopes = _scopes(a, b, scope)
        pairs = zip(steps(a), steps(b), fields_of_children(a), strict=True)
        for (step, x), (_, y), (name, _) in pairs:
            inner = scopes.get(name, scope)
            if not same(left[x], right[y], *inner):
                found = step, x, y, inner
                break
        if found is None:
            break  # the same parts, another binding: the difference is here
        step, a, b, scope = found
        path.extend(step)
    return tuple(path)


def at(term: Term, path: Path) -> Term:
    """The subterm that `path` leads to."""
    value: Any = term
    for step in path:
        value = getattr(value, step) if isinstance(step, str) else value[step]
    return value  # type: ignore[no-any-return]  # a path leads to a term


def steps(node: Term) -> list[tuple[Path, Term]]:
    """Each child with the path from its parent, in the order of `children`."""
    found: list[tuple[Path, Term]] = []
    for name in field_names(type(node)):
        _steps_into(getattr(node, name), (name,), found)
    return found


# Bound variables of one term and those of the other they stand for, there and back.
_Scope: TypeAlias = "tuple[PMap[Term, Term], PMap[Term, Term]]"


def _scopes(a: Term, b: Term, scope: _Scope) -> dict[str, _Scope]:
    """The correspondence of bound variables inside each field that binds."""
    found: dict[str, _Scope] = {}
    for (own, fields, mine), (_, _, others) in zip(bound_by(a), bound_by(b), strict=True):
        for name in (own, *fields):
            there, back = found.get(name, scope)
            found[name] = (
                there.update(dict(zip(mine, others, strict=False))),
                back.update(dict(zip(others, mine, strict=False))),
            )
    return found


def _steps_into(value: Any, path: Path, found: list[tuple[Path, Term]]) -> None:
    if isinstance(value, Term):
        found.append((path, value))
    elif isinstance(value, tuple):
        for i, item in enumerate(value):
            _steps_into(item, (*path, i), found)
