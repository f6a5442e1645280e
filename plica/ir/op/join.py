"""Joining and cutting: tensors put together, cut apart, cut out and surrounded.

>>> from plica.ir.dim import dim_var
>>> from plica.ir.type import tensor
>>> n, m = dim_var("n"), dim_var("m")
>>> found = concat.relation({"axis": 0}, tensor((n, 4), "f32"), tensor((m, 4), "f32"))
>>> same_dim(found.shape[0], n + m)
True
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from plica.ir.dim import known, normal_dim, quotient, same_dim
from plica.ir.op.attribute import (
    attribute,
    axes,
    axis,
    bounds,
    choice,
    dims,
    integer,
    integers,
    natural,
    number,
    optional,
    pairs,
    positive,
)
from plica.ir.op.record import Body, plus, primitive, times, tuple_of
from plica.ir.op.relation import (
    Shape,
    axis_of,
    literal,
    rank_at_least,
    refuse,
    same,
    shown,
)
from plica.ir.operator import Values
from plica.ir.scalar import And, Buffer, Eq, FloorMod, Le, Lit, Lt, Max, Min, Scalar, Select, index
from plica.ir.tensor import Compute, compute
from plica.ir.type import TensorType, TupleType

# --- putting together ----------------------------------------------------------------------------


def _concat_rule(attrs: Values, *given: TensorType) -> TensorType:
    first = given[0]
    rank = len(first.shape)
    at = axis_of("concat", attrs["axis"], rank)
    whole = first.shape[at]
    for each in given[1:]:
        if len(each.shape) != rank:
            refuse("shape-conflict", "concat takes tensors of one rank.", str(first), str(each))
        for other in range(rank):
            if other != at:
                same("concat", f"axis {other}", first.shape[other], each.shape[other])
        whole = whole + each.shape[at]
    return TensorType((*first.shape[:at], whole, *first.shape[at + 1 :]), first.dtype)


def _concat_body(attrs: Values, out: TensorType, *given: Buffer) -> Compute:
    at = axis_of("concat", attrs["axis"], len(out.shape))
    starts: list[Scalar] = [index(0)]
    for each in given:
        starts.append(normal_dim(starts[-1] + each.shape[at]))

    def element(*i: Scalar) -> Scalar:
        chosen: Scalar | None = None
        for each, start, stop in reversed(list(zip(given, starts, starts[1:], strict=False))):
            inside = i[at] if known(start) == 0 else i[at] - start
            load = each[(*i[:at], inside, *i[at + 1 :])]
            chosen = load if chosen is None else Select(Lt(i[at], stop), load, chosen)
        assert chosen is not None
        return chosen

    return compute(given, out.shape, element)


concat = primitive(
    "concat",
    ("*values",),
    _concat_rule,
    _concat_body,
    "Tensors one after the other along an axis.",
    attributes=(attribute("axis", axis, 0),),
    onnx=("Concat",),
    aliases=("concatenate",),
)


def _stack_rule(attrs: Values, *given: TensorType) -> TensorType:
    first = given[0]
    at = axis_of("stack", attrs["axis"], len(first.shape) + 1)
    for each in given[1:]:
        if len(each.shape) != len(first.shape) or not all(map(same_dim, each.shape, first.shape)):
            refuse("shape-conflict", "stack takes tensors of one shape.", str(first), str(each))
    return TensorType((*first.shape[:at], index(len(given)), *first.shape[at:]), first.dtype)


def _stack_body(attrs: Values, out: TensorType, *given: Buffer) -> Compute:
    at = axis_of("stack", attrs["axis"], len(out.shape))

    def element(*i: Scalar) -> Scalar:
        inside = (*i[:at], *i[at + 1 :])
        chosen = given[-1][inside]
        for number_, each in reversed(list(enumerate(given[:-1]))):
            chosen = Select(Eq(i[at], index(number_)), each[inside], chosen)
        return chosen

    return compute(given, out.shape, element)


stack = primitive(
    "stack",
    ("*values",),
    _stack_rule,
    _stack_body,
    "Tensors of one shape along a new axis.",
    attributes=(attribute("axis", axis, 0),),
)

# --- cutting apart -------------------------------------------------------------------------------


def _cuts(attrs: Values, shape: Shape) -> tuple[int, list[Scalar]]:
    """The axis, and where the parts begin and the last one ends."""
    at = axis_of("split", attrs["axis"], len(shape))
    whole, given = shape[at], attrs["indices_or_sections"]
    if isinstance(given, int):
        part = quotient(whole, index(given))
        if part is None:
            message = "split makes parts of one size."
            refuse("shape-conflict", message, f"a multiple of {given}", shown((whole,)))
        return at, [normal_dim(times(part, number_)) for number_ in range(given + 1)]
    inner = [normal_dim(Min(cut, whole)) for cut in given]
    return at, [index(0), *inner, whole]


def _nonnegative(value: Scalar) -> Scalar:
    return normal_dim(Max(value, index(0))) if known(value) is not None else value


def _split_rule(attrs: Values, x: TensorType) -> TupleType:
    at, cuts = _cuts(attrs, x.shape)
    return tuple_of(
        [
            TensorType(
                (*x.shape[:at], _nonnegative(normal_dim(stop - start)), *x.shape[at + 1 :]),
                x.dtype,
            )
            for start, stop in pairwise(cuts)
        ]
    )


def _split_body(attrs: Values, out: TupleType, x: Buffer) -> tuple[Compute, ...]:
    at, cuts = _cuts(attrs, x.shape)

    def part(start: Scalar, of: TensorType) -> Compute:
        return compute((x,), of.shape, lambda *i: x[(*i[:at], plus(i[at], start), *i[at + 1 :])])

    return tuple(
        part(start, of)
        for start, of in zip(cuts, out.items, strict=False)
        if isinstance(of, TensorType)
    )


def _sections(value: object) -> object:
    return dims(value) if isinstance(value, list | tuple) else positive(value)


split = primitive(
    "split",
    ("x",),
    _split_rule,
    _split_body,
    "x in several equal parts along an axis, or cut before the given ascending indices.",
    attributes=(attribute("indices_or_sections", _sections), attribute("axis", axis, 0)),
    onnx=("Split",),
)

# --- cutting out ---------------------------------------------------------------------------------


class Cut(NamedTuple):
    """One axis of a slice: `length` places from `start` by `step`."""

    start: Scalar
    step: int
    length: Scalar


def cut(size: Scalar, start: Scalar | None, stop: Scalar | None, step: int) -> Cut:
    """Python's slice of an axis; negative numbers count from the end, all is cut to the axis."""
    low, high = (0, size) if step > 0 else (-1, normal_dim(size - 1))

    def end(value: Scalar) -> Scalar:
        number_ = known(value)
        if number_ is None or number_ >= 0:
            return index(0) if number_ == 0 and step > 0 else normal_dim(Min(value, high))
        return normal_dim(Max(size + value, index(low)))

    if step > 0:
        # A start past the end needs no cutting: the length is then 0 anyway.
        begin = index(0) if start is None else start
        first = end(begin) if (known(begin) or 0) < 0 else begin
        last = size if stop is None else end(stop)
        span = normal_dim(last - first)
    else:
        first = high if start is None else end(start)
        last = index(-1) if stop is None else end(stop)
        span = normal_dim(first - last)
    stride = abs(step)
    length = normal_dim((span + (stride - 1)) // stride) if stride > 1 else span
    whole = known(first) == 0 and step > 0  # then the span is a size already
    return Cut(first, step, length if whole else normal_dim(Max(length, index(0))))


def _slice_cuts(attrs: Values, shape: Shape) -> dict[int, Cut]:
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
    cuts: dict[int, Cut] = {}
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


def _slice_body(attrs: Values, out: TensorType, x: Buffer) -> Compute:
    cuts = _slice_cuts(attrs, x.shape)

    def place(at: int, axis_: Scalar) -> Scalar:
        if at not in cuts:
            return axis_
        start, step, _ = cuts[at]
        return plus(times(axis_, step), start) if step > 0 else start - times(axis_, -step)

    return compute((x,), out.shape, lambda *i: x[tuple(place(at, a) for at, a in enumerate(i))])


slice_ = primitive(
    "slice",
    ("x",),
    _slice_rule,
    _slice_body,
    "x[start:stop:step] along axes, as Python slices; None is an open end.",
    attributes=(
        attribute("starts", bounds),
        attribute("stops", bounds),
        attribute("steps", optional(integers), None),
        attribute("axes", axes, None),
    ),
    onnx=("Slice",),
    aliases=("strided_slice",),
)


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
    length = normal_dim(Min(rows, columns))
    if k or known(length) is not None:
        length = normal_dim(Max(length, index(0)))
    rest = tuple(s for at, s in enumerate(x.shape) if at not in (a, b))
    return TensorType((*rest, length), x.dtype)


def _diagonal_body(attrs: Values, out: TensorType, x: Buffer) -> Compute:
    a, b = _diagonal_axes(attrs, len(x.shape))
    k = attrs["offset"]

    def element(*i: Scalar) -> Scalar:
        rest = iter(i[:-1])
        own = {a: plus(i[-1], max(-k, 0)), b: plus(i[-1], max(k, 0))}
        return x[tuple(own[at] if at in own else next(rest) for at in range(len(x.shape)))]

    return compute((x,), out.shape, element)


diagonal = primitive(
    "diagonal",
    ("x",),
    _diagonal_rule,
    _diagonal_body,
    "The diagonal of two axes, as the last axis.",
    attributes=(
        attribute("offset", integer, 0),
        attribute("axis1", axis, 0),
        attribute("axis2", axis, 1),
    ),
)


def _triangle_rule(attrs: Values, x: TensorType) -> TensorType:
    rank_at_least("tril and triu", x, 2)
    return x


def _triangle_body(lower: bool) -> Body:
    def body(attrs: Values, out: TensorType, x: Buffer) -> Compute:
        def element(*i: Scalar) -> Scalar:
            row, column = plus(i[-2], attrs["k"]), i[-1]
            inside = Le(column, row) if lower else Le(row, column)
            return Select(inside, x[i], Lit(0, x.dtype))

        return compute((x,), out.shape, element)

    return body


tril = primitive(
    "tril",
    ("x",),
    _triangle_rule,
    _triangle_body(True),
    "The lower triangle of the last two axes up to diagonal k, zeros elsewhere.",
    attributes=(attribute("k", integer, 0),),
    onnx=("Trilu",),
)
triu = primitive(
    "triu",
    ("x",),
    _triangle_rule,
    _triangle_body(False),
    "The upper triangle of the last two axes from diagonal k, zeros elsewhere.",
    attributes=(attribute("k", integer, 0),),
)

# --- surrounding ---------------------------------------------------------------------------------


def _widths(attrs: Values, rank: int) -> tuple[tuple[int, int], ...]:
    given = attrs["pad_width"]
    if isinstance(given, int):
        return ((given, given),) * rank
    if len(given) != rank:
        message = "pad takes one pair (before, after) for each axis."
        refuse("bad-attribute", message, f"{rank} pairs", str(len(given)))
    return tuple(given)


def _pad_rule(attrs: Values, x: TensorType) -> TensorType:
    widths = _widths(attrs, len(x.shape))
    literal("pad", attrs["constant_values"], x.dtype)
    shape = []
    for size, (before, after) in zip(x.shape, widths, strict=True):
        if attrs["mode"] != "constant" and known(size) == 0 and before + after:
            message = "pad has nothing to repeat along an empty axis."
            refuse("shape-conflict", message, "an axis of size 1 or more", str(x))
        shape.append(plus(size, before + after))
    return TensorType(tuple(shape), x.dtype)


def _mirrored(at: Scalar, size: Scalar, mode: str) -> Scalar:
    """The place in an axis that a place outside of it repeats."""
    if mode == "edge":
        return Max(index(0), Min(at, size - 1))
    if mode == "wrap":
        return FloorMod(at, size)
    # A reflection has a period: there and back, without the ends twice or with them.
    period = size * 2 - 2 if mode == "reflect" else size * 2
    inside = FloorMod(at, normal_dim(period))
    return Min(inside, normal_dim(period if mode == "reflect" else period - 1) - inside)


def _pad_body(attrs: Values, out: TensorType, x: Buffer) -> Compute:
    widths = _widths(attrs, len(x.shape))

    def element(*i: Scalar) -> Scalar:
        inside: list[Scalar] = []
        places = []
        for at, size, (before, after) in zip(i, x.shape, widths, strict=True):
            place = plus(at, -before)
            if attrs["mode"] == "constant":
                inside += [Le(index(0), place)] if before else []
                inside += [Lt(place, size)] if after else []
                places.append(place)
            else:
                places.append(_mirrored(place, size, attrs["mode"]) if before + after else place)
        return guarded(inside, x[tuple(places)], Lit(attrs["constant_values"], x.dtype))

    return compute((x,), out.shape, element)


def guarded(conditions: Sequence[Scalar], value: Scalar, orelse: Scalar) -> Scalar:
    """The value where all conditions hold."""
    if not conditions:
        return value
    whole = conditions[0]
    for each in conditions[1:]:
        whole = And(whole, each)
    return Select(whole, value, orelse)


def _pad_width(value: object) -> object:
    return pairs(value) if isinstance(value, list | tuple) else natural(value)


pad = primitive(
    "pad",
    ("x",),
    _pad_rule,
    _pad_body,
    "x surrounded by a constant, its edge, its mirror image or its repetition.",
    attributes=(
        attribute("pad_width", _pad_width),
        attribute("mode", choice("constant", "edge", "reflect", "symmetric", "wrap"), "constant"),
        attribute("constant_values", number, 0),
    ),
    onnx=("Pad",),
    aliases=("nn.pad",),
)
