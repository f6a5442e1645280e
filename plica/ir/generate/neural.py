"""Operators applied to known expressions; types come from the operators' relations."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import prod
from typing import Any, Final, TypeAlias

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from plica.ir.generate.choice import between, pick
from plica.ir.generate.draw import Array
from plica.ir.generate.scope import GenerationScope, KnownExpression
from plica.ir.generate.table import INTEGER_ROWS, ROWS, drawn_call
from plica.ir.graph.expression import Apply, Expr, Project, const
from plica.ir.graph.operator import Mismatch, find, names
from plica.ir.type import DType, TensorType, TupleType, Type, f32, static_shape, type_of

Typed: TypeAlias = tuple[Expr, Type]

MAX_ELEMENTS: Final = 64  # the maximum size of an existing tensor whose shape a call may take
NOT_COMPARED: Final = ("after", "device_copy", "nn.conv_winograd", "on_device")
"""Operators with a row that need devices, or weights that were transformed."""


def typed_apply(op: str, args: tuple[Typed, ...], **attributes: Any) -> Typed | None:
    """An operator call and its type, or None if it does not fit."""
    if (record := find(op)) is None:
        return None
    exprs = tuple(expr for expr, _ in args)
    applied = record(exprs, **attributes) if record.variadic else record(*exprs, **attributes)
    if not isinstance(applied, Apply):
        return None
    type = record.relation(dict(applied.attrs), *(type for _, type in args))
    return None if isinstance(type, Mismatch) else (applied, type)


def layer(draw: DrawFn, scope: GenerationScope) -> KnownExpression | None:
    """An operator of the table, with attributes, on tensors that are known and on constants."""
    op = pick(draw, _operators())
    tensors = [(each.expr, each.type) for each in scope.pool if isinstance(each.type, TensorType)]
    floats = [tensor for tensor in tensors if tensor[1].dtype.is_float]
    any_dtype = draw(between(0, 4)) == 4
    known = tensors if any_dtype else floats
    found = dict.fromkeys([static_shape(type) for _, type in known])
    shapes = tuple([each for each in found if each and 0 < prod(each) <= MAX_ELEMENTS])
    call = drawn_call(op, draw(st.randoms(use_true_random=False)), shapes=shapes)
    dtype = pick(draw, [type.dtype for _, type in known[::-1]] or [f32])
    args = tuple([_argument(draw, arg, dtype, known) for arg in call.args])
    if (made := typed_apply(op, args, **call.attrs)) is None:
        return None
    expr, type = made
    if not isinstance(type, TupleType):
        return scope.add(expr, type)
    at = draw(between(0, len(type.items) - 1))
    return scope.add(Project(expr, at), type.items[at])


def _argument(
    draw: DrawFn, value: Array, dtype: DType, known: Sequence[tuple[Expr, TensorType]]
) -> Typed:
    """A tensor that is known for a drawn one of reals, mostly, or the drawn one as a constant."""
    constant = const(value.astype(dtype.numpy) if value.dtype == np.float64 else value)
    type = type_of(constant)
    same = [each for each in known if each[1] is type and value.dtype == np.float64]
    if not same or draw(between(0, 3)) == 0:
        return constant, type
    return pick(draw, same[::-1])


@cache
def _operators() -> tuple[str, ...]:
    return tuple([op for op in (*ROWS, *INTEGER_ROWS) if op not in NOT_COMPARED])


@cache
def plain_operators() -> dict[int, tuple[str, ...]]:
    """The operators that need tensors only, by how many; every attribute has a default."""
    found: dict[int, list[str]] = {1: [], 2: [], 3: []}
    for name in names():
        record = find(name)
        assert record is not None
        required = any(attribute.required for attribute in record.attributes)
        if not record.variadic and not required and len(record.inputs) in found:
            found[len(record.inputs)].append(name)
    return {count: tuple(words) for count, words in found.items()}


def any_operator(draw: DrawFn, scope: GenerationScope) -> KnownExpression | None:
    """Any registered operator that accepts known tensors."""
    count = pick(draw, (1, 2, 1, 2, 3))
    op = pick(draw, plain_operators()[count])
    known = [(each.expr, each.type) for each in scope.pool if isinstance(each.type, TensorType)]
    if not known:
        return None
    first = pick(draw, known[::-1])
    alike = [each for each in known if each[1].dtype is first[1].dtype]
    args = (first, *(pick(draw, alike[::-1]) for _ in range(count - 1)))
    made = typed_apply(op, args)
    return None if made is None else scope.add(*made)
