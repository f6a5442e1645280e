"""Checks: whether a module is well formed, which every pass must keep.

Constructors of terms check local properties; this checks the whole module: variables are bound,
operators exist and their attributes are canonical, constructors belong to their data types, types
are well kinded, only functions are recursive, and main is a function.

`check` reports everything it finds, each with its place.  Types are not its concern (`infer`), nor
is what matches leave out (`exhaust`).

>>> from plica.core.name import Name
>>> from plica.ir.graph.module import module
>>> x, f = ex.Var(Name("x"), None), ex.Var(Name("f"), None)
>>> print(check(module({f: ex.Function((), (), (), None, x)}, f))[0])
f: Nothing binds x. [unbound-name]
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from plica.core import Term, did_you_mean, name_of, post_order
from plica.core.term import leaf_key
from plica.ir.graph import expression as ex
from plica.ir.graph.module import DataDef, Defined, Definition, Extern, Module, constructors
from plica.ir.graph.operator import Mismatch
from plica.ir.graph.scope import misuses
from plica.ir.loop.scalar import Scalar, ScalarVar, dtype_of
from plica.ir.loop.statement import Kernel
from plica.ir.op import find, names
from plica.ir.type import term as ty
from plica.ir.type.dim import known
from plica.ir.type.dtype import DType, i64
from plica.ir.type.typing_state import ErrorReport, Places
from plica.ir.type.unify import same_type
from plica.runtime.error import Diagnostic


@attrs.frozen
class CheckFinding:
    """An error and its node; where it `stops`, not even types can be looked at."""

    node: Term
    diagnostic: Diagnostic
    stops: bool = False


def check(module: Module, places: Places | None = None) -> tuple[Diagnostic, ...]:
    """Everything about a module that is not well formed."""
    found = dict.fromkeys(finding.diagnostic for finding in findings(module, places))
    return tuple(found)


def findings(module: Module, places: Places | None = None) -> list[CheckFinding]:
    """What `check` finds, with the nodes."""
    found: list[CheckFinding] = []
    checker = _Checker(module, places)
    for name, value in module.items():
        found.extend(checker.definition(name, value))
    found.extend(checker.main())
    return found


class _Checker:
    """The checks of one module."""

    def __init__(self, module: Module, places: Places | None) -> None:
        self.module = module
        self.places = places
        self.table: Mapping[Term, Definition] = module.definitions()
        self.settings: dict[Any, tuple[str, ...]] = {}  # Any: what `leaf_key` makes of attributes
        self.report = ErrorReport("module", (), places)
        self.found: list[CheckFinding] = []

    def definition(self, name: Defined, value: Definition) -> list[CheckFinding]:
        self.report = ErrorReport(str(name.name), (value,), self.places)
        self.found = []
        if isinstance(name, ty.DataName) != isinstance(value, DataDef):
            kind = type(value).__name__
            self._error(value, "type-conflict", f"{name.name} cannot name a {kind}.", stops=True)
        for node in post_order(value):
            if (rule := _RULES.get(node.__class__)) is not None:
                rule(self, node)
        if not any(finding.stops for finding in self.found):
            for misuse in misuses(value, self.table.keys()):
                called = name_of(misuse.variable)
                match misuse.kind:
                    case "unbound":
                        self._unbound(misuse.node, misuse.variable)
                    case "recursive":
                        message = f"{called} is used in its own value, and only functions may be."
                        self._error(misuse.variable, "unbound-name", message, user=misuse.node)
                    case "shadowed":
                        message = f"A function around this one binds {called} already."
                        hint = "Give it another name."
                        self._error(misuse.node, "duplicate-name", message, suggestion=hint)
        return self.found

    def main(self) -> Iterator[CheckFinding]:
        main = self.module.main
        if main is not None and not isinstance(self.table.get(main), ex.Function | Kernel):
            message = f"The module has no function {main.name} to be its main."
            self.report = ErrorReport(str(main.name), (), self.places)
            self.found = []
            self._error(main, "unbound-name", message, stops=True)
            yield from self.found

    def _error(
        self, node: Term, code: str, message: str, *, stops: bool = False, **details: Any
    ) -> None:
        before = len(self.report.errors)
        self.report.error(code, message, node, **details)
        for error in self.report.errors[before:]:
            self.found.append(CheckFinding(node, error, stops))

    def _unbound(self, node: Term, variable: Term) -> None:
        called = str(name_of(variable))
        near = did_you_mean(called, [str(name.name) for name in self.module.names])
        message = f"Nothing binds {called}."
        self._error(variable, "unbound-name", message, user=node, suggestion=near)

    # --- expressions -----------------------------------------------------------------------

    def apply(self, node: ex.Apply) -> None:
        if not self._are(node, ex.Expr, node.args):
            return
        if (operator := find(node.op)) is None:
            message = f"There is no operator {node.op!r}."
            self._error(
                node, "unknown-operator", message, suggestion=did_you_mean(node.op, names())
            )
            return
        count = len(node.args)
        if (count == 0) if operator.variadic else (count != len(operator.inputs)):
            self._error(
                node,
                "wrong-arity",
                f"{node.op} is applied to the wrong number of arguments.",
                expected=f"({', '.join(operator.inputs)})",
                found=str(count),
            )
        key = node.op, leaf_key(node.attrs)
        if (problems := self.settings.get(key)) is None:
            problems = self.settings[key] = tuple(_attribute_problems(node))
        for code, message in (problem.split(": ", 1) for problem in problems):
            self._error(node, code, message)

    def function(self, node: ex.Function) -> None:
        if not self._are(node, ex.Var, node.params) or not self._are(node, ex.Expr, (node.body,)):
            return
        self._once(node, node.params, "parameter")
        self._once(node, node.dims, "dim")
        self._once(node, node.types, "type")

    def match(self, node: ex.Match) -> None:
        if self._are(node, ex.Clause, node.clauses) and self._are(node, ex.Expr, (node.value,)):
            for clause in node.clauses:
                self._once(node, variables_in(clause.pattern), "name of a pattern")

    def clause(self, node: ex.Clause) -> None:
        self._are(node, ex.Expr, (node.body,))
        self._are(node, (ex.PAny, ex.PVar, ex.PConstructor, ex.PTuple), (node.pattern,))

    def constructor(self, node: ex.Constructor) -> None:
        data = self.table.get(node.data)
        if not isinstance(data, DataDef):
            return  # an unbound name
        if not 0 <= node.index < len(data.constructors):
            count = len(data.constructors)
            message = f"{node.data.name} has {count} constructors, and no number {node.index}."
            self._error(node, "bad-pattern", message, stops=True)
            return
        right = constructors(node.data, data)[node.index].type
        if node.type is not right and not same_type(node.type, right):
            message = f"{node.name} has another type than {node.data.name} gives it."
            self._error(node, "type-conflict", message, stops=True, expected=right, found=node.type)

    def parts(self, node: ex.Expr) -> None:
        """Let, LetDim, If, Call, Tuple, Project: made of expressions."""
        match node:
            case ex.Let(var, value, body):
                _ = self._are(node, ex.Var, (var,)) and self._are(node, ex.Expr, (value, body))
            case ex.LetDim(dim, value, body):
                _ = self._are(node, ScalarVar, (dim,)) and self._are(node, ex.Expr, (value, body))
            case ex.Call(callee, args, types):
                _ = self._are(node, ex.Expr, (callee, *args)) and self._are(
                    node, ty.TypeTerm, types
                )
            case ex.If() | ex.Tuple() | ex.Project():
                self._are(node, ex.Expr, node._children)

    # --- types -----------------------------------------------------------------------------

    def variable(self, node: ex.Var) -> None:
        if node.type is not None:
            self._are(node, ty.TypeTerm, (node.type,))

    def tensor(self, node: ty.TensorType) -> None:
        if self._are(node, Scalar, node.shape) and self._are(node, DType, (node.dtype,)):
            for size in node.shape:
                number = known(size)
                if number is not None and number < 0:
                    message = f"A dim cannot be {number}."
                    self._error(node, "shape-conflict", message, stops=True)
                elif number is None and dtype_of(size) is not i64:
                    message = f"A dim must be an i64, not {dtype_of(size)}."
                    self._error(node, "dtype-conflict", message, stops=True)

    def types(self, node: ty.TupleType | ty.FuncType) -> None:
        inside = node.items if isinstance(node, ty.TupleType) else (*node.params, node.ret)
        self._are(node, ty.TypeTerm, inside)
        if isinstance(node, ty.FuncType):
            self._once(node, node.dims, "dim")
            self._once(node, node.types, "type")

    def data(self, node: ty.DataType) -> None:
        if not self._are(node, ty.TypeTerm, node.args):
            return
        data = self.table.get(node.data)
        if isinstance(data, DataDef) and len(data.types) != len(node.args):
            self._error(
                node,
                "wrong-arity",
                f"{node.data.name} takes {len(data.types)} type arguments.",
                stops=True,
                expected=len(data.types),
                found=len(node.args),
            )

    def definitions(self, node: DataDef) -> None:
        self._once(node, node.types, "type")
        self._once(node, node.constructors, "constructor")
        for constructor in node.constructors:
            self._are(node, ty.TypeTerm, constructor.fields)

    def kernel(self, node: Kernel) -> None:
        if not 0 <= node.inputs <= len(node.params):
            message = f"A kernel of {len(node.params)} buffers cannot read {node.inputs} of them."
            self._error(node, "wrong-arity", message, stops=True)
        self._once(node, node.params, "buffer")
        self._once(node, node.dims, "dim")

    def extern(self, node: Extern) -> None:
        self._are(node, ty.FuncType, (node.type,))

    def _are(self, node: Term, kind: Any, parts: tuple[Any, ...]) -> bool:
        """Whether parts of a node are of the kind the grammar says; terms are not asked for it."""
        for part in parts:
            if not isinstance(part, kind):
                kinds = kind if isinstance(kind, tuple) else (kind,)
                self._error(
                    node,
                    "type-conflict",
                    f"A {type(node).__name__} cannot hold a {type(part).__name__} there.",
                    stops=True,
                    expected=" or ".join(one.__name__ for one in kinds),
                    found=type(part).__name__,
                )
                return False
        return True

    def _once(self, node: Term, named: tuple[Any, ...], what: str) -> None:
        """No two of them have one name: the text could not tell them apart."""
        used = set()
        for each in named:
            if each.name in used:
                message = f"The {what} {each.name} is there twice."
                self._error(node, "duplicate-name", message)
            used.add(each.name)


def variables_in(pattern: Term) -> tuple[ex.Var, ...]:
    """The variables of a pattern as often as it names them."""
    terms: list[ex.Var] = []
    stack = [pattern]
    while stack:
        if isinstance(part := stack.pop(), ex.PVar):
            terms.append(part.var)
        elif isinstance(part, ex.PConstructor | ex.PTuple):
            stack.extend(reversed(part.items))
    return tuple(terms)


def _attribute_problems(node: ex.Apply) -> Iterator[str]:
    """Why attributes of an operator are not canonical, each after its error code."""
    operator = find(node.op)
    assert operator is not None
    given = dict(node.attrs)
    wanted = {each.name: each for each in operator.attributes}
    if operator.name != node.op:
        yield f"unknown-operator: {node.op} is another name of {operator.name}; terms hold that."
    if [name for name, _ in node.attrs] != sorted(given):
        yield f"bad-attribute: The attributes of {node.op} are not sorted, or one is there twice."
    for name in given:
        if name not in wanted:
            yield f"unknown-attribute: {node.op} has no attribute {name!r}."
    for name, attribute in wanted.items():
        if name not in given:
            yield f"bad-attribute: {node.op} misses its attribute {name!r}."
            continue
        if isinstance(value := attribute.read(given[name]), Mismatch):
            yield f"bad-attribute: {node.op}: {value.message}"
        elif leaf_key(value) != leaf_key(given[name]):
            yield f"bad-attribute: The attribute {name!r} of {node.op} is not in canonical form."


# Any: each rule takes the nodes of its class.
_RULES: Mapping[type, Any] = {
    ex.Apply: _Checker.apply,
    ex.Function: _Checker.function,
    ex.Match: _Checker.match,
    ex.Clause: _Checker.clause,
    ex.Constructor: _Checker.constructor,
    ex.Let: _Checker.parts,
    ex.LetDim: _Checker.parts,
    ex.If: _Checker.parts,
    ex.Call: _Checker.parts,
    ex.Tuple: _Checker.parts,
    ex.Project: _Checker.parts,
    ex.Var: _Checker.variable,
    ty.TensorType: _Checker.tensor,
    ty.TupleType: _Checker.types,
    ty.FuncType: _Checker.types,
    ty.DataType: _Checker.data,
    DataDef: _Checker.definitions,
    Kernel: _Checker.kernel,
    Extern: _Checker.extern,
}
