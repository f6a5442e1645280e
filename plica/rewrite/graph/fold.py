"""Constant folding: what depends on nothing is computed now, by the interpreter.

    before:  def f(x): return x * (const([1.0, 2.0], f32) + 1)
    after:   def f(x): return x * const([2.0, 3.0], f32)

The interpreter defines the meaning, so folding is exact. Constants take space in every artefact, so
a result of more than `limit` bytes is not folded, and neither is one of more than `growth` times
the bytes of its constants, unless it is smaller than `ALWAYS_FOLDED_BYTES`: a scalar broadcast to
an image is better broadcast on use. This assumes that computing an element is as cheap as reading
it: results of costly operators (the sines of a filter bank), and results that products read
repeatedly, are folded. What depends on a growing value, and not on a let of it, may still become a
constant (its sum); only then is it computed. Operators with more than `work` steps are not folded,
because the interpreter would take seconds. Failing operators (an index out of bounds) stay, too:
they fail when they are run, if ever. A large constant that an operator computes column by column (a
Winograd weight) is a lazy constant: packing computes its columns in place.

Laws: `fold_constants(fold_constants(m)) is fold_constants(m)`; no operator is left whose arguments
are constants and whose result is within the bounds, unless it fails.
"""

from __future__ import annotations

from functools import cached_property
from math import prod
from typing import Any, Final

from plica.core import CompilerBug, EvaluationError, free_vars, post_order
from plica.core.deferred import look_at, unobserved
from plica.core.term import LARGE_BYTES
from plica.ir.graph import Apply, Const, Expr, Function, If, Let, Module, Project, Tuple, Var
from plica.ir.graph.provenance import derived_const, leaves_of, made_later
from plica.ir.loop.scalar import Load
from plica.ir.type import TensorType, TupleType, Type, infer, type_of
from plica.rewrite.graph.alpha_rename import alpha_renamed
from plica.rewrite.graph.walk import expressions, map_functions, operands, with_operands
from plica.runtime.late import lazy_imports

with lazy_imports(__name__):
    from plica.ir.interpret.graph_machine import GraphMachine, machine_of
    from plica.ir.type.size import shape_of
    from plica.rewrite.fuse.reading import reading
    from plica.rewrite.graph.feature import steps
    from plica.rewrite.graph.quote import quote

MAX_FOLDED_BYTES: Final = 16 << 20  # how many bytes a constant may take that folding makes
GROWTH: Final = 4
"""The maximum growth over the bytes of its arguments; a cast of i8 weights to f32 is four times."""
ALWAYS_FOLDED_BYTES: Final = 4096  # constants up to this many bytes are always folded
PASSING: Final = 4  # how many times the limit a value may take that is only needed on the way
WORK: Final = 1 << 26  # how many steps an operator may take: about half a second


def fold_constants(
    module: Module, limit: int = MAX_FOLDED_BYTES, growth: int = GROWTH, work: int = WORK
) -> Module:
    """The module with its constant parts computed."""
    known = infer(module)
    folder = Folder(known, limit, growth, work)
    return map_functions(known, lambda _, function: folder.function(function))


class Folder:
    """Folding in one module; values that are constant but too large are recorded separately."""

    def __init__(
        self, module: Module, limit: int = MAX_FOLDED_BYTES, growth: int = GROWTH, work: int = WORK
    ) -> None:
        self.limit = limit
        self.work = work
        self.growth = growth
        self.names = frozenset(module.names)
        self.module = module
        self.tuples: set[Expr] = set()  # those of constants
        self.big: dict[Expr, int] = {}  # with the bytes of the constants it comes from
        self.moved: set[Expr] = set()  # those of them whose elements are found, not computed
        self.values: dict[Expr, Any] = {}  # of those somebody needed; Any: arrays, and tuples

    @cached_property
    def machine(self) -> GraphMachine:
        """The interpreter, for the first value that is computed."""
        return machine_of(self.module)

    def function(self, function: Function) -> Function:
        """A function with its constant parts folded; unchanged if there are none."""
        apart = alpha_renamed(function, self.names)
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
            if isinstance(new, Tuple) and all(self.is_constant(item) for item in new.items):
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
            case Project(value, _) if value in self.big:
                return self._computed(node, self.big[value])
            case If(Const() as condition, then, orelse):
                return then if condition.numpy() else orelse
        return node

    def _applied(self, node: Apply) -> Expr:
        if any(free_vars(child) for child in node._children[len(node.args) :]):
            return node  # an attribute holds a symbolic dim
        args = dict.fromkeys(node.args)
        if not all(isinstance(arg, Const) or arg in self.big for arg in args):
            return self._reading_constants(node)
        needed = steps(node.op, node.attrs, tuple([type_of(arg) for arg in node.args]))
        if needed is None or needed > self.work:
            return node
        sources = [len(arg.data) if isinstance(arg, Const) else self.big[arg] for arg in args]
        return self._computed(node, sum(sources))

    def _reading_constants(self, node: Apply) -> Expr:
        """An operator that reads an element more than once: its operands are folded."""
        if not any(arg in self.big and arg not in self.moved for arg in node.args):
            return node
        if (known := reading(node)) is None:
            return node
        args = [
            self._written(arg) if again and arg in self.big and arg not in self.moved else arg
            for arg, again in zip(node.args, known.inner, strict=True)
        ]
        return with_operands(node, tuple(args))

    def _computed(self, node: Expr, source: int) -> Expr:
        """A node all of whose parts are constant, made of that many bytes."""
        size = size_in_bytes(type_of(node))
        if size is None or size > PASSING * self.limit:
            return node
        if size <= min(self.limit, max(ALWAYS_FOLDED_BYTES, self.growth * source)):
            return self._written(node)
        self.big[node] = source
        if (known := reading(node)) is None:
            return node  # what it is made of tells more
        if not known.is_cheap:
            return self._written(node)
        loads = [each for each in post_order(known.compute.body) if isinstance(each, Load)]
        is_found = not loads or isinstance(known.compute.body, Load)
        if is_found and all(part in self.moved for part in operands(node) if part in self.big):
            self.moved.add(node)
        return node

    def _written(self, node: Expr) -> Expr:
        """The constant that a node is; itself where it is too big for one, or has no value."""
        size = size_in_bytes(type_of(node))
        if size is None or size > self.limit:
            return node
        if size >= LARGE_BYTES and (late := made_later(node)) is not None:
            return late
        try:
            with unobserved():
                value = self._value(node)
        except EvaluationError:
            look_at(leaves_of(node))
            return node
        if (written := quote(value, type_of(node), {}, self.limit)) is None:
            raise CompilerBug(f"A constant has another size than its type says: {node!r}.")
        if isinstance(written, Const):
            return derived_const(node, written)
        look_at(leaves_of(node))
        self.tuples.update(each for each in expressions(written) if isinstance(each, Tuple))
        return written

    def _value(self, root: Expr) -> Any:
        """The value of a node, and of the big ones it needs, each computed once."""
        stack = [root]
        while stack:
            node = stack[-1]
            missing = [
                part for part in operands(node) if part in self.big and part not in self.values
            ]
            if missing:
                stack.extend(missing)
                continue
            stack.pop()
            if node in self.values:
                continue
            env = {part: self.values[part] for part in operands(node) if part in self.big}
            value = self.machine.run(node, env)
            if node is root:
                return value
            self.values[node] = value
        raise CompilerBug(f"There is no value of {root!r}.")


def size_in_bytes(of: Type) -> int | None:
    """The bytes of a value of a type, or None if unknown."""
    if isinstance(of, TupleType):
        sizes = [size_in_bytes(item) for item in of.items]
        return None if None in sizes else sum(size for size in sizes if size is not None)
    if not isinstance(of, TensorType):
        return None
    shape = shape_of(of.shape, {})
    return None if shape is None else prod(shape) * of.dtype.bytes
