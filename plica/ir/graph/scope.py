"""Scopes: whether every variable of a term is bound where it is used.

>>> from plica.core.name import Name
>>> from plica.ir.graph.expression import Tuple, Var
>>> x = Var(Name("x"), None)
>>> [(each.kind, str(each.variable.name)) for each in misuses(Tuple((x, x)), ())]
[('unbound', 'x')]
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final, Literal

import attrs

from plica.core import Term, free_vars, name_of
from plica.core.binding import fields_of_children, shadowed_in
from plica.ir.graph.expression import Function, Let


@attrs.frozen
class Misuse:
    """A variable used outside its scope or in its own definition, or a dim or type bound twice."""

    kind: Literal["unbound", "recursive", "shadowed"]
    variable: Term
    node: Term  # what uses the variable, or binds it again


ENTER, LEAVE, OPEN, CLOSE, FORBID, ALLOW = range(6)
NONE: Final = 0
NOTHING: Final[frozenset[Term]] = frozenset()


def misuses(root: Term, outer: Collection[Term]) -> list[Misuse]:
    """Every misuse in a term whose free variables may be those of `outer`, each once."""
    return _Walk(outer).run(root)


class _Walk:
    """The walk; scopes are identified by the time at which they were opened."""

    def __init__(self, outer: Collection[Term]) -> None:
        self.outer = outer
        self.now = NONE
        self.scopes: list[int] = [NONE]  # those that are open, the youngest last
        self.alive: set[int] = {NONE}
        self.bound: dict[Term, list[int]] = {}  # in which open scopes a variable is bound
        self.forbidden: set[Term] = set()
        self.depends: dict[Term, int] = {}  # for each node, the youngest scope it depends on
        self.found: dict[Misuse, None] = {}

    def run(self, root: Term) -> list[Misuse]:
        # Any: a task carries the user of its node, or what LEAVE, OPEN or CLOSE need.
        stack: list[tuple[int, Any, Any]] = [(ENTER, root, root)]
        depends = self.depends
        while stack:
            task, node, extra = stack.pop()
            if task == ENTER:
                if (known := depends.get(node)) is not None:
                    if known not in self.alive or not self.forbidden.isdisjoint((node,)):
                        self._again(node, extra)
                    continue
                kids = node._children
                if type(node).variable:
                    depends[node] = used = self._use(node, extra)
                    if kids:
                        stack.append((LEAVE, node, (used, None)))
                        stack.extend([(ENTER, kid, extra) for kid in reversed(kids)])
                elif not kids:
                    depends[node] = NONE
                elif type(node).binds:
                    stack.append((LEAVE, node, (NONE, self.scopes[-1])))
                    self._enter(node, stack)
                else:
                    stack.append((LEAVE, node, (NONE, None)))
                    stack.extend([(ENTER, kid, node) for kid in reversed(kids)])
            elif task == LEAVE:
                youngest, around = extra
                for kid in node._children:
                    youngest = max(youngest, depends[kid])
                if around is not None and youngest > around:
                    # It uses its own binders; otherwise only its position is known.
                    youngest = around
                depends[node] = youngest
            elif task == OPEN:
                self.now += 1
                self.scopes.append(self.now)
                self.alive.add(self.now)
                for variable in extra:
                    self.bound.setdefault(variable, []).append(self.now)
            elif task == CLOSE:
                self.alive.discard(self.scopes.pop())
                for variable in extra:
                    self.bound[variable].pop()
            elif task == FORBID:
                if node.var in depends and node.var in free_vars(node.value):
                    self.found[Misuse("recursive", node.var, node)] = None
                self.forbidden.add(node.var)
            else:
                self.forbidden.discard(node.var)
        return list(self.found)

    def _enter(self, node: Term, stack: list[Any]) -> None:
        """Queue the parts of a binding node, neighbours with the same variables in one scope."""
        if isinstance(node, Let) and not isinstance(node.value, Function):
            own = frozenset((node.var,))
            stack.append((CLOSE, node, own))
            stack.append((ENTER, node.body, node))
            stack.append((ENTER, node.var, node))
            stack.append((OPEN, node, own))
            stack.append((ALLOW, node, None))
            stack.append((ENTER, node.value, node))
            stack.append((FORBID, node, None))
            return
        if isinstance(node, Function):
            for term in (*node.dims, *node.types):
                if self.bound.get(term):
                    self.found[Misuse("shadowed", term, node)] = None
        shadows = shadowed_in(node)
        tasks: list[Any] = []
        inside: frozenset[Term] = NOTHING
        for field, kid in fields_of_children(node):
            shadow = shadows.get(field, NOTHING)
            if shadow != inside:
                if inside:
                    tasks.append((CLOSE, node, inside))
                if shadow:
                    tasks.append((OPEN, node, shadow))
                inside = shadow
            tasks.append((ENTER, kid, node))
        if inside:
            tasks.append((CLOSE, node, inside))
        stack.extend(reversed(tasks))

    def _use(self, variable: Term, user: Term) -> int:
        """The scope in which a variable is bound; reports a misuse if there is none."""
        if variable in self.forbidden:
            self.found[Misuse("recursive", variable, user)] = None
            return NONE
        if scopes := self.bound.get(variable):
            return scopes[-1]
        if variable not in self.outer:
            self.found[Misuse("unbound", variable, user)] = None
        return NONE

    def _again(self, node: Term, user: Term) -> None:
        """Checks the free variables of a node that is met outside its earlier scope."""
        for var in sorted(free_vars(node), key=_order):
            self._use(var, user)


def _order(variable: Term) -> tuple[str, str, int]:
    return (type(variable).__name__, *name_of(variable))
