"""Rows of signals: Fourier transforms, of whole signals and of frames."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from plica.frontend.onnx.node import OnnxNode
from plica.frontend.onnx.row.word import Row, along, axis_in, dtype, in_f32, rank, shape, to
from plica.ir.graph.expression import Expr, const
from plica.ir.op.cut import slice_
from plica.ir.op.elementwise import multiply
from plica.ir.op.fourier import LARGEST_MATRIX, dft
from plica.ir.op.index import take
from plica.ir.op.shape import expand_dims, moveaxis, reshape
from plica.ir.type.dim import known, product

Array = np.ndarray[Any, Any]

LONGEST: Final = 1 << 20
"""The turns of a longer transform would be too many constants."""

MOST_PLACES: Final = 1 << 24
"""The frames of a signal may have so many places together."""


def has_transform(length: int) -> bool:
    """Whether a length can be taken apart into lengths with matrices."""
    rest, factor = length, 2
    while factor * factor <= rest and factor <= LARGEST_MATRIX:
        rest, factor = (rest // factor, factor) if rest % factor == 0 else (rest, factor + 1)
    return 0 < length <= LONGEST and rest <= LARGEST_MATRIX


def mirrored(length: int) -> Array:
    """How often the bins of half a spectrum count: what is its own mirror image counts once."""
    times = np.full(length // 2 + 1, 2.0)
    times[0] = 1.0
    if length % 2 == 0:
        times[-1] = 1.0
    return times


def _dft(node: OnnxNode) -> Expr:
    x = node.x(0)
    inverse, onesided = node.flag("inverse"), node.flag("onesided")
    if node.opset >= 20:
        axis = -2 if node.value(2) is None else int(node.scalar(2))
    else:
        axis = node.integer("axis", 1)
    at = axis_in(node, axis, rank(x))
    sizes = node.sizes(0)
    if at == rank(x) - 1 or sizes[-1] not in (1, 2):
        node.malformed("A signal ends with its parts.", "a last axis of 1 or 2", str(sizes))
    halved = inverse and onesided
    if halved and sizes[-1] != 2:
        node.malformed("Half a spectrum has two parts.", "a last axis of 2", str(sizes))
    whole = 2 * (sizes[at] - 1) if halved else sizes[at]
    length = whole if node.value(1) is None else int(node.scalar(1))
    if not has_transform(length):
        wanted = f"1 to {LONGEST}, of prime factors up to {LARGEST_MATRIX}"
        node.unsupported("A transform is too long.", wanted, str(length))
    inner, bins = in_f32(x), length // 2 + 1 if onesided else length
    if (places := bins if halved else length) < sizes[at]:
        inner = slice_(inner, (0,), (places,), axes=(at,))
    inner = moveaxis(inner, rank(x) - 1, at)  # parts before places, and columns behind these
    front, behind = shape(inner)[: at + 2], shape(inner)[at + 2 :]
    inner = reshape(inner, (*front, product(behind)))
    if halved:
        inner = multiply(inner, const(mirrored(length)[: known(front[-1]), None], dtype(inner)))
        made = dft(inner, length, length, 1, inverse=True)
    else:
        made = dft(inner, length, bins, 2, inverse)
    made = reshape(made, (*shape(made)[:-1], *behind))
    return to(moveaxis(made, at, rank(x) - 1), dtype(x))


def _stft(node: OnnxNode) -> Expr:
    x = node.x(0)
    step = int(node.scalar(1))
    window = node.maybe(2)
    sizes = node.sizes(0)
    if len(sizes) not in (2, 3) or (window is not None and node.rank(2) != 1):
        node.malformed("STFT takes signals and a window.", "rank 2 or 3", str(node.type(0)))
    if len(sizes) == 2:
        x, sizes = expand_dims(x, axis=(2,)), (*sizes, 1)
    if node.value(3) is not None:
        length = int(node.scalar(3))
    elif window is not None:
        length = node.sizes(2)[0]
    else:
        node.malformed("STFT has a frame length or a window.", "one of them", "none")
    if not 0 < length <= sizes[1] or not has_transform(length) or step < 1:
        node.malformed("The frames do not fit the signal.", str(sizes[1]), f"{length} by {step}")
    frames = (sizes[1] - length) // step + 1
    if frames * length > MOST_PLACES:
        node.unsupported("There are too many frames.", f"{MOST_PLACES} places", str(frames))
    places = np.arange(frames)[:, None] * step + np.arange(length)[None, :]
    inner = moveaxis(in_f32(x), 2, 1)
    cut = take(inner, const(places.astype(np.int64)), axis=2)  # (batch, parts, frames, length)
    if window is not None:
        cut = multiply(cut, along(to(window, dtype(cut)), 3, 4))
    bins = length // 2 + 1 if node.flag("onesided", True) else length
    made = dft(expand_dims(moveaxis(cut, 1, 2), axis=(4,)), length, bins)
    return to(moveaxis(reshape(made, shape(made)[:-1]), 2, 3), node.type(0).dtype)


# fmt: off
TABLE: Final[dict[str, Row]] = {
    "DFT":  _dft,
    "STFT": _stft,
}
# fmt: on
