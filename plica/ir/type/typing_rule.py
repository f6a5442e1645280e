"""Typing rules: what each kind of expression requires of its parts, and its type.

A rule returns a type, or None if it has to wait for an unknown; the solver then retries it when
more is known. Rules inspect only the parts of their node.

Literals among the arguments of an operator take the dtype of the arguments they must agree with
(`Operator.like`). If all arguments are literals, integers are i64 and floats f32. A literal with a
fraction never becomes an integer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

from plica.core import Term
from plica.ir.graph import expression as ex
from plica.ir.graph.operator import Mismatch
from plica.ir.op import find
from plica.ir.type.dtype import bool_, f32, i64
from plica.ir.type.local_type import related
from plica.ir.type.refresh import is_untyped
from plica.ir.type.term import FuncType, TensorType, TupleType, Type, Unknown
from plica.ir.type.typing_state import Instance, TypingState
from plica.ir.type.unknown import POISON, weak

BOOL: Final = TensorType((), bool_)
NUMBER: Final = TensorType((), i64)


def apply_rule(state: TypingState, instance: Instance) -> Type | None:
    """An operator: its relation, once the types of the arguments are known."""
    node = state.nodes[instance]
    assert isinstance(node, ex.Apply)
    solver, kids = state.solver, state.kids[instance]
    if (operator := find(node.op)) is None:
        state.report.unknown_operator(node, state.original(node))
        return POISON
    known = solver.known
    types: list[Any] = []  # Any: a type, or None for a number
    numbers: list[int] = []
    for position, kid in enumerate(kids):
        if (of := state.types[kid]) is None:
            numbers.append(position)
        elif not known.get(of) and not solver.is_known(of):
            solver.site = node
            of = state.types[kid] = solver.resolve(of)
            if isinstance(of, Unknown) and of in solver.weak:
                numbers.append(position)
                of = None
            else:
                unknown = solver.first_unknown(of)
                if unknown is POISON:
                    return POISON
                if unknown is not None:
                    solver.wait(unknown, (apply_rule, instance))
                    return None
        types.append(of)
    if numbers:
        group = range(len(kids)) if operator.like is None else operator.like
        match _numbers(state, instance, numbers, types, group):
            case "wait":
                return None
            case "wrong":
                return POISON
    if isinstance(result := related(operator, node.attrs, tuple(types)), Mismatch):
        state.report.mismatch(result, state.original(node))
        return POISON
    solver.is_known(result)
    return result


def _numbers(
    state: TypingState,
    instance: Instance,
    numbers: list[int],
    types: list[Any],
    group: Sequence[int],
) -> Literal["done", "wait", "wrong"]:
    """Give the numbers among an operator's arguments the dtype of their neighbours."""
    kids = state.kids[instance]
    strong = next((types[i].dtype for i in group if isinstance(types[i], TensorType)), None)
    inside = [number for number in numbers if number in group]
    for position in numbers:
        dtype = strong if position in group else None
        if dtype is None:
            alone = inside if position in group else [position]
            for each in alone:
                unknown = state.types[kids[each]]
                if isinstance(unknown, Unknown):  # its other uses decide, or the default
                    state.solver.wait(unknown, (apply_rule, instance))
                    return "wait"
            given = [state.types[kids[each]] for each in alone]
            decided = next((each.dtype for each in given if isinstance(each, TensorType)), None)
            floats = [isinstance(state.literal(kids[each]).value, float) for each in alone]
            dtype = decided or (f32 if any(floats) else i64)
        kid = kids[position]
        wanted = TensorType((), dtype)
        if state.types[kid] is None and weak(state.literal(kid).value).fits(dtype):
            state.types[kid] = wanted
        elif not state.flow(kid, wanted, state.nodes[instance], _NUMBER):
            return "wrong"
        types[position] = wanted
    return "done"


_NUMBER: Final = "A literal does not fit the dtype of the other argument."


def project_rule(state: TypingState, instance: Instance) -> Type | None:
    """An item of a tuple."""
    node = state.nodes[instance]
    assert isinstance(node, ex.Project)
    (value,) = state.kids[instance]
    if isinstance(of := state.typed(value), TupleType):
        if 0 <= node.index < len(of.items):
            return state.solver.find(of.items[node.index])
        message = f"A tuple of {len(of.items)} items has no item {node.index}."
        at = state.original(node)
        state.report.error("index-out-of-bounds", message, at, expected=of, found=node.index)
        return POISON
    if of is POISON:
        return POISON
    if isinstance(of, Unknown) and of not in state.solver.weak:
        state.solver.wait(of, (project_rule, instance))
        return None
    state.report.error(
        "type-conflict",
        "Only a tuple has items to project.",
        state.original(node),
        expected="a tuple",
        found=state.solver.resolve(of),
    )
    return POISON


def call_rule(state: TypingState, instance: Instance) -> Type | None:
    """A call: the arguments have the types of the parameters, at some types and dims."""
    node = state.nodes[instance]
    assert isinstance(node, ex.Call)
    solver = state.solver
    callee, *args = state.kids[instance]
    of = state.typed(callee)
    if of is POISON:
        return POISON
    if isinstance(of, Unknown) and of not in solver.weak:
        # A function without annotations: its parameters take the types of the arguments.
        wanted = FuncType((), (), tuple([state.typed(each) for each in args]), solver.fresh())
        state.flow(callee, wanted, node, "A function is called in different ways.")
        return wanted.ret
    name = called(state, node.callee)
    if not isinstance(of, FuncType):
        state.report.error(
            "type-conflict",
            f"{name} is no function and cannot be called.",
            state.original(node),
            expected="a function",
            found=solver.resolve(of),
        )
        return POISON
    general = of.dims or of.types
    if general:
        whole = solver.resolve(of)
        assert isinstance(whole, FuncType)
        of = whole
        for part in (of.ret, *of.params):
            unknown = solver.first_unknown(part)
            if unknown is POISON and part is not of.ret:
                return POISON
            if unknown is not None and unknown is not POISON:
                solver.wait(unknown, (call_rule, instance))
                return None
    if not _fits(state, node, of, name):
        return POISON
    if general:
        given = tuple([state.open(type_, "A type argument", node) for type_ in node.types])
        of, arguments = solver.instantiate(of, given or None)
        state.arguments[instance] = arguments
        for argument in arguments:
            if isinstance(argument, Unknown):
                state.whose.setdefault(argument, (f"A type argument of {name}", node))
    fitting = True
    for number, (arg, param) in enumerate(zip(args, of.params, strict=True), 1):
        message = f"Argument {number} of {name} has the wrong type."
        fitting = state.flow(arg, param, node, message) and fitting
    # A function of one type gives that all the same.
    return solver.find(of.ret) if fitting or not general else POISON


def _fits(state: TypingState, node: ex.Call, of: FuncType, name: str) -> bool:
    """Whether a call has the function's number of type and value arguments."""
    if len(node.args) != len(of.params):
        message = f"{name} is called with the wrong number of arguments."
        counts = len(of.params), len(node.args)
    elif node.types and len(node.types) != len(of.types):
        message = f"{name} is called with the wrong number of type arguments."
        counts = len(of.types), len(node.types)
    else:
        return True
    at = state.original(node)
    state.report.error("wrong-arity", message, at, expected=counts[0], found=counts[1])
    return False


def called(state: TypingState, callee: ex.Expr) -> str:
    """A callee as an error calls it."""
    if isinstance(callee, ex.Var):
        return state.name(callee)
    if isinstance(callee, ex.Constructor):
        return str(callee.name)
    return "The function" if isinstance(callee, ex.Function) else "The value"


def join(state: TypingState, node: ex.Expr, branches: tuple[Instance, ...], what: str) -> Type:
    """The one type of all branches of an if or a match."""
    if not branches:
        message = "A match without clauses has no type."
        state.report.error("cannot-infer", message, state.original(node))
        return POISON
    result = state.typed(branches[0])
    for branch in branches[1:]:
        type_ = state.typed(branch)
        if type_ is result:
            continue
        state.solver.site = node
        if (clash := state.solver.unify(type_, result)) is not None:
            message = f"The {what} have different types."
            state.clash(clash, state.nodes[branch], node, message, state.nodes[branches[0]])
            return POISON
    return state.solver.find(result)


def pattern_rule(state: TypingState, pattern: ex.Pattern, of: Type, match: ex.Match) -> None:
    """A pattern: its variables have the types it implies, and it fits the value."""
    solver = state.solver
    stack: list[tuple[ex.Pattern, Type]] = [(pattern, of)]
    while stack:
        part, type_ = stack.pop()
        inside: list[tuple[ex.Pattern, Type]] = []
        wanted: Type
        if isinstance(part, ex.PVar):
            if part.var.type is None:
                state.slots[part.var] = type_
                continue
            wanted = part.var.type
            if is_untyped(part.var):
                wanted = state.open(wanted, f"The type of {state.name(part.var)}", match)
                state.slots[part.var] = wanted
        elif isinstance(part, ex.PTuple):
            items = tuple([solver.fresh() for _ in part.items])
            wanted = TupleType(items)
            inside = list(zip(part.items, items, strict=True))
        elif isinstance(part, ex.PConstructor):
            wanted, inside = _constructor(state, part, match)
        else:
            continue
        solver.site = match
        if (clash := solver.unify(type_, wanted)) is not None:
            message = f"A pattern does not fit the value. {clash.why}".strip()
            _bad_pattern(state, message, match, part, expected=clash.found, found=clash.expected)
            state.spoil(clash.expected)
            inside = [(each, POISON) for each, _ in inside]
        stack.extend(reversed(inside))


def _constructor(
    state: TypingState, part: ex.PConstructor, match: ex.Match
) -> tuple[Type, list[tuple[ex.Pattern, Type]]]:
    """The type a constructor pattern matches, and its parts with the types of the fields."""
    whole = part.constructor.type
    if isinstance(whole, FuncType) and len(whole.params) == len(part.items):
        func_type, _ = state.solver.instantiate(whole)
        return func_type.ret, list(zip(part.items, func_type.params, strict=True))
    if isinstance(whole, FuncType):
        counts = len(whole.params), len(part.items)
        message = f"{part.constructor.name} has {counts[0]} fields, the pattern {counts[1]}."
        _bad_pattern(state, message, match, part, expected=counts[0], found=counts[1])
    return POISON, [(item, POISON) for item in part.items]


def _bad_pattern(
    state: TypingState,
    message: str,
    match: ex.Match,
    part: Term,
    *,
    expected: object,
    found: object,
) -> None:
    state.report.error(
        "bad-pattern",
        message,
        state.original(part),
        state.original(match),
        expected=expected,
        found=found,
    )
