"""The type checker: the walk over an expression in which every part of it gets a type.

A node whose type is decided by its parts is visited once, however often it is used.  A node whose
type its use decides (an empty list, a function without annotations) is visited once per use: the
term shares it, but the text may not.  What was inferred before is not visited at all.

The walk keeps its own stack, so the depth of a program is bounded by memory alone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from plica.core import Term
from plica.ir.graph import expression as ex
from plica.ir.type.dim import dim
from plica.ir.type.refresh import is_untyped
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

VISIT, LEAVE, BIND, CASE = range(4)


class TypeChecker(TypingState):
    """The walk; `bad` are nodes in which an error was found before.

    A `local` walk stops at every node whose type somebody has found, even if it has numbers in it.
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
        """The instance of `root`; a function may come with the type it is to have."""
        solver, shared, loose, mark = self.solver, self._shared, self._loose, self._leaf_mark
        known = solver.known
        values: list[Instance] = []
        # Any: what a task carries depends on its kind.
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
                    stack.extend([(VISIT, each, None) for each in node.args[::-1]])
                else:
                    self._enter(node, extra, stack)
            elif task == LEAVE:
                entry, signature = extra
                count = len(node.args) if node.__class__ is ex.Apply else _count(node)
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
        """Whether the type of an instance is that of its node, wherever it is used."""
        return self._shared.get(self.nodes[instance]) == instance

    def _enter(self, node: ex.Expr, signature: FuncType | None, stack: list[Any]) -> None:
        """Queue the parts of a node, and what has to happen between them."""
        entry = self.solver.count
        match node:
            case ex.Tuple(items):
                stack.append((LEAVE, node, (entry, None)))
                stack.extend([(VISIT, each, None) for each in reversed(items)])
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
            case ex.LetDim(_, value, body):
                stack.append((LEAVE, node, (entry, None)))
                stack.extend([(VISIT, each, None) for each in (body, value)])
            case ex.Call(callee, args, _):
                stack.append((LEAVE, node, (entry, None)))
                stack.extend([(VISIT, each, None) for each in reversed(args)])
                stack.append((VISIT, callee, None))
            case ex.Function():
                whole = self.signature(node) if signature is None else signature
                stack.append((LEAVE, node, (entry, whole)))
                stack.append((VISIT, node.body, None))
            case ex.If(condition, then, orelse):
                stack.append((LEAVE, node, (entry, None)))
                stack.extend([(VISIT, each, None) for each in (orelse, then, condition)])
            case ex.Match(value, clauses, _):
                stack.append((LEAVE, node, (entry, None)))
                stack.extend([(CASE, node, (0, None)) for _ in clauses[:1]])
                stack.append((VISIT, value, None))
            case ex.Project(value, _):
                stack.append((LEAVE, node, (entry, None)))
                stack.append((VISIT, value, None))
            case _:
                stack.append((LEAVE, node, (entry, None)))

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
                if not any(self._is_loose(each, entry) for each in parts):
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
        """Whether a type holds unknowns that are younger than `entry` and follow from no other."""
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


def _count(node: ex.Expr) -> int:
    """How many parts of an expression are visited."""
    match node:
        case ex.Tuple(items):
            return len(items)
        case ex.Call(_, args, _):
            return 1 + len(args)
        case ex.Let() | ex.LetDim():
            return 2
        case ex.Function() | ex.Project():
            return 1
        case ex.If():
            return 3
        case ex.Match(_, clauses, _):
            return 1 + len(clauses)
        case _:
            return 0


_RULES: Final[dict[type, Rule]] = {
    ex.Apply: apply_rule,
    ex.Call: call_rule,
    ex.Project: project_rule,
}
