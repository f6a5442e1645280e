"""Dead code: unused lets, unread parameters, unreachable definitions.

    before:  def f(x):
                 unused = exp(x)
                 return x
    after:   def f(x): return x

Liveness is computed from the result backwards: a let is live if its variable is, an argument of a
local function if that function uses the parameter. The language is pure, so dead code can be
removed; if computing it would have failed, the program no longer fails.

Laws: `remove_dead(remove_dead(m)) is remove_dead(m)`; live parts stay the same object.

For one function, `without_unused` drops dead lets: a chain of lets that only use one another, a
recursive function that only calls itself. Captures by dead lets do not count: passes that inspect
captures, sharing or recursion first drop such lets.

>>> from plica.core.name import Name
>>> from plica.ir.type.term import tensor
>>> x, y = (Var(Name(name), tensor((2,), "f32")) for name in "xy")
>>> function = Function((), (), (x,), None, Let(y, x + x, x))
>>> without_unused(function).body is x
True
"""

from __future__ import annotations

from typing import Any

import attrs

from plica.core import free_vars
from plica.ir.graph import Apply, Call, Expr, Function, Let, Module, Var
from plica.ir.type import FuncType, infer
from plica.rewrite.graph.alpha_rename import alpha_renamed
from plica.rewrite.graph.walk import (
    escaping,
    expressions,
    map_functions,
    operands,
    reachable,
    with_operands,
)


def remove_dead(module: Module) -> Module:
    """The module without dead code."""
    known = infer(module)
    outer = frozenset(known.names)

    def rewrite(_: Var, function: Function) -> Function:
        made = apart = alpha_renamed(function, outer)
        while not (alive := _Alive(made)).is_all():
            made = alive.function()  # a function that only dead code passed around is called now
        return function if made is apart else made

    return remove_unreachable(map_functions(known, rewrite))


def remove_unreachable(module: Module) -> Module:
    """The module without the definitions main does not need; without a main all are needed."""
    known = infer(module)
    if known.main is None:
        return known
    kept = reachable(known, [known.main])
    if len(kept) == len(known.names):
        return known
    pairs = [(name, value) for name, value in known.items() if name in kept]
    names, values = (tuple(part) for part in zip(*pairs, strict=True))
    return infer(Module(names, values, known.main))


class _Alive:
    """The live parts of one function; its binders are unique."""

    def __init__(self, function: Function) -> None:
        self.root = function
        self.nodes = expressions(function)
        self.lets = {node.var: node for node in self.nodes if isinstance(node, Let)}
        self.trimmed = self._candidates()
        self.calls: dict[Var, list[Call]] = {}  # calls of trimmed functions that are needed
        self.needed: set[Expr] = set()
        self._mark()

    def is_all(self) -> bool:
        """Whether everything is live."""
        return all(var in self.needed for var in self.lets) and all(
            param in self.needed
            for var in self.trimmed
            if var in self.needed
            for param in self._removable(var)
        )

    def function(self) -> Function:
        """The function reduced to its live parts."""
        renamed = {var: self._trimmed(var) for var in self.trimmed if var in self.needed}
        memo: dict[Expr, Expr] = {}
        for node in self.nodes:
            if node not in self.needed:
                continue
            if isinstance(node, Var):
                memo[node] = renamed.get(node, node)
            elif isinstance(node, Let):
                if node.var not in self.needed:
                    memo[node] = memo[node.body]
                    continue
                value = memo[node.value]
                if node.var in renamed:
                    assert isinstance(value, Function)
                    params = tuple([each for each in value.params if self._keeps(node.var, each)])
                    value = attrs.evolve(value, params=params)
                memo[node] = Let(renamed.get(node.var, node.var), value, memo[node.body])
            elif isinstance(node, Call) and node.callee in renamed:
                memo[node] = Call(
                    memo[node.callee], tuple([memo[a] for a in self._args(node)]), node.types
                )
            else:
                memo[node] = with_operands(node, tuple([memo[part] for part in operands(node)]))
        made = memo[self.root]
        assert isinstance(made, Function)
        return made

    def _candidates(self) -> dict[Var, Function]:
        """Local functions that are only ever called: their callers can all be changed."""
        functions = {
            var: let.value for var, let in self.lets.items() if isinstance(let.value, Function)
        }
        loose = escaping(self.root)
        return {var: value for var, value in functions.items() if var not in loose}

    def _removable(self, var: Var) -> list[Var]:
        """The parameters of a function that may go; others say what its dims are."""
        function = self.trimmed[var]
        own: set[Any] = {*function.dims}
        return [param for param in function.params if free_vars(param).isdisjoint(own)]

    def _keeps(self, var: Var, param: Var) -> bool:
        return param in self.needed or param not in self._removable(var)

    def _args(self, call: Call) -> list[Expr]:
        """The arguments of a call that the called function needs."""
        assert isinstance(call.callee, Var)
        params = self.trimmed[call.callee].params
        return [
            arg
            for arg, param in zip(call.args, params, strict=True)
            if self._keeps(call.callee, param)
        ]

    def _trimmed(self, var: Var) -> Var:
        of = var.type
        assert isinstance(of, FuncType)
        kept = [self._keeps(var, param) for param in self.trimmed[var].params]
        params = tuple([type_ for type_, keeps in zip(of.params, kept, strict=True) if keeps])
        return Var(var.name, FuncType(of.dims, of.types, params, of.ret))

    def _mark(self) -> None:
        stack: list[Expr] = [self.root]
        owners: dict[Expr, list[Var]] = {}  # one function may be let twice: terms share
        for var, value in self.trimmed.items():
            for param in value.params:
                owners.setdefault(param, []).append(var)
        while stack:
            node = stack.pop()
            if node in self.needed:
                continue
            self.needed.add(node)
            if isinstance(node, Let):
                stack.append(node.body)
            elif isinstance(node, Var):
                if node in self.lets:
                    stack.append(self.lets[node].value)
                for var in owners.get(node, ()):  # now the calls need this argument
                    at = self.trimmed[var].params.index(node)
                    stack.extend([call.args[at] for call in self.calls.get(var, ())])
            elif isinstance(node, Call) and node.callee in self.trimmed:
                assert isinstance(node.callee, Var)
                self.calls.setdefault(node.callee, []).append(node)
                stack.append(node.callee)
                stack.extend(self._args(node))
            else:
                stack.extend(operands(node))


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
    """The function, with unique binders, without its dead lets."""
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
