"""Partial evaluation: whatever can be decided before the inputs are known is decided now.

    before:  def power(x, n): return 1.0 if n == 0 else x * power(x, n - 1)
             def main(x): return power(x, 3)
    after:   def main(x): return x * (x * (x * 1.0))

Calls of known functions, conditionals with a known condition, matches of known constructors and
projections of tuples are resolved, constant parts are computed, and a program without inputs
becomes its result. A recursive function is unfolded if its arguments decide whether it recurses: if
a conditional stays open with a recursive call behind it, the call is kept. Unfolding is bounded by
`fuel`, so evaluation ends even if the program does not.

The result is in graph normal form, without unused definitions.
"""

from __future__ import annotations

from typing import Final

from plica.core import EvaluationError, free_vars
from plica.ir.graph import Module, expression as ex
from plica.ir.graph.unique_binder import rename_apart
from plica.ir.interpret.graph_machine import GraphMachine, RunLimits
from plica.ir.type import infer, type_of
from plica.rewrite.graph.dataflow import to_dataflow
from plica.rewrite.graph.dead import remove_dead
from plica.rewrite.graph.fold import MAX_FOLDED_BYTES, Folder
from plica.rewrite.graph.known import chosen
from plica.rewrite.graph.quote import quote
from plica.rewrite.graph.unfold import (
    AbandonAttempt,
    Activation,
    Attempt,
    Unfolder,
    Walk,
    wrap_in_lets,
)
from plica.rewrite.graph.walk import is_atom, map_functions, recursive

FUEL: Final = 2_000  # how many calls may be unfolded in one module
CALLS: Final = 20_000
"""How many calls the interpreter may make to compute one call that depends on nothing."""


def evaluate_partially(
    module: Module,
    fuel: int = FUEL,
    limit: int = MAX_FOLDED_BYTES,
    calls: int = CALLS,
    *,
    keeping: bool = False,
) -> Module:
    """The module with everything decided that can be; constants are of at most `limit` bytes.

    Functions that are not to be inlined are unfolded, too, but where one is `keeping` them."""
    known = infer(module)
    evaluator = _Evaluator(known, fuel, limit, calls, keeping)
    names = [name for name, _ in known.functions()]
    names.sort(key=lambda name: name is not known.main)  # the fuel goes to main first
    done = {name: evaluator.definition(name) for name in names}
    return remove_dead(to_dataflow(map_functions(known, lambda name, _: done[name])))


class _Evaluator(Unfolder):
    """Everything known is unfolded, chosen or computed."""

    def __init__(self, module: Module, fuel: int, limit: int, calls: int, keeping: bool) -> None:
        super().__init__(module)
        self.fuel = fuel
        self.keeping = keeping
        self.calls = calls
        self.limit = limit
        self.recursive = recursive(module)
        self.folder = Folder(module, limit)
        self.results: dict[ex.Call, ex.Expr] = {}

    def definition(self, name: ex.Var) -> ex.Function:
        """A definition of the module, evaluated."""
        function = self.table[name]
        assert isinstance(function, ex.Function)
        return self.function(function)

    # --- decisions ---------------------------------------------------------------------------

    def shares(self, var: ex.Var, value: ex.Expr, activation: Activation) -> bool:
        return var not in activation.captured or is_atom(value)

    def postpones(self, var: ex.Var, function: ex.Function) -> bool:
        return True

    def simplify(self, node: ex.Expr) -> ex.Expr:
        match node:
            case ex.Project(ex.Let() as value, index):
                lets, core = peeled(value)
                return wrap_in_lets(lets, self.folder.folded(ex.Project(core, index)))
            case _:
                return self.folder.folded(node)

    def choose(self, node: ex.If, condition: ex.Expr, activation: Activation) -> Walk:
        if isinstance(condition, ex.Const):
            result: ex.Expr = yield (node.then if condition.numpy() else node.orelse), activation
            return result
        self._undecided((node.then, node.orelse))
        return (yield from super().choose(node, condition, activation))

    def select(self, node: ex.Match, value: ex.Expr, activation: Activation) -> Walk:
        lets, core = peeled(value)
        if (found := chosen(ex.Match(core, node.clauses, node.total))) is None:
            self._undecided(tuple([clause.body for clause in node.clauses]))
            return (yield from super().select(node, value, activation))
        clause, bindings = found
        inner = self.bind([(var, self.simplify(part)) for var, part in bindings], activation)
        return wrap_in_lets(lets, wrap_in_lets(inner, (yield clause.body, activation)))

    def _undecided(self, branches: tuple[ex.Expr, ...]) -> None:
        """A conditional stays open: cancels unfolding of functions that may be called again behind
        it."""
        if self.attempts:
            group = self.attempts[-1]
            if any(not group.isdisjoint(free_vars(branch)) for branch in branches):
                raise AbandonAttempt(group)

    def call(self, call: ex.Call) -> Walk:
        lets, core = peeled(call.callee)
        if lets:
            return wrap_in_lets(lets, (yield from self.call(ex.Call(core, call.args, call.types))))
        if call not in self.results:
            if self._is_closed(call) and not isinstance(call.callee, ex.Constructor):
                self.results[call] = yield from self._computed(call)
            else:
                self.results[call] = yield from self._unfolded(call)
        return self.results[call]

    def _unfolded(self, call: ex.Call) -> Walk:
        function = self.callee(call)
        if function is None or self.fuel <= 0 or ex.attr(function, "primitive"):
            return call
        if self.keeping and ex.attr(function, "inline") is False:
            return call
        if (entered := self.enter(call, function)) is None:
            return call
        activation, lets = entered
        self.fuel -= 1
        if (group := self._group(call.callee)) is None:
            return wrap_in_lets(lets, (yield function.body, activation))
        result = yield Attempt(function.body, activation, group)
        return call if result is None else wrap_in_lets(lets, result)

    def _group(self, callee: ex.Expr) -> frozenset[ex.Var] | None:
        """The functions mutually recursive with this one, or None if it is not recursive."""
        if callee in self.recursive:
            return frozenset(self.recursive[callee])
        if callee in self.recursive_locals:
            return frozenset((callee,))
        return None

    # --- computing -----------------------------------------------------------------------------

    def _computed(self, call: ex.Call) -> Walk:
        """A closed call, evaluated by the interpreter as far as possible."""
        machine = GraphMachine(self.folder.machine.program, {}, RunLimits(self.calls, self.calls))
        try:
            value = machine.run(rename_apart(call, self.table), {})
        except EvaluationError:
            # Unfolding it would get no further, at every level of a recursion.
            return call if self._group(call.callee) else (yield from self._unfolded(call))
        written = quote(value, type_of(call), self.table, self.limit)
        return written if written is not None else (yield from self._unfolded(call))

    def _is_closed(self, call: ex.Call) -> bool:
        """Whether nothing in a call is known only when the program runs."""
        return free_vars(call) <= self.table.keys()


def peeled(value: ex.Expr) -> tuple[list[tuple[ex.Var, ex.Expr]], ex.Expr]:
    """An expression without the lets around it, and those lets; their names are unique."""
    lets: list[tuple[ex.Var, ex.Expr]] = []
    while isinstance(value, ex.Let):
        lets.append((value.var, value.value))
        value = value.body
    return lets, value
