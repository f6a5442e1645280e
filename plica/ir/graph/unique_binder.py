"""Unique binders: every variable has one, so that within an activation it has one value.

Terms share by identity: `x + 1` under two different lets of `x` is one node with two meanings.
After renaming apart it is two nodes, and an evaluator may remember each node's value.

>>> from plica.ir.graph.expression import Tuple, const
>>> x = Var(Name("x"), None)
>>> both = Tuple((Let(x, const(1, "i32"), x), Let(x, const(2, "i32"), x)))
>>> [str(each.var.name) for each in rename_apart(both).items]
['x', 'x_1']

Laws: `rename_apart(rename_apart(t)) is rename_apart(t)`; `alpha_equal(rename_apart(t), t)`.
The work is linear in the pairs of a node and a way its own variables are bound, and that is how
many values the nodes may have.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import Any, Final, TypeVar, cast

from pyrsistent import PMap, pmap

from plica.core import Name, Term, free_vars, post_order, rebuild, rename, variables_of
from plica.core.binding import fields_of_children
from plica.ir.graph.expression import Clause, Function, Let, Match, Var

T = TypeVar("T", bound=Term)
Key = tuple[Term, tuple[Var, ...]]  # a node, and what its ambiguous variables are now called


def rename_apart(term: T, outer: Container[Any] | None = None) -> T:
    """The same term up to the names of its bound variables, each bound by one binder.

    `outer` holds the variables bound outside; by default the free variables of the term.
    """
    nodes = post_order(term)
    if outer is None:
        outer = free_vars(term)
    if not (unclear := _ambiguous(nodes, outer)):
        return term
    free_vars(term)
    deciders: dict[Term, tuple[Var, ...]] = {var: (cast(Var, var),) for var in unclear}
    made, copied = _renamed(term, nodes, deciders, outer)
    if copied:
        _spread(nodes, copied, deciders)
        made, _ = _renamed(term, nodes, deciders, outer)
    return cast(T, made)


def _renamed(
    term: Term, nodes: Sequence[Term], unclear: dict[Term, tuple[Var, ...]], outer: Container[Any]
) -> tuple[Term, set[Term]]:
    """The term with unique binders for ambiguous variables, and the binders that must be copied.

    `let y = x in …` under two binders of `x` becomes two lets, and both bind `y`.
    """
    number = {var: at for at, var in enumerate(unclear)}
    relevant: dict[Term, tuple[Var, ...]] = {}
    touched: set[Term] = set()
    for node in nodes:
        if node in unclear or not touched.isdisjoint(node._children):
            touched.add(node)
            own = _deciders(free_vars(node), unclear)
            if isinstance(node, Clause):
                own |= _deciders(variables_of(node.pattern), unclear)
            relevant[node] = tuple(sorted(own, key=number.__getitem__))
    names = _Supply(nodes, unclear, outer)
    memo: dict[Key, Term] = {}
    met: set[Term] = set()
    copied: set[Term] = set()

    def key_of(node: Term, scope: PMap[Var, Var]) -> Key:
        return node, tuple([scope.get(var, var) for var in relevant.get(node, ())])

    stack: list[tuple[Term, Any, list[Key] | None]] = [(term, pmap(), None)]
    while stack:
        node, scope, plan = stack.pop()
        key = key_of(node, scope)
        if key in memo:
            continue
        if node not in touched:
            memo[key] = node
        elif isinstance(node, Var):
            memo[key] = scope.get(node, node)
        elif plan is not None:
            memo[key] = rebuild(node, tuple([memo[each] for each in plan]))
        else:
            if node in met and any(var not in unclear for var in _binders(node)):
                copied.add(node)
            met.add(node)
            new = {var: names.next(var) for var in _binders(node) if var in unclear}
            kids = [
                (kid, _scope_inside(node, field, kid, scope, new))
                for field, kid in fields_of_children(node)
            ]
            stack.append((node, scope, [key_of(kid, within) for kid, within in kids]))
            stack.extend((kid, within, None) for kid, within in reversed(kids))
    return memo[key_of(term, pmap())], copied


def _binders(node: Term) -> Sequence[Var]:
    """The variables a node gives values to.

    The match binds values, not the clause: two matches may share a clause. Clauses of one match may
    share variables, because only one is taken.
    """
    if isinstance(node, Let):
        return (node.var,)
    if isinstance(node, Function):
        return node.params
    if isinstance(node, Match):
        found = [variables_of(clause.pattern) for clause in node.clauses]
        return cast("list[Var]", list(dict.fromkeys(var for terms in found for var in terms)))
    return ()


def _ambiguous(nodes: Sequence[Term], outer: Container[Any]) -> dict[Term, int]:
    """The variables with two binders, or with one and a meaning outside; numbered."""
    binder: dict[Term, Term] = {}
    unclear: dict[Term, int] = {}
    for node in nodes:
        if node.__class__ in _BINDING:
            for variable in _binders(node):
                if binder.setdefault(variable, node) is not node or variable in outer:
                    unclear.setdefault(variable, len(unclear))
    return unclear


def _spread(nodes: Sequence[Term], copied: set[Term], unclear: dict[Term, tuple[Var, ...]]) -> None:
    """Marks as ambiguous what copied binders bind, transitively.

    The new name depends on the variables for which its binder is copied, so keys hold only those.
    One sweep from the outside in suffices: users of a variable are inside its binder.
    """
    below: set[Term] = set()
    for node in reversed(nodes):
        if node in below or node in copied:
            below.add(node)
            below.update(node._children)
    for node in nodes:
        if node in below:
            free_vars(node)  # parts before wholes, or a large set is found anew for each whole
    spread: set[Term] = set()
    for node in reversed(nodes):
        if node.__class__ not in _BINDING or node not in below:
            continue
        free = free_vars(node)
        if node in copied or not spread.isdisjoint(free):
            bound = _binders(node)
            spread.update(bound)
            by = tuple(_deciders(free, unclear))
            unclear.update([(var, by) for var in bound if var not in unclear])


def _deciders(variables: Iterable[Term], unclear: dict[Term, tuple[Var, ...]]) -> set[Var]:
    """The variables that decide the names of ambiguous ones."""
    return {by for var in variables if var in unclear for by in unclear[var]}


def _scope_inside(
    node: Term, field: str, kid: Term, scope: PMap[Var, Var], new: dict[Var, Var]
) -> PMap[Var, Var]:
    """The names visible in a child of a binding node; a clause of a match sees only its own
    pattern."""
    if not new or field not in _BINDING[node.__class__]:
        return scope
    if isinstance(kid, Clause):
        new = {var: new[var] for var in variables_of(kid.pattern) if var in new}
    return cast("PMap[Var, Var]", scope.update(new))


# The fields in which the variables of a binding node are in scope, including the binding field.
_BINDING: Final[dict[type, tuple[str, ...]]] = {
    Let: ("var", "value", "body"),
    Function: ("params", "body"),
    Match: ("clauses",),
}


class _Supply:
    """Fresh variables: the first binder of a variable keeps its name, later ones are numbered."""

    def __init__(
        self, nodes: Sequence[Term], unclear: Iterable[Term], outer: Container[Any]
    ) -> None:
        self.used = {node.name for node in nodes if isinstance(node, Var)}
        self.unspent = {var for var in unclear if var not in outer}
        self.last: dict[str, int] = {}

    def next(self, like: Var) -> Var:
        if like in self.unspent:
            self.unspent.remove(like)
            return like
        hint = like.name.hint
        index = self.last.get(hint, 0)
        name = Name(hint, index)
        while name in self.used:
            index += 1
            name = Name(hint, index)
        self.used.add(name)
        self.last[hint] = index + 1
        return rename(like, name)
