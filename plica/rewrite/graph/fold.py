"""Constant folding: what depends on nothing is computed now, by the interpreter.

    before:  def f(x): return x * (const([1.0, 2.0], f32) + 1)
    after:   def f(x): return x * const([2.0, 3.0], f32)

The interpreter is the meaning of the language, so folding is exact.  A result of more than `limit`
bytes stays as it was written, though what depends on it may still become a constant.  What fails
(an index out of bounds) stays too: it fails when it is run, if it is.

Laws: `fold_constants(fold_constants(m)) is fold_constants(m)`; no operator is left whose arguments
are constants and whose result is within the limit, unless it fails.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from plica.core.binding import free_vars
from plica.core.diagnostic import EvaluationError
from plica.ir.graph import Apply, Const, Expr, Function, If, Let, Project, Tuple, Var
from plica.ir.infer import infer, type_of
from plica.ir.machine import GENEROUS, Machine
from plica.ir.module import Module
from plica.ir.program import Program
from plica.ir.size import shape_of
from plica.ir.type import TensorType, TupleType, Type
from plica.rewrite.graph.quote import quote
from plica.rewrite.graph.separate import separate
from plica.rewrite.graph.walk import expressions, map_functions, operands, with_operands

LIMIT: Final = 16 << 20
"""How many bytes a constant may take that folding makes."""
WORK: Final = 16
"""How many times the limit a value may take that is only needed on the way."""


def fold_constants(module: Module, limit: int = LIMIT) -> Module:
    """The module with its constant parts computed."""
    known = infer(module)
    folder = Folder(known, limit)
    return map_functions(known, lambda _, function: folder.function(function))


class Folder:
    """Folding in one module; values that are too big to be written are remembered apart."""

    def __init__(self, module: Module, limit: int = LIMIT) -> None:
        self.limit = limit
        self.names = frozenset(module.names)
        self.machine = Machine(Program(module), {}, GENEROUS)
        self.tuples: set[Expr] = set()  # those of constants
        self.big: dict[Expr, Any] = {}  # Any: arrays, and tuples of them

    def function(self, function: Function) -> Function:
        """A function with its constant parts computed; itself where there are none."""
        apart = separate(function, self.names)
        nodes = expressions(apart)
        lets = {node.var: node.value for node in nodes if isinstance(node, Let)}
        memo: dict[Expr, Expr] = {}
        changed = False
        for node in nodes:  # a let's value comes before its body, and so before its variable
            if isinstance(node, Var):
                value = lets.get(node)
                new = node if value is None or isinstance(value, Function) else memo[value]
                memo[node] = new if self.is_constant(new) else node
                continue
            new = with_operands(node, tuple([memo[part] for part in operands(node)]))
            if isinstance(new, Let) and self.is_constant(new.value):
                new = new.body
            else:
                new = self.folded(new)
            if isinstance(new, Tuple) and all(self.is_constant(each) for each in new.items):
                self.tuples.add(new)
            changed = changed or new is not node
            memo[node] = new
        made = memo[apart]
        assert isinstance(made, Function)
        return made if changed else function

    def is_constant(self, node: Expr) -> bool:
        """Whether a term is a constant, or a tuple of such."""
        return isinstance(node, Const) or node in self.tuples

    def folded(self, node: Expr) -> Expr:
        """One node whose parts are folded."""
        match node:
            case Apply():
                return self._applied(node)
            case Project(Tuple(items), index):
                return items[index]
            case Project(value, index) if value in self.big:
                return self._written(node, self.big[value][index])
            case If(Const() as condition, then, orelse):
                return then if condition.numpy() else orelse
        return node

    def _applied(self, node: Apply) -> Expr:
        if not all(isinstance(arg, Const) or arg in self.big for arg in node.args):
            return node
        size = size_in_bytes(type_of(node))
        if size is None or size > WORK * self.limit:
            return node
        if any(free_vars(each) for each in node._children[len(node.args) :]):
            return node  # an attribute holds a symbolic dim
        env = {arg: self.big[arg] for arg in node.args if arg in self.big}
        try:
            value = self.machine.run(node, env)
        except EvaluationError:
            return node
        return self._written(node, value)

    def _written(self, node: Expr, value: Any) -> Expr:
        written = quote(value, type_of(node), {}, self.limit)
        if written is None:
            self.big[node] = value
            return node
        self.tuples.update(each for each in expressions(written) if isinstance(each, Tuple))
        return written


def size_in_bytes(of: Type) -> int | None:
    """How much a value of a type takes, None where that is not known."""
    if isinstance(of, TupleType):
        sizes = [size_in_bytes(item) for item in of.items]
        return None if None in sizes else sum(size for size in sizes if size is not None)
    if not isinstance(of, TensorType):
        return None
    shape = shape_of(of.shape, {})
    return None if shape is None else int(np.prod(shape, dtype=object)) * of.dtype.bytes
