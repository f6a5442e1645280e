"""Flattening: a module becomes one function without lets, calls, closures or tuples inside.

The result is a graph of operators over inputs and constants, with `If` for run-time decisions
(several results of an `If` or an operator are selected by `Project`). Calls of kernels and externs
stay calls, by name. Every call is unfolded (`plica.rewrite.graph.unfold`): functions and tuples are
static values, tensors are nodes of the result. Purity makes this cheap: the same function of the
same arguments is the same node.

    before:  def twice(f, x): return f(f(x))
             def main(x): y = twice(lambda v: v + 1, x); return y * y
    after:   def main(x): return (x + 1 + 1) * (x + 1 + 1)        (one shared node)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import attrs

from plica.codegen.lower.supported import unsupported
from plica.core import CompilerBug, Term, fold_into, post_order
from plica.core.collector import paused
from plica.ir.graph import expression as ex
from plica.ir.graph.module import Defined, Definition, Extern, Module, module
from plica.ir.loop import Kernel
from plica.ir.passes import form
from plica.ir.type import FuncType, TupleType, type_of
from plica.rewrite.graph.unfold import Activation, Unfolder, Walk
from plica.runtime.error import Diagnostic, UnsupportedError

LIMIT: Final = 500_000
"""How many calls and operators a program may have once every call is written out."""

SAMPLE: Final = 5_000  # the number of calls after which their total is estimated
HOPELESS: Final = 100 * LIMIT
"""A program of this many calls is refused if its first ones are not the same again and again."""


def is_resolved(of: Module) -> bool:
    """Whether a module is one function over tensors, without lets and functions inside; what it
    calls are kernels and externs, and nothing else is in the module."""
    body = of.main_function().body
    outside = _called_outside(body, of.definitions())
    if len(of.names) != 1 + len(outside):
        return False
    return not any(
        isinstance(node, ex.Let | ex.Function | ex.Match | ex.Constructor | ex.Literal)
        or (isinstance(node, ex.Call) and node.callee not in outside)
        for node in post_order(body)
    )


form("resolved", is_resolved)


def flatten_graph(of: Module) -> Module:
    """The inferred module as one first-order function; everything unsupported is refused."""
    if problems := unsupported(of, sizes_come=True):
        raise UnsupportedError(problems[0], *problems[1:])
    assert of.main is not None  # or it would have been refused
    function = of.main_function()
    if any(isinstance(term, ex.LetDim) for term in post_order(function)):
        message = "Sizes of this program become known while it runs: no one program has it all."
        hint = "Compile it, and look at exe.segments; or give the values that decide (--input)."
        raise UnsupportedError(Diagnostic("unsupported", message, suggestion=hint))
    with paused():
        body = _Flattener(of, of.main).flat(function)
    outside = _called_outside(body, of.definitions())
    if body is function.body and len(of.names) == 1 + len(outside):
        return of
    return module({**outside, of.main: attrs.evolve(function, body=body)}, of.main)


def _called_outside(body: ex.Expr, table: Mapping[Term, Definition]) -> dict[Defined, Definition]:
    """The kernels and externs that a resolved expression calls, by name."""
    found: dict[Defined, Definition] = {}
    for node in post_order(body):
        if isinstance(node, ex.Call) and isinstance(node.callee, ex.Var):
            called = table.get(node.callee)
            if isinstance(called, Kernel | Extern):
                found[node.callee] = called
    return found


def in_parts(value: ex.Expr) -> ex.Expr:
    """A value of tuple type as the tuple of its components."""
    if isinstance(value, ex.Tuple) or not isinstance(of := type_of(value), TupleType):
        return value
    return ex.Tuple(tuple([in_parts(ex.Project(value, i)) for i in range(len(of.items))]))


class _Flattener(Unfolder):
    """Unfolds every call of a function, and lets nothing stand but operators and choices."""

    def __init__(self, of: Module, main: ex.Var) -> None:
        super().__init__(of)
        self.main, self.made = main, 0
        self.calls: dict[ex.Call, ex.Expr] = {}

    def flat(self, function: ex.Function) -> ex.Expr:
        """The body of the main function without lets, calls, closures and tuples inside."""
        own = self.with_unique_binders(function)
        self.count()
        activation = Activation({}, {}, set(), renames=True)
        self.bind(zip(own.params, map(in_parts, function.params), strict=True), activation)
        return self.run(own.body, activation)

    def shares(self, var: ex.Var, value: ex.Expr, activation: Activation) -> bool:
        return True

    def postpones(self, var: ex.Var, function: ex.Function) -> bool:
        return True

    def captured(self, function: ex.Function) -> set[ex.Var]:
        return set()  # closures hold values: nothing is named

    def bind(
        self, pairs: Iterable[tuple[ex.Var, ex.Expr]], activation: Activation
    ) -> list[tuple[ex.Var, ex.Expr]]:
        activation.results.update(pairs)
        return []

    def simplify(self, node: ex.Expr) -> ex.Expr:
        match node:
            case ex.Project(ex.Tuple(items), index):
                return items[index]
            case ex.Apply():
                self.count()
                return in_parts(node)
            case ex.Literal() | ex.Constructor():
                raise CompilerBug(f"{node!r} is left in an inferred first-order program.")
            case _:
                return node

    def choose(self, node: ex.If, condition: ex.Expr, activation: Activation) -> Walk:
        then = yield node.then, activation
        orelse = yield node.orelse, activation
        return choose(condition, then, orelse)

    def select(self, node: ex.Match, value: ex.Expr, activation: Activation) -> Walk:
        clause = node.clauses[0]
        self._take(clause.pattern, value, activation)
        body: ex.Expr = yield clause.body, activation
        return body

    def _take(self, pattern: ex.Pattern, value: ex.Expr, activation: Activation) -> None:
        match pattern:
            case ex.PVar(var):
                activation.results[var] = value
            case ex.PTuple(items):
                for at, item in enumerate(items):
                    self._take(item, self.simplify(ex.Project(value, at)), activation)
            case ex.PConstructor():
                raise CompilerBug("A constructor pattern is left in a first-order program.")
            case ex.PAny():
                pass

    def call(self, call: ex.Call) -> Walk:
        if call not in self.calls:
            self.count()
            if (function := self.callee(call)) is None:  # a kernel or an extern stays a call
                self.calls[call] = in_parts(call)
            elif (entered := self.enter(call, function)) is None:
                message = "A size inside a function does not follow from its arguments."
                hint = "Let every dim stand alone on some axis of some parameter."
                raise UnsupportedError(Diagnostic("unsupported", message, suggestion=hint))
            else:
                self.calls[call] = yield function.body, entered[0]
        return self.calls[call]

    def count(self) -> None:
        self.made += 1
        # Calls of calls double at each level: where this many would be written out, and the first
        # ones were no repetition, the rest is not waited for.
        if self.made == SAMPLE:
            total = written_out(self.table, self.main)
            if total > HOPELESS:
                raise _too_big(f"{total} calls")
        if self.made > LIMIT:
            raise _too_big(f"more than {LIMIT}")


def written_out(table: Mapping[Term, Definition], main: Term) -> int:
    """The number of calls if each is expanded, including repetitions."""
    counts: dict[Term, int] = {}

    def called(name: Term) -> list[Term]:
        return [
            node.callee
            for node in post_order(table[name])
            if isinstance(node, ex.Call) and isinstance(table.get(node.callee), ex.Function)
        ]

    return fold_into(
        counts, main, called, lambda name: 1 + sum([counts[term] for term in called(name)])
    )


def _too_big(found: str) -> UnsupportedError:
    message = "The program is too big once every call is written out."
    expected = f"at most {LIMIT} calls and operators"
    return UnsupportedError(Diagnostic("unsupported", message, None, expected, found))


def choose(condition: ex.Expr, then: ex.Expr, orelse: ex.Expr) -> ex.Expr:
    """The result of an `If`; components equal in both branches are not selected."""
    pairs: dict[tuple[ex.Expr, ex.Expr], None] = {}
    _differences(then, orelse, pairs)
    if not pairs:
        return then
    left, right = zip(*pairs, strict=True)
    if len(pairs) == 1:
        chosen: list[ex.Expr] = [ex.If(condition, left[0], right[0])]
    else:
        whole = ex.If(condition, ex.Tuple(left), ex.Tuple(right))
        chosen = [ex.Project(whole, i) for i in range(len(pairs))]
    return _merged(then, orelse, dict(zip(pairs, chosen, strict=True)))


def _differences(a: ex.Expr, b: ex.Expr, into: dict[tuple[ex.Expr, ex.Expr], None]) -> None:
    if isinstance(a, ex.Tuple) and isinstance(b, ex.Tuple):
        for x, y in zip(a.items, b.items, strict=True):
            _differences(x, y, into)
    elif a is not b:
        if any(isinstance(each, ex.Function) or _is_function(each) for each in (a, b)):
            message = "A function is chosen by an `if` at run time."
            hint = "Choose between the results instead of between the functions."
            raise UnsupportedError(Diagnostic("unsupported", message, suggestion=hint))
        into[a, b] = None


def _is_function(of: ex.Expr) -> bool:
    return isinstance(of, ex.Var) and (of.type is None or isinstance(of.type, FuncType))


def _merged(a: ex.Expr, b: ex.Expr, chosen: Mapping[tuple[ex.Expr, ex.Expr], ex.Expr]) -> ex.Expr:
    if isinstance(a, ex.Tuple) and isinstance(b, ex.Tuple):
        pairs = zip(a.items, b.items, strict=True)
        return ex.Tuple(tuple([_merged(x, y, chosen) for x, y in pairs]))
    return a if a is b else chosen[a, b]
