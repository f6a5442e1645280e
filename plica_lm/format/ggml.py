"""The block formats of GGUF files, as ggml lays them out; those with grids stand in `grid`.

>>> Q4_K.elements, Q4_K.size
(256, 144)
"""

from __future__ import annotations

from typing import Final

import numpy as np

from plica import op
from plica.ir.graph import Expr, const
from plica.ir.type.dtype import bf16, f8e4m3fn, f16, f32, i32
from plica_lm.format.block import BlockFormat, real
from plica_lm.format.field import BitField, bits, floats, i8s


def looked_up(values: object, index: Expr) -> Expr:
    """The numbers of a table at some places, as f32."""
    return op.take(const(np.asarray(values, np.float32), f32), index)


def above(low: Expr, high: Expr, by: int) -> Expr:
    """Numbers whose high bits are stored apart."""
    return op.bitwise_or(low, op.left_shift(high, by))


# --- 32 weights with one scale --------------------------------------------------------------------

Q4_0: Final = BlockFormat(
    "Q4_0", (2, 16), 18, {"d": floats(f16, 0), "q": bits(4, 2, 4, 8)}, lambda d, q: d * real(q - 8)
)
Q4_1: Final = BlockFormat(
    "Q4_1", (2, 16), 20,
    {"d": floats(f16, 0), "m": floats(f16, 2), "q": bits(4, 4, 4, 8)},
    lambda d, m, q: d * real(q) + m,
)  # fmt: skip
Q5_0: Final = BlockFormat(
    "Q5_0", (2, 2, 8), 22,
    {"d": floats(f16, 0), "high": bits(1, 2, 16, 8, 1), "q": bits(4, 6, 4, 64, 8)},
    lambda d, high, q: d * real(above(q, high, 4) - 16),
)  # fmt: skip
Q5_1: Final = BlockFormat(
    "Q5_1", (2, 2, 8), 24,
    {"d": floats(f16, 0), "m": floats(f16, 2), "high": bits(1, 4, 16, 8, 1),
     "q": bits(4, 8, 4, 64, 8)},
    lambda d, m, high, q: d * real(above(q, high, 4)) + m,
)  # fmt: skip
Q8_0: Final = BlockFormat(
    "Q8_0", (32,), 34, {"d": floats(f16, 0), "q": i8s(2, 8)}, lambda d, q: d * real(q)
)

Q1_0: Final = BlockFormat(
    "Q1_0", (16, 8), 18, {"d": floats(f16, 0), "q": bits(1, 2, 8, 1)},
    lambda d, q: d * real(q * 2 - 1),
)  # fmt: skip

# --- 256 weights, with scales of groups -----------------------------------------------------------

Q2_K: Final = BlockFormat(
    "Q2_K", (2, 4, 2, 16), 84,
    {
        "d": floats(f16, 80), "dm": floats(f16, 82), "q": bits(2, 16, 256, 2, 128, 8),
        "s": bits(4, 0, 64, 16, 8), "m": bits(4, 0, 64, 16, 8, bit=4),
    },
    lambda d, dm, q, s, m: d * real(s) * real(q) - dm * real(m),
)  # fmt: skip
Q3_K: Final = BlockFormat(
    "Q3_K", (2, 2, 2, 2, 16), 110,
    {
        "d": floats(f16, 108),
        "q": bits(2, 32, 256, 4, 2, 128, 8), "h": bits(1, 0, 4, 2, 1, 128, 8),
        "low": bits(4, 96, 4, 32, 16, 8), "high": bits(2, 104, 4, 2, 16, 8),
    },
    lambda d, q, h, low, high: d * real(above(low, high, 4) - 32) * real(above(q, h, 2) - 4),
)  # fmt: skip

_SIX: Final[dict[str, BitField]] = {
    "d": floats(f16, 0), "s": bits(4, 4, 64, 16, 8), "s_top": bits(2, 4, 2, 16, 8, bit=4),
    "dm": floats(f16, 2), "m": bits(4, 8, 36, 16, 8), "m_top": bits(2, 8, 2, 16, 8, bit=4),
}  # fmt: skip
"""Scales and minima of 6 bits, four low ones and two above: those of the first four groups in a
byte each; of the others the low ones share a byte, and the others stand above the first groups'."""


def _six(q: Expr, **of: Expr) -> Expr:
    """`d * s * q - dm * m` with such scales and minima."""
    s, m = (above(of[name], of[f"{name}_top"], 4) for name in ("s", "m"))
    return of["d"] * real(s) * real(q) - of["dm"] * real(m)


Q4_K: Final = BlockFormat(
    "Q4_K", (2, 2, 2, 32), 144, {**_SIX, "q": bits(4, 16, 512, 256, 4, 8)}, _six
)
Q5_K: Final = BlockFormat(
    "Q5_K", (2, 2, 2, 32), 176,
    {**_SIX, "h": bits(1, 16, 4, 2, 1, 8), "q": bits(4, 48, 512, 256, 4, 8)},
    lambda q, h, **of: _six(above(q, h, 4), **of),
)  # fmt: skip
Q6_K: Final = BlockFormat(
    "Q6_K", (2, 2, 2, 2, 16), 210,
    {
        "d": floats(f16, 208), "s": i8s(192, 64, 32, 16, 8),
        "q": bits(4, 0, 512, 4, 256, 128, 8), "h": bits(2, 128, 256, 4, 2, 128, 8),
    },
    lambda d, s, q, h: d * real(s) * real(above(q, h, 4) - 32),
)  # fmt: skip

# --- ternary --------------------------------------------------------------------------------------


def _trits(q: Expr, planes: int) -> Expr:
    """The digits of base 3 that bytes hold as a fraction, the first ones first."""
    powers = const(3 ** np.arange(planes).reshape(-1, 1), i32)
    return real(op.right_shift(op.bitwise_and(q * powers, 255) * 3, 8) - 1)


TQ1_0: Final = BlockFormat(
    "TQ1_0", (256, 1), 54,
    {
        "d": floats(f16, 52), "a": bits(8, 0, 0, 8).over(5, 32),
        "b": bits(8, 32, 0, 8).over(5, 16), "c": bits(8, 48, 0, 8).over(4, 4),
    },
    lambda d, a, b, c: (d * _trits(a, 5), d * _trits(b, 5), d * _trits(c, 4)),
)  # fmt: skip
TQ2_0: Final = BlockFormat(
    "TQ2_0", (2, 4, 32), 66, {"d": floats(f16, 64), "q": bits(2, 0, 256, 2, 8)},
    lambda d, q: d * real(q - 1),
)  # fmt: skip

# --- floats of 4 bits, and numbers from a table ---------------------------------------------------


def _doubled(q: Expr) -> Expr:
    """Twice the float of 4 bits (a sign, two of exponent, one of fraction) of a code."""
    size = op.bitwise_and(q, 7)
    exponent = op.maximum(op.right_shift(size, 1) - 1, 0)
    normal = op.left_shift(op.bitwise_and(q, 1) + 2, exponent)
    value = op.where(op.less(size, 4), size, normal)
    return real(op.where(op.less(q, 8), value, 0 - value))


STEPS: Final = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)

MXFP4: Final = BlockFormat(
    "MXFP4", (2, 16), 17, {"e": bits(8, 0), "q": bits(4, 1, 4, 8)},
    lambda e, q: op.cast(
        op.bits_as(  # half of 2 ** (e - 127)
            op.where(op.less(e, 2), op.left_shift(32, e), op.left_shift(e - 1, 7)), dtype=bf16
        ), dtype=f32,
    ) * _doubled(q),
)  # fmt: skip
NVFP4: Final = BlockFormat(
    "NVFP4", (4, 2, 8), 36, {"e": bits(8, 0, 8), "u": bits(7, 0, 8), "q": bits(4, 4, 64, 4, 8)},
    lambda e, u, q: op.where(
        op.equal(e, 127), 0.0,
        op.where(op.equal(u, 127), 480.0, op.cast(op.bits_as(u, dtype=f8e4m3fn), dtype=f32)) * 0.5,
    ) * _doubled(q),
)  # fmt: skip
IQ4_NL: Final = BlockFormat(
    "IQ4_NL", (2, 16), 18, {"d": floats(f16, 0), "q": bits(4, 2, 4, 8)},
    lambda d, q: d * looked_up(STEPS, q),
)  # fmt: skip
IQ4_XS: Final = BlockFormat(
    "IQ4_XS", (2, 2, 2, 2, 16), 136,
    {
        "d": floats(f16, 0), "q": bits(4, 8, 512, 256, 128, 4, 8),
        "low": bits(4, 4, 16, 8, 4), "high": bits(2, 2, 8, 4, 2),
    },
    lambda d, q, low, high: d * real(above(low, high, 4) - 32) * looked_up(STEPS, q),
)  # fmt: skip
