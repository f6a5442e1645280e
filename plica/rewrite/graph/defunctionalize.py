"""Defunctionalisation: functions as values become data, and calling one becomes a match.

    before:  def main(c, x):
                 f = exp if c else (lambda v: v * x)
                 return f(x)
    after:   class Function:
                 C0: ()
                 C1: (x's type,)
             def apply(f, v):
                 match f:
                     case C0(): return exp(v)
                     case C1(x): return v * x
             def main(c, x): return apply(C0() if c else C1(x), x)

Each type of function becomes a data type with a constructor for every function of that type the
program makes, holding what it captures, and a definition that applies its values.  The module is
first made monomorphic, and its local functions are lifted.

Refused, since a data type cannot say it: functions in the interface of main, functions that capture
or take tensors with dims of the function around them, and externs that take functions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from plica.core.binding import free_vars, substitute
from plica.core.digest import digest
from plica.core.fold import post_order
from plica.core.name import Name
from plica.core.term import Term
from plica.ir.graph import (
    Call,
    Clause,
    Constructor,
    Expr,
    Function,
    Let,
    Match,
    Pattern,
    PConstructor,
    PTuple,
    PVar,
    Var,
)
from plica.ir.infer import infer, type_of
from plica.ir.module import (
    ConstructorDef,
    DataDef,
    Defined,
    Definition,
    Extern,
    Module,
    constructors,
)
from plica.ir.module import module as module_of
from plica.ir.scalar import ScalarVar
from plica.ir.type import DataName, DataType, FuncType, TensorType, TupleType, Type, TypeVar
from plica.rewrite.graph.dead import remove_dead
from plica.rewrite.graph.lift import lift
from plica.rewrite.graph.monomorphic import monomorphise
from plica.rewrite.graph.separate import is_recursive, separate
from plica.rewrite.graph.walk import Supply, expressions, operands, with_operands
from plica.runtime.error import Diagnostic, Place, UnsupportedError


def defunctionalize(module: Module) -> Module:
    """The module without functions as values."""
    known = monomorphise(module)
    if is_first_order(known):
        return known
    lifted = lift(known)
    _check_interface(lifted)
    return remove_dead(_Translation(lifted).module())


def is_first_order(module: Module) -> bool:
    """Whether no value of a module is a function, nor holds one."""
    for name, value in module.items():
        if isinstance(value, Function):
            inside = [*value.params, *expressions(value.body)]
            if any(isinstance(node, Function) for node in inside):
                return False
            if any(holds_function(each.type) for each in value.params):
                return False
            calls = {node.callee for node in inside if isinstance(node, Call)}
            rest = (node for node in inside if node not in calls)
            if any(holds_function(type_of(node)) for node in rest):
                return False
            if any(not _is_callable(each, module) for each in calls):
                return False
        elif isinstance(value, DataDef):
            if any(holds_function(field) for c in value.constructors for field in c.fields):
                return False
        elif isinstance(value, Extern) and any(map(holds_function, value.type.params)):
            return False
        assert name is not None
    return True


def _is_callable(callee: Expr, module: Module) -> bool:
    return isinstance(callee, Constructor) or callee in module.definitions()


def holds_function(of: Type | None) -> bool:
    """Whether a type is that of a function or has one in it."""
    return of is not None and any(isinstance(part, FuncType) for part in post_order(of))


@attrs.define(eq=False)
class _Family:
    """All functions of one type: the data type they become, and what each does."""

    of: FuncType  # its parts translated
    data: DataName
    apply: Var
    params: tuple[Var, ...]
    ways: dict[Expr, tuple[Name, tuple[Var, ...], Expr]] = attrs.field(factory=dict)
