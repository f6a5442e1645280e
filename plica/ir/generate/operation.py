"""Registered operators as ways to grow a program whose types are known by construction.

Each function takes known expressions and returns one more with its type, or None if it does not
fit. Operators missing from the registry are never used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

import plica.ir.op  # noqa: F401  # loads the operators
from plica.ir.generate.choice import between, pick
from plica.ir.generate.scope import GenerationScope, KnownExpression
from plica.ir.generate.value import constants, dtypes
from plica.ir.graph.expression import Const, Expr
from plica.ir.graph.operator import find
from plica.ir.loop.scalar import Lit, Scalar
from plica.ir.type import DType, TensorType, Type, bool_, normal_dim, product, static_shape
from plica.ir.type.dtype import COMPUTED

Typed: TypeAlias = "tuple[Expr, Type] | None"
Growth: TypeAlias = Callable[[DrawFn, GenerationScope, Expr, TensorType], Typed]

ARITHMETIC: Final = ("add", "subtract", "multiply", "maximum", "minimum")
LOGICAL: Final = ("logical_and", "logical_or")
COMPARISONS: Final = ("less", "equal", "greater_equal", "not_equal", "less_equal", "greater")
FLOAT_UNARY: Final = ("negative", "exp", "tanh", "nn.relu", "absolute", "floor")
SIGNED_UNARY: Final = ("negative", "absolute")


def apply(op: str, *args: Any) -> Expr | None:
    """The operator call, or None if the registry has no such name."""
    record = find(op)
    return None if record is None else record(*args)


def tensors(scope: GenerationScope) -> list[tuple[Expr, TensorType]]:
    """The tensors that are known, of dtypes that arithmetic is done in."""
    return [
        (expression.expr, expression.type)
        for expression in scope.pool
        if isinstance(expression.type, TensorType) and expression.type.dtype in COMPUTED
    ]


def _done(expr: Expr | None, shape: tuple[Scalar, ...], dtype: DType) -> Typed:
    return None if expr is None else (expr, TensorType(shape, dtype))


def unary(draw: DrawFn, scope: GenerationScope, x: Expr, t: TensorType) -> Typed:
    """An elementwise operator of one tensor."""
    words = {"float": FLOAT_UNARY, "int": SIGNED_UNARY, "bool": ("logical_not",)}
    if t.dtype.kind not in words:
        return None
    return _done(apply(pick(draw, words[t.dtype.kind]), x), t.shape, t.dtype)


def binary(draw: DrawFn, scope: GenerationScope, x: Expr, t: TensorType) -> Typed:
    """Arithmetic of two tensors of one type, or of a tensor and something that broadcasts."""
    words = LOGICAL if t.dtype is bool_ else ARITHMETIC
    y = _partner(draw, scope, t)
    pair = (x, y) if draw(between(0, 1)) else (y, x)
    return _done(apply(pick(draw, words), *pair), t.shape, t.dtype)


def comparison(draw: DrawFn, scope: GenerationScope, x: Expr, t: TensorType) -> Typed:
    """A comparison."""
    op = pick(draw, ("equal", "not_equal") if t.dtype is bool_ else COMPARISONS)
    return _done(apply(op, x, _partner(draw, scope, t)), t.shape, bool_)


def where(draw: DrawFn, scope: GenerationScope, x: Expr, t: TensorType) -> Typed:
    """A choice between two tensors, element by element."""
    masks = scope.of(TensorType(t.shape, bool_)) or scope.of(TensorType((), bool_))
    mask = pick(draw, masks).expr if masks else draw(constants(bool_, ()))
    return _done(apply("where", mask, x, _partner(draw, scope, t)), t.shape, t.dtype)


def cast(draw: DrawFn, scope: GenerationScope, x: Expr, t: TensorType) -> Typed:
    """A change of dtype."""
    to = draw(dtypes())
    return _done(apply("cast", x, to), t.shape, to)


def transpose(draw: DrawFn, scope: GenerationScope, x: Expr, t: TensorType) -> Typed:
    """Axes in another order."""
    order = tuple(draw(st.permutations(range(len(t.shape)))))
    return _done(apply("transpose", x, order), tuple(t.shape[i] for i in order), t.dtype)


def reshape(draw: DrawFn, scope: GenerationScope, x: Expr, t: TensorType) -> Typed:
    """All elements in one axis, or one more axis of size 1."""
    shape = (product(t.shape),) if draw(between(0, 1)) else (Lit(1, _INDEX), *t.shape)
    return _done(apply("reshape", x, shape), shape, t.dtype)


def concat(draw: DrawFn, scope: GenerationScope, x: Expr, t: TensorType) -> Typed:
    """Tensors one after another; symbolic sizes are added."""
    known = [tensor for tensor in tensors(scope) if tensor[1].dtype is t.dtype and tensor[1].shape]
    y, u = pick(draw, [each for each in known if each[1].shape[1:] == t.shape[1:]])
    first = normal_dim(t.shape[0] + u.shape[0])
    return _done(apply("concat", (x, y), 0), (first, *t.shape[1:]), t.dtype)


def total(draw: DrawFn, scope: GenerationScope, x: Expr, t: TensorType) -> Typed:
    """A sum along the first axis."""
    return None if t.dtype is bool_ else _done(apply("sum", x, 0), t.shape[1:], t.dtype)


def matmul(draw: DrawFn, scope: GenerationScope, x: Expr, t: TensorType) -> Typed:
    """A product of matrices: with a constant where the inner size is known, else with itself."""
    if len(t.shape) != 2 or not t.dtype.is_float:
        return None
    if isinstance(inner := t.shape[1], Lit):
        weights = draw(constants(t.dtype, (int(inner.value), 2)))
        return _done(apply("matmul", x, weights), (t.shape[0], Lit(2, _INDEX)), t.dtype)
    turned = apply("transpose", x, (1, 0))
    product_ = None if turned is None else apply("matmul", x, turned)
    return _done(product_, (t.shape[0], t.shape[0]), t.dtype)


_INDEX: Final = DType("i64")
GROWTHS: Final[tuple[tuple[int, Growth], ...]] = (
    (0, binary), (0, unary), (0, comparison), (0, where), (0, cast), (2, transpose), (0, reshape),
    (1, concat), (1, total), (2, matmul),
)  # fmt: skip
"""Each with the fewest axes of its tensor."""


def operation(draw: DrawFn, scope: GenerationScope) -> KnownExpression | None:
    """One more operator applied to known expressions."""
    rank, growth = pick(draw, GROWTHS)
    known = [tensor for tensor in tensors(scope) if len(tensor[1].shape) >= rank]
    grown = growth(draw, scope, *pick(draw, known)) if known else None
    return None if grown is None else scope.add(*grown)


def filled(draw: DrawFn, of: TensorType) -> Expr | None:
    """A tensor of any type: a constant, or a number spread over a symbolic shape."""
    if (shape := static_shape(of)) is not None:
        return draw(constants(of.dtype, shape))
    return apply("broadcast_to", draw(constants(of.dtype, ())), of.shape)


def _partner(draw: DrawFn, scope: GenerationScope, t: TensorType) -> Expr:
    """Another tensor of this dtype whose shape is the same or broadcasts to it."""
    same = scope.of(t)
    kind = pick(draw, ("same", "scalar", "row"))
    if kind == "same" and same:
        return pick(draw, same).expr
    row = tuple(int(d.value) if isinstance(d, Lit) else 1 for d in t.shape[-1:])
    shape: tuple[int, ...] = row if kind == "row" else ()
    constant: Const = draw(constants(t.dtype, shape))
    return constant
