"""Placement: in which scope each value of a function is computed.

Note [Thunks]: a value needed by two branches, but not by the enclosing scope, would be computed
there even if neither branch is taken. If that might fail or not terminate, the scope gets a
function without parameters instead (a thunk), which each branch calls. Values that call a thunk are
themselves duplicated into each branch.
"""

from __future__ import annotations

import attrs

from plica.ir.graph.expression import Call, Expr, Function, If, Let, Match, Var
from plica.rewrite.graph.dominator import ScopeTree
from plica.rewrite.graph.total import Totality
from plica.rewrite.graph.walk import is_atom, operands


def is_forcing(node: Expr) -> bool:
    """Whether a node calls a name without arguments, so that it is a thunk called already."""
    return isinstance(node, Call) and not node.args and isinstance(node.callee, Var)


def strict(node: Expr) -> tuple[Expr, ...]:
    """The parts that are computed before a node is."""
    match node:
        case If():
            return (node.condition,)
        case Match():
            return (node.value,)
        case Function():
            return ()
        case _:
            return operands(node)


def regions(node: Expr) -> tuple[Expr, ...]:
    """The parts of a node that are scopes."""
    match node:
        case If():
            return (node.then, node.orelse)
        case Match():
            return tuple([clause.body for clause in node.clauses])
        case Function():
            return (node.body,)
        case _:
            return ()


def needed(root: Expr) -> list[Expr]:
    """What is computed whenever `root` is, operands first."""
    done: set[Expr] = set()
    order: list[Expr] = []
    stack: list[Expr | tuple[Expr]] = [root]  # an expression, or a 1-tuple of one to leave
    while stack:
        if isinstance(node := stack.pop(), tuple):
            order.append(node[0])
        elif node not in done:
            done.add(node)
            stack.append((node,))
            stack.extend(strict(node)[::-1])
    return order


@attrs.frozen
class Use:
    """How a value is used in a scope; what follows a let is used as the let is."""

    direct: bool = True
    count: int = 1
    tail: bool = False
    crossing: bool = False


@attrs.define
class ValuePlace:
    """What is known about one value while its uses are visited, users first."""

    scope: int  # the lowest that contains all uses met so far
    direct: bool  # whether one of them is in that scope itself, so that it is needed there
    uses: int = 0
    tail: bool = False  # whether it is the result of its scope, and nothing else
    crossing: bool = False  # whether a use is in an inner scope
    anchor: int | None = None  # a scope in which a let has computed it anyway
    inside: int = 0  # the scope of its own parts
    thunk: bool = False
    regions: tuple[int, ...] = ()


class ScopePlacement:
    """The scopes of the body of a function, and the place of each value in them.

    The function must be separate, recursive functions called by their selves inside.
    """

    def __init__(self, body: Expr, total: Totality) -> None:
        self.tree = ScopeTree()
        self.function: list[int | None] = [None]  # the nearest function body around each scope
        self.lets: dict[Var, Let] = {}  # from each variable of a let to the let that has its value
        self.named: dict[Expr, Var] = {}  # the first variable each value is bound to
        self.order = self._sorted(body)  # users first
        self.places: dict[Expr, ValuePlace] = {}
        self._targets: dict[Expr, tuple[Expr, Let | None]] = {}
        self._use(body, 0, Use(tail=True))
        for node in self.order:
            place = self.places[node]
            if isinstance(node, Let):
                passed = Use(place.direct, place.uses, place.tail, place.crossing)
                self._use(node.body, place.scope, passed)
            else:
                self._settle(node, place, total)

    def target(self, expr: Expr) -> tuple[Expr, Let | None]:
        """The value an expression denotes, and its let, through lets and names."""
        start, let = expr, None
        while expr not in self._targets:
            if isinstance(expr, Let):
                expr = expr.body
            elif isinstance(expr, Var) and expr in self.lets:
                let = self.lets[expr]
                expr = let.value
            else:
                self._targets[expr] = expr, None
        found, inner = self._targets[expr]
        self._targets[start] = found, let if inner is None else inner
        return self._targets[start]

    def climbed(self, scope: int, let: Let | None) -> int:
        """Where a use counts: outside the functions that the let is outside of."""
        if let is not None:
            limit = self.tree.depth[self.places[let].scope]
            inner = self.function[scope]
            while inner is not None and self.tree.depth[inner] > limit:
                scope = self.tree.parent[inner]
                inner = self.function[scope]
        return scope

    def _sorted(self, body: Expr) -> list[Expr]:
        """Lets and values, each before what it uses."""
        done: set[Expr] = set()
        order: list[Expr] = []
        stack: list[Expr | tuple[Expr]] = [body]
        while stack:
            if isinstance(node := stack.pop(), tuple):
                order.append(node[0])
                continue
            if isinstance(node, Var) and node in self.lets:
                node = self.lets[node].value
            if is_atom(node) or node in done:
                continue
            done.add(node)
            stack.append((node,))
            if isinstance(node, Let):
                self._note(node)
                stack.append(node.body)
            else:
                stack.extend(operands(node)[::-1])
        return order[::-1]

    def _note(self, let: Let) -> None:
        """Records the value of a let's variable, looking through aliases."""
        if isinstance(value := let.value, Var):
            if value in self.lets:
                self.lets[let.var] = self.lets[value]
                return
        elif not is_atom(value) and not isinstance(value, Let):
            self.named.setdefault(value, let.var)
        self.lets[let.var] = let

    def _use(self, expr: Expr, scope: int, use: Use) -> None:
        """Note a use of an expression in a scope."""
        let = None
        if isinstance(expr, Var) and expr in self.lets:
            let = self.lets[expr]
            expr = let.value
            outside = self.climbed(scope, let)
            if outside != scope:
                scope, use = outside, Use(use.direct, use.count, False, True)
        if is_atom(expr):
            return
        if (place := self.places.get(expr)) is None:
            place = self.places[expr] = ValuePlace(
                scope, use.direct, use.count, use.tail and use.count == 1, use.crossing
            )
        else:
            common = self.tree.common(place.scope, scope)
            if common != place.scope:
                place.direct = use.direct and scope == common
            elif scope == common:
                place.direct = place.direct or use.direct
            place.crossing |= use.crossing or place.scope != common or scope != common
            place.scope = common
            place.uses += use.count
            place.tail = False
        if let is not None:
            outer = self.places[let]
            depth = self.tree.depth
            if outer.direct and (place.anchor is None or depth[outer.scope] < depth[place.anchor]):
                place.anchor = outer.scope

    def _settle(self, node: Expr, place: ValuePlace, total: Totality) -> None:
        """All uses of a value are known: decide its place, and note what it uses itself."""
        tree = self.tree
        safe = place.direct or (
            place.anchor is not None and tree.is_inside(place.scope, place.anchor)
        )
        place.thunk = not safe and not total.of(node)
        apart = place.thunk and not is_forcing(node)
        place.inside = self._scope(place.scope, False) if apart else place.scope
        for expr in strict(node):
            # The call of a thunk is written in the branches, so they use the thunk.
            self._use(expr, place.inside, Use(crossing=place.thunk and not apart))
        inner = []
        for region in regions(node):
            inner.append(self._scope(place.inside, isinstance(node, Function)))
            self._use(region, inner[-1], Use(tail=True))
        place.regions = tuple(inner)

    def _scope(self, parent: int, is_function: bool) -> int:
        scope = self.tree.add(parent)
        self.function.append(scope if is_function else self.function[parent])
        return scope
