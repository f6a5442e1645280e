"""Kinds of programs: one graph of kernels, segments under a host, or routines and objects.

A program without data, recursion and functions chosen when it runs can be written out as one graph,
which is the faster code.  So can some programs that have these, once all that depends on no input
is decided.  What measures sizes while it runs, or repeats what has open ones, is staged: the host
runs it segment by segment (`plica.codegen.staged`).  All others are dynamic.

>>> from plica.ir.text.script import from_text
>>> recursive = '''
... @plica.function
... def power(x: Tensor[(), f32], n: i64) -> Tensor[(), f32]:
...     return f32(1.0) if n == 0 else x * power(x, n - 1)
...
... @plica.function
... def main(x: Tensor[(), f32]) -> Tensor[(), f32]:
...     return power(x, COUNT)
... '''
>>> static_form(from_text(recursive.replace("COUNT", "i64(3)"))) is not None
True
>>> static_form(from_text(recursive.replace("COUNT", "op.cast(x, dtype=i64)"))) is None
True
"""

from __future__ import annotations

from math import prod
from typing import Final, Literal, TypeAlias

from plica.codegen.lower.supported import has_too_many, unsupported
from plica.core import free_vars
from plica.ir.graph.expression import Apply, Call, Expr, Function, If, Let, LetDim, Match
from plica.ir.graph.module import Module
from plica.ir.graph.shape_specialisation import has_open_dims
from plica.ir.type import TensorType, TupleType, infer, static_shape, type_of
from plica.ir.type.term import holds_function
from plica.rewrite.graph.walk import expressions, operands
from plica.runtime.late import lazy_imports

with lazy_imports(__name__):
    from plica.rewrite.graph.partial import evaluate_partially
    from plica.runtime.staged.program import is_of_host


MANY_PLACES: Final = 1 << 15
"""A segment makes places of running totals, in several passes over 8 bytes for each element; to
leave it and come back takes as long as that does for some thousands of elements."""


ProgramKind: TypeAlias = Literal["staged", "open", "fixed"]
"""How a program is compiled: in segments, for every size or at a call, or as it stands."""


def kind_of(module: Module) -> ProgramKind:
    """How a module is compiled, which is asked once."""
    if is_staged(module):
        return "staged"
    return "open" if has_open_dims(module) else "fixed"


def static_form(module: Module) -> Module | None:
    """The module, or one that means the same, as a static program; None where there is none.

    What has no main function to compile, or too many results, is left to those who refuse it.
    """
    if module.main is None or not isinstance(module.definitions().get(module.main), Function):
        return module
    known = infer(module)
    if has_too_many(known):
        return module
    if is_static(known):
        return module
    decided = evaluate_partially(known, keeping=True)
    return decided if is_static(decided) else None


def is_static(module: Module) -> bool:
    """Whether an inferred module can be written out as one graph."""
    if unsupported(module, sizes_come=True):
        return False
    return not any(
        isinstance(node, If | Match) and holds_function(type_of(node))
        for _, function in module.functions()
        for node in expressions(function)
    )


def is_staged(module: Module, *, chooses: bool = True) -> bool:
    """Whether a program is run in segments: it measures sizes, or repeats what has open ones; or it
    repeats or chooses at all, where what runs it never `chooses`."""
    if module.main is None or not isinstance(module.definitions().get(module.main), Function):
        return False
    nodes = expressions(module.main_function().body)
    if any(isinstance(node, LetDim) for node in nodes):
        return True
    if not chooses and any(isinstance(node, If) for node in nodes):
        return True
    if not has_open_dims(module):
        return False
    if any(is_loop(node) or is_ordering(node) for node in nodes):
        return True
    recursive = [node for node in nodes if _is_recursive(node)]
    return bool(recursive) and all(map(is_named_loop, recursive))


def repeats(module: Module) -> bool:
    """Whether a program has a loop in its main function."""
    if module.main is None or not isinstance(module.definitions().get(module.main), Function):
        return False
    return any(is_loop(expression) for expression in expressions(module.main_function().body))


def is_ordering(node: Expr) -> bool:
    """Whether the host should compute an ordering: a sort of open size, which segments do slowly,
    indices of so large a table that one pass pays for leaving the segment, or distinct elements,
    whose number is measured outside of segments anyway."""
    if not (isinstance(node, Apply) and is_of_host(node.op)):
        return False
    of = type_of(node.args[0])
    if not isinstance(of, TensorType) or not of.shape:
        return False
    sizes = static_shape(of)
    if sizes is None or node.op == "unique":
        return True
    return node.op == "argwhere" and prod(sizes) >= MANY_PLACES


def without_loops(module: Module) -> Module:
    """The module with loops written out whose turns are known, for whoever runs no loops but those
    of kernels."""
    return evaluate_partially(module) if repeats(module) else module


def is_loop(node: Expr) -> bool:
    """Whether an expression is a function that calls itself last, called at once."""
    match node:
        case Let(var, Function() as function, Call(callee, _, _)) if callee is var:
            return var in free_vars(function)
        case _:
            return False


def _is_recursive(node: Expr) -> bool:
    """Whether an expression names a function that calls itself."""
    match node:
        case Let(var, Function() as function, _):
            return var in free_vars(function)
        case _:
            return False


def is_named_loop(node: Expr) -> bool:
    """Whether an expression names a function for what follows that goes on, or ends, as a
    condition says, and calls itself last; what it carries and gives are tensors."""
    match node:
        case Let(var, Function((), (), params, ret, If(condition, then, orelse), _), body):
            given = ret.items if isinstance(ret, TupleType) else (ret,)
            if not all(isinstance(of, TensorType) for of in (*given, *[p.type for p in params])):
                return False
            while isinstance(then, LetDim):
                then = then.body
            if not (isinstance(then, Call) and then.callee is var):
                return False
            if any(var in free_vars(expr) for expr in (condition, *then.args, orelse)):
                return False
            users = [expression for expression in expressions(body) if var in operands(expression)]
            return bool(users) and all(
                isinstance(user, Call) and user.callee is var and var not in user.args
                for user in users
            )
        case _:
            return False
