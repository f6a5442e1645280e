"""Totality: which expressions surely have a value, whatever the values of their variables are.

The language is pure, so the only effects are failure (an index out of bounds, a partial match, an
extern) and non-termination. Values with neither may be computed speculatively.

>>> from plica.core.name import Name
>>> from plica.ir.graph.expression import Var
>>> from plica.ir.graph.module import module
>>> from plica.ir.type.term import FuncType, tensor
>>> t = tensor((2,), "f32")
>>> x, f = Var(Name("x"), t), Var(Name("f"), FuncType((), (), (t,), t))
>>> total = Totality(module({f: Function((), (), (x,), t, Call(f, (x,)))}, f))
>>> total.of(x + x), total.of(Call(f, (x,)))
(True, False)

It errs on the safe side: a call of a function that is not a definition is not known to be total.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from plica.core import Name, Term, post_order
from plica.ir.graph.expression import Apply, Attrs, Call, Constructor, Expr, Function, Match, Var
from plica.ir.graph.module import Module
from plica.ir.loop import Buffer, Compute, Load
from plica.ir.op import find
from plica.ir.type import TensorType, Type, infer_expr, type_of
from plica.rewrite.graph.walk import expressions, operands, recursive


class Totality:
    """What is known about the expressions of one module."""

    def __init__(self, module: Module) -> None:
        self.table = module.definitions()
        self.recursive = recursive(module)
        self.known: dict[Expr, bool] = {}

    def of(self, root: Expr) -> bool:
        """Whether an expression surely has a value."""
        known = self.known
        stack: list[Any] = [root]  # an expression, or a 1-tuple of one to decide
        while stack:
            node = stack.pop()
            if node.__class__ is tuple:
                node = node[0]
                needs = self._needs(node)
                known[node] = self._is_harmless(node) and all(known[need] for need in needs)
            elif node not in known:
                stack.append((node,))
                stack.extend([need for need in self._needs(node) if need not in known])
        return known[root]

    def _needs(self, node: Expr) -> tuple[Expr, ...]:
        """The parts that must be total for a node to be."""
        if isinstance(node, Function):
            return ()  # making a closure is no work
        if isinstance(node, Call):
            function = self.table.get(node.callee)
            if isinstance(function, Function) and node.callee not in self.recursive:
                return (*node.args, function.body)
            return node.args
        return operands(node)

    def _is_harmless(self, node: Expr) -> bool:
        """Whether a node itself, apart from its parts, can neither fail nor run for ever."""
        match node:
            case Apply(op, args, attributes):
                return is_total_operator(op, attributes, tuple([type_of(arg) for arg in args]))
            case Call(Constructor(), _, _):
                return True
            case Call(callee, _, _):
                defined = isinstance(self.table.get(callee), Function)
                return defined and callee not in self.recursive
            case Match(_, _, total):
                return total
            case _:
                return True


@lru_cache(maxsize=4096)
def is_total_operator(op: str, attributes: Attrs, types: tuple[Type, ...]) -> bool:
    """Whether an operator never fails: no place it reads at is itself read from a tensor."""
    record = find(op)
    if record is None or not all(isinstance(each, TensorType) for each in types):
        return False
    if record.decompose is not None:
        params = [Var(Name("x", i), each) for i, each in enumerate(types)]
        body = infer_expr(record.decompose(dict(attributes), *params))
        return all(
            is_total_operator(each.op, each.attrs, tuple([type_of(arg) for arg in each.args]))
            for each in expressions(body)
            if isinstance(each, Apply)
        )
    assert record.compute is not None  # an operator has one or the other
    buffers = [
        Buffer(Name("x", i), each.shape, each.dtype)
        for i, each in enumerate(types)
        if isinstance(each, TensorType)
    ]
    made = record.compute(dict(attributes), *buffers)
    return not any(
        _reads_by_data(each) for each in ((made,) if isinstance(made, Compute) else made)
    )


def _reads_by_data(compute: Compute) -> bool:
    """Whether some index depends on data, so that it may be out of bounds."""
    reading: set[Term] = set()  # the terms with a load inside
    for node in post_order(compute.body):
        if isinstance(node, Load) and not reading.isdisjoint(node.indices):
            return True
        if isinstance(node, Load) or not reading.isdisjoint(node._children):
            reading.add(node)
    return False
