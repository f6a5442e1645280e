"""Lambda lifting: local functions become definitions, with their captured variables as parameters.

    before:  def main(x, y):
                 def f(z): return z * y
                 return f(x) + f(y)
    after:   def f(y, z): return z * y
             def main(x, y): return f(y, x) + f(y, y)

A function used as a value keeps a thin closure, `lambda z: f(y, z)`; without captures, the
definition itself is the value. Enclosing dims and type variables become its own. A function whose
parameters would not determine such a dim is not lifted.

Laws: in the result every local function only calls a definition (`is_lifted`), save for those;
`lift(lift(m)) is lift(m)`.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

import attrs

from plica.core import free_vars, post_order
from plica.ir.graph.expression import Call, Expr, Function, Let, Var
from plica.ir.graph.module import Defined, Definition, Module, module as module_of
from plica.ir.loop.scalar import ScalarVar
from plica.ir.type import FuncType, Type, TypeVar, infer
from plica.rewrite.graph.alpha_rename import alpha_renamed
from plica.rewrite.graph.beta import instantiation
from plica.rewrite.graph.walk import NameSupply, expressions, is_atom, operands, with_operands


def lift(module: Module) -> Module:
    """The module with its local functions lifted."""
    known = infer(module)
    lifting = _Lifting(known)
    for name, function in known.functions():
        lifting.definition(name, function)
    if not lifting.made:
        return known
    return infer(module_of({**dict(known.items()), **lifting.done}, known.main))


def is_lifted(module: Module) -> bool:
    """Whether every local function only calls a definition."""
    table = module.definitions()
    return all(
        is_thin(node, table)
        for _, function in module.functions()
        for node in expressions(function.body)
        if isinstance(node, Function)
    )


def is_thin(function: Function, table: Container[Any]) -> bool:
    """Whether a function only calls a definition with names and constants."""
    body = function.body
    return isinstance(body, Call) and body.callee in table and all(map(is_atom, body.args))


@attrs.frozen(eq=False)
class _Lifted:
    """A local function that has become a definition."""

    name: Var
    captured: tuple[Var, ...]
    types: tuple[TypeVar, ...]
    function: Function  # as it was

    def call(self, args: tuple[Expr, ...], types: tuple[Type, ...]) -> Call:
        return Call(self.name, (*self.captured, *args), (*self.types, *types))

    def value(self) -> Expr:
        """The function as a value."""
        of = self.function
        if not self.captured and not self.types and not outer_dims(of, ()):
            return self.name
        body = self.call(of.params, of.types)
        return attrs.evolve(of, body=body, attrs=())


class _Lifting:
    """One module: definitions that are done, those still to do, and names for new ones."""

    def __init__(self, module: Module) -> None:
        self.names: set[Any] = set(module.names)
        self.supply = NameSupply(*module.values, *module.names)
        self.done: dict[Defined, Definition] = {}
        self.made = False

    def definition(self, name: Var, function: Function) -> None:
        """A definition and all that is lifted out of it."""
        todo = [(name, function)]
        for each in todo:
            todo.extend(self._step(*each))

    def _step(self, name: Var, given: Function) -> list[tuple[Var, Function]]:
        function = alpha_renamed(given, self.names)
        lets = {n.value: n.var for n in expressions(function) if isinstance(n, Let)}
        lifted: dict[Expr, _Lifted] = {}  # by function, and by variable where it has one
        seen: set[Expr] = set()
        stack = [function.body]
        while stack:  # a let's value before its body, which may use it
            node = stack.pop()
            if node in seen:
                continue
            seen.add(node)
            if isinstance(node, Function):
                var = lets.get(node)
                if (found := self._lifted(node, var, name, lifted)) is not None:
                    lifted[node] = found
                    if var is not None:
                        lifted[var] = found
                    continue  # what is inside is lifted out of the new definition
            stack.extend(operands(node)[::-1])
        if not lifted:
            self.done[name] = given
            return []
        self.made = True
        memo = _rewritten(function, lifted)
        made = memo[function]
        assert isinstance(made, Function)
        self.done[name] = made
        new: list[tuple[Var, Function]] = []
        for node, each in lifted.items():
            if isinstance(node, Function):
                new.append((each.name, self._global(each, memo[node.body])))
        return new

    def _lifted(
        self, node: Function, var: Var | None, outer: Var, lifted: Mapping[Expr, _Lifted]
    ) -> _Lifted | None:
        """The lifted form of a function, or None if it is not lifted."""
        if is_thin(node, self.names):
            return None
        captured, types = self._captures(node, var, lifted)
        hint = var.name.hint if var is not None else f"{outer.name.hint}_function"
        dims = (*outer_dims(node, captured), *node.dims)
        params = (*captured, *node.params)
        whole = Function(dims, (*types, *node.types), params, node.ret, node.body)
        if instantiation(whole, params, whole.types) is None:
            return None
        assert node.ret is not None
        inside = tuple([param.type for param in params if param.type is not None])
        of = FuncType(dims, whole.types, inside, node.ret)
        name = Var(self.supply.name(hint), of)
        self.names.add(name)
        return _Lifted(name, captured, types, node)

    def _captures(
        self, node: Function, var: Var | None, lifted: Mapping[Expr, _Lifted]
    ) -> tuple[tuple[Var, ...], tuple[TypeVar, ...]]:
        """The variables and type variables a function has from outside, in order of occurrence."""
        free = free_vars(node)
        found: dict[Var, None] = {}
        types: dict[TypeVar, None] = {}
        for each in post_order(node):
            if each not in free or each in self.names or each is var:
                continue
            if isinstance(each, TypeVar):
                types[each] = None
            elif each in lifted:
                more = lifted[each]  # type: ignore[index]  # a variable
                found.update(dict.fromkeys(more.captured))
                types.update(dict.fromkeys(more.types))
            elif isinstance(each, Var):
                found[each] = None
        for each in found:
            types.update((t, None) for t in sorted_types(each))
        return tuple(found), tuple(types)

    def _global(self, of: _Lifted, body: Expr) -> Function:
        node = of.function
        params = (*of.captured, *node.params)
        dims = (*outer_dims(node, of.captured), *node.dims)
        return Function(dims, (*of.types, *node.types), params, node.ret, body, node.attrs)


def _rewritten(function: Function, lifted: Mapping[Expr, _Lifted]) -> dict[Expr, Expr]:
    """Every expression of a function over the lifted definitions."""
    memo: dict[Expr, Expr] = {}
    for node in expressions(function):
        if isinstance(node, Var):
            memo[node] = lifted[node].value() if node in lifted else node
        elif isinstance(node, Let) and node.var in lifted:
            memo[node] = memo[node.body]
        elif isinstance(node, Call) and node.callee in lifted:
            args = tuple([memo[arg] for arg in node.args])
            memo[node] = lifted[node.callee].call(args, node.types)
        elif node in lifted:
            memo[node] = lifted[node].value()
        else:
            memo[node] = with_operands(node, tuple([memo[part] for part in operands(node)]))
    return memo


def sorted_types(var: Var) -> list[TypeVar]:
    """The type variables in the type of a variable, by name."""
    type_vars = [free_var for free_var in free_vars(var) if isinstance(free_var, TypeVar)]
    return sorted(type_vars, key=lambda each: each.name)


def outer_dims(function: Function, captured: tuple[Var, ...]) -> tuple[ScalarVar, ...]:
    """The dims a function, or what it captures, has from outside, by name."""
    free = free_vars(function).union(*map(free_vars, captured))
    return tuple(sorted([d for d in free if isinstance(d, ScalarVar)], key=lambda d: d.name))
