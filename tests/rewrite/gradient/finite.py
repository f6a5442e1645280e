"""Finite differences: what a derivative is compared with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from plica.core.name import Name
from plica.ir.graph.expression import Expr, Function, Project, Var, const
from plica.ir.graph.module import Module, module
from plica.ir.interpret.interpreter import interpret
from plica.ir.op import Operator
from plica.ir.op.reduction import sum_
from plica.ir.type.dtype import dtype
from plica.ir.type.infer import infer, type_of
from plica.ir.type.term import TensorType, TupleType, static_shape, tensor

Array = np.ndarray[Any, Any]


def program(function: Function) -> Module:
    """A module of one function."""
    main = Var(Name("main"), None)
    return infer(module({main: function}, main))


def is_float(array: Array) -> bool:
    """Whether an array is one of the numbers that have derivatives."""
    return bool(array.dtype == np.float64)


def weighted(record: Operator, args: Sequence[Array], attrs: Mapping[str, Any]) -> Module | None:
    """The sum of the results of an operator times random numbers; None if none is of f64."""
    params = tuple(
        Var(Name("x", at), tensor(each.shape, dtype(each.dtype))) for at, each in enumerate(args)
    )
    applied = record(params, **attrs) if record.variadic else record(*params, **attrs)
    of = type_of(applied)
    random = np.random.default_rng(7)
    outputs: list[tuple[Expr, Any]] = (
        [(Project(applied, at), each) for at, each in enumerate(of.items)]
        if isinstance(of, TupleType)
        else [(applied, of)]
    )
    total: Expr | None = None
    for value, each in outputs:
        assert isinstance(each, TensorType)
        if each.dtype.name == "f64":
            term = sum_(value * const(random.uniform(0.5, 1.5, static_shape(each))))
            total = term if total is None else total + term
    return None if total is None else program(Function((), (), params, None, total))


def directional(
    of: Module, args: Sequence[Array], directions: Sequence[Array | None], step: float = 1e-6
) -> float:
    """The central difference of a main that gives one number, along a direction."""
    ends = []
    for sign in (1, -1):
        moved = [
            each if way is None else each + sign * step * way
            for each, way in zip(args, directions, strict=True)
        ]
        ends.append(float(interpret(of, *moved)))
    return (ends[0] - ends[1]) / (2 * step)
