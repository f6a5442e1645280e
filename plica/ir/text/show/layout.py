"""Print layout: where in a function's text each node of its body is written.

>>> from plica.core.name import Name
>>> from plica.ir.type.term import tensor
>>> x = ex.Var(Name("x"), tensor((), "f32"))
>>> twice = ex.Apply("exp", (x,))
>>> layout = lay_out(ex.Apply("add", (twice, twice)))
>>> list(layout.shared) == [twice]
True
"""

from __future__ import annotations

from typing import Any, Final

from plica.ir.graph import expression as ex
from plica.ir.text.show.constant import is_small

ATOMS: Final = frozenset({ex.Var, ex.Literal, ex.Constructor})
"""Expressions that are always written inline."""

PLAIN, TAIL, HELD = 0, 1, 2
"""How a node is used: inside another; as the value of a block; as the value of a let."""


class StatementSpot:
    """A place for statements; `jump` makes finding what two spots share logarithmic."""

    __slots__ = ("aliases", "depth", "jump", "up")
    up: StatementSpot
    jump: StatementSpot

    def __init__(self, up: StatementSpot | None = None) -> None:
        self.aliases: list[ex.Expr] = []  # the nodes named here, operands first
        if up is None:
            self.depth = 0
            self.up = self.jump = self
        else:
            self.depth = up.depth + 1
            self.up = up
            far = up.jump
            same = up.depth - far.depth == far.depth - far.jump.depth
            self.jump = far.jump if same else up


def meet(a: StatementSpot, b: StatementSpot) -> StatementSpot:
    """The innermost spot around both."""
    if a.depth < b.depth:
        a, b = b, a
    while a.depth > b.depth:
        a = a.jump if a.jump.depth >= b.depth else a.up
    while a is not b:
        a, b = (a.jump, b.jump) if a.jump is not b.jump else (a.up, b.up)
    return a


class PrintLayout:
    """The analysis of the nodes of one body before printing."""

    def __init__(self, order: list[ex.Expr]) -> None:
        self.order = order  # every expression but atoms, operands first
        self.root = StatementSpot()
        self.where: dict[ex.Expr, StatementSpot] = {}
        self.shared: dict[ex.Expr, None] = {}
        self.role: dict[ex.Expr, int] = {}  # TAIL or HELD, of nodes used once
        self.inside: dict[ex.Expr, tuple[StatementSpot, ...]] = {}  # the spots a node opens
        self.functions: dict[
            ex.Var, StatementSpot | None
        ] = {}  # around all uses of a let-bound function

    def use(self, node: ex.Expr, spot: StatementSpot, role: int = PLAIN) -> None:
        """Note that `node` is used at `spot`."""
        cls = node.__class__
        if cls in ATOMS:
            if cls is ex.Var and node in self.functions:
                old = self.functions[node]
                self.functions[node] = spot if old is None else meet(old, spot)
            return
        if (old := self.where.get(node)) is None:
            self.where[node] = spot
            if role:
                self.role[node] = role
            return
        if old is not spot:
            self.where[node] = meet(old, spot)
        if cls is not ex.Const or not is_small(node):  # type: ignore[arg-type]  # a Const
            self.shared[node] = None
            self.role.pop(node, None)

    def is_recursive(self, node: ex.Let) -> bool:
        """Whether the function a let binds is used inside itself."""
        around = self.functions.get(node.var)
        after = self.inside[node][1]
        return around is not None and meet(around, after) is not after


def lay_out(body: ex.Expr, order: list[ex.Expr] | None = None) -> PrintLayout:
    """Place every node of a function's body; all binders in it bind different variables."""
    layout = PrintLayout(parts(body).order if order is None else order)
    use, where, role, inside = layout.use, layout.where, layout.role, layout.inside
    for each in layout.order:
        if each.__class__ is ex.Let and each.value.__class__ is ex.Function:
            layout.functions[each.var] = None
    use(body, layout.root, TAIL)
    for node in reversed(layout.order):  # whoever uses a node comes before it
        spot = where[node]
        match node:
            case ex.Apply():
                for arg in node.args:
                    use(arg, spot)
            case ex.Let():
                if role.get(node) != TAIL:
                    spot = StatementSpot(spot)  # a region of its own
                inside[node] = spot, StatementSpot(spot)
                use(node.value, spot, HELD)
                use(node.body, inside[node][1], TAIL)
            case ex.LetDim():
                if role.get(node) != TAIL:
                    spot = StatementSpot(spot)
                inside[node] = spot, StatementSpot(spot)
                use(node.value, spot)
                use(node.body, inside[node][1], TAIL)
            case ex.If():
                inside[node] = StatementSpot(spot), StatementSpot(spot)
                use(node.condition, spot)
                use(node.then, inside[node][0], TAIL)
                use(node.orelse, inside[node][1], TAIL)
            case ex.Match():
                inside[node] = tuple([StatementSpot(spot) for _ in node.clauses])
                use(node.value, spot)
                for clause, start in zip(node.clauses, inside[node], strict=True):
                    use(clause.body, start, TAIL)
            case ex.Function():
                inside[node] = (StatementSpot(spot),)
                use(node.body, inside[node][0], TAIL)
            case _:
                for operand in ex.operands(node):
                    use(operand, spot)
    return layout


class Parts:
    """The expressions inside a term."""

    def __init__(self) -> None:
        self.order: list[ex.Expr] = []  # all but atoms, operands first
        self.binders: list[ex.Let | ex.Function | ex.Match] = []  # in the order of the text
        self.surface = False  # whether something is left to inference


def parts(*roots: ex.Expr) -> Parts:
    """Every expression inside the roots, once."""
    found = Parts()
    order, binders = found.order, found.binders
    seen: set[ex.Expr] = set()
    stack: list[Any] = list(reversed(roots))  # an expression to visit, or a 1-tuple of one to leave
    pop, push = stack.pop, stack.append
    while stack:
        node = pop()
        cls = node.__class__
        if cls is tuple:
            order.append(node[0])
            continue
        if node in seen:
            continue
        seen.add(node)
        if cls is ex.Var:
            if node.type is None:
                found.surface = True
            continue
        if cls in ATOMS:
            found.surface |= cls is ex.Literal
            continue
        if cls is ex.Let or cls is ex.Match:
            binders.append(node)
        elif cls is ex.Function:
            binders.append(node)
            found.surface |= node.ret is None or any(p.type is None for p in node.params)
        push((node,))
        stack.extend(ex.operands(node)[::-1])
    return found
