"""The block formats of GGUF files whose weights are points of a grid, 4 or 8 at a time.

`grid.npz` holds the grids (from ggml). Signs are stored as bits, or as 7 bits for 8 weights with
even parity.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any, Final

import numpy as np

from plica import op
from plica.ir.graph import Expr, const
from plica.ir.type.dtype import f16, f32, i32
from plica_lm.format.block import BlockFormat, real
from plica_lm.format.field import Axis, bits, floats
from plica_lm.format.ggml import above, looked_up

Array = np.ndarray[Any, Any]


@cache
def _grids() -> dict[str, Array]:
    with files(__package__).joinpath("grid.npz").open("rb") as file:
        return dict(np.load(file, allow_pickle=False))


def _point(name: str, place: Expr, lane: Expr) -> Expr:
    """The number of a lane of a grid's point."""
    grid = _grids()[name]
    return looked_up(grid.reshape(-1), place * grid.shape[1] + lane)


def _sign(bit: Expr) -> Expr:
    return real(1 - bit * 2)


def _even(seven: Expr, lane: Expr) -> Expr:
    """The sign of a lane of 8 from the 7 bits of all."""
    codes = np.array([n | (n.bit_count() & 1) << 7 for n in range(128)])
    return _sign(op.bitwise_and(op.right_shift(op.take(const(codes, i32), seven), lane), 1))


def _some(word: Expr, at: Expr, width: int) -> Expr:
    """Bits of a word from some place on."""
    return op.bitwise_and(op.right_shift(word, at), (1 << width) - 1)


IQ2_XXS: Final = BlockFormat(
    "IQ2_XXS", (8, 4, 8), 66,
    {"d": floats(f16, 0), "q": bits(8, 2, 64, 8), "aux": bits(32, 6, 64),
     "s": bits(4, 9, 64, bit=4), "j": Axis(1), "lane": Axis(2)},
    lambda d, q, aux, s, j, lane: (
        d * (real(s) + 0.5) * 0.25 * _point("IQ2_XXS", q, lane) * _even(_some(aux, j * 7, 7), lane)
    ),
)  # fmt: skip
IQ2_XS: Final = BlockFormat(
    "IQ2_XS", (8, 2, 2, 8), 74,
    {"d": floats(f16, 0), "q": bits(16, 2, 64, 32, 16), "s": bits(4, 66, 8, 4), "lane": Axis(3)},
    lambda d, q, s, lane: (
        d * (real(s) + 0.5) * 0.25 * _point("IQ2_XS", op.bitwise_and(q, 511), lane)
        * _even(op.right_shift(q, 9), lane)
    ),
)  # fmt: skip
IQ2_S: Final = BlockFormat(
    "IQ2_S", (8, 2, 2, 8), 82,
    {"d": floats(f16, 0), "q": bits(8, 2, 32, 16, 8), "h": bits(2, 66, 8, 4, 2),
     "sign": bits(1, 34, 32, 16, 8, 1), "s": bits(4, 74, 8, 4), "lane": Axis(3)},
    lambda d, q, h, sign, s, lane: (
        d * (real(s) + 0.5) * 0.25 * _point("IQ2_S", above(q, h, 8), lane) * _sign(sign)
    ),
)  # fmt: skip
IQ3_XXS: Final = BlockFormat(
    "IQ3_XXS", (8, 4, 2, 4), 98,
    {"d": floats(f16, 0), "q": bits(8, 2, 64, 16, 8), "aux": bits(32, 66, 32),
     "s": bits(4, 69, 32, bit=4), "j": Axis(1), "c": Axis(2), "lane": Axis(3)},
    lambda d, q, aux, s, j, c, lane: (
        d * (real(s) + 0.5) * 0.5 * _point("IQ3_XXS", q, lane)
        * _even(_some(aux, j * 7, 7), c * 4 + lane)
    ),
)  # fmt: skip
IQ3_S: Final = BlockFormat(
    "IQ3_S", (4, 2, 4, 2, 4), 110,
    {"d": floats(f16, 0), "q": bits(8, 2, 128, 64, 16, 8), "h": bits(1, 66, 16, 8, 2, 1),
     "sign": bits(1, 74, 64, 32, 8, 4, 1), "s": bits(4, 106, 8, 4), "lane": Axis(4)},
    lambda d, q, h, sign, s, lane: (
        d * real(s * 2 + 1) * _point("IQ3_S", above(q, h, 8), lane) * _sign(sign)
    ),
)  # fmt: skip
IQ1_S: Final = BlockFormat(
    "IQ1_S", (8, 4, 8), 50,
    {"d": floats(f16, 0), "q": bits(8, 2, 32, 8), "h": bits(16, 34, 16),
     "s": bits(3, 35, 16, bit=4), "delta": bits(1, 35, 16, bit=7), "j": Axis(1), "lane": Axis(2)},
    lambda d, q, h, s, delta, j, lane: (
        d * real(s * 2 + 1)
        * (_point("IQ1_S", above(q, _some(h, j * 3, 3), 8), lane) + _sign(delta) * 0.125)
    ),
)  # fmt: skip
IQ1_M: Final = BlockFormat(
    "IQ1_M", (4, 4, 2, 8), 56,
    {**{f"d{n}": bits(4, 49 + 2 * n, bit=4) for n in range(4)}, "q": bits(8, 0, 64, 16, 8),
     "h": bits(3, 32, 32, 8, 4), "delta": bits(1, 32, 32, 8, 4, bit=3), "s": bits(16, 48, 16),
     "j": Axis(1), "lane": Axis(3)},
    lambda d0, d1, d2, d3, q, h, delta, s, j, lane: (
        op.cast(op.bits_as(above(above(above(d0, d1, 4), d2, 8), d3, 12), dtype=f16), dtype=f32)
        * real(_some(s, j * 3, 3) * 2 + 1)
        * (_point("IQ1_S", above(q, h, 8), lane) + _sign(delta) * 0.125)
    ),
)  # fmt: skip
