"""Steps: a loss and an optimiser as one module, weights and memory in and out.

    (weights, memory, x, …) -> (loss, weights, memory)

It is ordinary: derived, optimised and compiled like any model, to one native function.

>>> from plica.core.name import Name
>>> from plica.ir.interpret.interpreter import interpret
>>> from plica.ir.type.term import tensor
>>> from plica.training.optimisers import sgd
>>> w = Var(Name("w"), tensor((), "f32"))
>>> made = step(Function((), (), (w,), None, w * w), sgd(0.25))
>>> value, (weight,), () = interpret(made.module, (4.0,), ())
>>> float(value), float(weight)
(16.0, 2.0)
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from attrs import frozen

from plica.ir.graph.expression import Call, Const, Expr, Function, Project, Tuple, Var, const
from plica.ir.graph.module import Module, module as module_of
from plica.ir.op.elementwise import cast
from plica.ir.type import DType, TensorType, TupleType, Type, f32, infer
from plica.rewrite.gradient import value_and_grad
from plica.rewrite.gradient.derive import Program, Which
from plica.rewrite.graph.dataflow import to_dataflow
from plica.rewrite.graph.partial import evaluate_partially
from plica.rewrite.graph.walk import NameSupply, expressions, operands, with_operands
from plica.runtime.error import Diagnostic, InputError, Place
from plica.training.optimisers import TIME, Optimiser
from plica.training.tensor_rule import TensorRule

WEIGHTS, MEMORY = "weights", "memory"
_ONE: Final = const(1.0, f32)


@frozen(eq=False)
class TrainingStep:
    """A module, the names and types of the weights it changes, and by what."""

    module: Module
    weights: tuple[tuple[str, TensorType], ...]
    optimiser: Optimiser


def step(loss: Program, optimiser: Optimiser, wrt: Which = None) -> TrainingStep:
    """One step downhill on a loss: `wrt` are its weights, all that it takes of floats if none.

    The memory is that of each weight in turn, after the number of steps taken where the optimiser
    counts them.  Settings of the optimiser that are open follow the other inputs of the loss.
    """
    derived = value_and_grad(loss, wrt if wrt is None or not isinstance(wrt, int | str) else (wrt,))
    main, function = derived.main, derived.main_function()
    assert main is not None
    ret = function.ret
    assert isinstance(ret, TupleType)
    chosen = _weights(function, wrt)
    _check(chosen)
    supply = NameSupply(*derived.values, *derived.names)
    kept = {str(param.name) for param in function.params}
    for name in (WEIGHTS, MEMORY, *optimiser.open):
        if name in kept - {str(var.name) for var in chosen}:
            raise InputError(
                Diagnostic(
                    "bad-optimiser",
                    f"The loss has a parameter {name!r}, which a step has too.",
                    Place(node=name),
                    "another name",
                    name,
                )
            )
    types = [_tensor(var.type) for var in chosen]
    slots = tuple([TupleType(optimiser.memory(tensor_type)) for tensor_type in types])
    of_memory = TupleType((*([TensorType((), f32)] if optimiser.counts else []), *slots))
    weights = Var(supply.name(WEIGHTS), TupleType(tuple(types)))
    memory = Var(supply.name(MEMORY), of_memory if optimiser.slots or optimiser.counts else _UNIT)
    given = {var: Project(weights, at) for at, var in enumerate(chosen)}
    rest = tuple([param for param in function.params if param not in given])
    opened = {name: Var(supply.name(name), TensorType((), f32)) for name in optimiser.open}

    inner = Var(supply.name(main.name.hint), main.type)
    call = Call(inner, tuple([given.get(param, param) for param in function.params]))
    slopes = Project(call, 1)
    common: dict[str, Expr] = dict(opened)
    start = 0
    if optimiser.counts:
        common[TIME], start = Project(memory, 0) + _ONE, 1
    moved: list[Expr] = []
    kept_: list[Expr] = [common[TIME]] if optimiser.counts else []
    for at, of in enumerate(types):
        slope: Expr = slopes if not isinstance(ret.items[1], TupleType) else Project(slopes, at)
        own = [Project(Project(memory, start + at), n) for n in range(len(slots[at].items))]
        new = _updated(optimiser, of, [Project(weights, at), slope, *own], common)
        moved.append(new[0])
        if optimiser.slots:
            kept_.append(Tuple(tuple(new[1:])))
    body = Tuple((Project(call, 0), Tuple(tuple(moved)), Tuple(tuple(kept_))))
    outer = Var(main.name, None)
    params = (weights, memory, *rest, *opened.values())
    whole = Function(function.dims, (), params, None, body)
    made = {inner if name is main else name: value for name, value in derived.items()}
    module = evaluate_partially(infer(module_of({**made, outer: whole}, outer)))
    names = [str(var.name) for var in chosen]
    return TrainingStep(module, tuple(zip(names, types, strict=True)), optimiser)


_UNIT: Final = TupleType(())


def _weights(function: Function, wrt: Which) -> list[Var]:
    """The parameters that slopes are of, in their order."""
    if wrt is None:
        return [param for param in function.params if _floats(param.type)]
    asked: Sequence[int | str] = (wrt,) if isinstance(wrt, int | str) else tuple(wrt)
    names = {str(param.name): param for param in function.params}
    return [names[each] if isinstance(each, str) else function.params[each] for each in asked]


def _floats(of: Type | None) -> bool:
    if isinstance(of, TupleType):
        return any(map(_floats, of.items))
    return isinstance(of, TensorType) and of.dtype.is_float


def _check(chosen: Sequence[Var]) -> None:
    if wrong := [var for var in chosen if not isinstance(var.type, TensorType)]:
        raise InputError(
            *[
                Diagnostic(
                    "bad-optimiser",
                    f"The weight {var.name} is not a tensor.",
                    Place(node=str(var.name)),
                    "a tensor of floats",
                    str(var.type),
                    "Give a loss its weights as parameters of their own.",
                )
                for var in wrong
            ]
        )


def _tensor(of: Type | None) -> TensorType:
    assert isinstance(of, TensorType)
    return of


@lru_cache(maxsize=256)
def _flat(rule: Function) -> Function:
    """The rule as dataflow."""
    main = Var(NameSupply(rule).name("main"), None)
    return to_dataflow(evaluate_partially(infer(module_of({main: rule}, main)))).main_function()


def _updated(
    optimiser: Optimiser, of: TensorType, own: Sequence[Expr], common: dict[str, Expr]
) -> list[Expr]:
    """What the rule makes of a weight of some type, its slope and its memory."""
    settings = {name: const(value, f32) for name, value in optimiser.settings}
    given = {name: _at(expr, of.dtype) for name, expr in {**settings, **common}.items()}
    if isinstance(optimiser.rule, TensorRule):
        return list(optimiser.rule.update(own[0], own[1], own[2:], given))
    rule = _flat(optimiser.rule)
    memo: dict[Expr, Expr] = dict(zip(rule.params, own, strict=False))
    memo |= {param: given[str(param.name)] for param in rule.params[len(own) :]}
    for node in expressions(rule.body):
        if node not in memo:
            new = with_operands(node, tuple([memo[part] for part in operands(node)]))
            memo[node] = _at(new, of.dtype) if isinstance(new, Const) else new
    result = memo[rule.body]
    return list(result.items) if isinstance(result, Tuple) else [result]


def _at(value: Expr, dtype: DType) -> Expr:
    """A number in the dtype of a weight."""
    if dtype is f32:
        return value
    if isinstance(value, Const):
        return const(value.numpy(), dtype)
    return cast(value, dtype=dtype)
