"""Specialisation: a copy of each function for the sizes it is called at.

    before:  def total(x: Tensor[("n",), f32]) -> f32: ...
             def main(x: Tensor[(3,), f32], y: Tensor[(5,), f32]): return total(x) + total(y)
    after:   def total(x: Tensor[(3,), f32]) -> f32: ...
             def total_1(x: Tensor[(5,), f32]) -> f32: ...

Only calls whose arguments have sizes in numbers are settled; main is given its sizes before
(`plica.ir.graph.shape_specialisation`).  A function that calls itself at ever other sizes is
refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

from plica.core import Term, free_vars, substitute
from plica.ir.graph.expression import Call, Expr, Function, Var
from plica.ir.graph.module import Defined, Definition, Module, module as module_of
from plica.ir.graph.shape_specialisation import function_at
from plica.ir.loop.scalar import Lit, ScalarVar
from plica.ir.type import FuncType, Type, infer, solve, type_of
from plica.ir.type.size import type_equations
from plica.rewrite.graph.dead import remove_dead
from plica.rewrite.graph.walk import NameSupply, expressions, operands, with_operands
from plica.runtime.error import Diagnostic, Place, UnsupportedError

COPIES: Final = 1_000  # how many copies of functions a module may need


def specialise_shapes(module: Module) -> Module:
    """The module with calls of functions for any size turned into calls of copies."""
    known = remove_dead(module)
    if not any(function.dims for _, function in known.functions()):
        return known
    return remove_dead(infer(_Copies(known).module()))


def is_open(of: Type | None) -> bool:
    """Whether a type has a size that is no number."""
    return of is not None and any(isinstance(var, ScalarVar) for var in free_vars(of))


@attrs.define
class _Copies:
    """The copies made so far, by function and sizes."""

    source: Module
    table: Mapping[Term, Definition] = attrs.field(init=False)
    supply: NameSupply = attrs.field(init=False)
    names: dict[tuple[Var, tuple[int, ...]], Var] = attrs.field(factory=dict)
    todo: list[tuple[Var, Function]] = attrs.field(factory=list)

    def __attrs_post_init__(self) -> None:
        self.table = self.source.definitions()
        self.supply = NameSupply(*self.source.values, *self.source.names)

    def module(self) -> Module:
        made: dict[Defined, Definition] = {}
        for name, value in self.source.items():
            made[name] = value
            if isinstance(value, Function) and not value.dims:
                made[name] = self.settled(value)
        for copy, function in self.todo:
            made[copy] = self.settled(function)
        return module_of(made, self.source.main)

    def settled(self, function: Function) -> Function:
        """A function that calls copies where it can."""
        memo: dict[Expr, Expr] = {}
        for node in expressions(function.body):
            new = with_operands(node, tuple([memo[part] for part in operands(node)]))
            if isinstance(node, Call) and isinstance(node.callee, Var):
                copy = self.called(node)
                if copy is not None:
                    assert isinstance(new, Call)
                    new = Call(copy, new.args, new.types)
            memo[node] = new
        return attrs.evolve(function, body=memo[function.body])

    def called(self, call: Call) -> Var | None:
        """The copy a call means; None for calls that are not for any size, or not settled."""
        name = call.callee
        function = self.table.get(name)
        if not isinstance(name, Var) or not isinstance(function, Function) or not function.dims:
            return None
        types = [type_of(arg) for arg in call.args]
        if any(is_open(type_) for type_ in (*types, *call.types)):
            return None
        equations = [
            equation
            for param, of in zip(function.params, types, strict=True)
            if param.type is not None
            for equation in type_equations(param.type, of, {})
        ]
        sizes = solve(equations, {})
        if any(dim not in sizes for dim in function.dims):
            return None
        key = name, tuple([sizes[dim] for dim in function.dims])
        if key not in self.names:
            self.names[key] = self.copied(name, function, key[1])
        return self.names[key]

    def copied(self, name: Var, function: Function, sizes: tuple[int, ...]) -> Var:
        if len(self.names) >= COPIES:
            message = f"{name.name} is called at more than {COPIES} different sizes."
            place = Place(node=str(name.name))
            raise UnsupportedError(Diagnostic("unsupported", message, place))
        assert function.ret is not None
        at = function_at(function, dict(zip(function.dims, sizes, strict=True)))
        numbers = [Lit(size, dim.dtype) for dim, size in zip(function.dims, sizes, strict=True)]
        result: Any = substitute(function.ret, dict(zip(function.dims, numbers, strict=True)))
        types = tuple([param.type for param in at.params if param.type is not None])
        copy = Var(self.supply.name(name.name.hint), FuncType((), at.types, types, result))
        self.todo.append((copy, attrs.evolve(at, ret=result)))
        return copy
