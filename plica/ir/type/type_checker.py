"""The type checker: the walk over an expression in which every part of it gets a type.

The walk uses an explicit stack, so the depth of a program is bounded by memory alone.

Elaboration: the inferred term, made from the instances that inference has found the types of.

Numbers become constants of their dtype, variables carry their types, functions what they return,
and calls of polymorphic functions their type arguments.  Every node of the result knows its type.

Law: a term that was inferred before is returned as the same object.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

import attrs

from plica.core import Name, Term
from plica.ir.graph import expression as ex
from plica.ir.type.dim import dim
from plica.ir.type.refresh import is_untyped, untyped_binders
from plica.ir.type.term import FuncType, TensorType, TupleType, Type, Unknown
from plica.ir.type.typing_rule import (
    BOOL,
    NUMBER,
    apply_rule,
    call_rule,
    join,
    pattern_rule,
    project_rule,
)
from plica.ir.type.typing_state import ErrorReport, Instance, Rule, TypingState
from plica.ir.type.unknown import POISON, is_open, unknowns


class Elaborator:
    """The terms of a finished judgement; `names` are the final variables of definitions."""

    def __init__(self, state: TypingState, names: Mapping[ex.Var, ex.Var] | None = None) -> None:
        self.state = state
        self.names = {} if names is None else names
        self.finals: dict[ex.Var, ex.Var] = {}
        self._taken: dict[Term, Term] = {}
        self._types: dict[Type, Type] = {}

    def terms(self) -> list[ex.Expr]:
        """The term of every instance, in the order of the instances."""
        state = self.state
        self._keep()
        exprs: list[ex.Expr] = []
        for instance, node in enumerate(state.nodes):
            if getattr(node, "_settled", 0):
                exprs.append(node)
                continue
            of = state.types[instance]
            assert of is not None
            type_ = self.type(of)
            kids = [exprs[kid] for kid in state.kids[instance]]
            if node.__class__ is ex.Apply:  # the usual case, without a call
                args = tuple(kids)
                new: ex.Expr = node if args == node.args else ex.Apply(node.op, args, node.attrs)
            else:
                new = self._made(node, instance, kids, type_)
            level = 1 if isinstance(new, ex.Match) else 2
            for kid in kids:
                if kid._settled < level:
                    level = 1
                    break
            ex.remember_type(new, type_, level)
            exprs.append(new)
        return exprs

    def type(self, of: Type) -> Type:
        """A type with all that was found out."""
        if (type_ := self._types.get(of)) is None:
            type_ = self._types[of] = self.state.solver.resolve(of)
        return type_

    def variable(self, var: ex.Var) -> ex.Var:
        """A variable with its type.  Two variables of the program never become one."""
        final = self.finals.get(var) or self.names.get(var)
        if final is not None:
            return final
        if not is_untyped(var):
            return var
        original = self.state.original(var)
        assert isinstance(original, ex.Var)
        of = self.type(self.state.slots[var])
        name = original.name
        # Two copies of one binder may become one again, two binders with one name may not.
        made = ex.Var(name, of)
        while self._taken.setdefault(made, original) is not original:
            name = Name(name.hint, name.index + 1)
            made = ex.Var(name, of)
        self.finals[var] = made
        return made

    def _keep(self) -> None:
        """Variables that have a type already keep their names."""
        for final in self.names.values():
            self._taken[final] = final
        for var in self.state.refresher.typed:
            self._taken.setdefault(var, var)

    def _made(self, node: ex.Expr, instance: Instance, kids: list[ex.Expr], found: Type) -> ex.Expr:
        match node:
            case ex.Var():
                return self.variable(node)
            case ex.Literal(value):
                assert isinstance(found, TensorType)
                return number(value, found)
            case ex.Let(var, _, _):
                return ex.Let(self.variable(var), *kids)
            case ex.Call(_, _, types):
                given = self.state.arguments.get(instance)
                filled = types if given is None else tuple([self.type(type_) for type_ in given])
                return ex.Call(kids[0], tuple(kids[1:]), filled)
            case ex.Function():
                params = tuple([self.variable(param) for param in node.params])
                ret = node.ret
                if ret is None or not self.state.solver.is_known(ret):
                    ret = found.ret  # type: ignore[union-attr]  # a function has a function type
                return attrs.evolve(node, params=params, ret=ret, body=kids[0])
            case ex.Match(_, clauses, total):
                bodies = zip(clauses, kids[1:], strict=True)
                cases = [ex.Clause(self._pattern(clause.pattern), body) for clause, body in bodies]
                return ex.Match(kids[0], tuple(cases), total)
            case _:
                return ex.with_operands(node, tuple(kids))

    def _pattern(self, pattern: ex.Pattern) -> ex.Pattern:
        match pattern:
            case ex.PVar(var):
                return ex.PVar(self.variable(var))
            case ex.PConstructor(constructor, items):
                return ex.PConstructor(constructor, tuple([self._pattern(item) for item in items]))
            case ex.PTuple(items):
                return ex.PTuple(tuple([self._pattern(item) for item in items]))
            case _:
                return pattern


def is_explicit(state: TypingState, instance: Instance) -> bool:
    """Whether a node itself, apart from its parts, leaves nothing to be inferred."""
    node = state.nodes[instance]
    match node:
        case ex.Literal():
            return False
        case ex.Var():
            return not is_untyped(node)
        case ex.Call(_, _, types):
            return bool(types) or not state.arguments.get(instance)
        case ex.Function(_, _, _, ret, _, _):
            return ret is not None and state.solver.is_known(ret) and not untyped_binders(node)
        case ex.Let() | ex.Match():
            return not untyped_binders(node)
        case _:
            return True


def number(value: bool | int | float, of: TensorType) -> ex.Const:
    """A number as a constant of rank 0."""
    return ex.const(float(value) if of.dtype.is_float else value, of.dtype)


VISIT, LEAVE, BIND, CASE = range(4)


class TypeChecker(TypingState):
    """The walk; `bad` are nodes in which an error was found before.

    A `local` walk stops at every typed node, even one that contains literals.
    """

    def __init__(
        self,
        report: ErrorReport,
        outer: Mapping[ex.Var, Type] | None = None,
        bad: Collection[Term] = (),
        local: bool = False,
    ) -> None:
        super().__init__(report, outer)
        self.bad = bad
        self._leaf_mark = "_type" if local else "_settled"
        self._shared: dict[Term, Instance] = {}
        self._loose: dict[Term, Instance] = {}
        self._tied: set[Term] = set()  # unknowns that follow from others

    def visit(self, root: ex.Expr, signature: FuncType | None = None) -> Instance:
        """The instance of `root`; `signature` gives a function's expected type."""
        solver, shared, loose, mark = self.solver, self._shared, self._loose, self._leaf_mark
        known = solver.known
        values: list[Instance] = []
        # Any: the payload of a task depends on its kind.
        stack: list[tuple[int, Any, Any]] = [(VISIT, root, signature)]
        while stack:
            task, node, extra = stack.pop()
            if task == VISIT:
                if extra is None:
                    if (found := shared.get(node)) is not None:
                        values.append(found)
                        continue
                    if getattr(node, mark, None):
                        values.append(self._leaf(node, node._type))
                        continue
                    cls = node.__class__
                    if cls is ex.Var:
                        values.append(self._variable(node))
                        continue
                    if cls is ex.Literal:
                        strong = BOOL if isinstance(node.value, bool) else None
                        values.append(self.new(node, (), strong))
                        continue
                    if node in loose:
                        if (copy := self.refresher.copied(node)) is None:
                            values.append(loose[node])
                            continue
                        node = copy
                if node.__class__ is ex.Apply:  # the usual case, without a call
                    stack.append((LEAVE, node, (solver.count, None)))
                    stack.extend([(VISIT, arg, None) for arg in node.args[::-1]])
                else:
                    self._enter(node, extra, stack)
            elif task == LEAVE:
                entry, signature = extra
                count = len(node.args) if node.__class__ is ex.Apply else len(ex.operands(node))
                start = len(values) - count
                kids = tuple(values[start:])
                del values[start:]
                instance = self._leave(node, kids, entry, signature)
                values.append(instance)
                of = self.types[instance]
                assert of is not None
                if not known.get(of) and self._is_loose(of, entry):
                    loose[node] = instance
                else:
                    shared[node] = instance
            elif task == BIND:
                self._bind(node, values[-1])
            else:
                number, scrutinee = extra
                if scrutinee is None:
                    scrutinee = values[-1]
                clause = node.clauses[number]
                pattern_rule(self, clause.pattern, self.typed(scrutinee), node)
                if number + 1 < len(node.clauses):
                    stack.append((CASE, node, (number + 1, scrutinee)))
                stack.append((VISIT, clause.body, None))
            if solver.ready:
                self.settle()
        return values[-1]

    def is_shared(self, instance: Instance) -> bool:
        """Whether the type of an instance is that of its node in every use."""
        return self._shared.get(self.nodes[instance]) == instance

    def _enter(self, node: ex.Expr, signature: FuncType | None, stack: list[Any]) -> None:
        """Queues the parts of a node, and the steps between them."""
        entry = self.solver.count
        match node:
            case ex.Let(var, value, body):
                stack.append((LEAVE, node, (entry, None)))
                stack.append((VISIT, body, None))
                whole = None
                if isinstance(value, ex.Function) and not getattr(value, "_settled", 0):
                    whole = self.signature(value)
                    if var.type is None:
                        self.slots[var] = whole
                if whole is None or var.type is not None:
                    stack.append((BIND, node, None))
                stack.append((VISIT, value, whole))
            case ex.Function():
                whole = self.signature(node) if signature is None else signature
                stack.append((LEAVE, node, (entry, whole)))
                stack.append((VISIT, node.body, None))
            case ex.Match(value, clauses, _):
                stack.append((LEAVE, node, (entry, None)))
                stack.extend([(CASE, node, (0, None)) for _ in clauses[:1]])
                stack.append((VISIT, value, None))
            case _:
                stack.append((LEAVE, node, (entry, None)))
                stack.extend([(VISIT, part, None) for part in ex.operands(node)[::-1]])

    def _leave(
        self, node: ex.Expr, kids: tuple[Instance, ...], entry: int, signature: FuncType | None
    ) -> Instance:
        """The instance of a node whose parts have theirs."""
        if self.bad and node in self.bad:
            return self.new(node, kids, POISON)
        if (rule := _RULES.get(node.__class__)) is not None:
            instance = self.new(node, kids, POISON)
            if not self.start(rule, instance):
                parts = [self.typed(kid) for kid in kids if self.types[kid] is not None]
                if not any(self._is_loose(part, entry) for part in parts):
                    result = self.types[instance]
                    assert result is not None
                    self._tied.add(result)
            return instance
        match node:
            case ex.Tuple():
                of: Type = TupleType(tuple([self.typed(kid) for kid in kids]))
            case ex.Let():
                of = self.typed(kids[1])
            case ex.LetDim():
                message = "A size is a whole number: an i64 of rank 0."
                self.flow(kids[0], NUMBER, node, message)
                of = self.typed(kids[1])
            case ex.Function():
                assert signature is not None
                message = "The function does not return what it declares."
                if node.ret is None:
                    message = "The function is used at another type than it returns."
                self.flow(kids[0], signature.ret, node, message)
                ret = self.solver.find(signature.ret)
                of = FuncType(signature.dims, signature.types, signature.params, ret)
            case ex.If():
                self.flow(kids[0], BOOL, node, "The condition of an if must be a bool of rank 0.")
                of = join(self, node, kids[1:], "branches of an if")
            case ex.Match():
                of = join(self, node, kids[1:], "clauses of a match")
            case ex.Const(dtype, shape, _):
                of = TensorType(tuple([dim(size) for size in shape]), dtype)
                ex.remember_type(node, of, 2)
            case ex.Constructor():
                of = node.type
                ex.remember_type(node, of, 2)
            case _:
                raise AssertionError(f"{type(node).__name__} is no expression.")
        return self.new(node, kids, of)

    def _leaf(self, node: ex.Expr, of: Type) -> Instance:
        self._shared[node] = instance = self.new(node, (), of)
        return instance

    def _variable(self, var: ex.Var) -> Instance:
        slot = self.slots.get(var) or self.outer.get(var)
        if slot is not None:
            return self._leaf(var, slot)
        if is_untyped(var):
            if not self.closed:
                message = f"Nothing says which type {self.name(var)} has."
                self.report.error("cannot-infer", message, self.original(var))
            return self.new(var, (), POISON)
        assert var.type is not None
        ex.remember_type(var, var.type, 2)
        return self._leaf(var, var.type)

    def _bind(self, let: ex.Let, value: Instance) -> None:
        """Give the variable of a let the type of its value, or compare it with the annotation."""
        if let.var.type is None:
            self.slots[let.var] = self.typed(value)
            return
        expected = let.var.type
        name = self.name(let.var)
        if is_untyped(let.var):
            expected = self.open(expected, f"The type of {name}", let)
            self.slots[let.var] = expected
        self.flow(value, expected, let, f"{name} is declared with another type.")

    def _is_loose(self, of: Type, entry: int) -> bool:
        """Whether a type contains unknowns newer than `entry` that no other type determines."""
        solver = self.solver
        stack = [of]
        seen: set[Type] = set()  # a type may be a part of itself: that is reported at the end
        while stack:
            part = stack.pop()
            if part in seen or solver.is_known(part):
                continue
            seen.add(part)
            for each in unknowns(part):
                if is_open(each):
                    if each not in solver.sizes and each.name.index > entry:  # type: ignore[attr-defined]  # a variable has a name
                        return True
                    continue
                assert isinstance(each, Unknown)
                found = solver.find(each)
                if not isinstance(found, Unknown):
                    stack.append(found)
                elif found is not POISON and found not in self._tied and found.name.index > entry:
                    return True
        return False


_RULES: Final[dict[type, Rule]] = {
    ex.Apply: apply_rule,
    ex.Call: call_rule,
    ex.Project: project_rule,
}
