"""Inlining: calls replaced by the bodies of the functions they call.

    before:  def double(x): return x + x
             def main(x): return double(double(x))
    after:   def main(x): return x + x + (x + x)         (x + x is one shared node)

A function is inlined if it is marked (`attrs={"inline": True}`), called once, or small; never if it
is marked `False`, is a unit of code generation (`primitive`), or is recursive. Marked functions are
inlined while the module has grown by at most `GROWTH` nodes, because nested calls can double the
size of a program at every level.

Unused definitions are left: `plica.rewrite.graph.dead` removes them.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from plica.ir.graph import Call, Expr, Function, Let, Module, Var, attr
from plica.ir.type import infer
from plica.rewrite.graph.alpha_rename import is_recursive
from plica.rewrite.graph.unfold import Unfolder
from plica.rewrite.graph.walk import expressions, map_functions, operands, recursive

MAX_INLINED_NODES: Final = 12
"""The maximum size of a function that is inlined at every call, in nodes."""
GROWTH: Final = 100_000  # how many nodes inlining may add to a module, beyond functions called once


def inline(module: Module) -> Module:
    """The module with the calls of suitable functions replaced."""
    known = infer(module)
    inliner = _Inliner(known)
    if not inliner.has_work():
        return known

    once = frozenset(inliner.free)

    def rewrite(name: Var, function: Function) -> Function:
        # A function called once becomes a part of its caller; nothing else needs it.
        if name in once or not inliner.changes(function):
            return function
        return inliner.function(function)

    return map_functions(known, rewrite)


class _Inliner(Unfolder):
    """Whether to unfold a call depends on the function alone."""

    def __init__(self, module: Module) -> None:
        super().__init__(module)
        self.recursive = recursive(module)
        self.room = GROWTH
        self.sizes: dict[Function, int] = {}
        self.places: Counter[Expr] = Counter()
        self.called: Counter[Expr] = Counter()
        self.free: set[Expr] = set()  # functions called once, until they have been inlined
        functions = [value for _, value in module.functions()]
        for node in expressions(*functions):
            self.places.update(operands(node))
            if isinstance(node, Call):
                self.called[node.callee] += 1
            elif isinstance(node, Let) and is_recursive(node):
                self.recursive_locals.add(node.var)
        self.free.update(expr for expr in self.called if self._is_called_once(expr))

    def has_work(self) -> bool:
        return any(self.changes(value) for _, value in self.module.functions())

    def changes(self, function: Function) -> bool:
        """Whether a function has a call that might be replaced."""
        lets: dict[Var, Expr] = {}
        calls: list[Call] = []
        for node in expressions(function):
            if isinstance(node, Let):
                lets[node.var] = node.value
            elif isinstance(node, Call):
                calls.append(node)
        for call in calls:
            target = call.callee
            found: object = target
            if isinstance(target, Var):
                found = lets.get(target) or self.table.get(target)
            if isinstance(found, Function) and self._suits(target, found):
                return True
        return False

    def postpones(self, var: Var, function: Function) -> bool:
        return self._is_called_once(var) and self._suits(var, function)

    def unfolds(self, call: Call, function: Function) -> bool:
        if not self._suits(call.callee, function):
            return False
        if call.callee in self.free:
            self.free.remove(call.callee)
            return True
        size = self._size(function)
        if size > self.room:
            return False
        self.room -= size
        return True

    def _suits(self, target: Expr, function: Function) -> bool:
        if (
            target in self.recursive
            or target in self.recursive_locals
            or target is self.module.main
        ):
            return False
        wanted = attr(function, "inline")
        if wanted is False or attr(function, "primitive"):
            return False
        return (
            wanted is True
            or isinstance(target, Function)
            or self._is_called_once(target)
            or self._size(function) <= MAX_INLINED_NODES
        )

    def _is_called_once(self, target: Expr) -> bool:
        return self.places[target] == self.called[target] == 1

    def _size(self, function: Function) -> int:
        if function not in self.sizes:
            self.sizes[function] = len(expressions(function.body))
        return self.sizes[function]
