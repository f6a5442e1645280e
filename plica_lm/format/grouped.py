"""Quantised weights of several tensors: packed integers with scales and zero points of groups.

A `GroupedFormat` says which tensors a weight has, by the ends of their names, and what they mean
as a term of the graph language: the weight (out, in) as f32.

>>> awq(group=128).tensors
('qweight', 'qzeros', 'scales')
>>> gptq(group=128, ordered=True).tensors
('qweight', 'qzeros', 'scales', 'g_idx')
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from attrs import field, frozen

from plica import op
from plica.ir.graph import Expr, const
from plica.ir.type.dtype import f32, i32
from plica_lm.format.block import merged, real

WORD: Final = 32
AWQ_ORDER: Final = (0, 4, 1, 5, 2, 6, 3, 7)  # the place of each of 8 columns in its word


@frozen(eq=False)
class GroupedFormat:
    """A weight of several tensors; `decode` takes them in the order of their names."""

    name: str
    tensors: tuple[str, ...]
    decode: Callable[..., Expr] = field(repr=False)


def awq(group: int, bits: int = 4) -> GroupedFormat:
    """AWQ: (in, out / 8) words of columns, zero points alike, scales (in / group, out)."""

    def decode(words: Expr, zeros: Expr, scales: Expr) -> Expr:
        order = AWQ_ORDER if bits == 4 else range(WORD // bits)
        number, zero = (_unpacked(expr, 1, order, bits) for expr in (words, zeros))
        return _scaled(number, zero, scales, group)

    return GroupedFormat(f"awq{bits}", ("qweight", "qzeros", "scales"), decode)


def gptq(group: int, bits: int = 4, *, ordered: bool = False, less: int = 1) -> GroupedFormat:
    """GPTQ: (in / 8, out) words of rows, zero points (in / group, out / 8) stored less by one.

    Where rows were `ordered` by their activation, `g_idx` says which group each belongs to.
    """

    def decode(words: Expr, zeros: Expr, scales: Expr, *index: Expr) -> Expr:
        order = range(WORD // bits)
        number = _unpacked(words, 0, order, bits)
        zero = op.bitwise_and(_unpacked(zeros, 1, order, bits) + less, (1 << bits) - 1)
        if not ordered:
            return _scaled(number, zero, scales, group)
        zero, scale = (op.take(expr, index[0], axis=0) for expr in (zero, scales))
        return op.transpose(real(number - zero) * real(scale), axes=(1, 0))

    names = ("qweight", "qzeros", "scales", *(["g_idx"] if ordered else []))
    return GroupedFormat(f"gptq{bits}", names, decode)


def block_scaled(rows: int = 128, columns: int = 128) -> GroupedFormat:
    """Floats of 8 bits (out, in), in scales of blocks; the last blocks may be cut."""

    def decode(weight: Expr, scales: Expr) -> Expr:
        wide = op.repeat(op.repeat(scales, repeats=rows, axis=0), repeats=columns, axis=1)
        whole = real(weight)
        for axis in (0, 1):  # not further than the weight
            wide = op.take(wide, _places(whole, axis), axis=axis)
        return whole * real(wide)

    return GroupedFormat("fp8", ("weight", "weight_scale_inv"), decode)


def _places(of: Expr, axis: int) -> Expr:
    """The places along an axis of a matrix."""
    first = op.slice(of, starts=(0,), stops=(1,), axes=(1 - axis,))
    return op.squeeze(op.iota_like(first, axis=axis, dtype=i32), axis=(1 - axis,))


def _unpacked(words: Expr, axis: int, order: Sequence[int], bits: int) -> Expr:
    """The integers of words along an axis, each at its place in the order."""
    shape = [1, 1, 1]
    shape[axis + 1] = len(order)
    shifts = const(np.array(order).reshape(shape) * bits, i32)
    wide = op.right_shift(op.expand_dims(words, axis=(axis + 1,)), shifts)
    return merged(op.bitwise_and(wide, (1 << bits) - 1), axis, 2)


def _scaled(number: Expr, zero: Expr, scales: Expr, group: int) -> Expr:
    """`(number - zero) * scale` of (in, out), transposed."""
    split = op.reshape_codes(number, codes=(-4, -1, group, 0))
    zero, scales = (op.expand_dims(expr, axis=(1,)) for expr in (zero, scales))
    whole = merged(real(split - zero) * op.cast(scales, dtype=f32), 0, 2)
    return op.transpose(whole, axes=(1, 0))
