# ruff: noqa: E501  # rows of a table
"""Layers of networks over what is known; their types come from the operators' own relations."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any, Final, TypeAlias

from hypothesis.strategies import DrawFn

from plica.ir.generate.choice import between, pick
from plica.ir.generate.scope import GenerationScope, KnownExpression
from plica.ir.generate.value import constants
from plica.ir.graph.expression import Apply, Expr, Project
from plica.ir.graph.operator import Mismatch, find, names
from plica.ir.type.dim import dim
from plica.ir.type.term import TensorType, TupleType, Type, static_shape

Typed: TypeAlias = tuple[Expr, Type]
Layer: TypeAlias = Callable[[DrawFn, Expr, TensorType, tuple[int, ...]], "Typed | None"]


def typed_apply(op: str, args: tuple[Typed, ...], **attributes: Any) -> Typed | None:
    """An operator applied and the type its relation gives; None where it does not fit."""
    if (record := find(op)) is None:
        return None
    exprs = tuple(expr for expr, _ in args)
    applied = record(exprs, **attributes) if record.variadic else record(*exprs, **attributes)
    if not isinstance(applied, Apply):
        return None
    type = record.relation(dict(applied.attrs), *(type for _, type in args))
    return None if isinstance(type, Mismatch) else (applied, type)


def layer(draw: DrawFn, scope: GenerationScope) -> KnownExpression | None:
    """One more layer on a tensor that is known."""
    found = [(each.expr, each.type) for each in scope.pool if isinstance(each.type, TensorType)]
    if not found:
        return None
    x, t = pick(draw, found[::-1])
    if (shape := static_shape(t)) is None:
        return None
    made = pick(draw, LAYERS)(draw, x, t, shape)
    return None if made is None else scope.add(*made)


def _weights(draw: DrawFn, t: TensorType, shape: tuple[int, ...]) -> Typed:
    constant = draw(constants(t.dtype, shape))
    return constant, TensorType(tuple(map(dim, shape)), t.dtype)


def softmax(draw: DrawFn, x: Expr, t: TensorType, shape: tuple[int, ...]) -> Typed | None:
    """Softmax along the last axis."""
    if not t.dtype.is_float or not shape:
        return None
    return typed_apply(pick(draw, ("nn.softmax", "nn.log_softmax")), ((x, t),), axis=-1)


def activation(draw: DrawFn, x: Expr, t: TensorType, shape: tuple[int, ...]) -> Typed | None:
    """An activation."""
    words = ("nn.relu", "nn.sigmoid", "nn.silu", "nn.gelu", "nn.softplus", "tanh", "erf")
    return typed_apply(pick(draw, words), ((x, t),)) if t.dtype.is_float else None


def dense(draw: DrawFn, x: Expr, t: TensorType, shape: tuple[int, ...]) -> Typed | None:
    """A dense layer with constant weights."""
    if not t.dtype.is_float or len(shape) != 2:
        return None
    weights = _weights(draw, t, (draw(between(1, 3)), shape[1]))
    return typed_apply("nn.dense", ((x, t), weights))


def reduction(draw: DrawFn, x: Expr, t: TensorType, shape: tuple[int, ...]) -> Typed | None:
    """A reduction along one axis."""
    if not shape or not t.dtype.is_float:
        return None
    axis = draw(between(0, len(shape) - 1))
    op = pick(draw, ("sum", "mean", "max", "min", "prod"))
    if shape[axis] == 0 and op != "sum":
        return None
    return typed_apply(op, ((x, t),), axis=axis, keepdims=bool(draw(between(0, 1))))


def convolution(draw: DrawFn, x: Expr, t: TensorType, shape: tuple[int, ...]) -> Typed | None:
    """A convolution of an image made from the tensor."""
    if not t.dtype.is_float or not shape or 0 in shape:
        return None
    image = (1, 1, shape[0], math.prod(shape[1:]))
    if (reshaped := typed_apply("reshape", ((x, t),), shape=image)) is None:
        return None
    weights = _weights(draw, t, (draw(between(1, 2)), 1, 1, min(2, image[3])))
    return typed_apply("nn.conv", (reshaped, weights))


def _windowed(draw: DrawFn, shape: tuple[int, ...]) -> dict[str, Any]:
    at = draw(between(0, len(shape) - 1))
    return {"axis": at, "window": draw(between(1, max(1, shape[at])))}


# What the attributes without a default may be, for a tensor of some shape of rank 1 or more.
# fmt: off
SETTINGS: Final[dict[str, Callable[[DrawFn, tuple[int, ...]], dict[str, Any]]]] = {
    "cumsum":         lambda draw, shape: {"axis": draw(between(0, len(shape) - 1))},
    "first_places":   lambda draw, shape: {"k": draw(between(1, max(1, shape[-1]))), "descending": bool(draw(between(0, 1)))},
    "merge_runs":     lambda draw, shape: {"width": draw(between(1, 4))},
    "merge_planes":   lambda draw, shape: {"width": draw(between(1, 4))},
    "nn.dilate":      lambda draw, shape: {"strides": draw(between(1, 2))},
    "nn.space_to_batch": lambda draw, shape: {"block": 1 + (shape[1] % 2 == 0) if len(shape) > 1 else ()},
    "repeat":         lambda draw, shape: {"repeats": draw(between(0, 2)), "axis": draw(between(0, len(shape) - 1))},
    "reshape_codes":  lambda draw, shape: {"codes": pick(draw, ((0, -2), (-4, 1, -1, -2), (-1,)))},
    "roll":           lambda draw, shape: {"shift": draw(between(-2, 2)), "axis": 0},
    "sliding_window": _windowed,
    "tile":           lambda draw, shape: {"reps": draw(between(0, 2))},
    "topk":           lambda draw, shape: {"k": draw(between(0, shape[-1])), "largest": bool(draw(between(0, 1)))},
}
# fmt: on


def set_operator(draw: DrawFn, x: Expr, t: TensorType, shape: tuple[int, ...]) -> Typed | None:
    """An operator with attributes that have no default; of several results one."""
    if not shape:
        return None
    op = pick(draw, tuple(SETTINGS))
    made = typed_apply(op, ((x, t),), **SETTINGS[op](draw, shape))
    if made is None or not isinstance(made[1], TupleType):
        return made
    at = draw(between(0, len(made[1].items) - 1))
    return Project(made[0], at), made[1].items[at]


@cache
def plain_operators() -> dict[int, tuple[str, ...]]:
    """The operators that need tensors only, by how many; every attribute has a default."""
    found: dict[int, list[str]] = {1: [], 2: [], 3: []}
    for name in names():
        record = find(name)
        assert record is not None
        required = any(each.required for each in record.attributes)
        if not record.variadic and not required and len(record.inputs) in found:
            found[len(record.inputs)].append(name)
    return {count: tuple(words) for count, words in found.items()}


def any_operator(draw: DrawFn, scope: GenerationScope) -> KnownExpression | None:
    """Any operator of the registry that takes tensors which are known."""
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


LAYERS: Final[tuple[Layer, ...]] = (
    activation, softmax, reduction, dense, convolution, set_operator,
)  # fmt: skip
