"""Fusing: operators that one kernel computes become one function, called where they stood.

    before:  nn.relu(nn.conv(x, w) + b)
    after:   (lambda x, weight, y: nn.relu(nn.conv(x, weight) + y))(x, w, b)    primitive=True

Scalar constants go inside, other constants are arguments. A single operator is not wrapped.
Let-bound values are not split: convert to dataflow form first.

>>> from plica.core.name import Name
>>> from plica.ir.graph.expression import Var
>>> from plica.ir.graph.module import module
>>> from plica.ir.type.term import tensor
>>> x, main = Var(Name("x"), tensor((2,), "f32")), Var(Name("main"), None)
>>> of = infer(module({main: Function((), (), (x,), None, (x + 1.0) * (x + 1.0))}, main))
>>> defuse(fuse(of)) is of, fuse(fuse(of)) is fuse(of)
(True, True)

Laws: `digest(defuse(fuse(m))) == digest(m)` if nothing in `m` is fused; `fuse(fuse(m))` is
`fuse(m)`; results are bit-equal.
"""

from __future__ import annotations

from math import prod
from typing import Final

import attrs

from plica.core import Name
from plica.ir.graph import Attrs, Call, Const, Expr, Function, Module, Var, attr
from plica.ir.op import find
from plica.ir.passes import form
from plica.ir.type import Type, infer, type_of
from plica.rewrite.fuse.decide import Decisions, Group, decide, inside
from plica.rewrite.fuse.limit import DEFAULT_LIMITS, FusionLimits
from plica.rewrite.fuse.reading import operator, values_below, with_parts
from plica.rewrite.fuse.row import with_rows
from plica.rewrite.graph.walk import expressions, map_functions, operands, with_operands
from plica.runtime.late import lazy_imports

with lazy_imports(__name__):
    from plica.rewrite.fuse.chain import with_chains
    from plica.rewrite.fuse.gate import with_gates

PRIMITIVE: Final[Attrs] = (("primitive", True),)


def is_primitive(node: Expr) -> bool:
    """Whether an expression is a function that one kernel computes."""
    return isinstance(node, Function) and bool(attr(node, "primitive"))


def fuse(module: Module, limits: FusionLimits = DEFAULT_LIMITS) -> Module:
    """The module with a primitive function for each group of two or more operators."""
    known = infer(module)

    def write(_: Var, function: Function) -> Function:
        if is_primitive(function):
            return function
        decisions = along_rows(function.body, limits)
        for join, is_wanted in ((with_chains, limits.chains), (with_gates, limits.gates)):
            if is_wanted is not None:
                decisions = join(decisions, lambda group, ask=is_wanted: ask(called(group)[0]))  # type: ignore[misc]  # a default binds what is asked
        return attrs.evolve(function, body=_written(function.body, decisions))

    return map_functions(known, write)


def along_rows(root: Expr, limits: FusionLimits) -> Decisions:
    """The decisions for an expression, with groups along the same rows merged."""
    columns = limits.columns
    asked = None if columns is None else (lambda group: columns(called(group)[0]))
    return with_rows(decide(root, limits), limits, asked)


def defuse(module: Module) -> Module:
    """The module with the body of each primitive function in the place of its call."""
    return map_functions(module, lambda _, function: attrs.evolve(function, body=_opened(function)))


def is_fused(module: Module) -> bool:
    """Whether fusing would change nothing."""
    return fuse(module) is infer(module)


form("fused", is_fused)


def _written(root: Expr, decisions: Decisions) -> Expr:
    groups = decisions.groups
    memo: dict[Expr, Expr] = {}
    for node in decisions.order:
        if node not in groups:
            here = inside(node)
            memo[node] = with_operands(node, tuple([memo[p] for p in here])) if here else node
        elif groups[node].sink is node:
            group = groups[node]
            if len(group.spots) > 1:
                function, args = called(group)
                memo[node] = Call(function, tuple([memo[part] for part in args]))
            else:
                memo[node] = with_parts(node, tuple([memo[part] for part in inside(node)]))
    return memo[root]


def called(group: Group) -> tuple[Function, tuple[Expr, ...]]:
    """A group as a function, and its arguments."""
    params: dict[Expr, Var] = {}
    labels: dict[str, int] = {}
    body: dict[Expr, Expr] = {}
    for node in reversed(group.spots):  # users came first
        args = []
        for number, part in enumerate(inside(node)):
            if part not in body and part not in params and not is_small(part):
                params[part] = labelled(node, number, labels, type_of(part))
            args.append(body.get(part) or params.get(part) or part)
        body[node] = with_parts(node, tuple(args))
    whole = body[group.sink]
    attrs = PRIMITIVE
    if group.stages:  # which values are stages of a row was decided here, once and for all
        place = {value: number for number, value in enumerate(values_below(whole))}
        attrs = (*attrs, ("stages", tuple([place[body[each.sink]] for each in group.stages])))
    inner = Function((), (), tuple(params.values()), type_of(group.sink), whole, attrs)
    return inner, tuple(params)


def is_small(part: Expr) -> bool:
    """Whether an argument is a number: a constant of one element."""
    return isinstance(part, Const) and prod(part.shape) == 1


def labelled(value: Expr, number: int, taken: dict[str, int], of: Type) -> Var:
    """A parameter for an argument, named as in the operator's record; `taken` counts the names."""
    record = find(operator(value))
    names = ("x",) if record is None or record.variadic else record.inputs
    label = names[min(number, len(names) - 1)] if names else "x"
    taken[label] = taken.get(label, -1) + 1
    return Var(Name(label, taken[label]), of)


def _opened(function: Function) -> Expr:
    memo: dict[Expr, Expr] = {}
    for node in expressions(function.body):
        new = with_operands(node, tuple([memo[part] for part in operands(node)]))
        if isinstance(new, Call) and isinstance(new.callee, Function) and is_primitive(new.callee):
            new = _applied(new.callee, new.args)
        memo[node] = new
    return memo[function.body]


def _applied(function: Function, args: tuple[Expr, ...]) -> Expr:
    """The body of a function over its arguments; nothing in a primitive one binds a name."""
    memo: dict[Expr, Expr] = dict(zip(function.params, args, strict=True))
    for node in expressions(function.body):
        if node not in memo:
            memo[node] = with_operands(node, tuple([memo[part] for part in operands(node)]))
    return memo[function.body]
