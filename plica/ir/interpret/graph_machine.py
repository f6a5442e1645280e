"""The machine: one run of a graph program, on an explicit stack.

Neither a deep term nor a deep recursion of the user's program meets Python's limit.  An activation
is an environment: the values of its variables, and of every node evaluated in it so far.  A node is
evaluated at most once, and only if it is needed.

Note [Marks]: the stack holds nodes to evaluate and marks. A mark [activation, targets, source]
waits for `source` in the current activation; its value becomes that of `targets` in the recorded
activation. In tail position the mark is moved instead of stacking a new one, so tail calls use no
stack. Targets in an activation that is never returned to are dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

import attrs

from plica.core import CompilerBug, EvaluationError, Term, free_vars
from plica.ir.graph import expression as ex
from plica.ir.graph.module import Extern, Module, module
from plica.ir.graph.spelled_extern import spelled_extern
from plica.ir.interpret.graph_program import FunctionCode, GraphProgram, executor_at
from plica.ir.interpret.input import native, read_inputs, type_given
from plica.ir.interpret.value import (
    Closure,
    DataValue,
    NativeFunction,
    Value,
    equations,
    fits,
    unmatched,
)
from plica.ir.loop.scalar import ScalarVar
from plica.ir.loop.statement import Kernel
from plica.ir.type import infer_expr, solve, type_of
from plica.ir.type.size import type_equations
from plica.runtime.error import Place
from plica.runtime.late import lazy_imports
from plica.runtime.port import checked_size

with lazy_imports(__name__):  # few modules define kernels
    from plica.ir.interpret.kernel import run_kernel

Externs = Mapping[str, Callable[..., Any]]
Env = dict[Any, Any]  # values of variables and of nodes, numbers of dims


@attrs.frozen
class RunLimits:
    """How far a program may go: calls that wait for one another, and calls in all."""

    depth: int = 500_000
    calls: int = 100_000_000


GENEROUS: Final = RunLimits()


# Any: each function takes nodes of its own class.
_FIRST: Final[dict[type, Callable[[Any], tuple[ex.Expr, ...]]]] = {
    ex.Let: lambda node: () if node.value.__class__ is ex.Function else (node.value,),
    ex.LetDim: lambda node: (node.value,),
    ex.Call: lambda node: (node.callee, *node.args),
    ex.If: lambda node: (node.condition,),
    ex.Match: lambda node: (node.value,),
    ex.Tuple: lambda node: node.items,
    ex.Project: lambda node: (node.value,),
}
"""What is evaluated before a node, in order."""


class GraphMachine:
    """One run of a program."""

    def __init__(self, program: GraphProgram, externs: Externs, limits: RunLimits) -> None:
        self.program = program
        self.externs = externs
        self.limits = limits
        self.globals: dict[ex.Var, Value] = {}
        self.calls = 0

    def enter(
        self,
        function: ex.Function,
        captured: Mapping[Term, Any],
        values: tuple[Value, ...],
        sizes: Mapping[Any, int],
    ) -> Value:
        """The result of a function on checked arguments."""
        code = self.program.code(function)
        env: Env = {**captured, **sizes}
        env.update(zip(code.params, values, strict=True))
        return self.run(code.body, env)

    def call(self, closure: Closure, args: tuple[Any, ...]) -> Value:
        """A closure called from Python."""
        function, captured = closure.function, closure.captured
        known: dict[Term, int] = {
            key: size for key, size in captured.items() if isinstance(key, ScalarVar)
        }
        values, sizes = read_inputs(function.params, args, {}, self.program.module, known)
        if closure.itself is not None:
            captured = {**captured, closure.itself: closure}
        return self.enter(function, captured, values, sizes)

    def run(self, root: Term, env: Env) -> Value:
        """The value of a term in an environment; see Note [Marks]."""
        program = self.program
        codes, sites, constants = program.codes, program.sites, program.constants
        max_depth, max_calls = self.limits.depth, self.limits.calls
        depth = 0
        node: Any = root
        stack: list[Any] = [[{}, [], root]]
        push, pop = stack.append, stack.pop
        get = env.get
        while True:
            target: Any = None  # what a node in tail position hands over to
            code: FunctionCode | None = None  # what an applied function enters, with `args`
            if node in env:
                pass
            else:
                kind = node.__class__
                if kind is ex.Apply:
                    args = []
                    signature: list[Any] = []
                    for arg in node.args:
                        if (value := get(arg)) is None:
                            if arg.__class__ is ex.Const:
                                value = env[arg] = constants.get(arg)
                                if value is None:
                                    value = env[arg] = program.constant(arg)
                            else:
                                break
                        args.append(value)
                        signature.append(value.shape)
                        signature.append(value.dtype)
                    else:
                        site = sites.get(node) or program.site(node)
                        for dim in site.dims:
                            signature.append(get(dim))
                        key = tuple(signature)
                        if (executor := site.executors.get(key)) is None:
                            executor = executor_at(node, site, key, env)
                        if isinstance(executor, FunctionCode):
                            code, inner = executor, {}
                        else:
                            try:
                                env[node] = executor(args)
                            except EvaluationError as error:
                                raise _placed(error, node.op) from error
                            except MemoryError as error:
                                raise _placed(_no_memory(error), node.op) from None
                    if len(args) < len(node.args):
                        push(node)
                        stack.extend([arg for arg in node.args[::-1] if arg not in env])
                elif kind in _FIRST and (
                    missing := [part for part in _FIRST[kind](node) if part not in env]
                ):
                    push(node)
                    stack.extend(missing[::-1])
                elif kind is ex.Let:
                    bound, var = node.value, node.var
                    of_function = bound.__class__ is ex.Function
                    env[var] = self.close(bound, env, var) if of_function else env[bound]
                    target = node.body
                elif kind is ex.LetDim:
                    env[node.dim] = checked_size(str(node.dim.name), int(env[node.value]))
                    target = node.body
                elif kind is ex.Var:
                    env[node] = self.globals.get(node) or self.definition(node)
                elif kind is ex.Call:
                    callee, args = env[node.callee], [env[arg] for arg in node.args]
                    if callee.__class__ is Closure:
                        code = codes.get(callee.function) or program.code(callee.function)
                        inner = dict(callee.captured)
                        if callee.itself is not None:
                            inner[callee.itself] = callee
                    elif callee.__class__ is ex.Constructor:
                        env[node] = DataValue(callee.data, callee.index, callee.name, tuple(args))
                    else:
                        env[node] = callee.call(tuple(args))
                elif kind is ex.If:
                    target = node.then if env[node.condition] else node.orelse
                elif kind is ex.Match:
                    value = env[node.value]
                    for clause in node.clauses:
                        if fits(clause.pattern, value, env):
                            target = clause.body
                            break
                    else:
                        raise unmatched(node, value)
                elif kind is ex.Tuple:
                    env[node] = tuple([env[item] for item in node.items])
                elif kind is ex.Project:
                    env[node] = env[node.value][node.index]
                elif kind is ex.Const:
                    env[node] = program.constant(node)
                elif kind is ex.Function:
                    env[node] = self.close(node, env, None)
                elif kind is ex.Constructor:
                    env[node] = node
                else:
                    raise CompilerBug(
                        f"The interpreter meets a {kind.__name__} it cannot evaluate."
                    )
                if target is not None:
                    mark = stack[-1]
                    if mark.__class__ is list and mark[2] is node:
                        if mark[0] is env:
                            mark[1].append(node)
                        mark[2] = target
                    else:
                        push([env, [node], target])
                    node = target
                    continue
                if code is not None:
                    self.calls = calls = self.calls + 1
                    inner.update(zip(code.params, args, strict=True))
                    if code.measured or code.unmeasured:
                        self.measure(code, inner, args, node, env)
                    mark = stack[-1]
                    if mark.__class__ is list and mark[2] is node:
                        if mark[0] is env:
                            mark[1].append(node)
                            depth += 1
                        mark[2] = code.body
                    else:
                        push([env, [node], code.body])
                        depth += 1
                    if depth > max_depth or calls > max_calls:
                        raise _too_far(self.limits, depth > max_depth)
                    env = inner
                    get = env.get
                    node = code.body
                    continue
            node = pop()
            while node.__class__ is list:
                there, targets, source = node
                value = env[source]
                if there is not env:
                    depth -= 1
                    env = there
                    get = env.get
                for each in targets:
                    env[each] = value
                if not stack:
                    return value  # type: ignore[no-any-return]  # values are what env holds
                node = pop()

    def close(self, function: ex.Function, env: Env, itself: ex.Var | None) -> Closure:
        """A closure over the variables a function uses; `itself` is the let-bound variable of a
        recursive function."""
        code = self.program.codes.get(function) or self.program.code(function)
        captured = {term: env[term] for term in code.captured if term in env}
        return Closure(function, captured, self.call, itself)

    def definition(self, name: ex.Var) -> Value:
        """The value of a definition of the module."""
        found = self.program.table.get(name)
        value: Value
        match found:
            case ex.Function():
                value = Closure(self.program.apart(found), {}, self.call)
            case Extern(symbol, type):
                function = self.externs.get(symbol) or spelled_extern(symbol)
                if function is None:
                    raise _no_extern(symbol, self.externs)
                value = native(symbol, function, type, {}, self.program.module)
            case Kernel():
                value = _kernel(str(name.name), found)
            case _:
                raise CompilerBug(f"The variable {name.name} has no value: nothing binds it.")
        self.globals[name] = value
        return value

    def measure(self, code: FunctionCode, inner: Env, args: list[Any], node: Any, env: Env) -> None:
        """Give the dims of an entered function their numbers."""
        for dim, i, path, axis in code.measured:
            value = args[i]
            for step in path:
                value = value[step]
            inner[dim] = value.shape[axis]
        if not code.unmeasured:
            return
        known: dict[Term, int] = {
            each: inner[each] for each in inner if isinstance(each, ScalarVar)
        }
        types = [type_given(param) for param in code.params]
        found: list[tuple[Any, int]] = []
        for type, arg in zip(types, args, strict=True):
            found.extend(equations(type, arg))
        for type, each in zip(types, node.args, strict=True):
            other = type_of(each)
            sizes = {dim: env[dim] for dim in free_vars(other) if dim in env}
            found.extend(type_equations(type, other, sizes))
        for type, arg in zip(types, args, strict=True):
            found.extend(equations(type, arg, self.program.module))
        solved = solve(found, known)
        inner.update((dim, solved[dim]) for dim in code.unmeasured if dim in solved)


def _kernel(name: str, kernel: Kernel) -> NativeFunction:
    """A loop program as a function: it is given its inputs, and returns what it wrote."""

    def call(args: tuple[Value, ...]) -> Value:
        written = run_kernel(kernel, args)
        return written[0] if len(written) == 1 else written

    return NativeFunction(name, kernel.inputs, call)


def _placed(error: EvaluationError, op: str) -> EvaluationError:
    """The same error, saying which operator it is about where it did not say."""
    place = Place(node=op)
    return EvaluationError(
        *[each if each.place else replace(each, place=place) for each in error.diagnostics]
    )


def _no_memory(error: MemoryError) -> EvaluationError:
    message = "There is not enough memory for the result of an operator."
    hint = "Give smaller inputs."
    return EvaluationError.of("no-memory", message, None, None, str(error), hint)


def _too_far(limits: RunLimits, deep: bool) -> EvaluationError:
    found = f"{limits.depth} calls wait for one another" if deep else f"{limits.calls} calls made"
    return EvaluationError.of(
        "recursion-limit",
        "The program recurses further than the limits of the interpreter allow.",
        found=found,
        suggestion="If it is meant to end, give interpret wider limits.",
    )


def _no_extern(symbol: str, given: Externs) -> EvaluationError:
    return EvaluationError.of(
        "unbound-name",
        f"No Python function is given for the extern symbol {symbol!r}.",
        Place(node=symbol),
        found=", ".join(given) or "no externs",
        suggestion=f"Pass externs={{{symbol!r}: function}}.",
    )


def machine_of(module: Module) -> GraphMachine:
    """A machine for the parts of a module, without externs and with no limits but the usual."""
    return GraphMachine(GraphProgram(module), {}, GENEROUS)


def computed(term: ex.Expr, known: Mapping[ex.Expr, Value] | None = None) -> Value:
    """The value of a term of operators and constants alone; `EvaluationError` where it has none.

    Parts whose values are `known` are not computed again.
    """
    type_of(term)  # so that what is put on top of typed terms is settled by its own size
    return machine_of(module({})).run(infer_expr(term), dict(known or {}))
