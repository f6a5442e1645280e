"""Cutting out: parts of a tensor by their places.

>>> from plica.ir.type.term import tensor
>>> _, attrs = slice_.bind((1.0,), {"starts": 1, "stops": None, "steps": 2})
>>> [size.value for size in slice_.relation(dict(attrs), tensor((6, 2), "f32")).shape]
[3, 2]
"""

from __future__ import annotations

from typing import Final, NamedTuple

from plica.ir.graph.expression import Expr
from plica.ir.graph.operator import Operator, Values
from plica.ir.loop import scalar as sc
from plica.ir.loop.tensor import Compute, compute
from plica.ir.op.attribute import attribute, axes, axis, bounds, dims, integer, integers, optional
from plica.ir.op.cotangent import pad, reshape, transpose, word
from plica.ir.op.pad import guarded
from plica.ir.op.record import Body, plus, primitive, tensor_of, times
from plica.ir.op.relation import Shape, axis_of, need, rank_at_least, refuse
from plica.ir.type import TensorType, greater, is_size, known, lesser, normal_dim, same_dim

flip, expand_dims, eye = word("flip"), word("expand_dims"), word("eye")
iota, scatter_sum = word("iota"), word("scatter_sum")


FARTHEST: Final = 1 << 46  # no axis is longer, so a bound beyond this is as good as this


class AxisSlice(NamedTuple):
    """One axis of a slice: `length` places from `start` by `step`."""

    start: sc.Scalar
    step: int
    length: sc.Scalar


def cut(size: sc.Scalar, start: sc.Scalar | None, stop: sc.Scalar | None, step: int) -> AxisSlice:
    """Python's slice of an axis: negative numbers count from the end, and bounds are clamped to it.

    A symbolic bound must not be negative (`place_of_bound` makes it so): its sign decides a shape.
    """
    for bound in (start, stop):
        if bound is not None:
            need(bound)
    low, high = (0, size) if step > 0 else (-1, normal_dim(size - 1))

    def end(value: sc.Scalar) -> sc.Scalar:
        number_ = known(value)
        if number_ is None or number_ >= 0:
            return sc.index(0) if number_ == 0 and step > 0 else lesser(value, high)
        return greater(size + value, sc.index(low))

    if step > 0:
        # A start past the end needs no cutting: the length is then 0 anyway.
        begin = sc.index(0) if start is None else start
        first = end(begin) if (known(begin) or 0) < 0 else begin
        last = size if stop is None else end(stop)
        span = normal_dim(last - first)
    else:
        first = high if start is None else end(start)
        last = sc.index(-1) if stop is None else end(stop)
        span = normal_dim(first - last)
    stride = abs(step)
    length = normal_dim((span + (stride - 1)) // stride) if stride > 1 else span
    whole = known(first) == 0 and step > 0  # then the span is a size already
    return AxisSlice(first, step, length if whole else greater(length, sc.index(0)))


def place_of_bound(bound: sc.Scalar | int, size: sc.Scalar, shift: int = 0) -> sc.Scalar:
    """The place `shift` behind a slice bound, never below 0; a negative bound counts from the end.

    A place past the end of the axis is not brought back into it.

    >>> from plica.ir.type.dim import dim_var, evaluate
    >>> n, m = dim_var("n"), dim_var("m")
    >>> [evaluate(place_of_bound(m - 3, n), {n: 5, m: size}) for size in (0, 2, 3, 9)]
    [2, 4, 0, 6]
    """
    value = sc.index(max(-FARTHEST, min(FARTHEST, bound))) if isinstance(bound, int) else bound
    zero = sc.index(0)
    forward = greater(value + shift, zero)
    distance = known(normal_dim(size - value))
    if is_size(value) or (distance is not None and 0 < distance <= 2 - shift):
        return forward  # a negative `size - 1` counts back to a place before the axis
    is_negative = lesser(greater(normal_dim(zero - value), zero), sc.index(1))
    return normal_dim(forward + is_negative * greater(size + value + shift, zero))


def _slice_cuts(attrs: Values, shape: Shape) -> dict[int, AxisSlice]:
    starts, stops, steps, chosen = (attrs[name] for name in ("starts", "stops", "steps", "axes"))
    steps = (1,) * len(starts) if steps is None else steps
    chosen = tuple(range(len(starts))) if chosen is None else chosen
    if not len(starts) == len(stops) == len(steps) == len(chosen):
        refuse(
            "bad-attribute",
            "slice takes as many starts as stops, steps and axes.",
            f"{len(starts)} of each",
            f"{len(stops)} stops, {len(steps)} steps, {len(chosen)} axes",
        )
    if 0 in steps:
        refuse("bad-attribute", "slice takes steps other than 0.", "a step", "0")
    cuts: dict[int, AxisSlice] = {}
    for start, stop, step, at in zip(starts, stops, steps, chosen, strict=True):
        at = axis_of("slice", at, len(shape))
        if at in cuts:
            refuse("bad-attribute", f"slice names axis {at} twice.", "different axes", str(chosen))
        cuts[at] = cut(shape[at], start, stop, step)
    return cuts


def _slice_rule(attrs: Values, x: TensorType) -> TensorType:
    cuts = _slice_cuts(attrs, x.shape)
    return TensorType(
        tuple(cuts[at].length if at in cuts else s for at, s in enumerate(x.shape)), x.dtype
    )


def _slice_body(attrs: Values, out: TensorType, x: sc.Buffer) -> Compute:
    cuts = _slice_cuts(attrs, x.shape)

    def place(at: int, axis_: sc.Scalar) -> sc.Scalar:
        if at not in cuts:
            return axis_
        start, step, _ = cuts[at]
        return plus(times(axis_, step), start) if step > 0 else start - times(axis_, -step)

    return compute((x,), out.shape, lambda *i: x[tuple(place(at, a) for at, a in enumerate(i))])


def _slice_pullback(attrs: Values, d: Expr, y: Expr, x: Expr) -> list[Expr | None]:
    whole, shape = tensor_of(x), list(tensor_of(y).shape)
    cuts = _slice_cuts(attrs, whole.shape)
    sides = [(0, 0)] * len(shape)
    for at, (start, step, length) in sorted(cuts.items()):
        size, first, count = known(whole.shape[at]), known(start), known(length)
        if size is None or first is None or count is None:
            how = {name: attrs[name] for name in ("starts", "stops", "steps", "axes")}
            return [unslice(d, **how, shape=whole.shape)]
        stride = abs(step)
        last = first
        if step < 0:
            d = flip(d, axis=(at,))
            first = last - (count - 1) * stride
        if stride > 1 and count:  # zeros after each element but the last
            inner = [(0, 0)] * (len(shape) + 1)
            inner[at + 1] = (0, stride - 1)
            d = pad(reshape(d, (*shape[: at + 1], sc.index(1), *shape[at + 1 :])), tuple(inner))
            d = reshape(d, (*shape[:at], sc.index(count * stride), *shape[at + 1 :]))
            shape[at] = sc.index(count * stride - (stride - 1))
            d = slice_(d, (0,), (shape[at],), axes=(at,))
        held = known(shape[at]) or 0
        sides[at] = (first, size - first - held) if count else (0, size)
    return [pad(d, tuple(sides)) if any(side != (0, 0) for side in sides) else d]


slice_ = primitive(
    "slice", ("x",), _slice_rule, _slice_body,
    "x[start:stop:step] along axes, as Python slices; None is an open end. A symbolic end must not "
    "be negative.",
    attributes=(
        attribute("starts", bounds),
        attribute("stops", bounds),
        attribute("steps", optional(integers), None),
        attribute("axes", axes, None),
    ),
    onnx=("Slice",), aliases=("strided_slice",), gradient=_slice_pullback,
)  # fmt: skip


# --- and back ------------------------------------------------------------------------------------


def _unslice_rule(attrs: Values, x: TensorType) -> TensorType:
    whole = TensorType(tuple(map(normal_dim, attrs["shape"])), x.dtype)
    part = _slice_rule(attrs, whole)
    if len(part.shape) != len(x.shape) or not all(map(same_dim, part.shape, x.shape)):
        refuse("shape-conflict", "unslice takes what such a slice gives.", str(part), str(x))
    return whole


def _unslice_body(attrs: Values, out: TensorType, x: sc.Buffer) -> Compute:
    cuts = _slice_cuts(attrs, out.shape)

    def element(*i: sc.Scalar) -> sc.Scalar:
        places: list[sc.Scalar] = []
        checks: list[sc.Scalar] = []
        for at, axis_ in enumerate(i):
            if at not in cuts:
                places.append(axis_)
                continue
            start, step, length = cuts[at]
            away = axis_ - start if step > 0 else start - axis_
            if abs(step) > 1:
                checks.append(sc.Eq(sc.FloorMod(away, sc.index(abs(step))), sc.index(0)))
                away = sc.FloorDiv(away, sc.index(abs(step)))
            checks += [sc.Le(sc.index(0), away), sc.Lt(away, length)]
            places.append(away)
        return guarded(checks, x[tuple(places)], sc.Lit(0, x.dtype))

    return compute((x,), out.shape, element)


unslice = primitive(
    "unslice", ("x",), _unslice_rule, _unslice_body,
    "The transpose of slice: x at the elements that the slice reads, zeros elsewhere.",
    attributes=(*slice_.attributes, attribute("shape", dims)),
    gradient=lambda attrs, d, y, x: [
        slice_(d, **{each.name: attrs[each.name] for each in slice_.attributes})
    ],
)  # fmt: skip


def _diagonal_axes(attrs: Values, rank: int) -> tuple[int, int]:
    a, b = (axis_of("diagonal", attrs[name], rank) for name in ("axis1", "axis2"))
    if a == b:
        refuse("bad-attribute", "diagonal takes two different axes.", "two axes", str(a))
    return a, b


def _diagonal_rule(attrs: Values, x: TensorType) -> TensorType:
    rank_at_least("diagonal", x, 2)
    a, b = _diagonal_axes(attrs, len(x.shape))
    k = attrs["offset"]
    rows, columns = plus(x.shape[a], min(k, 0)), plus(x.shape[b], min(-k, 0))
    length = lesser(rows, columns)
    if k or known(length) is not None:
        length = greater(length, sc.index(0))
    rest = tuple(s for at, s in enumerate(x.shape) if at not in (a, b))
    return TensorType((*rest, length), x.dtype)


def _diagonal_body(attrs: Values, out: TensorType, x: sc.Buffer) -> Compute:
    a, b = _diagonal_axes(attrs, len(x.shape))
    k = attrs["offset"]

    def element(*i: sc.Scalar) -> sc.Scalar:
        rest = iter(i[:-1])
        own = {a: plus(i[-1], max(-k, 0)), b: plus(i[-1], max(k, 0))}
        return x[tuple(own[at] if at in own else next(rest) for at in range(len(x.shape)))]

    return compute((x,), out.shape, element)


def _diagonal_pullback(attrs: Values, d: Expr, y: Expr, x: Expr) -> list[Expr | None]:
    whole, part = tensor_of(x), tensor_of(y)
    rank, k = len(whole.shape), attrs["offset"]
    a, b = _diagonal_axes(attrs, rank)
    length = part.shape[-1]
    rows = iota((length,)) + max(-k, 0)
    down = scatter_sum(d, rows, size=whole.shape[a], axis=rank - 2)
    square = expand_dims(down, (rank - 1,)) * eye(
        whole.shape[a], whole.shape[b], k=k, dtype=whole.dtype
    )
    rest = iter(range(rank - 2))
    order = tuple(
        rank - 2 if at == a else rank - 1 if at == b else next(rest) for at in range(rank)
    )
    return [transpose(square, order)]


diagonal = primitive(
    "diagonal", ("x",), _diagonal_rule, _diagonal_body,
    "The diagonal of two axes, as the last axis.",
    attributes=(
        attribute("offset", integer, 0),
        attribute("axis1", axis, 0),
        attribute("axis2", axis, 1),
    ),
    gradient=_diagonal_pullback,
)  # fmt: skip


def _triangle_rule(attrs: Values, x: TensorType) -> TensorType:
    rank_at_least("tril and triu", x, 2)
    return x


def _triangle_body(lower: bool) -> Body:
    def body(attrs: Values, out: TensorType, x: sc.Buffer) -> Compute:
        def element(*i: sc.Scalar) -> sc.Scalar:
            row, column = plus(i[-2], attrs["k"]), i[-1]
            inside = sc.Le(column, row) if lower else sc.Le(row, column)
            return sc.Select(inside, x[i], sc.Lit(0, x.dtype))

        return compute((x,), out.shape, element)

    return body


tril: Operator = primitive(
    "tril", ("x",), _triangle_rule, _triangle_body(True),
    "The lower triangle of the last two axes up to diagonal k, zeros elsewhere.",
    attributes=(attribute("k", integer, 0),), onnx=("Trilu",),
    gradient=lambda attrs, d, y, x: [tril(d, attrs["k"])],
)  # fmt: skip
triu: Operator = primitive(
    "triu", ("x",), _triangle_rule, _triangle_body(False),
    "The upper triangle of the last two axes from diagonal k, zeros elsewhere.",
    attributes=(attribute("k", integer, 0),), gradient=lambda attrs, d, y, x: [triu(d, attrs["k"])],
)  # fmt: skip
