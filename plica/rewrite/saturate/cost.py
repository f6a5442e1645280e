"""Costs: the cost of a term is the sum over its distinct nodes.

>>> from plica.core.name import Name
>>> from plica.ir.graph.expression import Var
>>> from plica.ir.type.term import tensor
>>> a = Var(Name("a"), tensor((2, 3), "f32"))
>>> shared = a * a
>>> total(elements, shared + shared)
12
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from plica.core import Term
from plica.ir.graph.expression import Apply, Call
from plica.ir.loop.scalar import Scalar
from plica.ir.type import TensorType, TupleType, Type, known, type_of
from plica.rewrite.saturate.shape import is_leaf, open_children

Cost: TypeAlias = Callable[[Term], int]
"""The cost of a node: non-negative, and equal for equal nodes of one shape."""

UNKNOWN: Final = 64  # the size of a dim that no number is known for


def elements(node: Term) -> int:
    """An operator costs the elements of its result, a scalar operator or a call 1, others 0."""
    if isinstance(node, Apply):
        return max(1, _elements(type_of(node)))
    if isinstance(node, Scalar):
        return 0 if is_leaf(node) else 1
    return 1 if isinstance(node, Call) else 0


def _elements(of: Type) -> int:
    if isinstance(of, TupleType):
        return sum(_elements(item) for item in of.items)
    if not isinstance(of, TensorType):
        return 1
    count = 1
    for size in of.shape:
        number = known(size)
        count *= UNKNOWN if number is None else number
    return count


def priced(cost: Cost, root: Term) -> Cost:
    """The cost of nodes inside `root`.

    Dims among the attributes of a program's operators are not computed when it runs: they are free.
    """
    if isinstance(root, Scalar):
        return cost
    return lambda node: 0 if isinstance(node, Scalar) else cost(node)


def total(cost: Cost, root: Term) -> int:
    """The cost of a term; shared nodes count once."""
    price = priced(cost, root)
    seen: set[Term] = {root}
    stack = [root]
    found = 0
    while stack:
        node = stack.pop()
        found += price(node)
        for kid in open_children(node):
            if kid not in seen:
                seen.add(kid)
                stack.append(kid)
    return found
