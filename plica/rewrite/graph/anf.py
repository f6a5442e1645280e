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
"""

from __future__ import annotations

from plica.ir.graph import Expr, Let, Module
from plica.rewrite.graph.block import in_blocks
from plica.rewrite.graph.scope_placement import regions, strict
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
            if isinstance(value, Let) or not all(is_atom(each) for each in strict(value)):
                return False
            blocks.extend(regions(value))
            if not isinstance(node, Let):
                break
            node = node.body
    return True
