"""Basic-block normal form: values that several scopes use have a name, others are dataflow.

before:  def f(c, x): return exp(x) + 1 if c else exp(x) * exp(x)
after:   def f(c, x):
             v = exp(x)
             return v + 1 if c else v * v
"""

from __future__ import annotations

from plica.ir.graph import Call, Expr, Module
from plica.rewrite.graph.alpha_rename import with_selves
from plica.rewrite.graph.block import in_blocks
from plica.rewrite.graph.scope_placement import ValuePlace, regions, strict
from plica.rewrite.graph.walk import is_atom


def to_basic_blocks(module: Module) -> Module:
    """The module in basic-block normal form."""
    return in_blocks(module, _crosses)


def is_basic_block(module: Module) -> bool:
    """Whether no value of any function occurs in two of its scopes."""
    outer = frozenset(module.names)
    # A recursive function inside itself is another value than outside, though its name is one.
    bodies = [with_selves(function, outer)[0].body for _, function in module.functions()]
    return all(_has_blocks(body) for body in bodies)


def _crosses(node: Expr, place: ValuePlace) -> bool:
    return place.crossing


def _has_blocks(body: Expr) -> bool:
    home: dict[Expr, int] = {}
    count = 1
    stack: list[tuple[Expr, int]] = [(body, 0)]
    while stack:
        node, scope = stack.pop()
        if is_atom(node) or (isinstance(node, Call) and not node.args):
            continue  # a call without arguments asks for what has its name elsewhere
        if node in home:
            if home[node] != scope:
                return False
            continue
        home[node] = scope
        stack.extend((each, scope) for each in strict(node))
        for each in regions(node):
            stack.append((each, count))
            count += 1
    return True
