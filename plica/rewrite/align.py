"""Alignment: which part of a term became which part of another, when no rule says so.

A pass returns a whole new module. Equal subterms are one object, so only changed parts need
pairing: from the roots down, nodes of one kind are paired child by child; where kinds differ, the
new subterm comes from the old node as a whole. A call of a function that replaces operators is
entered, and its parameters are paired with what its arguments replaced.

>>> from plica.core.name import Name
>>> from plica.ir.graph.expression import Apply, Var
>>> from plica.ir.type.term import tensor
>>> x = Var(Name("x"), tensor((2,), "f32"))
>>> old, new = Apply("exp", (Apply("negative", (x,)),)), Apply("exp", (Apply("sqrt", (x,)),))
>>> [(o.op, n.op) for o, n in aligned(old, new)]
[('exp', 'exp'), ('negative', 'sqrt')]
"""

from __future__ import annotations

from collections.abc import Container, Iterator

from plica.core import Term, rebuild
from plica.ir.graph.expression import Apply, Call, Function


def aligned(old: Term, new: Term, known: Container[Term] = ()) -> Iterator[tuple[Term, Term]]:
    """Pairs of an old node and the new node derived from it; each new node once.

    `known` nodes, and everything below them, already have an origin.
    """
    seen: set[Term] = set()
    stack = [(old, new)]
    while stack:
        before, after = stack.pop()
        if after is before or after in seen or after in known:
            continue
        seen.add(after)
        if after.__class__.variable:
            continue
        yield before, after
        stack.extend(reversed(_inside(before, after)))


def changed(old: Term, new: Term) -> Iterator[tuple[Term, Term]]:
    """The outermost differing subterms, each pair once: the replaced term and its replacement.

    >>> from plica.core.name import Name
    >>> from plica.ir.graph.expression import Var
    >>> from plica.ir.type.term import tensor
    >>> x = Var(Name("x"), tensor((2,), "f32"))
    >>> a, b = (Apply("exp", (Apply(each, (x,)),)) for each in ("sqrt", "tanh"))
    >>> [(before.op, after.op) for before, after in changed(a, b)]
    [('sqrt', 'tanh')]
    """
    seen: set[tuple[Term, Term]] = set()
    stack = [(old, new)]
    while stack:
        pair = before, after = stack.pop()
        if before is after or pair in seen:
            continue
        seen.add(pair)
        kids, theirs = before._children, after._children
        alike = type(before) is type(after) and 0 < len(kids) == len(theirs)
        if alike and rebuild(before, theirs) is after:
            stack.extend(reversed(list(zip(kids, theirs, strict=True))))
        else:
            yield pair


def _inside(before: Term, after: Term) -> list[tuple[Term, Term]]:
    """The children of the new node, each with the old node it is to be compared with."""
    if isinstance(after, Call) and isinstance(after.callee, Function):
        return _called(before, after, after.callee)
    kids, theirs = after._children, before._children
    if _same_head(before, after) and len(kids) == len(theirs):
        return list(zip(theirs, kids, strict=True))
    # The kinds differ: perhaps something was wrapped around, or unwrapped.
    return [(_counterpart(before, kid), kid) for kid in kids]


def _called(before: Term, after: Call, function: Function) -> list[tuple[Term, Term]]:
    """A function called in place of operators: its body first, then what its parameters are."""
    stands_for: dict[Term, Term] = {}
    pairs: list[tuple[Term, Term]] = []
    stack: list[tuple[Term, Term]] = [(before, function.body)]
    seen: set[Term] = set()
    while stack:
        old, new = stack.pop()
        if new in seen:
            continue
        seen.add(new)
        if new.__class__.variable:
            stands_for.setdefault(new, old)
            continue
        pairs.append((old, new))
        if _same_head(old, new) and len(old._children) == len(new._children):
            stack.extend(reversed(list(zip(old._children, new._children, strict=True))))
        else:
            stack.extend((old, kid) for kid in reversed(new._children))
    found = [(before, function), *pairs]
    for param, argument in zip(function.params, after.args, strict=True):
        found.append((stands_for.get(param, before), argument))
    return found


def _same_head(a: Term, b: Term) -> bool:
    if a.__class__ is not b.__class__:
        return False
    return a.op == b.op if isinstance(a, Apply) and isinstance(b, Apply) else True


def _counterpart(before: Term, kid: Term) -> Term:
    """The child of the old node that is of the same kind, or else the old node itself."""
    return next((child for child in before._children if _same_head(child, kid)), before)
