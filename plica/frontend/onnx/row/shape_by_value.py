"""Rows that arrange elements by numbers which are only known when the model runs.

The size of each result is computed as the standard says, measured, and the elements are taken from
where they are: a slice, a border and a repetition are all places along an axis.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from plica.frontend.measured import MINUS, ONE, ZERO, Piece, amount, matched, places
from plica.frontend.onnx.node import OnnxNode
from plica.frontend.onnx.row.word import (
    Made,
    along,
    as_scalar,
    axes_in,
    dtype,
    like,
    rank,
    shape,
    to,
)
from plica.frontend.onnx.run_time import (
    at_least_zero,
    ceiling,
    clamped,
    demanded,
    lawful,
    reflected,
    reshaped,
    size_from,
    total_of,
    wrapped_index,
)
from plica.frontend.onnx.value import TensorValue
from plica.ir.graph.expression import Expr, const
from plica.ir.loop.scalar import Min, Scalar, index
from plica.ir.op.namespace import op
from plica.ir.type.dim import known, normal_dim, product, quotient, same_dim
from plica.ir.type.dtype import f32, f64, i64


def reshape_by_dims(
    node: OnnxNode, x: Expr, sizes: Sequence[Scalar | int], keep_zero: bool
) -> Expr:
    """A reshape to dims; what -1 stands for is computed where no quotient says it."""
    total = product(shape(x))
    rest = [index(e) if isinstance(e, int) else e for e in sizes if e != -1]
    left = None if known(product(rest)) == 0 else quotient(total, product(rest))
    wanted = [left if e == -1 else index(e) if isinstance(e, int) else e for e in sizes]
    if None not in wanted and (keep_zero or is_row_major(shape(x), [e for e in wanted if e])):
        return op.reshape(x, tuple(sizes)) if len(rest) < len(sizes) else reshaped(x, rest)
    if keep_zero and len(rest) < len(sizes):  # 0 and -1 together have no meaning
        x = op.match_shape(x, shape(x), least=(product(rest) - 1,))
    if not keep_zero:
        sizes = [copied(e, at, shape(x)) for at, e in enumerate(sizes)]
        rest = [index(e) if isinstance(e, int) else e for e in sizes if e != -1]
    if len(rest) == len(sizes):
        return reshaped(x, rest)
    known_part = op.maximum(amount(product(rest)), ONE)
    last = node.measured(amount(total) // known_part)
    return reshaped(x, [last if e == -1 else size_from(node, e) for e in sizes])


def is_row_major(old: Sequence[Scalar], new: Sequence[Scalar]) -> bool:
    """Whether a reshape only splits axes and merges neighbours.

    >>> from plica.ir.type.dim import dim_var
    >>> n, m = dim_var("n"), dim_var("m")
    >>> is_row_major((n * m, index(8)), (n, m, index(8))), is_row_major((n, m), (m, n))
    (True, False)
    """
    a, b = [e for e in old if known(e) != 1], [e for e in new if known(e) != 1]
    while a and b:
        if same_dim(a[-1], b[-1]):
            a, b = a[:-1], b[:-1]
        elif (part := quotient(a[-1], b[-1])) is not None:
            a, b = [*a[:-1], part], b[:-1]
        elif (part := quotient(b[-1], a[-1])) is not None:
            a, b = a[:-1], [*b[:-1], part]
        else:
            return False
    return not a and not b


def copied(size: Scalar | int, at: int, old: Sequence[Scalar]) -> Scalar | int:
    """A size of Reshape, which is that of the old axis where it is 0."""
    if isinstance(size, int) or at >= len(old) or quotient(old[at], size) is not None:
        return size  # a divisor of the old size is 0 only where that is
    return normal_dim(size + (1 - Min(size, index(1))) * old[at])


def reshape_by_value(node: OnnxNode, x: Expr, given: Sequence[Piece], keep_zero: bool) -> Expr:
    """Reshape: 0 is the size that x has there, -1 what is left over."""
    sizes: list[Piece] = []
    for at, each in enumerate(given):
        if keep_zero or (isinstance(each, int) and each != 0):
            sizes.append(each)
        elif isinstance(each, Scalar):
            sizes.append(copied(each, at, shape(x)))
        elif at >= rank(x):
            if isinstance(each, int):
                node.malformed("Reshape copies a size that is not there.", str(rank(x)), str(at))
            sizes.append(each)
        elif isinstance(each, int):
            sizes.append(shape(x)[at])
        else:
            sizes.append(op.where(op.equal(each, ZERO), amount(shape(x)[at]), each))
    open_ = [isinstance(each, Expr) or each == -1 for each in sizes]
    values = [amount(each) for each in sizes]
    said = [
        op.where(op.equal(v, MINUS), ONE, v) if o else v for v, o in zip(values, open_, strict=True)
    ]
    whole = op.maximum(total_of(said, op.multiply, ONE), ONE)
    left = amount(product(shape(x))) // whole
    found = [
        size_from(node, op.where(op.equal(value, MINUS), left, value), at) if late else
        size_from(node, each)
        for at, (each, value, late) in enumerate(zip(sizes, values, open_, strict=True))
    ]  # fmt: skip
    return reshaped(x, found)


def slice_by_value(
    node: OnnxNode, x: Expr, given: Sequence[Sequence[Piece]], axes: Sequence[Piece] | None
) -> Expr:
    """Slice: starts, ends and steps; the standard says how they are brought into the axis."""
    starts, stops = given[0], given[1]
    steps = given[2] if len(given) > 2 else [1] * len(starts)
    chosen: Sequence[Piece] = range(len(starts)) if axes is None else axes
    if not len(starts) == len(stops) == len(steps) == len(chosen):
        counts = f"{len(starts)}, {len(stops)}, {len(chosen)}, {len(steps)}"
        node.malformed("Slice has unequal numbers of starts, ends, axes and steps.", "one", counts)
    if any(isinstance(each, int) and each == 0 for each in steps):
        node.malformed("A step of Slice is 0.", "another step", "0")
    where_, fits = _chosen_axes(node, x, chosen)
    for axis in where_:
        length = amount(shape(x)[axis])
        start, stop, stride = (
            by_axis(chosen, some, axis, rank(x), other)
            for some, other in ((starts, ZERO), (stops, length), (steps, ONE))
        )
        first, end = (wrapped_index(each, length) for each in (start, stop))
        last = length - ONE
        forward = stride > ZERO
        first = op.where(forward, clamped(first, ZERO, length), clamped(first, ZERO, last))
        end = op.where(forward, clamped(end, ZERO, length), clamped(end, MINUS, last))
        by = op.where(op.equal(stride, ZERO), ONE, stride)
        count = at_least_zero(ceiling(end - first, by))
        count = lawful(lawful(count, fits, "axis"), op.logical_not(op.equal(stride, ZERO)), "step")
        size = node.measured(count, axis)
        x = op.take(x, first + places(size) * stride, axis=axis)
    return x


def split_by_value(node: OnnxNode, x: Expr, axis: int, parts: Sequence[Piece]) -> Made:
    """Split into parts of given lengths, which together are the axis."""
    if len(parts) != len(node.proto.output):
        count = str(len(node.proto.output))
        node.malformed("The parts of Split do not make up its axis.", count, str(len(parts)))
    sizes = [size_from(node, each, at) for at, each in enumerate(parts)]
    whole = total_size(sizes)
    x = matched(x, (*shape(x)[:axis], whole, *shape(x)[axis + 1 :]))
    starts = [index(0), *accumulate(sizes, lambda a, b: a + b)][:-1]
    return [
        op.take(x, places(size) + amount(start), axis=axis)
        for start, size in zip(starts, sizes, strict=True)
    ]


def total_size(sizes: Sequence[Scalar]) -> Scalar:
    """The sum of sizes."""
    whole: Scalar = index(0)
    for each in sizes:
        whole = whole + each
    return whole


def tile_by_value(node: OnnxNode, x: Expr, reps: Sequence[Piece]) -> Expr:
    """Tile: each axis stands so many times behind itself."""
    if len(reps) != rank(x):
        node.malformed("Tile takes one repetition for each axis.", str(rank(x)), str(len(reps)))
    times = [size_from(node, each, at) for at, each in enumerate(reps)]
    wide: list[Scalar] = []
    for count, size in zip(times, shape(x), strict=True):
        wide += [count, size]
    pairs = op.reshape(x, tuple(s for size in shape(x) for s in (index(1), size)))
    whole = [count * size for count, size in zip(times, shape(x), strict=True)]
    return op.reshape(op.broadcast_to(pairs, tuple(wide)), tuple(whole))


def pad_by_value(
    node: OnnxNode, x: Expr, widths: Sequence[Piece], axes: Sequence[Piece], mode: str
) -> Expr:
    """Pad: borders whose widths may be negative, which then cut off."""
    if len(widths) != 2 * len(axes):
        node.malformed("Pad takes a pair for each axis.", str(2 * len(axes)), str(len(widths)))
    if mode not in ("constant", "reflect", "edge", "wrap"):
        node.malformed("Pad has no such mode.", "constant, reflect, edge, wrap", repr(mode))
    given = node.value(2)
    fill = like(0, x) if given is None else to(as_scalar(given.expr), dtype(x))
    where_, fits = _chosen_axes(node, x, axes)
    for axis in where_:
        low, high = (
            by_axis(axes, widths[side * len(axes) :][: len(axes)], axis, rank(x), ZERO)
            for side in (0, 1)
        )
        if low is ZERO and high is ZERO:
            continue
        length = amount(shape(x)[axis])
        if mode == "constant":
            cut, kept = at_least_zero(ZERO - low), length
        else:  # what is cut off is no part of the border
            cut = at_least_zero(ZERO - low)
            kept = length - cut - at_least_zero(ZERO - high)
            widest = op.maximum(low, high)
            has_source = op.logical_or(widest < ONE, kept > ZERO)
            if mode == "reflect":  # a border is mirrored once
                has_source = op.logical_and(has_source, widest < op.maximum(kept, ONE))
            rest = product([s for other, s in enumerate(shape(x)) if other != axis])
            whole = (length + (low + high)) * amount(rest)
            fits = op.logical_and(fits, op.logical_or(has_source, op.equal(whole, ZERO)))
        size = node.measured(lawful(length + (low + high), fits, "border"), axis)
        at = places(size) - at_least_zero(low)
        if mode == "constant":
            at = places(size) - low
            x = taken_inside(x, at, fill, axis)
            continue
        if mode == "reflect":
            at = reflected(at, kept)
        elif mode == "wrap":
            at = at % op.maximum(kept, ONE)
        else:
            at = clamped(at, ZERO, kept - ONE)
        x = op.take(x, at + cut, axis=axis)
    return x


def center_by_value(node: OnnxNode, x: Expr, wanted: Sequence[Piece], axes: Sequence[int]) -> Expr:
    """CenterCropPad: as much is cut off, or put on, at both ends."""
    if len(wanted) != len(axes):
        node.malformed("CenterCropPad takes a size for each axis.", str(len(axes)), str(wanted))
    two = const(2, i64)
    for axis, piece in zip(axes, wanted, strict=True):
        length, size = amount(shape(x)[axis]), size_from(node, piece, axis)
        more = amount(size) - length
        border = at_least_zero(more) // two
        at = places(size) + (at_least_zero(-more) // two - border)
        x = taken_inside(x, at, like(0, x), axis)
    return x


def taken_inside(x: Expr, at: Expr, fill: Expr, axis: int) -> Expr:
    """x at places along an axis, `fill` where a place is outside of it."""
    size = shape(x)[axis]
    inside = op.logical_and(at > MINUS, at < amount(size))
    if not known(size):  # the axis may be empty: one place of `fill` stands behind it
        one = tuple(index(1) if other == axis else s for other, s in enumerate(shape(x)))
        x = op.concat((x, op.broadcast_to(fill, one)), axis=axis)
        return op.take(x, op.where(inside, at, amount(size)), axis=axis)
    taken = op.take(x, at, axis=axis, mode="clip")
    return op.where(along(inside, axis, rank(x)), taken, fill)


def triangle_by_value(x: Expr, offset: Expr, upper: bool) -> Expr:
    """What lies on one side of a diagonal, zeros elsewhere."""
    row, column = (op.iota_like(x, axis=rank(x) + side, dtype=i64) for side in (-2, -1))
    above = column - row - to(as_scalar(offset), i64)
    side = above > MINUS if upper else above < ONE
    return op.where(side, x, like(0, x))


def _chosen_axes(node: OnnxNode, x: Expr, axes: Sequence[Piece]) -> tuple[Sequence[int], Expr]:
    """The axes of x that some may name, and whether these are different axes of x."""
    numbers = axes_in(node, [each for each in axes if isinstance(each, int)], rank(x))
    if len(numbers) == len(axes):
        return numbers, const(True)
    if len(axes) > rank(x):
        node.malformed("More axes are named than there are.", str(rank(x)), str(len(axes)))
    named = [by_axis(axes, [1] * len(axes), at, rank(x), ZERO) for at in range(rank(x))]
    return range(rank(x)), are_axes(named, const(len(axes), i64))


def are_axes(named: Sequence[Expr], count: Expr) -> Expr:
    """Whether so many axes are different ones, all there: which of them are named says so."""
    return op.equal(total_of([to(each, i64) for each in named], op.add, ZERO), count)


def named_axes(axes: Expr, width: int) -> list[Expr]:
    """For each of `width` axes, whether a vector of axes names it."""
    named = wrapped_index(to(axes, i64), const(width, i64))
    return [op.any(op.equal(named, const(at, i64))) for at in range(width)]


def by_axis(
    axes: Sequence[Piece], given: Sequence[Piece], at: int, rank_: int, other: Expr
) -> Expr:
    """What is given for one axis of `rank_`, `other` where the axes do not name it."""
    found = other
    for axis, value in zip(axes, given, strict=True):
        if isinstance(axis, int):
            found = amount(value) if axis % rank_ == at else found
            continue
        here = op.equal(wrapped_index(amount(axis), const(rank_, i64)), const(at, i64))
        found = op.where(here, amount(value), found)
    return found


def squeeze_by_value(node: OnnxNode, x: Expr, axes: Expr, count_: int) -> Expr:
    """Squeeze: the sizes of the other axes, in their order."""
    gone = named_axes(axes, rank(x))
    x = demanded(node, x, are_axes(gone, const(count_, i64)), "axis")
    left = rank(x) - count_
    sizes: list[Expr] = []
    before: list[Expr] = []  # how many axes before each one stay
    count: Expr = ZERO
    for each in gone:
        before.append(count)
        count = count + op.where(each, ZERO, ONE)
    for number in range(left):
        chosen: Expr = ONE
        for at, size in enumerate(shape(x)):
            here = op.logical_and(
                op.equal(before[at], const(number, i64)), op.equal(gone[at], const(False))
            )
            chosen = op.where(here, amount(size), chosen)
        sizes.append(chosen)
    return reshaped(x, [node.measured(each, at) for at, each in enumerate(sizes)])


def unsqueeze_by_value(node: OnnxNode, x: Expr, axes: Expr, count_: int) -> Expr:
    """Unsqueeze: ones at the axes that are named, and the sizes of x between them."""
    width = rank(x) + count_
    new = named_axes(axes, width)
    x = demanded(node, x, are_axes(new, const(count_, i64)), "axis")
    sizes: list[Expr] = []
    count: Expr = ZERO
    for each in new:
        chosen: Expr = ONE
        for at, size in enumerate(shape(x)):
            chosen = op.where(op.equal(count, const(at, i64)), amount(size), chosen)
        sizes.append(op.where(each, ONE, chosen))
        count = count + op.where(each, ZERO, ONE)
    return reshaped(x, [node.measured(each, at) for at, each in enumerate(sizes)])


def range_by_value(
    node: OnnxNode, start: TensorValue, stop: TensorValue, step: TensorValue
) -> Expr:
    """Range: numbers from a start by a step."""
    first, end, by = (as_scalar(each.expr) for each in (start, stop, step))
    of = dtype(first)
    if (given := step.numbers()) is not None and not given.any():
        node.malformed("Range takes finite numbers and a step.", "a step", "0")
    fits = op.logical_not(op.equal(by, like(0, by)))
    if of.is_float:
        for each in (first, end, by):
            fits = op.logical_and(fits, op.absolute(to(each, f64)) < const(math.inf, f64))
        span = to(end - first, f64) / to(by, f64)
        count = to(op.ceil(span), i64)
    else:
        wide = to(by, i64)
        apart = to(end, i64) - to(first, i64)
        count = ceiling(apart, op.where(op.equal(wide, ZERO), ONE, wide))
    size = node.measured(lawful(at_least_zero(count), fits, "step"))
    return first + to(places(size), of) * by


def without_loss(node: OnnxNode, x: Expr, ratio: TensorValue | None, training: TensorValue) -> Expr:
    """x, where nothing of it is lost: in inference, or by a ratio of 0."""
    told = training.numbers()
    if told is not None and not node.scalar(2):
        return x
    share = np.asarray(0.5) if ratio is None else ratio.numbers()
    if share is not None and not share.any():
        return x
    if told is not None and share is not None:
        node.unsupported("Dropout in training draws random numbers.", "inference")
    least = const(0.5, f32) if ratio is None else as_scalar(ratio.expr)
    keeps = op.logical_or(op.logical_not(as_scalar(training.expr)), op.equal(least, like(0, least)))
    return demanded(node, x, keeps, "random")
