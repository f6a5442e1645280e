"""Rows of operators that join tensors, take parts of them, or give them borders."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Final

from plica.frontend.measured import ZERO, amount, matched
from plica.frontend.onnx.node import OnnxNode
from plica.frontend.onnx.row.shape_by_value import (
    center_by_value,
    pad_by_value,
    slice_by_value,
    split_by_value,
    tile_by_value,
    triangle_by_value,
)
from plica.frontend.onnx.row.word import Made, Row, axes_in, axis_in, dtype, rank, shape
from plica.frontend.onnx.run_time import ceiling, is_known, lawful, pieces
from plica.ir.graph.expression import Expr, Project, const
from plica.ir.loop.scalar import Scalar, index
from plica.ir.op.cut import FARTHEST, place_of_bound
from plica.ir.op.namespace import op
from plica.ir.type.dim import greater, known, lesser, normal_dim, quotient
from plica.ir.type.dtype import i64

MOST_PARTS: Final = 64
"""What is split into more parts is cut part by part."""


def _concat(node: OnnxNode) -> Expr:
    return op.concat(node.all(), axis=node.integer("axis", 1 if node.opset < 4 else None))


def _split(node: OnnxNode) -> Made:
    x = node.x()
    axis = axis_in(node, node.integer("axis", 0), rank(x))
    count = len(node.proto.output)
    whole = known(shape(x)[axis])
    if node.opset < 13:
        given = node.integers("split")
        sizes = None if given is None else list(given)
    else:
        parts_ = None if node.value(1) is None else pieces(node, 1)
        if parts_ is not None and (whole is None or not all(isinstance(p, int) for p in parts_)):
            return split_by_value(node, x, axis, parts_)
        sizes = None if node.value(1) is None else node.whole(1, most=count)
    if node.opset >= 18:
        said = node.integer("num_outputs", count)
        if node.has("num_outputs") and (sizes is not None or said != count):
            node.malformed("Split says num_outputs and makes others.", str(said), str(count))
    if sizes is None:
        if whole is None:
            if count > MOST_PARTS:
                message = "Split into so many parts needs an axis of known size."
                node.unsupported(message, f"at most {MOST_PARTS}", str(count))
            if known(normal_dim(shape(x)[axis] % count)) != 0:
                return split_by_value(node, x, axis, _shares(node, shape(x)[axis], count))
            if node.opset >= 18:  # no part is empty
                x = op.match_shape(x, shape(x), least=(shape(x)[axis] - 1,))
            parts = op.split(x, count, axis=axis)
            return [Project(parts, at) for at in range(count)]
        part = -(-whole // count)
        sizes = [*[part] * (count - 1), whole - part * (count - 1)]
        if node.opset >= 18 and sizes[-1] < 1:
            message = "Split makes a part that is empty, or less."
            node.malformed(message, f"{count} parts of 1 or more", f"an axis of {whole}")
        if node.opset < 18 and whole % count:
            node.malformed("Split does not divide its axis.", f"a multiple of {count}", str(whole))
    if len(sizes) != count or any(each < 0 for each in sizes) or (whole not in (None, sum(sizes))):
        node.malformed("The parts of Split do not make up its axis.", str(whole), str(sizes))
    if whole is None:
        message = "Split into given parts needs an axis of known size."
        node.unsupported(message, "a number", str(node.type()))
    if count == 1:
        return node.x()
    ends = tuple(accumulate(sizes))
    if count > MOST_PARTS:  # the type of a tuple is as long as the tuple, at each of its parts
        starts = (0, *ends[:-1])
        return [op.slice(x, (a,), (b,), None, (axis,)) for a, b in zip(starts, ends, strict=True)]
    parts = op.split(x, ends[:-1], axis=axis)
    return [Project(parts, at) for at in range(count)]


def _shares(node: OnnxNode, of: Scalar, count: int) -> list[Expr]:
    """The lengths of so many parts of an open size: the last is shorter if need be, and holds
    something; older versions want parts of one length, which together are the whole."""
    size, number = amount(of), const(count, i64)
    if node.opset < 18:
        return [size // number] * count
    each = ceiling(size, number)
    last = size - each * const(count - 1, i64)
    return [*[each] * (count - 1), lawful(last, last > ZERO, "part")]


def _slice(node: OnnxNode) -> Expr:
    x = node.x()
    if node.opset < 10:
        low, high = node.integers("starts") or (), node.integers("ends") or ()
        axes = node.integers("axes")
        starts, stops = list[Scalar | int](low), list[Scalar | int](high)
        steps = [1] * len(starts)
    else:
        late = [pieces(node, at) for at in (1, 2, 4) if node.value(at) is not None]
        named = None if node.value(3) is None else pieces(node, 3)
        if not all(is_known(each) for some in (*late, named or ()) for each in some):
            return slice_by_value(node, x, late, named)
        axes = None if node.value(3) is None else tuple(node.whole(3))
        starts, stops = node.vector(1), node.vector(2)
        steps = [1] * len(starts) if node.value(4) is None else node.whole(4)
    chosen = axes_in(node, range(len(starts)) if axes is None else axes, rank(x))
    if not len(starts) == len(stops) == len(steps) == len(chosen):
        counts = f"{len(starts)}, {len(stops)}, {len(chosen)}, {len(steps)}"
        node.malformed("Slice has unequal numbers of starts, ends, axes and steps.", "one", counts)
    if 0 in steps:
        node.malformed("A step of Slice is 0.", "another step", "0")
    steps = [max(-FARTHEST, min(FARTHEST, each)) for each in steps]
    if not starts:
        return x
    ends: list[Scalar | int | None] = []
    begins: list[Scalar | int | None] = []
    for start, stop, step, axis in zip(starts, stops, steps, chosen, strict=True):
        whole = shape(x)[axis]
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
    return op.slice(x, tuple(begins), tuple(ends), tuple(steps), chosen)


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


def _tile(node: OnnxNode) -> Expr:
    given = pieces(node, 1)
    if not all(isinstance(each, int) for each in given):
        return tile_by_value(node, node.x(0), given)
    reps = node.whole(1)
    if len(reps) != node.rank() or any(each < 0 for each in reps):
        node.malformed("Tile takes one repetition for each axis.", str(node.rank()), str(reps))
    return op.tile(node.x(0), tuple(reps)) if reps else node.x(0)


def _pad(node: OnnxNode) -> Expr:
    x = node.x()
    mode = node.text("mode", "constant")
    fill: bool | int | float = 0
    if node.opset >= 11:
        late = pieces(node, 1)
        value = node.value(2)
        by_axes = None if node.opset < 18 or node.value(3) is None else pieces(node, 3)
        if not all(isinstance(p, int) for p in (*late, *(by_axes or ()))) or (
            value is not None and value.numbers() is None
        ):
            chosen = list(range(rank(x))) if by_axes is None else by_axes
            return pad_by_value(node, x, late, chosen, mode)
    if node.opset < 11:
        widths = list(node.integers("pads") or ())
        fill = node.real("value", 0.0)
    else:
        widths = node.whole(1)
        if node.value(2) is not None:
            fill = node.scalar(2)
    axes = tuple(range(rank(x)))
    if node.opset >= 18 and node.value(3) is not None:
        axes = axes_in(node, node.whole(3), rank(x))
    if len(widths) != 2 * len(axes):
        node.malformed("Pad takes a pair for each axis.", str(2 * len(axes)), str(len(widths)))
    pairs = {axis: (widths[at], widths[at + len(axes)]) for at, axis in enumerate(axes)}
    modes = {"constant": "constant", "reflect": "reflect", "edge": "edge", "wrap": "wrap"}
    if mode not in modes:
        node.malformed("Pad has no such mode.", ", ".join(modes), repr(mode))
    for at, pair in pairs.items():
        cut, size = -sum(min(0, side) for side in pair), shape(x)[at]
        if (extent := known(size)) is None:
            x = op.match_shape(x, shape(x), least=(size - cut,)) if cut else x
        elif cut > extent:
            # What is left to cut is of the border on the other side, if there is so much of it.
            if extent + sum(pair) < 0 or mode != "constant":
                node.malformed("Pad cuts off more than there is.", f"at most {extent}", str(pair))
            x = op.slice(x, (0,), (0,), None, (at,))
            pairs[at] = (extent + sum(pair), 0)
    if cuts := {at: pair for at, pair in pairs.items() if min(pair) < 0}:
        x = op.slice(
            x,
            tuple(max(0, -low) for low, _ in cuts.values()),
            tuple(None if high >= 0 else high for _, high in cuts.values()),
            None,
            tuple(cuts),
        )
    positive = tuple(tuple(max(0, side) for side in pairs.get(at, (0, 0))) for at in range(rank(x)))
    if mode == "reflect":
        for at, border in enumerate(positive):
            if (extent := known(shape(x)[at])) is None:
                needed = (shape(x)[at] - (max(border) + 1),)
                x = op.match_shape(x, shape(x), least=needed) if max(border) else x
            elif max(border) and max(border) >= max(extent, 1):
                node.malformed("Pad reflects more than there is.", f"below {extent}", str(border))
    return op.pad(x, positive, mode=mode, constant_values=_number(fill, x))


def _number(value: bool | int | float, x: Expr) -> bool | int | float:
    of = dtype(x)
    if of.is_float:
        return float(value)
    return bool(value) if of.name == "bool" else int(value)


def _in_blocks(node: OnnxNode, x: Expr, axes: Sequence[int], block: int) -> Expr:
    """x, of whose axes it is asserted that blocks divide them, where that cannot be shown."""
    sizes = list(shape(x))
    for axis in axes if len(sizes) == 4 and block > 1 else ():
        whole = sizes[axis]
        if known(whole) is None and quotient(whole, index(block)) is None:
            part = node.measured(amount(whole) // const(block, i64), "blocks")
            sizes[axis] = normal_dim(part * block)
    return matched(x, sizes)


def _depth_to_space(node: OnnxNode) -> Expr:
    mode = node.text("mode", "DCR")
    if mode not in ("DCR", "CRD"):
        node.malformed("DepthToSpace has no such mode.", "DCR or CRD", repr(mode))
    block = node.integer("blocksize")
    x = _in_blocks(node, node.x(), (1,), block * block)
    return op.nn.depth_to_space(x, block, column_row_depth=mode == "CRD")


def _space_to_depth(node: OnnxNode) -> Expr:
    mode = node.text("mode", "DCR")
    if mode not in ("DCR", "CRD"):
        node.malformed("SpaceToDepth has no such mode.", "DCR or CRD", repr(mode))
    block = node.integer("blocksize")
    x = _in_blocks(node, node.x(), (2, 3), block)
    deep = op.nn.space_to_depth(x, block)
    if mode == "DCR":
        return deep
    # The channels come out as (block, block, c), and are wanted as (c, block, block).
    n, c, *_ = shape(x)
    parts = (n, block, block, c, *shape(deep)[2:])
    return op.reshape(op.transpose(op.reshape(deep, parts), (0, 3, 1, 2, 4, 5)), shape(deep))


def _trilu(node: OnnxNode) -> Expr:
    given = node.value(1)
    if given is not None and given.numbers() is None:
        return triangle_by_value(node.x(0), given.expr, node.flag("upper", True))
    k = 0 if node.value(1) is None else int(node.scalar(1))
    x = node.x(0)
    limit = 1 << 31
    k = max(-limit, min(limit, k))
    return op.triu(x, k) if node.flag("upper", True) else op.tril(x, k)


def _center_crop_pad(node: OnnxNode) -> Expr:
    x, late = node.x(0), pieces(node, 1)
    given = node.integers("axes")
    axes = axes_in(node, range(rank(x)) if given is None else given, rank(x))
    if not all(isinstance(p, int) for p in late) or None in [known(s) for s in shape(x)]:
        return center_by_value(node, x, late, axes)
    wanted = node.whole(1)
    if len(wanted) != len(axes):
        node.malformed("CenterCropPad takes a size for each axis.", str(len(axes)), str(wanted))
    sizes = node.sizes(0)
    starts, stops = [0] * rank(x), list(sizes)
    widths = [(0, 0)] * rank(x)
    for axis, size_ in zip(axes, wanted, strict=True):
        if size_ < sizes[axis]:
            starts[axis] = (sizes[axis] - size_) // 2
            stops[axis] = starts[axis] + size_
        else:
            before = (size_ - sizes[axis]) // 2
            widths[axis] = (before, size_ - sizes[axis] - before)
    return op.pad(op.slice(x, tuple(starts), tuple(stops)), tuple(widths))


# fmt: off
TABLE: Final[dict[str, Row]] = {
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
