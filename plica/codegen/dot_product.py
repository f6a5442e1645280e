"""Dot products of bytes: instructions that multiply and add four neighbours in each lane.

    y[l] += x[0] * w[l, 0] + x[1] * w[l, 1] + x[2] * w[l, 2] + x[3] * w[l, 3]       for all lanes l

Machines without a byte dot product use one for pairs of i16, with bytes widened when they are
packed. Others may have one for such pairs besides, which adds to its sums: `wide`. Each is a tensor
intrinsic, identified by its meaning; LLVM's function is a hint. Sums are exact modulo 2**32, as the
meaning says: saturating instructions are excluded. The features of a machine determine which exist.
Some machines also multiply tiles of bytes, of up to 32 rows and two vectors:

    y[v, r, l] = sum over q, p of x[r, 4 * q + p] * w[v, q, l, p]               AMX, 16 quads a step

Window products have separate data in each lane, with terms in rows:

    y[l] += x[0, l] * w[l, 0] + x[1, l] * w[l, 1] + x[2, l] * w[l, 2] + x[3, l] * w[l, 3]

Both operands may have separate bytes in each lane, in memory order, one of them as d digits of
integers:

    y[l] += sum over d, s of x[4 * l + s] * w[d, 4 * l + s] << 8 * (1 - d)

Low-bit numbers are first unpacked from the bytes of a word, and x has four elements per position:

    y[l] += sum over q, s of x[q, s] * (w[l] >> 8 * s + 4 * q & 15)                 of 4 bits, q < 2

>>> from plica.codegen.target import Target
>>> avx512 = ("+avx512f", "+avx512vnni")
>>> dot_of(Target("cpu", "x86_64-unknown-linux-gnu", "generic", avx512)).windows
'x86.dot_u8i8_16_window'
>>> dot_of(Target("cpu", "x86_64-unknown-linux-gnu", "generic", ("+avx", "+avx2"))).intrinsic
'x86.dot_i16i16_8'
>>> dot_of(Target("cpu", "x86_64-unknown-linux-gnu", "generic")) is None
True
"""

from __future__ import annotations

import re
from typing import Final

from attrs import evolve

from plica.codegen.target import Target
from plica.ir.loop import For, Kernel, Lit, Seq, Stmt, Store, axis, buffer, index
from plica.ir.loop.invocation import TensorIntrinsic, register
from plica.ir.loop.scalar import BitAnd, Cast, Scalar, ShiftRight
from plica.ir.type import DType, dim_var, i8, i16, i32, u8
from plica.schedule.default.machine import DIGITS, PAIR_LANES, QUAD, WINDOW_LANES, Dot, worth


def meaning(lanes: int, dtype: DType, weight: DType = i8, terms: int = QUAD) -> Kernel:
    """The meaning of a dot product with a number of lanes and terms, and dtypes of both
    operands."""
    x, w, y = (
        buffer("x", (terms,), dtype),
        buffer("w", (lanes, terms), weight),
        buffer("y", (lanes,), i32),
    )
    lane, part = axis("lane"), axis("part")
    product = Cast(x[part], i32) * Cast(w[lane, part], i32)
    body = For(part, index(terms), "serial", Store(y, (lane,), y[lane] + product))
    return Kernel((), (x, w, y), 2, For(lane, index(lanes), "serial", body))


def window_meaning(dtype: DType, terms: int = QUAD) -> Kernel:
    """The meaning of a dot product with separate data per lane, in several rows."""
    x, w, y = (
        buffer("x", (terms, WINDOW_LANES), dtype),
        buffer("w", (WINDOW_LANES, terms), i8),
        buffer("y", (WINDOW_LANES,), i32),
    )
    lane, part = axis("lane"), axis("part")
    product = Cast(x[part, lane], i32) * Cast(w[lane, part], i32)
    body = For(part, index(terms), "serial", Store(y, (lane,), y[lane] + product))
    return Kernel((), (x, w, y), 2, For(lane, index(WINDOW_LANES), "serial", body))


def pairs_meaning(lanes: int, dtype: DType, digits: int) -> Kernel:
    """What dot products do in which both sides have bytes for each lane, one side digits of
    integers: rows of bytes, the highest first."""
    lane, digit, part = axis("lane"), axis("digit"), axis("part")
    which = {digit: digits} if digits > 1 else {}
    x, w, y = (
        buffer("x", (lanes * QUAD,), dtype),
        buffer("w", (*which.values(), lanes * QUAD), i8),
        buffer("y", (lanes,), i32),
    )
    place = lane * QUAD + part
    product: Scalar = Cast(w[*which, place], i32) * Cast(x[place], i32)
    if which:
        product = worth(product, digit, digits)
    body: Stmt = Store(y, (lane,), y[lane] + product)
    for var, extent in ((part, QUAD), *which.items(), (lane, lanes)):
        body = For(var, index(extent), "serial", body)
    return Kernel((), (x, w, y), 2, body)


def words_meaning(lanes: int, dtype: DType, bits: int) -> Kernel:
    """The meaning of a dot product whose lanes have a word of low-bit numbers."""
    parts = BYTE // bits
    x, w, y = (
        buffer("x", (parts, QUAD), dtype),
        buffer("w", (lanes,), i32),
        buffer("y", (lanes,), i32),
    )
    lane, part, byte = axis("lane"), axis("part"), axis("byte")
    shift = Cast(byte, i32) * Lit(BYTE, i32) + Cast(part, i32) * Lit(bits, i32)
    number = BitAnd(ShiftRight(w[lane], shift), Lit(2**bits - 1, i32))
    body: Stmt = Store(y, (lane,), y[lane] + Cast(x[part, byte], i32) * number)
    for var, extent in ((byte, QUAD), (part, parts), (lane, lanes)):
        body = For(var, index(extent), "serial", body)
    return Kernel((), (x, w, y), 2, body)


BYTE: Final = 8  # bits of a byte
TILES: Final = "x86.tiles"  # the prefix of tile product names


def tile_meaning(dtype: DType) -> Kernel:
    """The meaning of a tile product: rows of one dtype by vectors of signed bytes."""
    rows, vectors, quads = (dim_var(name) for name in ("rows", "vectors", "quads"))
    lanes = index(16)
    x = buffer("x", (rows, quads * QUAD), dtype)
    w = buffer("w", (vectors, quads, lanes, index(QUAD)), i8)
    y = buffer("y", (vectors, rows, lanes), i32)
    row, vector, quad, lane, part = (axis(each) for each in ("r", "v", "q", "l", "p"))
    product = Cast(x[row, quad * QUAD + part], i32) * Cast(w[vector, quad, lane, part], i32)
    sums: Stmt = Store(y, (vector, row, lane), y[vector, row, lane] + product)
    start: Stmt = Store(y, (vector, row, lane), Lit(0, i32))
    for var, extent in ((part, index(QUAD)), (quad, quads), (lane, lanes), (row, rows)):
        sums = For(var, extent, "serial", sums)
        start = start if var in (part, quad) else For(var, extent, "serial", start)
    whole = [For(vector, vectors, "serial", statement) for statement in (start, sums)]
    return Kernel((rows, vectors, quads), (x, w, y), 2, Seq(tuple(whole)))


def _declared(  # noqa: PLR0917  # a row
    name: str, lanes: int, dtype: DType, function: str, operand: str, wide: Dot | None = None
) -> Dot:
    """A row: LLVM's function takes operand vectors, and accumulates unless these are of i16."""
    hints = (("llvm", function), ("operand", operand))
    if dtype is i16:
        of = Dot(name, lanes, dtype, i16, PAIR)
    else:
        of = Dot(name, lanes, dtype, windows=f"{name}_window", pairs=f"{name}_pairs", wide=wide)
        own = (*hints, ("lanes", lanes))
        register(TensorIntrinsic(of.windows, window_meaning(dtype), None, own))
        for some in (lane for lane in PAIR_LANES if lane <= lanes):
            # LLVM names functions for vectors of x86 by their bits at the end.
            named = re.sub(r"\.\d{3}$", f".{i32.bits * some}", function)
            these = (("llvm", named), ("operand", operand), ("pairs", some))
            for digits in range(1, DIGITS + 1):
                pairs = pairs_meaning(some, dtype, digits)
                register(TensorIntrinsic(f"{of.pairs}{some}.{digits}", pairs, None, these))
    if dtype is i8:  # numbers and digits have signs, or need none
        of = evolve(of, words=f"{name}_words")
        for bits in (2, 4):
            taken = (*hints, ("bits", bits))
            words = words_meaning(lanes, dtype, bits)
            register(TensorIntrinsic(f"{of.words}{bits}", words, None, taken))
    register(TensorIntrinsic(name, meaning(lanes, dtype, of.weight, of.terms), None, hints))
    return of


PAIR: Final = 2  # the number of 16-bit integers in a 32-bit lane

# fmt: off
_WIDE_16: Final = _declared("x86.add_i16i16_16", 16, i16, "llvm.x86.avx512.vpdpwssd.512", "i32")
_WIDE_8:  Final = _declared("x86.add_i16i16_8",   8, i16, "llvm.x86.avx512.vpdpwssd.256", "i32")
_VNNI_16: Final = _declared("x86.dot_u8i8_16", 16, u8, "llvm.x86.avx512.vpdpbusd.512", "i32",
                            _WIDE_16)
_VNNI_8:  Final = _declared("x86.dot_u8i8_8",   8, u8, "llvm.x86.avx512.vpdpbusd.256", "i32",
                            _WIDE_8)
_SDOT_4:  Final = _declared("arm.dot_i8i8_4",   4, i8, "llvm.aarch64.neon.sdot.v4i32.v16i8", "i8")
_PAIRS_16: Final = _declared("x86.dot_i16i16_16", 16, i16, "llvm.x86.avx512.pmaddw.d.512", "i16")
_PAIRS_8: Final = _declared("x86.dot_i16i16_8",   8, i16, "llvm.x86.avx2.pmadd.wd", "i16")

for _dtype, _function in ((u8, "llvm.x86.tdpbusd"), (i8, "llvm.x86.tdpbssd")):
    register(
        TensorIntrinsic(
            f"{TILES}_{_dtype}i8", tile_meaning(_dtype), None, (("tiles", _function),)
        )
    )

# Architecture, what its features must hold, the bits a vector must have at least, the instruction.
DOTS: Final[tuple[tuple[str, tuple[str, ...], int, Dot], ...]] = (
    ("x86_64",  ("avx512f", "avx512vnni"),  512, _VNNI_16),
    ("x86_64",  ("avx512vl", "avx512vnni"), 256, _VNNI_8),
    ("x86_64",  ("avxvnni",),               256, _VNNI_8),
    ("x86_64",  ("avx512bw",),              512, _PAIRS_16),
    ("x86_64",  ("avx2",),                  256, _PAIRS_8),
    ("aarch64", ("dotprod",),               128, _SDOT_4),
    ("arm64",   ("dotprod",),               128, _SDOT_4),
)
# fmt: on


def dot_of(target: Target) -> Dot | None:
    """A machine's widest byte dot product, or None."""
    for architecture, features, bits, dot in DOTS:
        fits = target.architecture == architecture and target.vector_bits >= bits
        if fits and all(target.has(feature) for feature in features):
            return evolve(dot, tiles=TILES) if has_tiles(target) else dot
    return None


def has_tiles(target: Target) -> bool:
    """Whether a machine has byte tile products, on a system that enables them on request, as Linux
    does."""
    return "linux" in target.triple and target.has("amx-tile") and target.has("amx-int8")
