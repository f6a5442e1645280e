"""Binders in rules: right sides neither capture variables nor let bound ones escape.

Holes may stand under binders (`Let`, `Function`, `Clause`), and a rule may move them. If a hole's
filling leaves the scope of a variable, it must not mention the variable: otherwise the rule does
not apply. If a filling moves under a binder of a name that it uses, the binder is renamed.

>>> from plica.core.name import Name
>>> from plica.ir.graph.expression import Let, Tuple, Var
>>> from plica.ir.type.term import tensor
>>> from plica.rewrite.make import rule
>>> from plica.rewrite.pattern import holes
>>> w, x, y, z = holes("w x y z")
>>> hoist = rule("hoist", Tuple((Let(w, x, y), z)), Let(w, x, Tuple((y, z))))
>>> p, q = (Var(Name(name), tensor((2,), "f32")) for name in "pq")
>>> moved = hoist.at(Tuple((Let(q, p, q + q), q)))  # the last q is another
>>> str(moved.var.name), moved.body.items[1] is q
('q_1', True)
>>> rule("drop", Let(w, x, y), y).at(Let(q, p, q + q)) is None
True
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias

from attrs import frozen

from plica.core import Term, free_vars, fresh, name_of, post_order, rebuild, rename, substitute
from plica.core.binding import fields_of_children
from plica.ir.graph.expression import Var
from plica.rewrite.pattern import Hole

# Any: what fills a hole is a term, an attribute's value or a tuple of arguments.
Filling: TypeAlias = Mapping[str, Any]
Scope: TypeAlias = frozenset[str]
NOTHING: Final[Scope] = frozenset()


def scopes(pattern: Term) -> dict[str, tuple[Scope, ...]]:
    """For each hole, the bound holes in scope at each of its occurrences."""
    found: dict[str, dict[Scope, None]] = {}
    seen: set[tuple[Term, Scope]] = set()
    stack: list[tuple[Term, Scope]] = [(pattern, NOTHING)]
    while stack:
        node, scope = stack.pop()
        if (node, scope) in seen:
            continue
        seen.add((node, scope))
        if type(node).hole:
            found.setdefault(node.name, {})[scope] = None  # type: ignore[attr-defined]  # every hole has a name
            continue
        hidden = _bound_in(node)
        stack.extend((kid, scope | hidden.get(at, NOTHING)) for at, kid in fields_of_children(node))
    return {name: tuple(places) for name, places in found.items()}


def bound_holes(pattern: Term) -> Scope:
    """The holes that stand for a variable the pattern binds."""
    return NOTHING.union(
        *(_holes_in(getattr(node, own)) for node in post_order(pattern) for own, _ in _binds(node))
    )


def opened(*patterns: Term) -> tuple[tuple[Term, ...], dict[str, Var]]:
    """The patterns with holes for the variables they bind by name, and what fills those holes."""
    holes: dict[Term, Hole] = {}
    terms = tuple(_opened(pattern, {}, holes) for pattern in patterns)
    return terms, {hole.name: var for var, hole in holes.items() if isinstance(var, Var)}


def _opened(node: Term, inside: dict[Term, Hole], holes: dict[Term, Hole]) -> Term:
    """Recursion over a pattern."""
    if node in inside:
        return inside[node]
    if type(node).hole or type(node).variable or not node._children:
        return node
    here: dict[str, dict[Term, Hole]] = {}
    for own, scope in _binds(node):
        for var in _variables_in(getattr(node, own)):
            hole = holes.setdefault(var, Hole(f"{var.name} bound here {len(holes)}"))
            for at in (own, *scope):
                here.setdefault(at, {})[var] = hole
    kids = [
        _opened(kid, inside | here[at] if at in here else inside, holes)
        for at, kid in fields_of_children(node)
    ]
    return rebuild(node, tuple(kids))


def is_clear(pattern: Term) -> Callable[[Filling], bool] | None:
    """A scope test of fillings, or None if none is needed.

    A hole that occurs both under a binder and outside it cannot be filled by a term with the
    variable, or the occurrences would differ; nested binders bind distinct variables.
    """
    (whole,), named = opened(pattern)
    places = scopes(whole)
    uneven = tuple(
        (hole, NOTHING.union(*each) - each[0].intersection(*each))
        for hole, each in places.items()
        if len(set(each)) > 1
    )
    nested = tuple(dict.fromkeys(s for place in places.values() for s in place if len(s) > 1))
    if not uneven and not nested:
        return None

    def clear(filling: Filling) -> bool:
        whole = {**named, **filling}
        for scope in nested:
            if len({whole[name] for name in scope}) < len(scope):
                return False
        return not any(_speaks(whole[hole], names, whole) for hole, names in uneven)

    return clear


@frozen
class HoleMove:
    """How a rule moves holes between scopes, each with the bound holes that matter.

    Variables whose scope the hole leaves (`escaping`), enters (`entering`), or stays in (`inside`).
    """

    template: Term
    named: dict[str, Var]
    escaping: tuple[tuple[str, Scope], ...]
    entering: tuple[tuple[str, Scope], ...]
    inside: tuple[tuple[str, Scope], ...]

    def filled(self, filling: Filling) -> dict[str, Any] | None:
        """The filling with capturing binders renamed, or None if a variable escapes."""
        whole = {**self.named, **filling}
        if any(_speaks(whole[hole], names, whole) for hole, names in self.escaping):
            return None
        caught = [
            name
            for hole, names in self.entering
            for name in sorted(names)
            if _speaks(whole[hole], (name,), whole)
        ]
        for name in dict.fromkeys(caught):
            self._rename(name, whole)
        return whole

    def _rename(self, name: str, whole: dict[str, Any]) -> None:
        old = whole[name]
        used = {name_of(var) for value in whole.values() for var in _free(value)}
        used |= {each.name for each in post_order(self.template) if isinstance(each, Var)}
        new = whole[name] = rename(old, fresh(name_of(old), used))
        for hole, names in self.inside:
            if name in names and hole != name:
                whole[hole] = _substituted(whole[hole], {old: new})


def move(left: Term, right: Term) -> HoleMove | None:
    """The scope checks for filling a right side, or None if nothing is bound."""
    if not any(type(node).binds for node in (*post_order(left), *post_order(right))):
        return None
    (before, after), named = opened(left, right)
    came, goes = scopes(before), scopes(after)
    escaping, entering, inside = [], [], []
    for hole, places in goes.items():
        was = came.get(hole, (NOTHING,))
        # Unfilled holes of other alternatives do not matter, and renaming is always safe.
        ever, always = NOTHING.union(*was), was[0].intersection(*was)
        escaping.append((hole, ever - places[0].intersection(*places)))
        entering.append((hole, NOTHING.union(*places) - always - {hole}))
        inside.append((hole, ever))
    return HoleMove(
        after,
        named,
        tuple(each for each in escaping if each[1]),
        tuple(each for each in entering if each[1]),
        tuple(each for each in inside if each[1]),
    )


def loose_binders(left: Term, right: Term) -> list[str]:
    """The bound holes of a left side that its right side uses where nothing binds them."""
    bound = bound_holes(left)
    always = {name for name, each in scopes(left).items() if all(name in s for s in each)}
    return sorted(
        name
        for name, each in scopes(right).items()
        if name in bound & always and any(name not in scope for scope in each)
    )


def _binds(node: Term) -> tuple[tuple[str, tuple[str, ...]], ...]:
    return () if type(node).hole else type(node).binds


def _bound_in(node: Term) -> dict[str, Scope]:
    """For each field of a node, the bound holes that are in scope there."""
    hidden: dict[str, Scope] = {}
    for own, scope in _binds(node):
        names = _holes_in(getattr(node, own))
        for at in (own, *scope) if names else ():
            hidden[at] = hidden.get(at, NOTHING) | names
    return hidden


def _introduced(value: Any) -> list[Any]:
    """The holes and variables of a binding field."""
    found: list[Any] = []
    stack: list[Any] = list(value) if isinstance(value, tuple) else [value]
    while stack:
        node = stack.pop()
        if type(node).hole or type(node).variable:
            found.append(node)
        elif not type(node).mentioned:
            stack.extend(node._children)
    return found


def _holes_in(value: Any) -> Scope:
    return frozenset(each.name for each in _introduced(value) if type(each).hole)


def _variables_in(value: Any) -> list[Var]:
    return [each for each in reversed(_introduced(value)) if isinstance(each, Var)]


def _free(value: Any) -> Iterable[Term]:
    """The variables that what fills a hole speaks of; an attribute's value has none."""
    if isinstance(value, Term):
        return free_vars(value)
    if isinstance(value, tuple):
        return [var for each in value if isinstance(each, Term) for var in free_vars(each)]
    return ()


def _speaks(value: Any, names: Iterable[str], whole: Filling) -> bool:
    free = _free(value)
    return any(name in whole and whole[name] in free for name in names)


def _substituted(value: Any, mapping: dict[Term, Term]) -> Any:
    if isinstance(value, Term):
        return substitute(value, mapping)
    if isinstance(value, tuple):
        return tuple(_substituted(each, mapping) for each in value)
    return value
