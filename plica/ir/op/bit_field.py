"""Fields of bits: integers that lie at regular distances in blocks of bytes.

The last axis of bytes is cut into blocks. In each, a field holds integers of `width` bits over an
index space `extents`: the first starts at bit `at`, and along axis k the next one is `strides[k]`
bits further. Bits are counted from the lowest within a byte, and 16- and 32-bit integers are
little-endian.

    at=16, width=4, extents=(2, 16), strides=(4, 8)      16 bytes from byte 2 on, low halves first

>>> from plica.ir.type.term import tensor
>>> how = {"block": 18, "at": 16, "width": 4, "extents": (2, 16), "strides": (4, 8)}
>>> str(bit_field.relation({**how, "signed": False}, tensor(("n", 36), "u8")))
'Tensor[("n", 2, 2, 16), i32]'
"""

from __future__ import annotations

from typing import Final

from plica.ir.graph.operator import Values
from plica.ir.loop import scalar as sc
from plica.ir.loop.tensor import Compute, compute
from plica.ir.op.attribute import attribute, flag, natural, naturals, positive
from plica.ir.op.record import primitive
from plica.ir.op.relation import rank_at_least, refuse
from plica.ir.type import TensorType, i8, i32, known, normal_dim, u8

BYTE: Final = 8
WORDS: Final = (16, 32)
"""Widths of more than a byte."""


def _rule(attrs: Values, x: TensorType) -> TensorType:
    name, block, width = "bit_field", attrs["block"], attrs["width"]
    extents, strides = attrs["extents"], attrs["strides"]
    rank_at_least(name, x, 1)
    if len(extents) != len(strides):
        message = f"{name} has a stride for each axis."
        refuse("bad-attribute", message, f"{len(extents)} strides", str(len(strides)))
    last = [(n - 1) * s for n, s in zip(extents, strides, strict=True)]
    steps = [(n - 1) * (s % BYTE) for n, s in zip(extents, strides, strict=True)]
    inside = attrs["at"] % BYTE + sum(steps)
    if inside + width > BYTE and (inside or width not in WORDS):
        expected = "numbers within a byte, or words of 16 or 32 bits from the start of one"
        refuse(
            "bad-attribute", f"{name} reads bytes.", expected, f"bits {inside} to {inside + width}"
        )
    if (end := attrs["at"] + sum(last) + width) > block * BYTE:
        message = f"{name} stays inside of its block."
        refuse("bad-attribute", message, f"at most {block * BYTE} bits", str(end))
    if (size := known(x.shape[-1])) is not None and size % block:
        refuse("shape-conflict", f"{name} reads whole blocks.", f"a multiple of {block}", str(size))
    blocks = normal_dim(x.shape[-1] // block)
    return TensorType((*x.shape[:-1], blocks, *map(sc.index, extents)), i32)


def _body(attrs: Values, out: TensorType, x: sc.Buffer) -> Compute:
    width, strides = attrs["width"], attrs["strides"]

    def element(*axes: sc.Scalar) -> sc.Scalar:
        lead = len(axes) - len(strides) - 1
        *rows, block = axes[: lead + 1]
        place = block * attrs["block"] + attrs["at"] // BYTE
        shift: sc.Scalar = sc.Lit(attrs["at"] % BYTE, i32)
        for axis, stride, extent in zip(axes[lead + 1 :], strides, attrs["extents"], strict=True):
            bytes_, bits = divmod(stride, BYTE) if extent > 1 else (0, 0)
            place = place + axis * bytes_ if bytes_ else place
            shift = shift + sc.Cast(axis, i32) * sc.Lit(bits, i32) if bits else shift
        first: sc.Scalar = x[(*rows, place)]
        if attrs["signed"] and width == BYTE:
            return sc.Cast(sc.Cast(first, i8), i32)
        word: sc.Scalar = sc.Cast(first, i32)
        for n in range(1, width // BYTE):
            byte = sc.Cast(x[(*rows, place + n)], i32)
            word = sc.BitOr(word, sc.ShiftLeft(byte, sc.Lit(BYTE * n, i32)))
        if width < BYTE:
            word = sc.BitAnd(sc.ShiftRight(word, shift), sc.Lit((1 << width) - 1, i32))
        if not attrs["signed"] or width == i32.bits:
            return word
        above = sc.Lit(i32.bits - width, i32)
        return sc.ShiftRight(sc.ShiftLeft(word, above), above)

    return compute((x,), out.shape, element)


bit_field = primitive(
    "bit_field", ("x",), _rule, _body,
    "Bit fields at regular distances in blocks of bytes along the last axis, as integers.",
    attributes=(
        attribute("block", positive), attribute("at", natural), attribute("width", positive),
        attribute("extents", naturals), attribute("strides", naturals),
        attribute("signed", flag, False),
    ),
    admits=(u8,),
)  # fmt: skip
