"""Binding: which variables a term binds, which are free in it, and substitution.

A class says what it binds in its `binds` declaration; a class with `variable = True` is a variable,
told apart by its `name`.  The variables of a binding field are those found in it without looking
inside a variable (a variable's own type may mention dims that are bound elsewhere).

Laws: `substitute(t, {}) is t`; `free_vars(substitute(t, {x: e}))` is `free_vars(t) - {x}`, plus
`free_vars(e)` where `x` was free; no free variable of `e` is ever captured.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeVar, cast

import attrs

from plica.core.name import Name, fresh
from plica.core.term import MANY, MIXED, ONE, Term, field_kinds, field_names, rebuild

T = TypeVar("T", bound=Term)
NOTHING: Final[frozenset[Term]] = frozenset()


def variables_of(value: Term | tuple[Term, ...]) -> list[Term]:
    """The variables a binding field introduces, in order, each once."""
    found: dict[Term, None] = {}
    stack = list(reversed(value)) if isinstance(value, tuple) else [value]
    while stack:
        node = stack.pop()
        if type(node).variable:
            found[node] = None
        else:
            stack.extend(reversed(node._children))
    return list(found)


def bound_by(node: Term) -> list[tuple[str, tuple[str, ...], list[Term]]]:
    """For each binding field: its name, the fields it scopes over, its variables."""
    return [(name, scope, variables_of(getattr(node, name))) for name, scope in type(node).binds]


def fields_of_children(node: Term) -> Iterator[tuple[str, Term]]:
    """Each child with the field it sits in, in the order of `children`."""
    kids = iter(node._children)
    cls = type(node)
    for name, kind in zip(field_names(cls), field_kinds(cls), strict=True):
        if kind is ONE:
            yield name, next(kids)
        elif kind is MANY:
            for _ in getattr(node, name):
                yield name, next(kids)
        elif kind is MIXED:
            for _ in range(_count(getattr(node, name))):
                yield name, next(kids)


def shadowed_in(node: Term) -> dict[str, frozenset[Term]]:
    """For each field of a binding node, the variables that are bound inside it."""
    hidden: dict[str, frozenset[Term]] = {}
    for own, scope, variables in bound_by(node):
        for name in (own, *scope):
            hidden[name] = hidden.get(name, NOTHING).union(variables)
    return hidden


def free_vars(term: Term) -> frozenset[Term]:
    """The variables that occur in `term` and are not bound in it; remembered on each node."""
    known = term._free
    if known is not None:
        return known
    stack: list[Any] = [term]  # a term to visit, or a 1-tuple of one to leave
    while stack:
        node = stack.pop()
        if node.__class__ is tuple:
            node = node[0]
            if node._free is None:
                remember_free(node, _free_here(node))
        elif node._free is None:
            stack.append((node,))
            stack.extend(kid for kid in node._children if kid._free is None)
    return cast("frozenset[Term]", term._free)


def substitute(term: T, mapping: Mapping[Term, Term]) -> Term:
    """Replace free variables, renaming bound ones where they would capture."""
    contexts: list[dict[Term, Term]] = [dict(mapping)]
    memos: list[dict[Term, Term]] = [{}]
    free_vars(term)
    plans: dict[tuple[Term, int], tuple[int, ...]] = {}
    stack: list[tuple[Term, int, bool]] = [(term, 0, False)]
    while stack:
        node, context, leaving = stack.pop()
        memo = memos[context]
        if leaving:
            inner = plans.pop((node, context), None)
            kids = node._children
            if inner is None:
                new = tuple([memo[kid] for kid in kids])
            else:
                new = tuple([memos[c][kid] for kid, c in zip(kids, inner, strict=True)])
            memo[node] = rebuild(node, new)
            continue
        if node in memo:
            continue
        known = contexts[context]
        if node in known:
            memo[node] = known[node]
        elif free_vars(node).isdisjoint(known):
            memo[node] = node
        else:
            stack.append((node, context, True))
            if type(node).binds:
                inner = _enter(node, context, contexts, memos)
                plans[node, context] = inner
                stack.extend((k, c, False) for k, c in zip(node._children, inner, strict=True))
            else:
                stack.extend((kid, context, False) for kid in node._children)
    return memos[0][term]


def rename(variable: T, name: Name) -> T:
    """The same variable under another name."""
    return cast(T, attrs.evolve(cast(Any, variable), name=name))


def name_of(variable: Term) -> Name:
    """The name of a variable."""
    return cast(Any, variable).name  # type: ignore[no-any-return]  # every variable has one


def _enter(
    node: Term, context: int, contexts: list[dict[Term, Term]], memos: list[dict[Term, Term]]
) -> tuple[int, ...]:
    """The context for each child of a binding node: shadowed variables out, renamings in."""
    known = contexts[context]
    relevant = free_vars(node).intersection(known)
    arriving = NOTHING.union(*(free_vars(known[v]) for v in relevant))
    renamed: dict[Term, Term] = {}
    used = {name_of(v) for v in arriving | free_vars(node)}
    for _, _, variables in bound_by(node):
        for variable in variables:
            if variable in arriving and variable not in renamed:
                name = fresh(name_of(variable), used)
                used.add(name)
                inside = tuple([substitute(kid, known) for kid in variable._children])
                renamed[variable] = rename(rebuild(variable, inside), name)
    hidden = shadowed_in(node)
    made: dict[frozenset[Term], int] = {}
    plan = []
    for name_, _kid in fields_of_children(node):
        shadow = hidden.get(name_, NOTHING)
        if shadow.isdisjoint(known) and shadow.isdisjoint(renamed):
            plan.append(context)
            continue
        if shadow not in made:
            inner = {v: e for v, e in known.items() if v not in shadow}
            inner.update((v, e) for v, e in renamed.items() if v in shadow)
            made[shadow] = len(contexts)
            contexts.append(inner)
            memos.append({})
        plan.append(made[shadow])
    return tuple(plan)


def _free_here(node: Term) -> frozenset[Term]:
    cls = type(node)
    if cls.binds:
        hidden = shadowed_in(node)
        return NOTHING.union(
            *(kid._free - hidden.get(name, NOTHING) for name, kid in fields_of_children(node))
        )
    kids = node._children
    result: frozenset[Term] = NOTHING
    for kid in kids:
        free = kid._free
        if free is result or not free:
            continue
        # Keep the object when nothing is new: long chains then share one set.
        result = free if not result else (result if free <= result else result | free)
    return result | {node} if cls.variable else result


def _count(value: object) -> int:
    if isinstance(value, Term):
        return 1
    return sum(map(_count, value)) if isinstance(value, tuple) else 0


remember_free: Final = cast(Any, Term.__dict__["_free"]).__set__
