"""Need: which expressions the result of a function depends on, and the function without others.

A let is needed when its variable is, so a chain of lets that only use one another is not, nor is a
recursive function that only calls itself.  What a let captures that nobody needs does not count:
passes that ask what is captured, shared or recursive first drop such lets.

>>> from plica.core.name import Name
>>> from plica.ir.type.term import tensor
>>> x, y = (Var(Name(name), tensor((2,), "f32")) for name in "xy")
>>> function = Function((), (), (x,), None, Let(y, x + x, x))
>>> without_unused(function).body is x
True

Laws: `without_unused(without_unused(f)) is without_unused(f)`; what all is needed stays itself.
"""

from __future__ import annotations

import attrs

from plica.ir.graph.expression import Apply, Expr, Function, Let, Var
from plica.rewrite.graph.walk import expressions, operands, with_operands


class Need:
    """The expressions a function needs, and its lets by variable; binders are apart."""

    def __init__(self, function: Function) -> None:
        self.lets: dict[Var, Let] = {}
        self.seen: set[Expr] = set()
        stack: list[Expr] = [function.body]
        pop, see, seen = stack.pop, self.seen.add, self.seen
        while stack:
            node = pop()
            if node in seen:
                continue
            see(node)
            if isinstance(node, Apply):
                stack.extend(node.args)
            elif isinstance(node, Let):
                self.lets[node.var] = node
                stack.append(node.body)
            elif isinstance(node, Var):
                if node in self.lets:
                    stack.append(self.lets[node].value)
            else:
                stack.extend(operands(node))

    def is_all(self) -> bool:
        """Whether every let is needed."""
        return all(var in self.seen for var in self.lets)


def without_unused(function: Function) -> Function:
    """The function, whose binders are apart, without the lets that nobody needs."""
    need = Need(function)
    if need.is_all():
        return function
    memo: dict[Expr, Expr] = {}
    for node in expressions(function.body):
        if node not in need.seen:
            continue
        if isinstance(node, Let) and node.var not in need.seen:
            memo[node] = memo[node.body]
        else:
            memo[node] = with_operands(node, tuple([memo[part] for part in operands(node)]))
    return attrs.evolve(function, body=memo[function.body])
