"""A-normal form: every value has a name, and the parts of a value are names or constants.

    before:  def f(x): return relu(x @ w) + x @ w
    after:   def f(x):
                 v = x @ w
                 v_1 = relu(v)
                 return v_1 + v

A binding is placed in the innermost scope that contains all its uses; values needed by one branch
are computed in that branch (`plica.rewrite.graph.scope_placement`). The result of a scope is not
named, so tail calls remain tail calls.

Laws: `is_anf(to_anf(m))`; `to_dataflow(to_anf(m))` is `m` up to names for pure dataflow.

Basic-block normal form: values that several scopes use have a name, others are dataflow.

before:  def f(c, x): return exp(x) + 1 if c else exp(x) * exp(x)
after:   def f(c, x):
             v = exp(x)
             return v + 1 if c else v * v
"""

from __future__ import annotations

from plica.ir.graph import Call, Expr, Let, Module
from plica.rewrite.graph.alpha_rename import with_selves
from plica.rewrite.graph.block import in_blocks
from plica.rewrite.graph.scope_placement import ValuePlace, regions, strict
from plica.rewrite.graph.walk import is_atom


def to_anf(module: Module) -> Module:
    """The module in A-normal form."""
    return in_blocks(module, lambda node, place: True)


def is_anf(module: Module) -> bool:
    """Whether every function of a module is in A-normal form."""
    return all(_is_block(function.body) for _, function in module.functions())


def _is_block(body: Expr) -> bool:
    seen: set[Expr] = set()
    blocks = [body]
    while blocks:
        node = blocks.pop()
        while True:
            if node in seen:
                break
            seen.add(node)
            value = node.value if isinstance(node, Let) else node
            if isinstance(value, Let) or not all(is_atom(expr) for expr in strict(value)):
                return False
            blocks.extend(regions(value))
            if not isinstance(node, Let):
                break
            node = node.body
    return True


# --- basic-block normal form -------------------------------------------------------------------


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
        stack.extend((expr, scope) for expr in strict(node))
        for region in regions(node):
            stack.append((region, count))
            count += 1
    return True
