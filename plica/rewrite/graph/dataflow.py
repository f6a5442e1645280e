"""Graph normal form: lets of values become sharing.

    before:  def f(x):
                 v = x @ w
                 return relu(v) + v
    after:   def f(x): return relu(x @ w) + x @ w        (one shared node)

Two kinds of lets remain: those of functions, which may be recursive, and those whose variable a
function captures, because sharing would recompute the value in every call. Nothing else is computed
more often than before: a run evaluates a shared node once. Unused lets are removed.

Laws: `is_dataflow(to_dataflow(m))`; `to_dataflow(to_dataflow(m)) is to_dataflow(m)`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeAlias

import attrs

from plica.core import free_vars
from plica.ir.graph import Expr, Function, Let, Module, Var
from plica.ir.type import infer
from plica.rewrite.graph.alpha_rename import alpha_renamed
from plica.rewrite.graph.dead import Need, without_unused
from plica.rewrite.graph.walk import expressions, is_atom, map_functions, operands, with_operands


def to_dataflow(module: Module) -> Module:
    """The module in graph normal form."""
    known = infer(module)
    outer = frozenset(known.names)

    def rewrite(_: Var, function: Function) -> Function:
        if _is_dataflow(function):
            return function
        return _shared(without_unused(alpha_renamed(function, outer)))

    return map_functions(known, rewrite)


def is_dataflow(module: Module) -> bool:
    """Whether no function of a module lets what could be shared."""
    return all(_is_dataflow(function) for _, function in module.functions())


def captured(nodes: Iterable[Expr]) -> set[Var]:
    """The variables that functions among some expressions have from outside."""
    found: set[Var] = set()
    for node in nodes:
        if isinstance(node, Function):
            found.update(var for var in free_vars(node) if isinstance(var, Var))
    return found


class _Lets:
    """The lets of a function, and which of them have to remain."""

    def __init__(self, function: Function) -> None:
        need = Need(function)
        self.lets, self.seen = need.lets, need.seen
        self.captured = captured(need.seen) if need.lets else set()

    def stays(self, var: Var, value: Expr) -> bool:
        """Whether a let of a variable has to remain one."""
        return var in self.seen and (
            isinstance(value, Function) or (var in self.captured and not is_atom(value))
        )


def _is_dataflow(function: Function) -> bool:
    lets = _Lets(function)
    return all(lets.stays(let.var, let.value) for let in lets.lets.values())


def _shared(function: Function) -> Function:
    lets = _Lets(function)
    memo: dict[Expr, Expr] = {}
    for node in expressions(function.body):  # a let's value before its body, so before its name
        if isinstance(node, Var):
            let = lets.lets.get(node)
            new = node if let is None or isinstance(let.value, Function) else memo[let.value]
            memo[node] = node if let is None or lets.stays(node, new) else new
        elif isinstance(node, Let):
            value = memo[node.value]
            if lets.stays(node.var, value):
                memo[node] = Let(node.var, value, memo[node.body])
            else:
                memo[node] = memo[node.body]
        else:
            memo[node] = with_operands(node, tuple([memo[part] for part in operands(node)]))
    return attrs.evolve(function, body=memo[function.body])


# --- liveness ----------------------------------------------------------------------------------


Interval: TypeAlias = tuple[int, int]
FREE = -1  # where values are born that a block has from outside


def bindings(block: Expr) -> tuple[list[tuple[Var, Expr]], Expr]:
    """The lets of a block, and its result."""
    found: list[tuple[Var, Expr]] = []
    while isinstance(block, Let):
        found.append((block.var, block.value))
        block = block.body
    return found, block


def intervals(block: Expr) -> dict[Var, Interval]:
    """Definition and last use of every variable of a block; unused ones die at their definition.

    Every variable must be bound by one let.  Those from outside are born at -1.
    """
    lets, result = bindings(block)
    found: dict[Var, Interval] = {}
    for position, (var, value) in enumerate((*lets, (None, result))):
        for used in _used(value):
            if used is not var:  # a recursive function is not alive before it is made
                born = found[used][0] if used in found else FREE
                found[used] = born, position
        if var is not None:
            found[var] = position, position
    return dict(sorted(found.items(), key=lambda item: (item[1][0], item[0].name)))


def live_after(block: Expr) -> Iterator[frozenset[Var]]:
    """For each let, from last to first, the variables used after it."""
    lets, result = bindings(block)
    live = set(_used(result))
    for var, value in reversed(lets):
        yield frozenset(live)
        live.discard(var)
        live.update(each for each in _used(value) if each is not var)


def _used(value: Expr) -> list[Var]:
    return [var for var in free_vars(value) if isinstance(var, Var)]
