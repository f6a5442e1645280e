"""Inference: the types of a program, found by unification and the relations of its operators.

`type_of` returns the type of one inferred expression: pure, local, and cached in the term. `infer`
takes a whole module as written and returns it with every type filled in, or refuses it with all
errors.

>>> from plica.ir.graph.expression import Tuple, const
>>> str(type_of(Tuple((const([1.0, 2.0], "f32"), const(3, "i64")))))
'tuple[Tensor[(2,), f32], Tensor[(), i64]]'

Laws: `infer(infer(m)) is infer(m)`; an inferred module contains no `Literal`, no `Unknown`, and no
implicit variable type, return type or type argument. Polymorphism is explicit: definitions are
polymorphic in the dims and types they bind. A fully annotated function is checked alone; others are
inferred together with their dependencies, in topological order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from weakref import WeakKeyDictionary, WeakSet

from attrs import evolve

from plica.core import IllTyped, Term, name_of, post_order
from plica.core.collector import paused
from plica.ir.graph.check import findings
from plica.ir.graph.expression import Apply, Expr, Function, Match, Var, matches, remember_type
from plica.ir.graph.module import DataDef, Defined, Definition, Extern, Module
from plica.ir.graph.scope import misuses
from plica.ir.loop.statement import Kernel
from plica.ir.type.local_type import local_type
from plica.ir.type.refresh import is_untyped
from plica.ir.type.term import FuncType, TensorType, TupleType, Type
from plica.ir.type.type_checker import Elaborator, TypeChecker, is_explicit
from plica.ir.type.typing_state import ErrorReport, Places
from plica.ir.type.unify import Solver, same_type
from plica.ir.type.unknown import POISON
from plica.runtime.error import Diagnostic
from plica.runtime.late import lazy_imports

with lazy_imports(__name__):
    from plica.ir.graph.exhaustiveness import match_errors

__all__ = ["Places", "infer", "infer_expr", "is_inferred", "kernel_type", "same_type", "type_of"]

_inferred: Final[WeakSet[Module]] = WeakSet()
_results: Final[WeakKeyDictionary[Module, Module]] = WeakKeyDictionary()
"""The result for each module that somebody still has: several stages of one compilation ask."""


def type_of(expr: Expr) -> Type:
    """The type of an expression whose variables have types; remembered, so cheap for new nodes.

    Literal arguments of an operator take the dtype of the other arguments; elsewhere they are i64
    or f32. Raises `IllTyped` if there is no type.
    """
    known: Type | None = getattr(expr, "_type", None)  # as mostly: nobody is called
    if known is not None or (known := local_type(expr)) is not None:
        return known
    report = ErrorReport("this expression", (expr,))
    judge = TypeChecker(report, local=True)
    root = judge.visit(judge.refresher.separated(expr))
    judge.conclude()
    if report.errors:
        raise IllTyped(*report.errors)
    for instance, node in enumerate(judge.nodes):
        if getattr(node, "_type", None) is None and judge.is_shared(instance):
            level = 1 if isinstance(node, Match) else 2
            parts = [getattr(judge.nodes[kid], "_settled", 0) for kid in judge.kids[instance]]
            level = min([level, *parts]) if is_explicit(judge, instance) else 0
            remember_type(node, judge.solver.resolve(judge.typed(instance)), level)
    return judge.solver.resolve(judge.typed(root))


def infer_expr(expr: Expr, places: Places | None = None) -> Expr:
    """An expression whose free variables have types, with everything else filled in."""
    if getattr(expr, "_settled", 0):
        return expr
    report = ErrorReport("this expression", (expr,), places)
    judge = TypeChecker(report)
    root = judge.visit(judge.refresher.separated(expr))
    judge.conclude()
    if report.errors:
        raise IllTyped(*report.errors)
    return Elaborator(judge).terms()[root]


def is_inferred(module: Module) -> bool:
    """Whether a module is the result of an inference."""
    return module in _inferred


def infer(module: Module, places: Places | None = None) -> Module:
    """The module with all types filled in; `IllTyped` holds all errors."""
    if module in _inferred:
        return module
    if (known := _results.get(module)) is not None:
        return known
    with paused():
        result = _Inference(module, {} if places is None else places).run()
    _inferred.add(result)
    if result is not module:  # which would keep itself alive
        _results[module] = result
    return result


class _Inference:
    """One inference of one module."""

    def __init__(self, module: Module, places: Places) -> None:
        self.module = module
        self.places = places
        self.names = frozenset(module.names)
        self.table = module.definitions()
        self.errors: dict[Diagnostic, None] = {}
        self.signatures: dict[Var, Type] = {}  # of the definitions, as soon as they are known
        self.finals: dict[Var, Var] = {}
        self.values: dict[Defined, Definition] = {}

    def run(self) -> Module:
        found = findings(self.module, self.places)
        self.errors.update((finding.diagnostic, None) for finding in found)
        if any(finding.stops for finding in found):
            self._stop()
        self.bad = {finding.node for finding in found if isinstance(finding.node, Apply)}
        open_: list[Var] = []
        for name, value in self.module.items():
            if isinstance(name, Var):
                if (of := declared(value)) is None:
                    open_.append(name)
                else:
                    self._declare(name, of, value)
            else:
                self.values[name] = value
        for group in components(open_, self.table):
            self._group(group)
        for name, value in self.module.items():
            if name not in self.values and isinstance(name, Var):
                if isinstance(value, Function):
                    self._group([name])
                else:
                    self.values[name] = value
        if any(True for value in self.module.values for _ in matches(value)):
            self.errors.update((error, None) for error in match_errors(self.module, self.places))
        if self.errors:
            self._stop()
        return self._module()

    def _stop(self) -> None:
        def position(of: Diagnostic) -> tuple[str, int, int]:
            at = of.place
            return ("", 0, 0) if at is None else (at.file or "", at.line or 0, at.column or 0)

        raise IllTyped(*sorted(self.errors, key=position))

    def _declare(self, name: Var, of: Type, value: Definition) -> None:
        """Records the type of a definition and compares it with the annotation of its name."""
        if name.type is not None and not is_untyped(name):
            if not same_type(name.type, of):
                report = ErrorReport(str(name.name), (value,), self.places)
                message = f"The definition of {name.name} has another type than its name."
                report.error("type-conflict", message, value, expected=name.type, found=of)
                self.errors.update((error, None) for error in report.errors)
            self.signatures[name] = name.type
            self.finals[name] = name
        else:
            self.signatures[name] = of
            self.finals[name] = Var(name.name, of)

    def _group(self, group: Sequence[Var]) -> None:
        """Infer functions that use one another."""
        table = self.table
        functions = [table[name] for name in group]
        if all(getattr(function, "_settled", 0) for function in functions):
            self.values.update(zip(group, functions, strict=True))
            return
        report = ErrorReport(str(group[0].name), functions, self.places)
        judge = TypeChecker(report, self.signatures, self.bad)
        judge.closed = True
        separated: list[Function] = []
        for function in functions:
            assert isinstance(function, Function)
            apart = judge.refresher.separated(function, self.names)
            assert isinstance(apart, Function)
            separated.append(apart)
        whole = [judge.signature(function) for function in separated]
        for name, of in zip(group, whole, strict=True):
            if name not in self.signatures:
                judge.slots[name] = of
                if name.type is not None:
                    expected = judge.open(name.type, f"The type of {name.name}", table[name])
                    if (clash := judge.solver.unify(of, expected)) is not None:
                        message = f"The definition of {name.name} has another type than its name."
                        judge.clash(clash, table[name], table[name], message)
        roots = [judge.visit(function, of) for function, of in zip(separated, whole, strict=True)]
        judge.conclude()
        self.errors.update((error, None) for error in report.errors)
        for name, root, value in zip(group, roots, functions, strict=True):
            if name not in self.signatures:
                found = judge.solver.resolve(judge.typed(root))
                if report.errors and isinstance(found, FuncType):
                    # Its callers are still checked against its parameters.
                    found = evolve(found, ret=POISON)
                self._declare(name, found, value)
        if self.errors:
            self.values.update(zip(group, functions, strict=True))
            return
        terms = Elaborator(judge, self.finals).terms()
        for name, root in zip(group, roots, strict=True):
            made = terms[root]
            assert isinstance(made, Function)
            self.values[name] = made
            if judge.refresher.nested:
                self._check_escapes(name, made, table[name])

    def _check_escapes(self, name: Var, made: Function, written: Definition) -> None:
        """No type that was found may mention a dim or type outside the function that binds it."""
        for misuse in misuses(made, self.names | set(self.finals.values())):
            report = ErrorReport(str(name.name), (written,), self.places)
            message = f"A type would mention {name_of(misuse.variable)} outside of its function."
            hint = "Annotate the variables around that function."
            report.error("type-conflict", message, written, suggestion=hint)
            self.errors.update((one, None) for one in report.errors)

    def _module(self) -> Module:
        names: list[Defined] = []
        values: list[Definition] = []
        for name in self.module.names:
            names.append(self.finals[name] if isinstance(name, Var) else name)
            values.append(self.values[name])
        main = self.module.main
        return Module(tuple(names), tuple(values), None if main is None else self.finals[main])


def declared(value: Definition) -> Type | None:
    """The type of a definition where it says all of it."""
    match value:
        case Function(dims, types, params, ret, _, _):
            if ret is None or any(is_untyped(param) for param in params):
                return None
            inside = tuple([param.type for param in params if param.type is not None])
            whole = FuncType(dims, types, inside, ret)
            return whole if Solver().is_known(ret) else None
        case Extern(type=of):
            return of
        case Kernel():
            return kernel_type(value)
        case DataDef():
            return None
    return None


def kernel_type(kernel: Kernel) -> FuncType:
    """The graph-level type of a kernel: buffers read are arguments, buffers written are results."""
    tensors = [TensorType(param.shape, param.dtype) for param in kernel.params]
    outputs = tensors[kernel.inputs :]
    ret = outputs[0] if len(outputs) == 1 else TupleType(tuple(outputs))
    return FuncType(kernel.dims, (), tuple(tensors[: kernel.inputs]), ret)


def components(names: Sequence[Var], table: Any) -> list[list[Var]]:
    """The names in groups that use one another, needed ones first (Tarjan, without recursion)."""
    chosen = set(names)
    uses = {name: [each for each in post_order(table[name]) if each in chosen] for name in names}
    groups: list[list[Var]] = []
    order: dict[Term, int] = {}
    low: dict[Term, int] = {}
    waiting: list[Var] = []
    placed: set[Term] = set()
    for start in names:
        if start in order:
            continue
        order[start] = low[start] = len(order)
        waiting.append(start)
        stack = [(start, iter(uses[start]))]
        while stack:
            name, rest = stack[-1]
            for var in rest:
                assert isinstance(var, Var)
                if var not in order:
                    order[var] = low[var] = len(order)
                    waiting.append(var)
                    stack.append((var, iter(uses[var])))
                    break
                if var not in placed:
                    low[name] = min(low[name], order[var])
            else:
                stack.pop()
                if stack:
                    low[stack[-1][0]] = min(low[stack[-1][0]], low[name])
                if low[name] == order[name]:
                    group = [waiting.pop()]
                    while group[-1] is not name:
                        group.append(waiting.pop())
                    placed.update(group)
                    groups.append(group[::-1])
    return groups
