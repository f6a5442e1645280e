"""Monomorphisation: a copy of each polymorphic function for every choice of its types.

    before:  def twice[A](f: Fn[(A,), A], x: A): return f(f(x))
             def main(x, n): return twice[f32](neg, x), twice[i32](inc, n)
    after:   def twice(f: Fn[(f32,), f32], x: f32): ...
             def twice_1(f: Fn[(i32,), i32], x: i32): ...

Only what main needs is kept. Dims stay symbolic: they are no types. A polymorphic function passed
as a value has no single type, and a function that calls itself at ever larger types would need
infinitely many copies; both are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

from plica.core import Term, free_vars, substitute
from plica.ir.graph.expression import Call, Constructor, Expr, Function, Var
from plica.ir.graph.module import Defined, Definition, Module, module as module_of
from plica.ir.loop.scalar import ScalarVar
from plica.ir.type import DataName, FuncType, Type, infer
from plica.rewrite.graph.beta import instantiation
from plica.rewrite.graph.dead import remove_dead
from plica.rewrite.graph.lift import lift
from plica.rewrite.graph.walk import NameSupply, expressions, operands, with_operands
from plica.runtime.error import Diagnostic, Place, UnsupportedError

COPIES: Final = 1_000  # how many copies of functions a module may need


def monomorphise(module: Module) -> Module:
    """The module without polymorphic functions, and without what main does not need."""
    known = remove_dead(module)
    if known.main is None:
        message = "Only a module with a main function can be made monomorphic."
        raise UnsupportedError(Diagnostic("unsupported", message))
    if is_monomorphic(known):
        return known
    lifted = lift(known)
    made = _Copies(lifted).all()
    return remove_dead(infer(module_of(made, known.main)))


def is_monomorphic(module: Module) -> bool:
    """Whether no function of a module abstracts over types."""
    return not any(
        isinstance(node, Function) and node.types
        for _, function in module.functions()
        for node in expressions(function)
    )


@attrs.define
class _Copies:
    """The copies made so far, by function and types."""

    module: Module
    table: Mapping[Term, Definition] = attrs.field(init=False)
    supply: NameSupply = attrs.field(init=False)
    names: dict[tuple[Var, tuple[Type, ...]], Var] = attrs.field(factory=dict)
    bodies: dict[tuple[Var, tuple[Type, ...]], Function] = attrs.field(factory=dict)
    todo: list[tuple[Var, tuple[Type, ...]]] = attrs.field(factory=list)

    def __attrs_post_init__(self) -> None:
        self.table = self.module.definitions()
        self.supply = NameSupply(*self.module.values, *self.module.names)

    def all(self) -> dict[Defined, Definition]:
        """The definitions that are needed."""
        made: dict[Defined, Definition] = {
            name: value for name, value in self.module.items() if isinstance(name, DataName)
        }
        main = self.module.main
        assert main is not None
        self.copy(main, ())
        for name, types in self.todo:
            new = self.names[name, types]
            body = self.bodies.get((name, types))
            made[new] = self.table[name] if body is None else self._function(name, body)
        return made

    def copy(self, name: Var, types: tuple[Type, ...]) -> Var:
        """The copy of a function at some types."""
        key = name, types
        if key not in self.names:
            if len(self.names) >= COPIES:
                raise _refused(
                    name, f"{name.name} is called at more than {COPIES} different types."
                )
            self.names[key] = self._named(name, types)
            self.todo.append(key)
        return self.names[key]

    def _named(self, name: Var, types: tuple[Type, ...]) -> Var:
        value = self.table[name]
        if not isinstance(value, Function):
            return name
        if not types:
            self.bodies[name, types] = value
            return name
        at = self._at(name, value, types)
        self.bodies[name, types] = at
        assert at.ret is not None
        params = tuple([param.type for param in at.params if param.type is not None])
        return Var(self.supply.name(name.name.hint), FuncType(at.dims, (), params, at.ret))

    def _at(self, name: Var, value: Function, types: tuple[Type, ...]) -> Function:
        """A function at some types; the dims in them become its own."""
        mapping: dict[Term, Term] = dict(zip(value.types, types, strict=True))
        at: Any = substitute(attrs.evolve(value, types=()), mapping)
        free = {var for of in types for var in free_vars(of) if isinstance(var, ScalarVar)}
        dims = (*sorted(free, key=lambda each: each.name), *at.dims)
        function: Function = attrs.evolve(at, dims=dims)
        if instantiation(function, function.params, ()) is None:
            message = f"{name.name} is called at a type with dims that no argument determines."
            raise _refused(name, message)
        return function

    def _function(self, name: Var, at: Function) -> Function:
        memo: dict[Expr, Expr] = {}
        for node in expressions(at):
            self._check(node, name)
            parts = tuple([self._value(part, memo) for part in operands(node)])
            if (
                isinstance(node, Call)
                and isinstance(node.callee, Var)
                and node.callee in self.table
            ):
                callee = self.copy(node.callee, node.types)
                memo[node] = Call(callee, parts[1:], node.types if callee is node.callee else ())
            else:
                memo[node] = with_operands(node, parts)
        return memo[at]  # type: ignore[return-value]  # a function stays one

    def _value(self, node: Expr, memo: Mapping[Expr, Expr]) -> Expr:
        """The representation of a part; a definition used as a value is needed unchanged."""
        if isinstance(node, Var) and node in self.table and not _is_general(node):
            return self.copy(node, ())
        return memo[node]

    def _check(self, node: Expr, name: Var) -> None:
        """Refuse polymorphic functions where they are not called."""
        parts = operands(node)[1:] if isinstance(node, Call) else operands(node)
        for part in parts:
            if isinstance(part, Function) and part.types:
                raise _refused(name, f"{name.name} holds a polymorphic function as a value.")
            if isinstance(part, Var | Constructor) and _is_general(part):
                message = f"{name.name} uses the polymorphic {part.name} as a value."
                raise _refused(name, message)


def _is_general(value: Var | Constructor) -> bool:
    return isinstance(value.type, FuncType) and bool(value.type.types)


def _refused(name: Var, message: str) -> UnsupportedError:
    return UnsupportedError(
        Diagnostic(
            "unsupported",
            message,
            Place(node=str(name.name)),
            expected="polymorphic functions that are called, at finitely many types",
            suggestion="Give the function the types it is used at.",
        )
    )
