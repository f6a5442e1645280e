"""The form in which programs are differentiated: first order, and every value with a name.

1. What can be decided is: calls of functions that are known, and closures with them, go.
2. Functions that are still values become data (`plica.rewrite.graph.defunctionalize`), so the
   cotangent of a closure is one of what it captures.
3. Operators without a gradient of their own are replaced by what they are made of.
4. A-normal form: what one scope has from another are variables.

A function marked `checkpoint` remains a call throughout.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import attrs

from plica.core import Name, free_vars
from plica.ir.graph import Module, expression as ex, main_module
from plica.ir.graph.operator import Decomposition, Through
from plica.ir.loop.scalar import ScalarVar
from plica.ir.op import find
from plica.ir.type import TensorType, TupleType, Type, infer, type_of
from plica.rewrite.graph.anf import to_anf
from plica.rewrite.graph.dataflow import to_dataflow
from plica.rewrite.graph.defunctionalize import defunctionalize, is_first_order
from plica.rewrite.graph.monomorphic import monomorphise
from plica.rewrite.graph.partial import evaluate_partially
from plica.rewrite.graph.walk import expressions, map_functions, operands, with_operands

CHECKPOINT_MARK: Final = ("primitive", "checkpoint")
"""The mark of a checkpointed function that must not be unfolded."""


def prepared(module: Module) -> Module:
    """The module in the form that `plica.rewrite.gradient.derive` works on."""
    known = _remarked(monomorphise(module), ("checkpoint", True), CHECKPOINT_MARK)
    if _has_calls(known):
        known = evaluate_partially(known)
    if not is_first_order(known):
        known = defunctionalize(known)
    flat = to_dataflow(known)
    return to_anf(
        map_functions(flat, lambda _, each: attrs.evolve(each, body=_unpacked(each.body)))
    )


def is_kept(function: ex.Function) -> bool:
    """Whether calls of a function are computed again when derivatives are."""
    return CHECKPOINT_MARK in function.attrs


def unmarked(function: ex.Function) -> ex.Function:
    """A function without the mark."""
    return attrs.evolve(
        function, attrs=tuple(attr for attr in function.attrs if attr != CHECKPOINT_MARK)
    )


def _remarked(module: Module, old: tuple[str, object], new: tuple[str, object]) -> Module:
    def rewrite(_: ex.Var, function: ex.Function) -> ex.Function:
        if old not in function.attrs:
            return function
        kept = [attr for attr in function.attrs if attr != old]
        return attrs.evolve(function, attrs=tuple(sorted([*kept, new])))

    if not any(old in function.attrs for _, function in module.functions()):
        return module
    return map_functions(module, rewrite)


def _has_calls(module: Module) -> bool:
    """Whether a module has anything that partial evaluation might decide."""
    return any(
        isinstance(node, ex.Function | ex.Match)
        or (isinstance(node, ex.Call) and not isinstance(node.callee, ex.Constructor))
        for _, function in module.functions()
        for node in expressions(function.body)
    )


# --- operators without a gradient ------------------------------------------------------------


def definition_of(node: ex.Apply) -> Decomposition | None:
    """The term through which an operator is differentiated, or None."""
    if (record := find(node.op)) is None:
        return None
    if isinstance(record.gradient, Through):
        return record.gradient.build
    return record.decompose if record.gradient is None else None


def _unpacked(root: ex.Expr) -> ex.Expr:
    """An expression in which every operator of floats that can be differentiated is itself."""
    memo: dict[ex.Expr, ex.Expr] = {}
    for node in expressions(root):
        new = with_operands(node, tuple([memo[part] for part in operands(node)]))
        if (
            isinstance(new, ex.Apply)
            and definition_of(new) is not None
            and _is_float(type_of(node))
        ):
            types = tuple([type_of(arg) for arg in operands(node)])
            function = _instance(new.op, new.attrs, types)
            new = _placed(function, new.args)
        memo[node] = new
    return memo[root]


def _is_float(of: Type) -> bool:
    if isinstance(of, TupleType):
        return any(map(_is_float, of.items))
    return isinstance(of, TensorType) and of.dtype.is_float


def _placed(function: ex.Function, args: tuple[ex.Expr, ...]) -> ex.Expr:
    """The body of a function of operators alone, at some arguments."""
    memo: dict[ex.Expr, ex.Expr] = dict(zip(function.params, args, strict=True))
    for node in expressions(function.body):
        if node in memo:
            continue
        new = with_operands(node, tuple([memo[part] for part in operands(node)]))
        if isinstance(new, ex.Project) and isinstance(new.value, ex.Tuple):
            new = new.value.items[new.index]
        memo[node] = new
    return memo[function.body]


@lru_cache(maxsize=4096)
def _instance(name: str, attributes: ex.Attrs, types: tuple[Type, ...]) -> ex.Function:
    """The decomposition of an operator at these types, fully expanded."""
    params = tuple([ex.Var(Name("x", at), of) for at, of in enumerate(types)])
    build = definition_of(ex.Apply(name, params, attributes))
    assert build is not None
    free = {var for of in types for var in free_vars(of) if isinstance(var, ScalarVar)}
    dims = tuple(sorted(free, key=lambda each: each.name))
    body = build(dict(attributes), *params)
    made = infer(main_module(ex.Function(dims, (), params, None, body)))
    function = to_dataflow(made).main_function()
    return attrs.evolve(function, body=_unpacked(function.body))
