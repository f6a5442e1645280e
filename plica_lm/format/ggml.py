"""The block formats of GGUF files, as ggml lays them out.

>>> Q4_K.elements, Q4_K.size
(256, 144)
"""

from __future__ import annotations

from typing import Final

from plica import op
from plica.ir.graph import Expr
from plica.ir.type.dtype import f16
from plica_lm.format.block import BlockFormat, real
from plica_lm.format.field import Index, bits, floats, i8s

Q4_0: Final = BlockFormat(
    "Q4_0", (2, 16), 18, {"d": floats(f16, 0), "q": bits(4, 2, 4, 8)}, lambda d, q: d * real(q - 8)
)
Q4_1: Final = BlockFormat(
    "Q4_1", (2, 16), 20,
    {"d": floats(f16, 0), "m": floats(f16, 2), "q": bits(4, 4, 4, 8)},
    lambda d, m, q: d * real(q) + m,
)  # fmt: skip
Q8_0: Final = BlockFormat(
    "Q8_0", (32,), 34, {"d": floats(f16, 0), "q": i8s(2, 8)}, lambda d, q: d * real(q)
)


def _six(h: Expr, low: Expr, pair: Expr, high: Expr) -> Expr:
    """Numbers of 6 bits: the first four whole, of the others two bits above those of the first."""
    return op.where(op.equal(h, 0), low, op.bitwise_or(pair, op.left_shift(high, 4)))


Q4_K: Final = BlockFormat(
    "Q4_K", (2, 2, 2, 32), 144,
    {
        "d": floats(f16, 0), "s": bits(6, 4, 0, 16, 8), "s_pair": bits(4, 12, 0, 16, 8),
        "m": bits(6, 8, 0, 16, 8), "m_pair": bits(4, 12, 0, 16, 8, bit=4), "dm": floats(f16, 2),
        "s_top": bits(2, 4, 0, 16, 8, bit=6), "m_top": bits(2, 8, 0, 16, 8, bit=6),
        "h": Index(0), "q": bits(4, 16, 512, 256, 4, 8),
    },
    lambda d, dm, h, q, s, s_pair, s_top, m, m_pair, m_top: (
        d * real(_six(h, s, s_pair, s_top)) * real(q) - dm * real(_six(h, m, m_pair, m_top))
    ),
)  # fmt: skip
Q6_K: Final = BlockFormat(
    "Q6_K", (2, 2, 2, 2, 16), 210,
    {
        "d": floats(f16, 208), "s": i8s(192, 64, 32, 16, 8),
        "low": bits(4, 0, 512, 4, 256, 128, 8), "high": bits(2, 128, 256, 4, 2, 128, 8),
    },
    lambda d, s, low, high: d * real(s) * real(op.bitwise_or(low, op.left_shift(high, 4)) - 32),
)  # fmt: skip
