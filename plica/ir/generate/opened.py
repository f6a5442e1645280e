"""Open modules: short programs over tensors whose sizes are dims, of different names and values.

A row takes a known tensor and yields another; rows whose relation refuses are skipped. No operator
is discontinuous (comparisons of floats, argmax), so two evaluations may be compared up to rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from plica.core import Name
from plica.ir.generate.choice import between, pick
from plica.ir.generate.neural import Typed, typed_apply
from plica.ir.generate.scope import GenerationScope, KnownExpression
from plica.ir.graph.expression import Const, Expr, Function, If, Tuple, Var
from plica.ir.graph.module import Module, main_module
from plica.ir.loop.scalar import Lit, Scalar
from plica.ir.type import TensorType, dim_var, f32, i64, infer, known, product, tensor
from plica.runtime.error import PlicaError

Row: TypeAlias = Callable[[DrawFn, Typed, GenerationScope], "Typed | None"]

NAMES: Final = ("n", "h", "w", "k")

SHAPES: Final[tuple[tuple[int | str, ...], ...]] = (
    ("h", "w"), ("n", 2, "h", "w"), ("n", "h", 8), ("w", "h"), ("n", 4, "h", "w"), ("n", "k"),
    (1, 3, "h", "w"), ("k", "w", "h"), ("n", 3, "w", "h"), ("n", "h", "w", 3), ("k", 16),
    ("n", "w", "k"), ("n", 2, "h", "w"),
)  # fmt: skip
"""Of inputs: the first is the simplest."""

MAX_AXES: Final = 5

MAX_ROWS_TRIED: Final = 3  # the number of rows tried on a tensor before giving up


@st.composite
def open_modules(draw: DrawFn, most: int = 6) -> Module:
    """A main function over one to three tensors with open sizes: up to a given number of
    operators."""
    shapes = [pick(draw, SHAPES) for _ in range(draw(between(1, 3)))]
    names = dict.fromkeys(size for shape in shapes for size in shape if isinstance(size, str))
    params = tuple([Var(Name(f"x{at}"), tensor(each, f32)) for at, each in enumerate(shapes)])
    scope = GenerationScope([])
    for param, shape in zip(params, shapes, strict=True):
        scope.add(param, tensor(shape, f32))
    results: list[KnownExpression] = []
    count = draw(between(1, most))
    for number in range(count):
        last_one = number == count - 1 and count > 1
        grown = _grown(draw, scope, ENDS if last_one and draw(between(0, 2)) else ROWS)
        if grown is not None:
            results.append(grown)
    last = results[-1:] or scope.pool[-1:]
    if len(results) > 1 and draw(between(0, 3)) == 3:
        last = [results[draw(between(0, len(results) - 2))], *last]
    body: Expr = last[0].expr if len(last) == 1 else Tuple(tuple([each.expr for each in last]))
    dims = tuple([dim_var(name) for name in names])
    return infer(main_module(Function(dims, (), params, None, body)))


def _grown(draw: DrawFn, scope: GenerationScope, rows: Sequence[Row]) -> KnownExpression | None:
    """One more tensor, mostly from the latest one."""
    back = min(pick(draw, (0, 0, 0, 0, 0, 1, 2)), len(scope.pool) - 1)
    x = scope.pool[-1 - back]
    made = None
    for _ in range(MAX_ROWS_TRIED):
        made = made or pick(draw, rows)(draw, (x.expr, x.type), scope)
    if made is None or not isinstance(made[1], TensorType) or len(made[1].shape) > MAX_AXES:
        return None
    return scope.add(*made)


# --- what rows are made of ------------------------------------------------------------------------


def _shape(x: Typed) -> tuple[Scalar, ...]:
    of = x[1]
    return of.shape if isinstance(of, TensorType) else ()


def _axis(draw: DrawFn, x: Typed) -> int | None:
    rank = len(_shape(x))
    return rank - 1 - draw(between(0, rank - 1)) if rank else None


def _alike(draw: DrawFn, x: Typed, low: int, high: int) -> tuple[int, ...]:
    """A number for each axis, mostly the same: sizes then differ in the names of dims alone."""
    rank = len(_shape(x))
    if draw(between(0, 2)) < 2:
        return (draw(between(low, high)),) * rank
    return tuple([draw(between(low, high)) for _ in range(rank)])


def _values(draw: DrawFn, shape: tuple[int, ...]) -> Typed:
    """A constant of quarters, few of them equal."""
    seed = draw(between(0, 7))
    array = np.random.default_rng(seed).integers(-8, 9, shape) / 8
    return Const(f32, shape, array.astype(np.float32).tobytes()), tensor(shape, f32)


def _number(value: float) -> Typed:
    return Const(f32, (), np.float32(value).tobytes()), tensor((), f32)


def _whole(value: int) -> Typed:
    return Const(i64, (), np.int64(value).tobytes()), tensor((), i64)


def _apply(op: str, *args: Typed | None, **attributes: Any) -> Typed | None:
    """An operator call, or None if an argument is missing or does not fit."""
    given = tuple([arg for arg in args if arg is not None])
    if len(given) < len(args):
        return None
    try:
        return typed_apply(op, given, **attributes)
    except PlicaError:  # an attribute that makes no sense for this tensor
        return None


# --- rows -----------------------------------------------------------------------------------------


def unary(draw: DrawFn, x: Typed, scope: GenerationScope) -> Typed | None:
    """An elementwise operator."""
    words = ("tanh", "nn.relu", "nn.sigmoid", "negative", "absolute", "nn.silu")
    return _apply(pick(draw, words), x)


def binary(draw: DrawFn, x: Typed, scope: GenerationScope) -> Typed | None:
    """Arithmetic with another tensor, or with a number."""
    same = [(expression.expr, expression.type) for expression in scope.pool]
    other = pick(draw, (_number(0.5), *same[::-1]))
    pair = (x, other) if draw(between(0, 1)) else (other, x)
    return _apply(pick(draw, ("add", "multiply", "subtract", "maximum")), *pair)


def reduced(draw: DrawFn, x: Typed, scope: GenerationScope) -> Typed | None:
    """A sum, a mean, a maximum, the variance: along one axis, two, or all."""
    if (axis := _axis(draw, x)) is None:
        return None
    other = draw(between(0, len(_shape(x)) - 1))
    axes = pick(draw, ((axis,), tuple(sorted({axis, other})), None))
    op = pick(draw, ("mean", "sum", "max", "min", "var", "logsumexp"))
    return _apply(op, x, axis=axes, keepdims=bool(draw(between(0, 1))))


def averaged(draw: DrawFn, x: Typed, scope: GenerationScope) -> Typed | None:
    """A mean over all axes but the first, or but two."""
    rank = len(_shape(x))
    axes = tuple(range(min(rank, draw(between(1, 2))), rank))
    return _apply(pick(draw, ("mean", "mean", "var")), x, axis=axes or None)


def centred(draw: DrawFn, x: Typed, scope: GenerationScope) -> Typed | None:
    """A tensor less its mean, or relative to its sum, along an axis."""
    if (axis := _axis(draw, x)) is None:
        return None
    middle = _apply(pick(draw, ("mean", "sum", "max")), x, axis=axis, keepdims=True)
    return _apply(pick(draw, ("subtract", "multiply")), x, middle)


def normed(draw: DrawFn, x: Typed, scope: GenerationScope) -> Typed | None:
    """A softmax or a norm."""
    if (axis := _axis(draw, x)) is None:
        return None
    last = known(_shape(x)[-1])
    op = pick(draw, ("nn.softmax", "nn.log_softmax", "nn.l2_normalize", "nn.layer_norm"))
    if op != "nn.layer_norm":
        return _apply(op, x, axis=axis)
    if last is None:
        return None
    return _apply(op, x, _values(draw, (last,)), _values(draw, (last,)))


def turned(draw: DrawFn, x: Typed, scope: GenerationScope) -> Typed | None:
    """Axes in another order."""
    rank = len(_shape(x))
    if rank < 2:
        return None
    return _apply("transpose", x, axes=tuple(draw(st.permutations(range(rank)))[::-1]))


def moved(draw: DrawFn, x: Typed, scope: GenerationScope) -> Typed | None:
    """Elements in another order along an axis, or sums of those before."""
    if (axis := _axis(draw, x)) is None:
        return None
    match pick(draw, ("flip", "roll", "cumsum", "cumsum back")):
        case "flip":
            return _apply("flip", x, axis=axis)
        case "roll":
            return _apply("roll", x, shift=draw(between(1, 2)), axis=axis)
        case "cumsum":
            return _apply("cumsum", x, axis=axis)
        case _:
            return _apply("cumsum", x, axis=axis, reverse=True, exclusive=True)


def reshaped(draw: DrawFn, x: Typed, scope: GenerationScope) -> Typed | None:
    """Two axes as one, one as two, all as one, or one more of size 1."""
    shape = _shape(x)
    if (axis := _axis(draw, x)) is None:
        return _apply("reshape", x, shape=(1,))
    kind = pick(draw, ("merged", "flat", "split", "unit"))
    if kind == "merged" and axis:
        new = (*shape[: axis - 1], product(shape[axis - 1 : axis + 1]), *shape[axis + 1 :])
        return _apply("reshape", x, shape=new)
    size = known(shape[axis])
    if kind == "split" and size and size % 2 == 0:
        parts = (Lit(2, i64), Lit(size // 2, i64))
        return _apply("reshape", x, shape=(*shape[:axis], *parts, *shape[axis + 1 :]))
    if kind == "unit":
        return _apply("expand_dims", x, axis=axis)
    return _apply("reshape", x, shape=(product(shape),))


def padded(draw: DrawFn, x: Typed, scope: GenerationScope) -> Typed | None:
    """A border."""
    if not _shape(x):
        return None
    before, after = _alike(draw, x, 0, 2), _alike(draw, x, 0, 1)
    widths = tuple(zip(before, after, strict=True))
    return _apply("pad", x, pad_width=widths, mode=pick(draw, ("constant", "edge")))


def sliced(draw: DrawFn, x: Typed, scope: GenerationScope) -> Typed | None:
    """A part of an axis: without its ends, every second element, the first few."""
    if (axis := _axis(draw, x)) is None:
        return None
    ends = ((1, None, 1), (0, None, 2), (0, -1, 1), (1, -1, 2), (0, 3, 1), (1, 2**31, 3))
    start, stop, step = pick(draw, ends)
    axes = sorted({axis, draw(between(0, len(_shape(x)) - 1))})
    stops = tuple([_shape(x)[at] if stop is None else stop for at in axes])
    starts, steps = (start,) * len(axes), (step,) * len(axes)
    return _apply("slice", x, starts=starts, stops=stops, steps=steps, axes=tuple(axes))


def halved(draw: DrawFn, x: Typed, scope: GenerationScope) -> Typed | None:
    """Every second or third element of all axes whose sizes are open, or the greatest of them."""
    every = [at for at, size in enumerate(_shape(x)) if known(size) is None]
    step = draw(between(2, 3))
    if len(_shape(x)) == 4 and draw(between(0, 1)):
        return _apply("nn.max_pool", x, kernel=(step, step), strides=(step, step))
    stops = tuple([_shape(x)[at] for at in every])
    starts, steps = (draw(between(0, 1)),) * len(every), (step,) * len(every)
    return _apply("slice", x, starts=starts, stops=stops, steps=steps, axes=tuple(every))


def joined(draw: DrawFn, x: Typed, scope: GenerationScope) -> Typed | None:
    """Tensors one after another, or on top of one another."""
    if (axis := _axis(draw, x)) is None:
        return None
    rest = _without(x, axis)
    fits = [(e.expr, e.type) for e in scope.pool if _without((e.expr, e.type), axis) == rest]
    other = pick(draw, fits[::-1] or [x])
    same = [fit for fit in fits if fit[1] is x[1]]
    if same and draw(between(0, 4)) == 4:
        return _apply("stack", x, pick(draw, same), axis=axis)
    return _apply("concat", x, other, axis=axis)


def _without(x: Typed, axis: int) -> tuple[Scalar, ...] | None:
    shape = _shape(x)
    return (*shape[:axis], *shape[axis + 1 :]) if axis < len(shape) else None


def repeated(draw: DrawFn, x: Typed, scope: GenerationScope) -> Typed | None:
    """A tensor several times."""
    if (axis := _axis(draw, x)) is None:
        return None
    if draw(between(0, 1)):
        return _apply("repeat", x, repeats=2, axis=axis)
    return _apply("tile", x, reps=tuple([2 if at == axis else 1 for at in range(len(_shape(x)))]))


def pooled(draw: DrawFn, x: Typed, scope: GenerationScope) -> Typed | None:
    """A pool; strides halve sizes."""
    inner = len(_shape(x)) - 2
    if inner < 1:
        return None
    kind = pick(draw, ("nn.max_pool", "nn.avg_pool", "nn.global_avg_pool", "nn.global_max_pool"))
    if kind.startswith("nn.global"):
        return _apply(kind, x)
    kernel, strides = _alike(draw, x, 1, 3)[2:], _alike(draw, x, 1, 3)[2:]
    border = min(1, min(kernel) - 1) * draw(between(0, 1))
    whole = {"kernel": kernel, "strides": strides, "padding": border}
    return _apply(kind, x, **whole, ceil_mode=draw(between(0, 3)) == 3)


def convolved(draw: DrawFn, x: Typed, scope: GenerationScope) -> Typed | None:
    """A convolution with known weights."""
    shape = _shape(x)
    channels = known(shape[1]) if len(shape) > 2 else None
    if not channels or channels > 16 or len(shape) > 4:
        return None
    inner, strides = _alike(draw, x, 1, 3)[2:], _alike(draw, x, 1, 2)[2:]
    weights = _values(draw, (pick(draw, (2, 4, 16, 3)), channels, *inner))
    return _apply("nn.conv", x, weights, strides=strides, padding=draw(between(0, 1)))


def enlarged(draw: DrawFn, x: Typed, scope: GenerationScope) -> Typed | None:
    """An image enlarged by repeating elements."""
    if len(_shape(x)) != 4:
        return None
    return _apply("nn.upsample", x, scale=tuple([draw(between(1, 2)) for _ in range(2)]))


def multiplied(draw: DrawFn, x: Typed, scope: GenerationScope) -> Typed | None:
    """A matrix product: with constant weights, another tensor, or its own transpose."""
    shape = _shape(x)
    if len(shape) < 2:
        return None
    last = known(shape[-1])
    if last and last <= 64 and draw(between(0, 1)) == 0:
        return _apply("matmul", x, _values(draw, (last, pick(draw, (4, 16, 1)))))
    fits = [(expression.expr, expression.type) for expression in scope.pool]
    made = [fit for fit in fits if len(_shape(fit)) > 1 and _shape(fit)[-2] is shape[-1]]
    with_another = draw(between(0, 1)) == 1
    if made and with_another:
        return _apply("matmul", x, pick(draw, made))
    order = (*range(len(shape) - 2), len(shape) - 1, len(shape) - 2)
    other = _apply("transpose", x, axes=order)
    return _apply("matmul", *((x, other) if draw(between(0, 1)) else (other, x)))


def gathered(draw: DrawFn, x: Typed, scope: GenerationScope) -> Typed | None:
    """A gather by computed indices: each of the first half twice, or one for all."""
    if (axis := _axis(draw, x)) is None:
        return None
    if draw(between(0, 1)):
        return _apply("take", x, _indices((0, 0)), axis=axis)
    half = _apply("floor_divide", _apply("iota_like", x, axis=axis), _whole(2))
    return _apply("take_along_axis", x, half, axis=axis)


def _indices(values: tuple[int, ...]) -> Typed:
    data = np.asarray(values, np.int64)
    return Const(i64, (len(values),), data.tobytes()), tensor((len(values),), i64)


def sized(draw: DrawFn, x: Typed, scope: GenerationScope) -> Typed | None:
    """A tensor times a size, as a number."""
    axis = _axis(draw, x)
    many = _apply("size", x, axis=axis)
    scaled = _apply("multiply", _apply("cast", many, dtype=f32), _number(0.125))
    return _apply("multiply", x, scaled)


def masked(draw: DrawFn, x: Typed, scope: GenerationScope) -> Typed | None:
    """A tensor with zeros where an index says so."""
    if (axis := _axis(draw, x)) is None:
        return None
    if len(_shape(x)) > 1 and draw(between(0, 1)):
        return _apply(pick(draw, ("tril", "triu")), x)
    first = _apply("less", _apply("iota_like", x, axis=axis), _whole(draw(between(1, 3))))
    return _apply("where", first, x, _number(0.0))


def chosen(draw: DrawFn, x: Typed, scope: GenerationScope) -> Typed | None:
    """One of two tensors of a type, as a size says."""
    axis = _axis(draw, x)
    many = _apply("size", x, axis=axis)
    test = _apply("less", many, _whole(draw(between(2, 6))))
    other = _apply(pick(draw, ("tanh", "negative")), x)
    if test is None or other is None:
        return None
    return If(test[0], x[0], other[0]), x[1]


ROWS: Final[tuple[Row, ...]] = (
    unary, binary, reduced, centred, turned, reshaped, pooled, convolved, multiplied, padded,
    sliced, joined, normed, moved, repeated, enlarged, gathered, sized, masked, chosen,
    pooled, convolved, reduced, reshaped, joined, halved, halved,
    halved, halved, convolved, averaged,
)  # fmt: skip

ENDS: Final[tuple[Row, ...]] = (averaged, reduced, averaged, multiplied, reshaped, averaged)
"""Operators that constrain sizes, weighted by how often programs end with them."""
