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

from plica.core import Term, substitute
from plica.ir.graph.expression import Call, Expr, Function, Var
from plica.ir.graph.module import Defined, Definition, Module, module as module_of
from plica.ir.graph.shape_specialisation import function_at
from plica.ir.loop.scalar import Lit
from plica.ir.type import FuncType, infer
from plica.rewrite.graph.beta import instantiation
from plica.rewrite.graph.dead import remove_dead
from plica.rewrite.graph.walk import NameSupply, map_expressions
from plica.runtime.error import Diagnostic, Place, UnsupportedError

COPIES: Final = 1_000  # how many copies of functions a module may need


def specialise_shapes(module: Module) -> Module:
    """The module with calls of functions for any size turned into calls of copies."""
    known = remove_dead(module)
    if not any(function.dims for _, function in known.functions()):
        return known
    return remove_dead(infer(_Copies(known).module()))


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
        return attrs.evolve(function, body=map_expressions(self.called, function.body))

    def called(self, node: Expr) -> Expr:
        """A call of a function for any size, if it is settled one of a copy."""
        function = self.table.get(node.callee) if isinstance(node, Call) else None
        if not (isinstance(node, Call) and isinstance(name := node.callee, Var)):
            return node
        if not isinstance(function, Function) or not function.dims:
            return node
        found = instantiation(function, node.args, node.types) or {}
        terms = [found.get(dim) for dim in function.dims]
        sizes = tuple([int(term.value) for term in terms if isinstance(term, Lit)])
        if len(sizes) < len(terms):
            return node
        if (name, sizes) not in self.names:
            self.names[name, sizes] = self.copied(name, function, sizes)
        return Call(self.names[name, sizes], node.args, node.types)

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
