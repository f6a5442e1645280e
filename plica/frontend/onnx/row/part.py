"""Operators that join tensors, take parts of them, or give them borders."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Final

from plica.frontend.measured import MINUS, ONE, ZERO, Piece, amount, matched, places
from plica.frontend.onnx.node import OnnxNode
from plica.frontend.onnx.row import word
from plica.frontend.onnx.row.axis import by_axis, chosen_axes
from plica.frontend.onnx.run_time import (
    at_least_zero,
    ceiling,
    clamped,
    is_late,
    lawful,
    listed,
    numbers_of,
    pieces,
    reflected,
    size_from,
    wrapped_index,
)
from plica.frontend.onnx.value import TensorValue
from plica.ir.graph.expression import Expr, Project, const
from plica.ir.loop.scalar import Scalar, index
from plica.ir.op.cut import FARTHEST, place_of_bound
from plica.ir.op.namespace import op
from plica.ir.type import greater, i64, known, lesser, normal_dim, product, quotient

TWO: Final = const(2, i64)

MOST_PARTS: Final = 64  # splits into more parts are done part by part
FARTHEST_DIAGONAL: Final = 1 << 31  # no tensor has diagonals beyond that


def _concat(node: OnnxNode) -> Expr:
    return op.concat(node.all(), axis=node.integer("axis", 1 if node.opset < 4 else None))


# --- parts ---------------------------------------------------------------------------------------


def _split(node: OnnxNode) -> word.Made:
    x = node.x()
    axis = word.axis_in(node, node.integer("axis", 0), word.rank(x))
    count, size = len(node.proto.output), word.shape(x)[axis]
    given, whole = listed(node, "split", 1, 13, most=count), known(size)
    said = node.integer("num_outputs", count)
    if node.has("num_outputs") and (given is not None or said != count):
        node.malformed("Split says num_outputs and makes others.", str(said), str(count))
    if given is None and whole is None:
        if count > MOST_PARTS:
            message = "Split into a number of parts needs an axis of known size."
            node.unsupported(message, f"at most {MOST_PARTS}", str(count))
        if known(normal_dim(size % count)) == 0:
            if node.opset >= 18:  # no part is empty
                x = op.match_shape(x, word.shape(x), least=(size - 1,))
            parts = op.split(x, count, axis=axis)
            return [Project(parts, at) for at in range(count)]
    parts_ = _shares(node, size, count) if given is None else given
    if len(parts_) != count:
        node.malformed("The parts of Split do not make up its axis.", str(count), str(len(parts_)))
    sizes = numbers_of(parts_)
    if sizes is None or whole is None:
        return cut_into(x, axis, [size_from(node, each, at) for at, each in enumerate(parts_)])
    if any(each < 0 for each in sizes) or whole != sum(sizes):
        node.malformed("The parts of Split do not make up its axis.", str(whole), str(sizes))
    if count == 1:
        return node.x()
    ends = tuple(accumulate(sizes))
    if count > MOST_PARTS:  # the type of a tuple is as long as the tuple, at each of its parts
        starts = (0, *ends[:-1])
        return [op.slice(x, (a,), (b,), None, (axis,)) for a, b in zip(starts, ends, strict=True)]
    parts = op.split(x, ends[:-1], axis=axis)
    return [Project(parts, at) for at in range(count)]


def _shares(node: OnnxNode, of: Scalar, count: int) -> Sequence[Piece]:
    """The lengths of a number of parts: the last may be shorter, but not empty; older versions
    require equal parts that cover everything."""
    if (whole := known(of)) is not None:
        part = -(-whole // count)
        last_ = whole - part * (count - 1)
        if node.opset >= 18 and last_ < 1:
            message = "Split makes a part that is empty, or less."
            node.malformed(message, f"{count} parts of 1 or more", f"an axis of {whole}")
        if node.opset < 18 and whole % count:
            node.malformed("Split does not divide its axis.", f"a multiple of {count}", str(whole))
        return [*[part] * (count - 1), last_]
    size, number = amount(of), const(count, i64)
    if node.opset < 18:
        return [size // number] * count
    expr = ceiling(size, number)
    last = size - expr * const(count - 1, i64)
    return [*[expr] * (count - 1), lawful(last, last > ZERO, "part")]


def cut_into(x: Expr, axis: int, sizes: Sequence[Scalar]) -> list[Expr]:
    """The parts of some lengths along an axis, of which it is asserted that they make it up."""
    *starts, whole = accumulate(sizes, lambda a, b: a + b, initial=index(0))
    x = matched(x, (*word.shape(x)[:axis], whole, *word.shape(x)[axis + 1 :]))
    return [
        op.take(x, places(size) + amount(start), axis=axis)
        for start, size in zip(starts, sizes, strict=True)
    ]


def _slice(node: OnnxNode) -> Expr:
    x = node.x()
    starts, stops, axes, steps = (
        listed(node, name, at, 10) for at, name in enumerate(("starts", "ends", "axes", "steps"), 1)
    )
    starts, stops = starts or [], stops or []
    steps = [1] * len(starts) if steps is None else steps
    chosen: Sequence[Piece] = range(len(starts)) if axes is None else axes
    named = numbers_of(chosen)
    if named is not None:
        named = [*word.axes_in(node, named, word.rank(x))]
    if not len(starts) == len(stops) == len(steps) == len(chosen):
        counts = f"{len(starts)}, {len(stops)}, {len(chosen)}, {len(steps)}"
        node.malformed("Slice has unequal numbers of starts, ends, axes and steps.", "one", counts)
    if any(isinstance(each, int) and each == 0 for each in steps):
        node.malformed("A step of Slice is 0.", "another step", "0")
    strides = numbers_of(steps)
    if named is None or strides is None or is_late(starts) or is_late(stops):
        return _slice_by_value(node, x, (starts, stops, steps), chosen)
    if not starts:
        return x
    strides = [max(-FARTHEST, min(FARTHEST, stride)) for stride in strides]
    ends: list[Scalar | int | None] = []
    begins: list[Scalar | int | None] = []
    for start, stop, step, axis in zip(starts, stops, strides, named, strict=True):
        whole = word.shape(x)[axis]
        assert not isinstance(start, Expr)
        assert not isinstance(stop, Expr)
        if step < 0 and (isinstance(start, Scalar) or isinstance(stop, Scalar)):
            # x[start:stop:-k] is x[stop + 1:start + 1][::-k]: no symbolic bound is -1 then.
            first, last = place_of_bound(stop, whole, 1), place_of_bound(start, whole, 1)
            last = lesser(greater(last, index(1)), whole)
            x = op.slice(x, (first,), (last,), None, (axis,))
            begins.append(None)
            ends.append(None)
        else:
            begins.append(_bound(start, whole, step, True))
            ends.append(_bound(stop, whole, step, False))
    return op.slice(x, tuple(begins), tuple(ends), tuple(strides), tuple(named))


def _bound(value: Scalar | int, whole: Scalar, step: int, start: bool) -> Scalar | int | None:
    """A bound of a slice as Python writes it: None is the end of the axis.

    A number is clamped to an axis of known size; an ONNX stop below the axis means before its
    first element, which Python can only write as None.
    """
    if isinstance(value, Scalar):
        return place_of_bound(value, whole)
    if (length := known(whole)) is None:
        if value >= (1 << 31) - 1:
            return None if (step > 0) != start else value
        if value <= -((1 << 31) - 1) and (step > 0) == start:
            return 0 if step > 0 else None
        if step < 0 and start and value < 0:  # before the first element it is the first
            return greater(whole + value, index(0))
        return value
    at = value + length if value < 0 else value
    if step > 0:
        return min(max(at, 0), length)
    at = min(max(at, -1 if not start else 0), length - 1)
    return None if at < 0 and not start else at


def _slice_by_value(
    node: OnnxNode, x: Expr, given: Sequence[Sequence[Piece]], axes: Sequence[Piece]
) -> Expr:
    """Starts, ends and steps; the standard says how they are brought into the axis."""
    numbers, fits = chosen_axes(node, x, axes)
    for axis in numbers:
        length = amount(word.shape(x)[axis])
        start, stop, stride = (
            by_axis(axes, some, axis, word.rank(x), other)
            for some, other in zip(given, (ZERO, length, ONE), strict=True)
        )
        first, end = (wrapped_index(expr, length) for expr in (start, stop))
        forward, last = stride > ZERO, length - ONE
        first = op.where(forward, clamped(first, ZERO, length), clamped(first, ZERO, last))
        end = op.where(forward, clamped(end, ZERO, length), clamped(end, MINUS, last))
        is_none = op.equal(stride, ZERO)
        count = at_least_zero(ceiling(end - first, op.where(is_none, ONE, stride)))
        count = lawful(lawful(count, fits, "axis"), op.logical_not(is_none), "step")
        x = op.take(x, first + places(node.measured(count, axis)) * stride, axis=axis)
    return x


def _trilu(node: OnnxNode) -> Expr:
    x, given, upper = node.x(0), node.value(1), node.flag("upper", True)
    if given is not None and given.numbers() is None:
        row, column = (op.iota_like(x, axis=word.rank(x) + side, dtype=i64) for side in (-2, -1))
        above = column - row - word.to(word.as_scalar(given.expr), i64)
        return op.where(above > MINUS if upper else above < ONE, x, word.like(0, x))
    k = 0 if given is None else int(node.scalar(1))
    k = max(-FARTHEST_DIAGONAL, min(FARTHEST_DIAGONAL, k))
    return op.triu(x, k) if upper else op.tril(x, k)


# --- borders and repetition ----------------------------------------------------------------------


def _tile(node: OnnxNode) -> Expr:
    x, given = node.x(0), pieces(node, 1)
    reps = numbers_of(given)
    if len(given) != word.rank(x) or any(isinstance(each, int) and each < 0 for each in given):
        node.malformed("Tile takes one repetition for each axis.", str(word.rank(x)), str(given))
    if reps is not None:
        return op.tile(x, tuple(reps)) if reps else x
    times = [size_from(node, each, at) for at, each in enumerate(given)]
    pairs = list(zip(times, word.shape(x), strict=True))
    single = op.reshape(x, tuple(scalar for _, size in pairs for scalar in (index(1), size)))
    wide = op.broadcast_to(single, tuple(scalar for pair in pairs for scalar in pair))
    return op.reshape(wide, tuple(count * size for count, size in pairs))


def _pad(node: OnnxNode) -> Expr:
    x, mode = node.x(), node.text("mode", "constant")
    widths = listed(node, "pads", 1, 11) or []
    axes: Sequence[Piece] = range(word.rank(x))
    if node.value(3) is not None:
        axes = pieces(node, 3)
    fill: Expr = word.like(node.real("value", 0.0), x)
    if node.value(2) is not None:
        fill = word.to(word.as_scalar(node.x(2)), word.dtype(x))
    if len(widths) != 2 * len(axes):
        node.malformed("Pad takes a pair for each axis.", str(2 * len(axes)), str(len(widths)))
    modes = ("constant", "reflect", "edge", "wrap")
    if mode not in modes:
        node.malformed("Pad has no such mode.", ", ".join(modes), repr(mode))
    named, numbers, constant = numbers_of(axes), numbers_of(widths), TensorValue(fill).numbers()
    if named is None or numbers is None or constant is None:
        return _pad_by_value(node, x, widths, axes, fill)
    chosen = word.axes_in(node, named, word.rank(x))
    pairs = {axis: (numbers[at], numbers[at + len(axes)]) for at, axis in enumerate(chosen)}
    for at, pair in pairs.items():
        cut, size = -sum(min(0, side) for side in pair), word.shape(x)[at]
        if (extent := known(size)) is None:
            x = op.match_shape(x, word.shape(x), least=(size - cut,)) if cut else x
        elif cut > extent:
            # The remaining crop is taken from the other side's border, if it is large enough.
            if extent + sum(pair) < 0 or mode != "constant":
                node.malformed("Pad cuts off more than there is.", f"at most {extent}", str(pair))
            x = op.slice(x, (0,), (0,), None, (at,))
            pairs[at] = (extent + sum(pair), 0)
    if cuts := {at: pair for at, pair in pairs.items() if min(pair) < 0}:
        first = tuple(max(0, -low) for low, _ in cuts.values())
        last = tuple(None if high >= 0 else high for _, high in cuts.values())
        x = op.slice(x, first, last, None, tuple(cuts))
    positive = tuple(
        tuple(max(0, side) for side in pairs.get(at, (0, 0))) for at in range(word.rank(x))
    )
    if mode == "reflect":
        for at, border in enumerate(positive):
            if (extent := known(word.shape(x)[at])) is None:
                needed = (word.shape(x)[at] - (max(border) + 1),)
                x = op.match_shape(x, word.shape(x), least=needed) if max(border) else x
            elif max(border) and max(border) >= max(extent, 1):
                node.malformed("Pad reflects more than there is.", f"below {extent}", str(border))
    return op.pad(x, positive, mode=mode, constant_values=constant.item())


def _pad_by_value(
    node: OnnxNode, x: Expr, widths: Sequence[Piece], axes: Sequence[Piece], fill: Expr
) -> Expr:
    """Borders whose widths may be negative, which then cut off."""
    mode = node.text("mode", "constant")
    numbers, fits = chosen_axes(node, x, axes)
    for axis in numbers:
        low, high = (
            by_axis(axes, some, axis, word.rank(x), ZERO)
            for some in (widths[: len(axes)], widths[len(axes) :])
        )
        if low is ZERO and high is ZERO:
            continue
        length, cut = amount(word.shape(x)[axis]), at_least_zero(ZERO - low)
        whole = length + (low + high)
        kept = length - cut - at_least_zero(ZERO - high)  # what is cut off is no part of a border
        if mode != "constant":
            widest = op.maximum(low, high)
            has_source = op.logical_or(widest < ONE, kept > ZERO)
            if mode == "reflect":  # a border is mirrored once
                has_source = op.logical_and(has_source, widest < op.maximum(kept, ONE))
            rest = product([s for other, s in enumerate(word.shape(x)) if other != axis])
            is_empty = op.equal(whole * amount(rest), ZERO)
            fits = op.logical_and(fits, op.logical_or(has_source, is_empty))
        size = node.measured(lawful(whole, fits, "border"), axis)
        if mode == "constant":
            x = _taken_inside(x, places(size) - low, fill, axis)
            continue
        at = places(size) - at_least_zero(low)
        if mode == "reflect":
            at = reflected(at, kept)
        elif mode == "wrap":
            at = at % op.maximum(kept, ONE)
        else:
            at = clamped(at, ZERO, kept - ONE)
        x = op.take(x, at + cut, axis=axis)
    return x


def _taken_inside(x: Expr, at: Expr, fill: Expr, axis: int) -> Expr:
    """x at places along an axis, `fill` where a place is outside of it."""
    size = word.shape(x)[axis]
    inside = op.logical_and(at > MINUS, at < amount(size))
    if not known(size):  # the axis may be empty: one place of `fill` stands behind it
        one = tuple(index(1) if other == axis else s for other, s in enumerate(word.shape(x)))
        x = op.concat((x, op.broadcast_to(fill, one)), axis=axis)
        return op.take(x, op.where(inside, at, amount(size)), axis=axis)
    taken = op.take(x, at, axis=axis, mode="clip")
    return op.where(word.along(inside, axis, word.rank(x)), taken, fill)


def _center_crop_pad(node: OnnxNode) -> Expr:
    """Crops or pads equally at both ends."""
    x, wanted, given = node.x(0), pieces(node, 1), node.integers("axes")
    axes = word.axes_in(node, range(word.rank(x)) if given is None else given, word.rank(x))
    if len(wanted) != len(axes):
        node.malformed("CenterCropPad takes a size for each axis.", str(len(axes)), str(wanted))
    for axis, size in zip(axes, wanted, strict=True):
        length = known(word.shape(x)[axis])
        if isinstance(size, int) and length is not None:
            cut, border = max(0, length - size), max(0, size - length)
            if cut:
                x = op.slice(x, (cut // 2,), (cut // 2 + size,), None, (axis,))
            sides = [(0, 0)] * word.rank(x)
            sides[axis] = (border // 2, border - border // 2)
            x = op.pad(x, tuple(sides)) if border else x
            continue
        more = amount(size) - amount(word.shape(x)[axis])
        shift = at_least_zero(-more) // TWO - at_least_zero(more) // TWO
        at = places(size_from(node, size, axis)) + shift
        x = _taken_inside(x, at, word.like(0, x), axis)
    return x


# --- blocks --------------------------------------------------------------------------------------


def _in_blocks(node: OnnxNode, x: Expr, axes: Sequence[int], block: int) -> Expr:
    """x, of whose axes it is asserted that blocks divide them, where that cannot be shown."""
    sizes = list(word.shape(x))
    for axis in axes if len(sizes) == 4 and block > 1 else ():
        whole = sizes[axis]
        if known(whole) is None and quotient(whole, index(block)) is None:
            part = node.measured(amount(whole) // const(block, i64), "blocks")
            sizes[axis] = normal_dim(part * block)
    return matched(x, sizes)


def _mode(node: OnnxNode) -> str:
    if (mode := node.text("mode", "DCR")) not in ("DCR", "CRD"):
        node.malformed(f"{node.proto.op_type} has no such mode.", "DCR or CRD", repr(mode))
    return mode


def _depth_to_space(node: OnnxNode) -> Expr:
    mode, block = _mode(node), node.integer("blocksize")
    x = _in_blocks(node, node.x(), (1,), block * block)
    return op.nn.depth_to_space(x, block, column_row_depth=mode == "CRD")


def _space_to_depth(node: OnnxNode) -> Expr:
    mode, block = _mode(node), node.integer("blocksize")
    x = _in_blocks(node, node.x(), (2, 3), block)
    deep = op.nn.space_to_depth(x, block)
    if mode == "DCR":
        return deep
    # The channels come as (block, block, c), and are needed as (c, block, block).
    n, c, *_ = word.shape(x)
    parts = (n, block, block, c, *word.shape(deep)[2:])
    return op.reshape(op.transpose(op.reshape(deep, parts), (0, 3, 1, 2, 4, 5)), word.shape(deep))


# fmt: off
TABLE: Final[dict[str, word.Row]] = {
    "Concat":        _concat,
    "Split":         _split,
    "Slice":         _slice,
    "Tile":          _tile,
    "Pad":           _pad,
    "DepthToSpace":  _depth_to_space,
    "SpaceToDepth":  _space_to_depth,
    "Trilu":         _trilu,
    "CenterCropPad": _center_crop_pad,
}
# fmt: on
