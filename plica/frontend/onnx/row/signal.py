"""Rows of signals: Fourier transforms as products with constant matrices."""

from __future__ import annotations

from typing import Final

import numpy as np

from plica.frontend.onnx.node import OnnxNode
from plica.frontend.onnx.row.word import Row, along, axis_in, dtype, in_f32, rank, shape, to
from plica.ir.graph.expression import Expr, const
from plica.ir.op.cut import slice_
from plica.ir.op.elementwise import add, multiply, subtract
from plica.ir.op.index import take
from plica.ir.op.join import stack
from plica.ir.op.linear import matmul
from plica.ir.op.pad import pad
from plica.ir.op.shape import expand_dims, moveaxis, reshape, transpose
from plica.ir.type.dim import known

LONGEST: Final = 1 << 11
"""The matrix of a longer transform would be too large."""


MOST_PLACES: Final = 1 << 24
"""The frames of a signal may have so many places together."""


def transform(x: Expr, length: int, bins: int, inverse: bool) -> list[Expr]:
    """Real and imaginary part of the transform of the last axis; x is one part or both."""
    turns = np.outer(np.arange(length), np.arange(bins)) % length
    angle = (2 if inverse else -2) * np.pi * turns / length
    scale = 1.0 / length if inverse else 1.0
    of = dtype(x)
    cosine, sine = (const((part(angle) * scale).astype(of.numpy)) for part in (np.cos, np.sin))
    parts = known(shape(x)[0])
    real = reshape(slice_(x, (0,), (1,)), shape(x)[1:])
    if parts == 1:
        return [matmul(real, cosine), matmul(real, sine)]
    imaginary = reshape(slice_(x, (1,), (2,)), shape(x)[1:])
    return [
        subtract(matmul(real, cosine), matmul(imaginary, sine)),
        add(matmul(real, sine), matmul(imaginary, cosine)),
    ]


def from_half(x: Expr, length: int) -> Expr:
    """The real signal of such a length whose spectrum begins with the last axis of x.

    The other half of the spectrum is its mirror image: what stands for two counts twice.
    """
    bins = length // 2 + 1
    times = np.full(bins, 2.0)
    times[0] = 1.0
    if length % 2 == 0:
        times[-1] = 1.0
    angle = 2 * np.pi * (np.outer(np.arange(bins), np.arange(length)) % length) / length
    scale, of = times[:, None] / length, dtype(x)
    cosine, sine = (const((part(angle) * scale).astype(of.numpy)) for part in (np.cos, np.sin))
    real, imaginary = (reshape(slice_(x, (n,), (n + 1,)), shape(x)[1:]) for n in (0, 1))
    return subtract(matmul(real, cosine), matmul(imaginary, sine))


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
    if not 0 < length <= LONGEST:
        node.unsupported("A transform is too long.", f"1 to {LONGEST}", str(length))
    inner = moveaxis(in_f32(x), (rank(x) - 1, at), (0, rank(x) - 1))
    bins = length // 2 + 1 if onesided else length
    inner = _fitted(inner, bins if halved else length)
    if halved:
        made = expand_dims(from_half(inner, length), axis=(0,))
    else:
        made = stack(tuple(transform(inner, length, bins, inverse)), axis=0)
    return to(moveaxis(made, (0, rank(x) - 1), (rank(x) - 1, at)), dtype(x))


def _fitted(x: Expr, length: int) -> Expr:
    """The last axis cut or filled with zeros to a length."""
    there = known(shape(x)[-1])
    assert there is not None
    if there > length:
        return slice_(x, (0,), (length,), None, (rank(x) - 1,))
    widths = ((0, 0),) * (rank(x) - 1) + ((0, length - there),)
    return pad(x, widths) if there < length else x


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
    if not 0 < length <= min(LONGEST, sizes[1]) or step < 1:
        node.malformed("The frames do not fit the signal.", str(sizes[1]), f"{length} by {step}")
    frames = (sizes[1] - length) // step + 1
    if frames * length > MOST_PLACES:
        node.unsupported("There are too many frames.", f"{MOST_PLACES} places", str(frames))
    places = np.arange(frames)[:, None] * step + np.arange(length)[None, :]
    inner = transpose(in_f32(x), (2, 0, 1))
    cut = take(inner, const(places.astype(np.int64)), axis=2)  # (parts, batch, frames, length)
    if window is not None:
        cut = multiply(cut, along(to(window, dtype(cut)), 3, 4))
    bins = length // 2 + 1 if node.flag("onesided", True) else length
    made = stack(tuple(transform(cut, length, bins, False)), axis=-1)
    return to(made, node.type(0).dtype)


# fmt: off
TABLE: Final[dict[str, Row]] = {
    "DFT":  _dft,
    "STFT": _stft,
}
# fmt: on
