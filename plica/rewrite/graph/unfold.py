"""Unfolding: a program run on terms, some calls replaced by the body of the function."""

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
    """One body at given arguments."""

    made: dict[ex.Expr, ex.Expr]  # what nodes and variables have become
    types: dict[Term, Term]  # what dims and type variables stand for
    captured: set[ex.Var]  # the variables some function inside the body captures
    renames: bool  # whether binders get new names: in all but the first activation
    outer: Activation | None = None  # where a local function was made, whose variables it has


@attrs.frozen(eq=False)
class Attempt:
    """A request that may be given up: the answer is None when `Hopeless` names the attempt."""

    node: ex.Expr
    activation: Activation
    group: frozenset[ex.Var]


class Hopeless(Exception):  # it is no error, and never leaves the walk
    """The latest attempt on this group is to be given up."""

    def __init__(self, group: frozenset[ex.Var]) -> None:
        super().__init__()
        self.group = group


Request: TypeAlias = "tuple[ex.Expr, Activation] | Attempt"
Walk: TypeAlias = Generator[Request, Any, ex.Expr]  # Any: an expression, None for a failed attempt


class Unfolder:
    """The walk over one module."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.table = module.definitions()
        self.supply = NameSupply(*module.values, *module.names)
        self.apart: dict[ex.Function, ex.Function] = {}
        self.local: dict[ex.Var, ex.Function] = {}  # functions let in the result, by variable
        self.looping: set[ex.Var] = set()  # those of them that call themselves
        self.postponed: dict[ex.Var, tuple[ex.Function, Activation]] = {}
        self.attempts: list[frozenset[ex.Var]] = []
        self._captured: dict[ex.Function, set[ex.Var]] = {}

    # --- what a subclass says --------------------------------------------------------------

    def unfolds(self, call: ex.Call, function: ex.Function) -> bool:
        """Whether a call is to be replaced by the body of the function."""
        return False

    def shares(self, var: ex.Var, value: ex.Expr, activation: Activation) -> bool:
        """Whether a let becomes sharing; parameters do unless they are captured."""
        return False

    def postpones(self, var: ex.Var, function: ex.Function) -> bool:
        """Whether a local function is only looked at where it is called.

        It is then written out if something is left that mentions it.
        """
        return False

    def finished(self, node: ex.Expr) -> ex.Expr:
        """The last word on a new node whose parts are final."""
        return node

    # --- the walk ----------------------------------------------------------------------------

    def function(self, function: ex.Function) -> ex.Function:
        """A definition, its body walked."""
        apart = self.separated(function)
        activation = Activation({}, {}, self.captured(apart), renames=False)
        return attrs.evolve(apart, body=self.run(apart.body, activation))

    def separated(self, function: ex.Function) -> ex.Function:
        """A definition with its binders apart."""
        if function not in self.apart:
            self.apart[function] = alpha_renamed(function, self.table)
        return self.apart[function]

    def captured(self, function: ex.Function) -> set[ex.Var]:
        """The variables that functions inside a function capture."""
        if function not in self._captured:
            self._captured[function] = captured(expressions(function.body))
        return self._captured[function]

    def run(self, root: ex.Expr, activation: Activation) -> ex.Expr:
        """The result of a node in an activation."""
        # Each frame: the walk of a node, the destination of its result, and the group if it is
        # speculative.
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
            answer = here.made.get(node)
            if answer is None and is_atom(node):
                answer = found(node, here)
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
                    answer = here.made[node] = done.value
                except Hopeless as why:
                    while frames.pop()[3] is not why.group:
                        pass
                    while self.attempts.pop() is not why.group:
                        pass
                    answer = None

    def walk(self, node: ex.Expr, activation: Activation) -> Walk:
        """The result of a node, requesting its parts."""
        match node:
            case ex.Apply():
                args = yield from self._all(node.args, activation)
                return self.finished(ex.Apply(node.op, args, at_sizes(node, activation.types)))
            case ex.Tuple(items):
                return self.finished(ex.Tuple((yield from self._all(items, activation))))
            case ex.Project(value, index):
                return self.finished(ex.Project((yield value, activation), index))
            case ex.Let():
                return (yield from self._let(node, activation))
            case ex.LetDim(dim, value, body):
                size = yield value, activation
                if activation.renames:
                    activation.types[dim] = rename(dim, self.supply.name(dim.name.hint))
                new = activation.types.get(dim, dim)
                assert isinstance(new, ScalarVar)
                return self.finished(ex.LetDim(new, size, (yield body, activation)))
            case ex.Function():
                return (yield from self._function(node, activation))
            case ex.Call(callee, args, types):
                target = yield callee, activation
                given = yield from self._all(args, activation)
                at = tuple([self._type(type_, activation) for type_ in types])
                return (yield from self.call(ex.Call(target, given, at)))
            case ex.If():
                condition = yield node.condition, activation
                return (yield from self.choose(node, condition, activation))
            case ex.Match():
                value = yield node.value, activation
                return (yield from self.select(node, value, activation))
        raise TypeError(f"{type(node).__name__} is no expression of the graph language.")

    def choose(self, node: ex.If, condition: ex.Expr, activation: Activation) -> Walk:
        """An `If` whose condition is known to be this term."""
        then = yield node.then, activation
        orelse = yield node.orelse, activation
        return self.finished(ex.If(condition, then, orelse))

    def select(self, node: ex.Match, value: ex.Expr, activation: Activation) -> Walk:
        """A `Match` whose value is known to be this term."""
        clauses = []
        for clause in node.clauses:
            pattern = self._pattern(clause.pattern, activation)
            clauses.append(ex.Clause(pattern, (yield clause.body, activation)))
        return self.finished(ex.Match(value, tuple(clauses), node.total))

    def call(self, call: ex.Call) -> Walk:
        """A call whose parts are final."""
        function = self.callee(call)
        if function is not None and self.unfolds(call, function):
            entered = self.enter(call, function)
            if entered is not None:
                activation, lets = entered
                return wrapped(lets, (yield function.body, activation))
        return self.finished(call)

    def callee(self, call: ex.Call) -> ex.Function | None:
        """The function a call is known to call, its binders apart."""
        match call.callee:
            case ex.Function():
                return call.callee
            case ex.Var() if call.callee in self.postponed:
                return self.postponed[call.callee][0]
            case ex.Var() if call.callee in self.local:
                return self.local[call.callee]
            case ex.Var():
                found = self.table.get(call.callee)
                return self.separated(found) if isinstance(found, ex.Function) else None
        return None

    def enter(
        self, call: ex.Call, function: ex.Function
    ) -> tuple[Activation, list[tuple[ex.Var, ex.Expr]]] | None:
        """The activation of a called function, and the lets its arguments need."""
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
        """Give variables their values; the lets for those that are captured."""
        lets: list[tuple[ex.Var, ex.Expr]] = []
        for var, value in pairs:
            if var not in activation.captured or is_atom(value) or isinstance(value, ex.Function):
                activation.made[var] = value
            else:
                lets.append((self.binder(var, activation), value))
        return lets

    def binder(self, var: ex.Var, activation: Activation) -> ex.Var:
        """The variable that a bound one becomes."""
        new = var
        if activation.renames:
            new = at_types(rename(var, self.supply.name(var.name.hint)), activation.types)
        activation.made[var] = new
        return new

    def _let(self, node: ex.Let, activation: Activation) -> Walk:
        var, value = node.var, node.value
        if isinstance(value, ex.Function) and var in free_vars(value):
            new = self.binder(var, activation)
            self.looping.add(new)
            made = yield value, activation
        elif isinstance(value, ex.Function) and self.postpones(var, value):
            new = self.binder(var, activation)
            self.postponed[new] = value, activation
            body: ex.Expr = yield node.body, activation
            if new not in free_vars(body):
                return body
            return self.finished(ex.Let(new, (yield value, activation), body))
        else:
            made = yield value, activation
            if self.shares(var, made, activation):
                activation.made[var] = made
                result: ex.Expr = yield node.body, activation
                return result
            new = self.binder(var, activation)
        if isinstance(made, ex.Function):
            self.local[new] = made
        return self.finished(ex.Let(new, made, (yield node.body, activation)))

    def _function(self, node: ex.Function, activation: Activation) -> Walk:
        dims, bound = node.dims, node.types
        if activation.renames and (dims or bound):
            # They are apart from those of other functions, so one mapping serves them all.
            dims = tuple([rename(dim, self.supply.name(dim.name.hint)) for dim in dims])
            bound = tuple([rename(var, self.supply.name(var.name.hint)) for var in bound])
            fresh = zip((*node.dims, *node.types), (*dims, *bound), strict=True)
            activation.types = {**activation.types, **dict(fresh)}
        params = tuple([self.binder(param, activation) for param in node.params])
        ret = None if node.ret is None else self._type(node.ret, activation)
        body = yield node.body, activation
        return self.finished(ex.Function(dims, bound, params, ret, body, node.attrs))

    def _all(
        self, nodes: tuple[ex.Expr, ...], activation: Activation
    ) -> Generator[Request, Any, tuple[ex.Expr, ...]]:
        made = []
        for node in nodes:
            known = activation.made.get(node)
            made.append((yield node, activation) if known is None else known)
        return tuple(made)

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


def found(node: ex.Expr, activation: Activation) -> ex.Expr:
    """The result of an atom in the enclosing activations; most are unchanged."""
    outer = activation.outer
    while outer is not None:
        if (known := outer.made.get(node)) is not None:
            return known
        outer = outer.outer
    return node


def wrapped(lets: list[tuple[ex.Var, ex.Expr]], result: ex.Expr) -> ex.Expr:
    """A result behind some lets."""
    for var, value in reversed(lets):
        result = ex.Let(var, value, result)
    return result
