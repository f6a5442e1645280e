"""Unfolding: the rewriting engine behind inlining and partial evaluation.

`Unfolder` rebuilds function bodies in evaluation order. A call for which a subclass answers
`unfolds` is replaced by the callee's body at the call's arguments, with fresh binders. Each body
under way is an `Activation`: a frame of an interpreter whose values are expressions.

The rewriting of a node is a generator (a `Walk`) that yields the parts it needs and is sent their
results, so `Unfolder.run` keeps the stack on the heap and deep programs overflow nothing. Unfolding
may be speculative: an `Attempt` is cancelled by raising `AbandonAttempt` anywhere behind it.

The subclasses are in `plica.rewrite.graph.inline` and `plica.rewrite.graph.partial`.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Any, TypeAlias

import attrs

from plica.core import Term, free_vars, rename, substitute
from plica.ir.graph import Module, expression as ex
from plica.ir.loop.scalar import ScalarVar
from plica.ir.type import Type
from plica.rewrite.graph.alpha_rename import alpha_renamed
from plica.rewrite.graph.beta import at_sizes, at_types, instantiation
from plica.rewrite.graph.dataflow import captured
from plica.rewrite.graph.walk import NameSupply, expressions, is_atom


@attrs.define(eq=False)
class Activation:
    """A function body at given arguments: the environment in which its nodes are rewritten."""

    results: dict[ex.Expr, ex.Expr]  # the rewritten nodes and variables
    types: dict[Term, Term]  # the substitution of dims and type variables
    captured: set[ex.Var]  # the variables that closures inside the body capture
    renames: bool  # whether binders get fresh names; only a definition's own body keeps them
    outer: Activation | None = None  # of a local function: the activation it closes over


@attrs.frozen(eq=False)
class Attempt:
    """A speculative request: its answer is None if `AbandonAttempt` is raised for its group.

    `group` is the set of mutually recursive functions that are being unfolded.
    """

    node: ex.Expr
    activation: Activation
    group: frozenset[ex.Var]


class AbandonAttempt(Exception):  # control flow: it never leaves `Unfolder.run`
    """Cancels the innermost attempt on this group."""

    def __init__(self, group: frozenset[ex.Var]) -> None:
        super().__init__()
        self.group = group


Request: TypeAlias = "tuple[ex.Expr, Activation] | Attempt"
Walk: TypeAlias = Generator[Request, Any, ex.Expr]  # Any: an expression, None for a failed attempt


class Unfolder:
    """Rewrites the functions of one module; subclasses decide which calls to unfold."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.table = module.definitions()
        self.supply = NameSupply(*module.values, *module.names)
        self.local: dict[ex.Var, ex.Function] = {}  # local functions of the result
        self.recursive_locals: set[ex.Var] = set()  # those of them that call themselves
        self.postponed: dict[ex.Var, tuple[ex.Function, Activation]] = {}
        self.attempts: list[frozenset[ex.Var]] = []  # the groups under way, innermost last
        self._unique: dict[ex.Function, ex.Function] = {}
        self._captured: dict[ex.Function, set[ex.Var]] = {}

    # --- hooks for subclasses ----------------------------------------------------------------

    def unfolds(self, call: ex.Call, function: ex.Function) -> bool:
        """Whether a call is to be replaced by the body of the function."""
        return False

    def shares(self, var: ex.Var, value: ex.Expr, activation: Activation) -> bool:
        """Whether a let is dropped and its value substituted, shared as one node of the graph."""
        return False

    def postpones(self, var: ex.Var, function: ex.Function) -> bool:
        """Whether a local function is rewritten only at its calls.

        Its let is kept only if the rewritten body still mentions it.
        """
        return False

    def simplify(self, node: ex.Expr) -> ex.Expr:
        """Simplifies a rewritten node; its parts are simplified already."""
        return node

    # --- the walk ----------------------------------------------------------------------------

    def function(self, function: ex.Function) -> ex.Function:
        """A definition with its body rewritten."""
        unique = self.with_unique_binders(function)
        activation = Activation({}, {}, self.captured(unique), renames=False)
        return attrs.evolve(unique, body=self.run(unique.body, activation))

    def with_unique_binders(self, function: ex.Function) -> ex.Function:
        """A definition in which no two binders have the same name."""
        if function not in self._unique:
            self._unique[function] = alpha_renamed(function, self.table)
        return self._unique[function]

    def captured(self, function: ex.Function) -> set[ex.Var]:
        """The variables that closures inside a function capture."""
        if function not in self._captured:
            self._captured[function] = captured(expressions(function.body))
        return self._captured[function]

    def run(self, root: ex.Expr, activation: Activation) -> ex.Expr:
        """Rewrites a node in an activation."""
        # A frame: a suspended walk, the node and activation that its result is stored for, and the
        # group of a speculative one.
        frames: list[tuple[Walk, ex.Expr, Activation, frozenset[ex.Var] | None]] = []
        request: Request = (root, activation)
        answer: Any = None
        while True:
            group = None
            if isinstance(request, Attempt):
                node, here, group = request.node, request.activation, request.group
                self.attempts.append(group)
            else:
                node, here = request
            answer = here.results.get(node)
            if answer is None and is_atom(node):
                answer = atom_in_outer(node, here)
            if answer is None:
                frames.append((self.walk(node, here), node, here, group))
            elif group is not None:
                self.attempts.pop()
            while True:
                if not frames:
                    return answer  # type: ignore[no-any-return]  # an expression
                walk, node, here, group = frames[-1]
                try:
                    request = walk.send(answer)
                    break
                except StopIteration as done:
                    frames.pop()
                    if group is not None:
                        self.attempts.pop()
                    answer = here.results[node] = done.value
                except AbandonAttempt as abandoned:
                    while frames.pop()[3] is not abandoned.group:
                        pass
                    while self.attempts.pop() is not abandoned.group:
                        pass
                    answer = None

    def walk(self, node: ex.Expr, activation: Activation) -> Walk:
        """Rewrites a node, requesting its parts."""
        match node:
            case ex.Apply():
                args = yield from self._all(node.args, activation)
                return self.simplify(ex.Apply(node.op, args, at_sizes(node, activation.types)))
            case ex.Tuple(items):
                return self.simplify(ex.Tuple((yield from self._all(items, activation))))
            case ex.Project(value, index):
                return self.simplify(ex.Project((yield value, activation), index))
            case ex.Let():
                return (yield from self._let(node, activation))
            case ex.LetDim(dim, value, body):
                size = yield value, activation
                if activation.renames:
                    activation.types[dim] = rename(dim, self.supply.name(dim.name.hint))
                new = activation.types.get(dim, dim)
                assert isinstance(new, ScalarVar)
                return self.simplify(ex.LetDim(new, size, (yield body, activation)))
            case ex.Function():
                return (yield from self._function(node, activation))
            case ex.Call(callee, args, types):
                target = yield callee, activation
                new_args = yield from self._all(args, activation)
                new_types = tuple([self._type(of, activation) for of in types])
                return (yield from self.call(ex.Call(target, new_args, new_types)))
            case ex.If():
                condition = yield node.condition, activation
                return (yield from self.choose(node, condition, activation))
            case ex.Match():
                value = yield node.value, activation
                return (yield from self.select(node, value, activation))
        raise TypeError(f"{type(node).__name__} is no expression of the graph language.")

    def choose(self, node: ex.If, condition: ex.Expr, activation: Activation) -> Walk:
        """Rewrites an `If` whose condition has become this term."""
        then = yield node.then, activation
        orelse = yield node.orelse, activation
        return self.simplify(ex.If(condition, then, orelse))

    def select(self, node: ex.Match, value: ex.Expr, activation: Activation) -> Walk:
        """Rewrites a `Match` whose value has become this term."""
        clauses = []
        for clause in node.clauses:
            pattern = self._pattern(clause.pattern, activation)
            clauses.append(ex.Clause(pattern, (yield clause.body, activation)))
        return self.simplify(ex.Match(value, tuple(clauses), node.total))

    def call(self, call: ex.Call) -> Walk:
        """Rewrites a call whose parts are rewritten: unfolds it or keeps it."""
        function = self.callee(call)
        if function is not None and self.unfolds(call, function):
            entered = self.enter(call, function)
            if entered is not None:
                activation, lets = entered
                return wrap_in_lets(lets, (yield function.body, activation))
        return self.simplify(call)

    def callee(self, call: ex.Call) -> ex.Function | None:
        """The function that a call calls, with unique binders, or None if it is unknown."""
        match call.callee:
            case ex.Function():
                return call.callee
            case ex.Var() if call.callee in self.postponed:
                return self.postponed[call.callee][0]
            case ex.Var() if call.callee in self.local:
                return self.local[call.callee]
            case ex.Var():
                target = self.table.get(call.callee)
                return self.with_unique_binders(target) if isinstance(target, ex.Function) else None
        return None

    def enter(
        self, call: ex.Call, function: ex.Function
    ) -> tuple[Activation, list[tuple[ex.Var, ex.Expr]]] | None:
        """The activation of a callee, and the lets its arguments need; None if types do not fit."""
        if (types := instantiation(function, call.args, call.types)) is None:
            return None
        outer = None
        if isinstance(call.callee, ex.Var) and call.callee in self.postponed:
            outer = self.postponed[call.callee][1]
            types = {**outer.types, **types}
        activation = Activation({}, types, self.captured(function), True, outer)
        pairs = zip(function.params, call.args, strict=True)
        return activation, self.bind(pairs, activation)

    def bind(
        self, pairs: Iterable[tuple[ex.Var, ex.Expr]], activation: Activation
    ) -> list[tuple[ex.Var, ex.Expr]]:
        """Binds variables to values; captured ones become lets, which are returned."""
        lets: list[tuple[ex.Var, ex.Expr]] = []
        for var, value in pairs:
            if var not in activation.captured or is_atom(value) or isinstance(value, ex.Function):
                activation.results[var] = value
            else:
                lets.append((self.binder(var, activation), value))
        return lets

    def binder(self, var: ex.Var, activation: Activation) -> ex.Var:
        """The new variable of a binder."""
        new = var
        if activation.renames:
            new = at_types(rename(var, self.supply.name(var.name.hint)), activation.types)
        activation.results[var] = new
        return new

    def _let(self, node: ex.Let, activation: Activation) -> Walk:
        var, value = node.var, node.value
        if isinstance(value, ex.Function) and var in free_vars(value):
            new = self.binder(var, activation)
            self.recursive_locals.add(new)
            new_value = yield value, activation
        elif isinstance(value, ex.Function) and self.postpones(var, value):
            new = self.binder(var, activation)
            self.postponed[new] = value, activation
            body: ex.Expr = yield node.body, activation
            if new not in free_vars(body):
                return body
            return self.simplify(ex.Let(new, (yield value, activation), body))
        else:
            new_value = yield value, activation
            if self.shares(var, new_value, activation):
                activation.results[var] = new_value
                result: ex.Expr = yield node.body, activation
                return result
            new = self.binder(var, activation)
        if isinstance(new_value, ex.Function):
            self.local[new] = new_value
        return self.simplify(ex.Let(new, new_value, (yield node.body, activation)))

    def _function(self, node: ex.Function, activation: Activation) -> Walk:
        dims, bound = node.dims, node.types
        if activation.renames and (dims or bound):
            # Binders are unique, so one mapping serves all functions inside.
            dims = tuple([rename(dim, self.supply.name(dim.name.hint)) for dim in dims])
            bound = tuple([rename(var, self.supply.name(var.name.hint)) for var in bound])
            fresh = zip((*node.dims, *node.types), (*dims, *bound), strict=True)
            activation.types = {**activation.types, **dict(fresh)}
        params = tuple([self.binder(param, activation) for param in node.params])
        ret = None if node.ret is None else self._type(node.ret, activation)
        body = yield node.body, activation
        return self.simplify(ex.Function(dims, bound, params, ret, body, node.attrs))

    def _all(
        self, nodes: tuple[ex.Expr, ...], activation: Activation
    ) -> Generator[Request, Any, tuple[ex.Expr, ...]]:
        results = []
        for node in nodes:
            known = activation.results.get(node)
            results.append((yield node, activation) if known is None else known)
        return tuple(results)

    def _type(self, of: Type, activation: Activation) -> Type:
        if not activation.types:
            return of
        return substitute(of, activation.types)

    def _pattern(self, pattern: ex.Pattern, activation: Activation) -> ex.Pattern:
        match pattern:
            case ex.PVar(var):
                return ex.PVar(self.binder(var, activation))
            case ex.PConstructor(constructor, items):
                inside = tuple([self._pattern(item, activation) for item in items])
                return ex.PConstructor(constructor, inside)
            case ex.PTuple(items):
                return ex.PTuple(tuple([self._pattern(item, activation) for item in items]))
        return pattern


def atom_in_outer(node: ex.Expr, activation: Activation) -> ex.Expr:
    """What an atom has become in the enclosing activations; most are unchanged."""
    outer = activation.outer
    while outer is not None:
        if (known := outer.results.get(node)) is not None:
            return known
        outer = outer.outer
    return node


def wrap_in_lets(lets: list[tuple[ex.Var, ex.Expr]], result: ex.Expr) -> ex.Expr:
    """The result with the lets around it, the first one outermost."""
    for var, value in reversed(lets):
        result = ex.Let(var, value, result)
    return result
