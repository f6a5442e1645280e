"""Products of low-bit numbers, defined by bit planes combined with `and` and popcount.

A plane of x and a plane of the weight contribute where both have a 1. If the weight is `unipolar`,
its zeros count as -1: a b-bit weight w then denotes 2 w - (2^b - 1). Weighted by powers of two, the
planes sum to an i32 product of integers, and are computed as one: a product of bytes, if the
numbers fit.

`nn.packed_dense` multiplies floats by a 2-, 4- or 8-bit weight, packed into 32-bit words, lowest
number first. Each row has a scale and a zero point per group of columns:

    y[n] = sum over k of x[k] * (number(weight[n], k) - zero[n, k // group]) * scale[n, k // group]

Numbers are restored in the dtype of x, each rounded once; floats of 16 bits are summed in f32.

>>> from plica.ir.type.term import tensor
>>> how = {"activation_bits": 2, "weight_bits": 1, "unipolar": True}
>>> str(bitserial_dense.relation(how, tensor((2, 8), "u8"), tensor((3, 8), "u8")))
'Tensor[(2, 3), i32]'

Fields of bits: integers that lie at regular distances in blocks of bytes.

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

from plica.ir.graph.expression import Expr
from plica.ir.graph.operator import Mismatch, Operator, Values
from plica.ir.loop import scalar as sc
from plica.ir.loop.tensor import Compute, compute, reduce
from plica.ir.op.attribute import attribute, flag, natural, naturals, positive
from plica.ir.op.comparison import bitwise_and
from plica.ir.op.convolution import conv
from plica.ir.op.elementwise import cast, multiply, subtract
from plica.ir.op.linear import dense
from plica.ir.op.record import as_dtype, composite, primitive, scalar
from plica.ir.op.relation import INTEGER, rank_at_least, rank_is, refuse, same
from plica.ir.type import TensorType, bf16, f16, f32, i8, i32, known, normal_dim, u8

MAX_BITS = 8  # the maximum width of a number: products of wider ones overflow i32


def _derived(name: str, record: Operator, doc: str) -> Operator:
    def rule(attrs: Values, x: TensorType, weight: TensorType) -> TensorType:
        for bits in (attrs["activation_bits"], attrs["weight_bits"]):
            if bits > MAX_BITS:
                message = f"{name} is of numbers of few bits."
                refuse("bad-attribute", message, f"at most {MAX_BITS}", str(bits))
        own = {each.name: attrs[each.name] for each in record.attributes}
        wide = [TensorType(tensor_type.shape, i32) for tensor_type in (x, weight)]
        if isinstance(found := record.relation(own, *wide), Mismatch):
            refuse(found.code, f"{name}: {found.message}", found.expected, found.found)
        assert isinstance(found, TensorType)
        return found

    def low_bits(x: Expr, bits: int) -> Expr:
        return bitwise_and(cast(x, i32), scalar(2**bits - 1, i32))

    def in_bytes(x: Expr, low: int, high: int) -> Expr:
        """Numbers as the bytes that they fit: machines multiply these several at once."""
        narrow = [dtype for dtype in (i8, u8) if dtype.bounds[0] <= low and high <= dtype.bounds[1]]
        return cast(cast(x, narrow[0]), i32) if narrow else x

    def build(attrs: Values, x: Expr, weight: Expr) -> Expr:
        own = {each.name: attrs[each.name] for each in record.attributes}
        bits, most = attrs["weight_bits"], 2 ** attrs["weight_bits"] - 1
        signs = low_bits(weight, bits)
        if attrs["unipolar"]:
            signs = subtract(multiply(signs, scalar(2, i32)), scalar(most, i32))
        signs = in_bytes(signs, -most if attrs["unipolar"] else 0, most)
        data = low_bits(x, attrs["activation_bits"])
        return record(cast(cast(data, u8), i32), signs, **own)

    return composite(
        name,
        ("x", "weight"),
        rule,
        build,
        doc,
        attributes=(
            *record.attributes,
            attribute("activation_bits", positive, 1),
            attribute("weight_bits", positive, 1),
            attribute("unipolar", flag, True),
        ),
        admits=INTEGER,
    )


bitserial_dense = _derived(
    "nn.bitserial_dense", dense, "nn.dense of the low bits of integers, in i32."
)
bitserial_conv = _derived("nn.bitserial_conv", conv, "nn.conv of the low bits of integers, in i32.")

# --- weights of few bits --------------------------------------------------------------------------

WORD_BITS = 32  # bits of a word that packs several numbers of a weight


def _packed_rule(
    attrs: Values, x: TensorType, weight: TensorType, scale: TensorType, zero: TensorType
) -> TensorType:
    name, bits = "nn.packed_dense", attrs["bits"]
    if bits not in (2, 4, 8):
        refuse("bad-attribute", f"{name} takes weights of some bits.", "2, 4 or 8", str(bits))
    for what, each, wanted in (
        ("x", x, (f32, f16, bf16)), ("words", weight, (i32,)), ("scales", scale, (x.dtype,)),
        ("zero points", zero, (u8, f32) if x.dtype is f32 else (u8,)),
    ):  # fmt: skip
        if each.dtype not in wanted:
            expected = " or ".join(map(str, wanted))
            refuse("dtype-conflict", f"{name} takes {what} of a dtype.", expected, str(each.dtype))
    rank_at_least(name, x, 1)
    for what, tensor_type in (("the weight", weight), ("scales", scale), ("zero points", zero)):
        rank_is(name, what, tensor_type, 2)
        same(name, "rows", tensor_type.shape[0], weight.shape[0])
    same(name, "groups", zero.shape[1], scale.shape[1])
    depth, held, groups = (known(n) for n in (x.shape[-1], weight.shape[1], scale.shape[1]))
    if not depth or not groups or depth % groups or depth // groups * bits % WORD_BITS:
        expected = f"groups of whole words that make up {x.shape[-1]}"
        refuse("shape-conflict", f"{name} has groups of equal size.", expected, str(groups))
    if held != depth * bits // WORD_BITS:
        expected = str(depth * bits // WORD_BITS)
        refuse("shape-conflict", f"{name} has the words of all columns.", expected, str(held))
    return TensorType((*x.shape[:-1], weight.shape[0]), x.dtype)


def _packed_body(  # noqa: PLR0917  # as the operator has them
    attrs: Values,
    out: TensorType,
    x: sc.Buffer,
    weight: sc.Buffer,
    scale: sc.Buffer,
    zero: sc.Buffer,
) -> Compute:
    bits, groups = attrs["bits"], known(scale.shape[1]) or 1
    group, several = (known(x.shape[-1]) or 0) // groups, WORD_BITS // attrs["bits"]

    def element(*axes: sc.Scalar) -> sc.Scalar:
        *rows, n = axes

        def term(g: sc.Scalar, h: sc.Scalar, p: sc.Scalar) -> sc.Scalar:
            word = weight[n, g * (group // several) + h]
            moved = sc.ShiftRight(word, sc.Cast(p, i32) * sc.Lit(bits, i32))
            number = sc.Cast(sc.BitAnd(moved, sc.Lit(2**bits - 1, i32)), f32)
            point, factor = as_dtype(zero[n, g], f32), as_dtype(scale[n, g], f32)
            value = as_dtype(sc.Mul(sc.Sub(number, point), factor), out.dtype)
            data = x[(*rows, g * group + h * several + p)]
            return sc.Mul(as_dtype(data, f32), as_dtype(value, f32))

        sizes = [sc.index(size) for size in (groups, group // several, several)]
        return as_dtype(reduce("sum", sizes, term, runs="box"), out.dtype)

    return compute((x, weight, scale, zero), out.shape, element)


packed_dense = primitive(
    "nn.packed_dense", ("x", "weight", "scale", "zero"), _packed_rule, _packed_body,
    "nn.dense by a packed weight of 2, 4 or 8 bits with scales and zero points per group.",
    attributes=(attribute("bits", positive, 4),), like=(),
)  # fmt: skip


BYTE: Final = 8
WORDS: Final = (16, 32)  # widths of more than a byte


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
