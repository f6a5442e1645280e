"""Graph normal form: lets of values become sharing.

    before:  def f(x):
                 v = x @ w
                 return relu(v) + v
    after:   def f(x): return relu(x @ w) + x @ w        (one shared node)

Two kinds of lets stay: those of functions, which may be recursive, and those whose variable a
function captures, since there sharing would compute the value again in every call.  Nothing else
is computed more often than before: a run evaluates a shared node once.

Laws: `is_dataflow(to_dataflow(m))`; `to_dataflow(to_dataflow(m)) is to_dataflow(m)`.
"""

from __future__ import annotations

from plica.core.binding import free_vars
from plica.ir.graph import Expr, Function, Let, Var
from plica.ir.infer import infer
from plica.ir.module import Module
from plica.rewrite.graph.separate import separate
from plica.rewrite.graph.walk import expressions, is_atom, map_functions, operands, with_operands


def to_dataflow(module: Module) -> Module:
    """The module in graph normal form."""
    known = infer(module)
    outer = frozenset(known.names)

    def rewrite(_: Var, function: Function) -> Function:
        if _is_dataflow(function):
            return function
        return _shared(separate(function, outer))

    return map_functions(known, rewrite)


def is_dataflow(module: Module) -> bool:
    """Whether no function of a module lets what could be shared."""
    return all(_is_dataflow(function) for _, function in module.functions())


def captured(function: Function) -> set[Var]:
    """The variables bound in a function that a function inside it captures."""
    found: set[Var] = set()
    for node in expressions(function.body):
        if isinstance(node, Function):
            found.update(each for each in free_vars(node) if isinstance(each, Var))
    return found


def _is_dataflow(function: Function) -> bool:
    lets = [node for node in expressions(function.body) if isinstance(node, Let)]
    if not lets:
        return True
    kept = captured(function)
    return all(_stays(node.var, node.value, kept) for node in lets)


def _stays(var: Var, value: Expr, kept: set[Var]) -> bool:
    return isinstance(value, Function) or (var in kept and not is_atom(value))


def _shared(function: Function) -> Function:
    kept = captured(function)
    nodes = expressions(function)
    values = {node.var: node.value for node in nodes if isinstance(node, Let)}
    memo: dict[Expr, Expr] = {}
    for node in nodes:  # a let's value comes before its body, and so before its variable
        if isinstance(node, Var):
            value = values.get(node)
            new = node if value is None or isinstance(value, Function) else memo[value]
            memo[node] = node if value is None or _stays(node, new, kept) else new
        elif isinstance(node, Let) and not _stays(node.var, memo[node.value], kept):
            memo[node] = memo[node.body]
        else:
            memo[node] = with_operands(node, tuple([memo[part] for part in operands(node)]))
    made = memo[function]
    assert isinstance(made, Function)
    return made
