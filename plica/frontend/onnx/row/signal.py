"""Rows of signals: Fourier transforms, of whole signals and of frames."""

from __future__ import annotations

from functools import reduce
from typing import Final

import attrs
import numpy as np

from plica.frontend import measured
from plica.frontend.fourier import TWO, transformed
from plica.frontend.onnx.node import SAY_DIMS, OnnxNode
from plica.frontend.onnx.row.word import Row, along, axis_in, dtype, in_f32, like, rank, shape, to
from plica.frontend.onnx.run_time import lawful, pieces, size_from, wrapped_index
from plica.ir.graph.expression import Expr, const
from plica.ir.loop.scalar import Scalar, index
from plica.ir.op.namespace import op
from plica.ir.type import i64, is_size, known, normal_dim, product, same_dim

MOST_PLACES: Final = 1 << 24  # the frames of a signal may have this many places together


def _single(node: OnnxNode, at: int) -> measured.Piece:
    """The one integer that an input is."""
    given = pieces(node, at)
    if len(given) != 1:
        message = f"Input {at} of {node.proto.op_type} must be one number."
        node.malformed(message, "one element", str(node.type(at)))
    return given[0]


@attrs.frozen(eq=False)
class _Axis:
    """An axis of signals: the size before it, its own, and the size after it."""

    front: Scalar
    size: Scalar
    behind: Scalar
    number: measured.Piece

    def replaced(self, node: OnnxNode, x: Expr, size: Scalar) -> list[Scalar]:
        """The sizes of x but of its last axis, with another size of this axis."""
        sizes = shape(x)[:-1]
        if isinstance(self.number, int):
            return [size if at == self.number else scalar for at, scalar in enumerate(sizes)]
        found = []
        for at, scalar in enumerate(sizes):
            here = op.equal(measured.amount(self.number), const(at, i64))
            found.append(
                node.measured(op.where(here, measured.amount(size), measured.amount(scalar)), at)
            )
        return found


def _axis_by_value(node: OnnxNode, x: Expr, axis: Expr) -> _Axis:
    at = wrapped_index(axis, const(rank(x), i64))
    fits = op.logical_and(at > measured.MINUS, at < const(rank(x) - 1, i64))
    before, here, after = [], [], []
    for number, size in enumerate(shape(x)[:-1]):
        where_, value = const(number, i64), measured.amount(size)
        before.append(op.where(where_ < at, value, measured.ONE))
        here.append(op.where(op.equal(where_, at), value, measured.ONE))
        after.append(op.where(at < where_, value, measured.ONE))
    front, mine, behind = (
        reduce(op.multiply, [measured.ONE, *exprs]) for exprs in (before, here, after)
    )
    return _Axis(
        node.measured(lawful(front, fits, "axis"), "front"),
        node.measured(mine, "signal"),
        node.measured(behind, "behind"),
        at,
    )


def _signal_axis(node: OnnxNode, x: Expr) -> _Axis:
    axis: measured.Piece = -2 if node.opset >= 20 else node.integer("axis", 1)
    if node.value(2) is not None:
        axis = _single(node, 2)
    if not isinstance(axis, int):
        return _axis_by_value(node, x, measured.amount(axis))
    at = axis_in(node, axis, rank(x))
    if at == rank(x) - 1:
        node.malformed("A signal ends with its parts.", "a last axis of 1 or 2", str(node.type()))
    front, behind = product(shape(x)[:at]), product(shape(x)[at + 1 : -1])
    return _Axis(front, shape(x)[at], behind, at)


def _parts(node: OnnxNode, x: Expr) -> int:
    """How many parts the places of a signal have."""
    if rank(x) < 2 or (parts := known(shape(x)[-1])) not in (None, 1, 2):
        found = str(node.type())
        node.malformed("A signal ends with its parts.", "a last axis of 1 or 2", found)
    if parts is None:
        message = f"{node.proto.op_type} needs a signal whose parts are a number."
        node.unsupported(message, "a last axis of 1 or 2", str(node.type()), SAY_DIMS)
    return parts


def _half(node: OnnxNode, length: Scalar, hint: object) -> Scalar:
    """How many bins half a spectrum has."""
    if (number := known(length)) is not None:
        return index(number // 2 + 1)
    return node.measured(measured.amount(length) // TWO + measured.ONE, hint)


def _dft(node: OnnxNode) -> Expr:
    x = node.x(0)
    inverse, onesided = node.flag("inverse"), node.flag("onesided")
    parts, axis = _parts(node, x), _signal_axis(node, x)
    halved = inverse and onesided
    if halved and parts != 2:
        node.malformed("Half a spectrum has two parts.", "a last axis of 2", str(node.type()))
    if node.value(1) is not None:
        length = _length(node, _single(node, 1), "length")
        half = _half(node, length, "bins") if onesided else length
        least = index(0)
    else:
        length = normal_dim(axis.size * 2 - 2) if halved else axis.size
        half = _half(node, length, "bins") if onesided and not halved else axis.size
        least = normal_dim(length - 1)
    if (number := known(length)) is not None and number < 1:
        node.unsupported("A transform is too short.", "1 or more", str(number))
    inner = in_f32(x if is_size(least) else op.match_shape(x, shape(x), least=(least,)))
    inner = measured.reshaped(inner, (axis.front, axis.size, axis.behind, index(parts)))
    inner = op.moveaxis(_cut(node, inner, half if halved else length), 3, 1)
    bins = length if halved else half
    expr = transformed(node, inner, length, bins, inverse=inverse, halved=halved)
    expr = op.moveaxis(expr, 1, 3)
    last = shape(expr)[-1]
    return to(measured.reshaped(expr, (*axis.replaced(node, x, shape(expr)[1]), last)), dtype(x))


def _length(node: OnnxNode, given: measured.Piece, hint: str) -> Scalar:
    """A length above 0."""
    if not isinstance(given, Expr):
        return size_from(node, given)
    return node.measured(lawful(given, given > measured.ZERO, "frame"), hint)


def _cut(node: OnnxNode, x: Expr, most: Scalar) -> Expr:
    """The elements of a signal that a transform uses: at most its length; missing ones are zeros,
    materialised if the length is static and their number is not."""
    there, wanted = shape(x)[1], known(most)
    if same_dim(there, most):
        return x
    if (number := known(there)) is not None and wanted is not None:
        return op.slice(x, (0,), (wanted,), axes=(1,)) if wanted < number else x
    if wanted is None:
        return measured.prefix(
            x, node.measured(op.minimum(measured.amount(there), measured.amount(most)), "part"), 1
        )
    x = op.match_shape(x, shape(x), least=(there - 1,))
    at = measured.places(most)
    inside = along(at < measured.amount(there), 1, rank(x))
    return op.where(inside, op.take(x, at, axis=1, mode="clip"), like(0, x))


def _stft(node: OnnxNode) -> Expr:
    x, window = node.x(0), node.maybe(2)
    step = _single(node, 1)
    if rank(x) not in (2, 3) or (window is not None and node.rank(2) != 1):
        node.malformed("STFT takes signals and a window.", "rank 2 or 3", str(node.type(0)))
    x = op.expand_dims(x, axis=(2,)) if rank(x) == 2 else x
    _parts(node, x)
    if node.value(3) is not None:
        length = _length(node, _single(node, 3), "frame")
    elif window is not None:
        length = node.shape(2)[0]
    else:
        node.malformed("STFT has a frame length or a window.", "one of them", "none")
    bins = _half(node, length, 2) if node.flag("onesided", True) else length
    inner = op.moveaxis(in_f32(x), 2, 1)
    cut = op.take(inner, _frames(node, shape(x)[1], length, step), axis=2)
    if window is not None:
        cut = cut * along(to(measured.matched(window, (length,)), dtype(cut)), 3, 4)
    cut = op.expand_dims(op.moveaxis(cut, 1, 2), axis=(4,))  # (batch, frames, parts, length, 1)
    expr = transformed(node, cut, length, bins, inverse=False, halved=False)
    return to(op.moveaxis(op.reshape(expr, shape(expr)[:-1]), 2, 3), node.type(0).dtype)


def _frames(node: OnnxNode, whole: Scalar, length: Scalar, step: measured.Piece) -> Expr:
    """The places of each frame in the signal."""
    room, inner = known(whole), known(length)
    if isinstance(step, int) and room is not None and inner is not None:
        if not 0 < inner <= room or step < 1:
            node.malformed("The frames do not fit the signal.", str(room), f"{inner} by {step}")
        frames = (room - inner) // step + 1
        if frames * inner > MOST_PLACES:
            node.unsupported("There are too many frames.", f"{MOST_PLACES} places", str(frames))
        return const((np.arange(frames)[:, None] * step + np.arange(inner)).astype(np.int64))
    by, size = measured.amount(step), measured.amount(length)
    fits = op.logical_and(size > measured.ZERO, size <= measured.amount(whole))
    fits = op.logical_and(fits, by > measured.ZERO)
    rest = measured.amount(whole) - size
    count = rest // op.maximum(by, measured.ONE) + measured.ONE
    starts = measured.places(node.measured(lawful(count, fits, "frame"), 1)) * by
    return op.expand_dims(starts, (1,)) + op.expand_dims(measured.places(length), (0,))


# fmt: off
TABLE: Final[dict[str, Row]] = {
    "DFT":  _dft,
    "STFT": _stft,
}
# fmt: on
