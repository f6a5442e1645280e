"""Quotients by one scale that are rounded: products by its inverse, and not a bit of another."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pytest
from hypothesis import given, strategies as st

from plica.codegen.emit.contraction import SMALL
from plica.codegen.llvm.fold import emit
from plica.codegen.llvm.rounded_quotient import SHORTEST, by_inverse
from plica.codegen.llvm.writer import CodeTraits
from plica.ir.interpret.array_arithmetic import cast as meant_cast
from plica.ir.interpret.kernel import run_kernel
from plica.ir.loop.scalar import Cast, Intrinsic, Lit, Max, Min, index
from plica.ir.loop.statement import For, Kernel, Store, statements
from plica.ir.loop.tensor import axis, buffer
from plica.ir.type.dtype import DType, f32, i8, u8, u16
from tests.codegen.native import native_kernel

Array = np.ndarray[Any, Any]

SCALES: Final = (
    1.0, 0.5, 0.1, 1 / 255, 3e-7, 7e9, 2.0**-90, 2.0**90, 1 - 2.0**-24,
    2.0**-91, 2.0**91, 1e-44, 3e38, 0.0, -0.25, np.inf, np.nan,
)  # fmt: skip
ZEROS: Final = (0.0, 128.0, 127.0, 3.0, -128.0, 255.0, 0.5, 1e9, -1.0, np.nan)


def quantising(rows: int, size: int, into: DType, moves: bool = True) -> Kernel:
    """`y[r, i] = cast(clip(round(x[r, i] / s[r]) + z[r]))`."""
    x, s, z = buffer("x", (rows, size), f32), buffer("s", (rows,), f32), buffer("z", (rows,), f32)
    y, r, i = buffer("y", (rows, size), into), axis("r"), axis("i")
    low, high = (Lit(float(each), f32) for each in into.bounds)
    whole = Intrinsic("round", (x[r, i] / s[r],))
    value = Cast(Min(Max(whole + z[r] if moves else whole, low), high), into)
    row = For(i, index(size), "vectorized", Store(y, (r, i), value))
    return Kernel((), (x, s, z, y), 3, For(r, index(rows), "serial", row))


def hard(scale: np.float32, draw: np.random.Generator) -> Array:
    """Numbers that a scale divides to halves and beside them, and what is no number."""
    with np.errstate(all="ignore"):
        halves = ((draw.integers(-300, 600, 200) + 0.5) * scale).astype(np.float32)
        beside = [np.nextafter(halves, np.float32(way)) for way in (np.inf, -np.inf)]
        some = (draw.standard_normal(180) * 200 * scale).astype(np.float32)
    far = [np.inf, -np.inf, np.nan, 3e38, -3e38, 1e-45, 0.0, -0.0, 1.0, -1.0]
    return np.concatenate([halves, *beside, some, np.array(far, np.float32)])


def meant(x: Array, scale: Array, zero: Array, into: DType) -> Array:
    low, high = into.bounds
    with np.errstate(all="ignore"):
        moved = np.rint(x / scale[:, None]) + zero[:, None]
        held = np.minimum(np.maximum(moved, np.float32(low)), np.float32(high))
        return np.asarray(meant_cast(held, into))


@pytest.mark.parametrize("into", [u8, i8, u16], ids=str)
def test_every_quotient_is_rounded_as_division_rounds_it(into: DType) -> None:
    draw = np.random.default_rng(11)
    mantissas = (1 + draw.random(40)).astype(np.float32) * 2.0 ** draw.integers(-30, 30, 40)
    pairs = [(s, z) for s in SCALES for z in (0.0, 128.0)] + [(0.1, z) for z in ZEROS]
    pairs += [(s, float(into.bounds[0] + 7)) for s in mantissas]
    scale, zero = np.array(pairs, np.float32).T
    x = np.stack([hard(each, draw) for each in scale])
    code, (found,) = native_kernel(quantising(len(scale), x.shape[1], into), [x, scale, zero])
    assert code == 0
    np.testing.assert_array_equal(found, meant(x, scale, zero, into))


@given(st.integers(0, 2**32 - 1), st.sampled_from([u8, i8]), st.integers(SHORTEST, SHORTEST + 70))
def test_the_kernel_means_the_same(seed: int, into: DType, size: int) -> None:
    draw = np.random.default_rng(seed)
    scale = draw.choice(np.array([*SCALES, *draw.random(20)], np.float32), 2)
    zero = draw.choice(np.array([*ZEROS, *range(8)], np.float32), 2)
    x = np.stack([draw.permutation(hard(each, draw))[:size] for each in scale])
    kernel = quantising(2, size, into)
    changed = by_inverse(kernel)
    assert changed is not kernel
    with np.errstate(all="ignore"):
        first, second = (run_kernel(each, [x, scale, zero]) for each in (kernel, changed))
    np.testing.assert_array_equal(first, second)


def test_what_moves_by_nothing_is_a_product_too() -> None:
    changed = by_inverse(quantising(1, 100, u8, moves=False)).body
    loops = [each for each in statements(changed) if isinstance(each, For)]
    assert [SMALL in dict(each.annotations) for each in loops].count(True) == 1


def test_short_rows_and_scales_of_each_lane_are_divided() -> None:
    assert by_inverse(kernel := quantising(4, SHORTEST - 1, u8)) is kernel
    x, y, i = buffer("x", (100,), f32), buffer("y", (100,), u8), axis("i")
    whole = Intrinsic("round", (x[i] / (x[i] + 1.0),))
    value = Cast(Min(Max(whole, Lit(0.0, f32)), Lit(9.0, f32)), u8)
    own = Kernel((), (x, y), 1, For(i, index(100), "vectorized", Store(y, (i,), value)))
    assert by_inverse(own) is own


def test_machines_that_round_products_first_divide() -> None:
    text = "\n".join(emit(quantising(1, 256, u8), "k", None, CodeTraits()).lines)
    assert "llvm.fma" not in text
    corrects = emit(quantising(1, 256, u8), "k", None, CodeTraits(corrects=True))
    assert "llvm.fma" in "\n".join(corrects.lines)
