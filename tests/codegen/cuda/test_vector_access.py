"""Stores of pairs that four threads of a row do together, beside those that each does alone."""

from __future__ import annotations

import numpy as np
import pytest

from plica.codegen.cuda.fold import KernelCode, fold
from plica.ir.loop.scalar import Cast, Lt, Scalar, index
from plica.ir.loop.statement import NOTHING, Branch, For, Kernel, Stmt, Store
from plica.ir.loop.tensor import axis, buffer
from plica.ir.type.dtype import f16, f32
from tests.codegen.cuda.emulate import COMPILER
from tests.codegen.cuda.emulate import run as emulated

LANE, WARP, OCTET, PAIR = (axis(name) for name in "twop")
TURNED = "p_quads_turned"
WARPS, OCTETS = 2, 8

needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler on this machine")


def stored(
    rows: int = 16, columns: int = 64, *, around: Scalar | None = None,
    inside: Scalar | None = None, step: int = 8, octets: int = OCTETS,
) -> KernelCode:  # fmt: skip
    """y = 2 * x: eight rows of a warp, pairs of a row by four threads, and guards of both."""
    x, y = buffer("x", (rows, columns), f32), buffer("y", (rows, columns), f16)
    place = (WARP * 8 + LANE // 4, OCTET * step + LANE % 4 * 2 + PAIR)
    body: Stmt = Store(y, place, Cast(x[place] * 2.0, f16))
    body = For(PAIR, index(2), "vectorized", body)
    if inside is not None:
        body = Branch(inside, body, NOTHING)
    body = For(OCTET, index(octets), "serial", body)
    if around is not None:
        body = Branch(around, body, NOTHING)
    body = For(LANE, index(32), "threadIdx.x", body)
    body = For(WARP, index(WARPS), "threadIdx.y", body)
    return fold(Kernel((), (x, y), 1, body), "k")


def found(code: KernelCode, rows: int = 16, columns: int = 64) -> tuple[np.ndarray, np.ndarray]:
    """What a kernel stores, and twice the input."""
    x = np.random.default_rng(3).integers(-9, 10, (rows, columns)).astype(np.float32)
    y = np.full((rows, columns), -1, np.float16)
    emulated(code, [x, y])
    return y, 2 * x


@needs_compiler
def test_threads_of_a_row_store_eight_neighbours_each() -> None:
    code = stored()
    assert TURNED in code.text
    np.testing.assert_array_equal(*found(code))


@needs_compiler
def test_guards_are_asked_where_it_is_stored() -> None:
    """Of rows and of eight columns: whoever has none hands on what it holds."""
    code = stored(
        11, 40, around=Lt(WARP * 8 + LANE // 4, index(11)), inside=Lt(OCTET, index(5))
    )  # fmt: skip
    assert TURNED in code.text
    np.testing.assert_array_equal(*found(code, 11, 40))


@pytest.mark.parametrize(
    "code",
    [
        stored(inside=Lt(OCTET * 8 + LANE % 4 * 2, index(60))),
        stored(around=Lt(LANE, index(30))),
        stored(columns=68),
        stored(octets=6),
        stored(columns=72, step=9),
    ],
    ids=["a guard of a pair", "threads apart", "rows of no eight", "six of them", "others between"],
)
def test_others_store_pairs_alone(code: KernelCode) -> None:
    assert TURNED not in code.text
