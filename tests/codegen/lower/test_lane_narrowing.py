"""Numbers that places give have 32 bits in lanes, where these are enough."""

from __future__ import annotations

from hypothesis import given, strategies as st

from plica.codegen.lower.lane_narrowing import narrow_lanes
from plica.core.fold import post_order
from plica.ir.loop.scalar import Cast, Mul, dtype_of
from plica.ir.loop.statement import Kernel
from plica.ir.type.dtype import DType, i32, i64
from tests.codegen.lower.kernels import assert_same, read

COUNTS = """
def counts(y: Buffer[({rows}, 8), i32]):
    for i in range({rows}):
        for j in {kind}(8):
            y[i, j] = i32((min(i - {low} + 4, {high}) - max(i - {low}, 0)) * min(j + 4, 9) * {far})
"""


def counts(rows: int, low: int, high: int, *, kind: str = "vectorized", far: int = 1) -> Kernel:
    """How many places of a window are inside, along both axes."""
    return read(COUNTS.format(rows=rows, low=low, high=high, kind=kind, far=far))


def products(kernel: Kernel) -> set[DType]:
    """The dtypes in which numbers are multiplied that are cast."""
    casts = [node.value for node in post_order(kernel.body) if isinstance(node, Cast)]
    return {dtype_of(each) for each in casts if isinstance(each, Mul)}


@given(st.integers(1, 9), st.integers(0, 3), st.integers(0, 12))
def test_it_means_the_same(rows: int, low: int, high: int) -> None:
    kernel = counts(rows, low, high)
    narrow = narrow_lanes(kernel)
    assert_same(kernel, narrow)
    assert i64 not in products(narrow)


def test_what_may_need_more_bits_stays() -> None:
    kernel = counts(5, 1, 4, far=1 << 40)
    assert narrow_lanes(kernel) is kernel
    assert products(counts(5, 1, 4)) == {i64}
    assert products(narrow_lanes(counts(5, 1, 4))) == {i32}


def test_what_is_no_vector_stays() -> None:
    kernel = counts(5, 1, 4, kind="range")
    assert narrow_lanes(kernel) is kernel


def test_a_place_is_narrow_as_a_whole() -> None:
    kernel = read(
        """
def places(y: Buffer[(5, 8), i32]):
    for i in range(5):
        for j in vectorized(8):
            y[i, j] = min(i32(i * 8 + j), i32(i * 8 + j + 3))
"""
    )
    narrow = narrow_lanes(kernel)
    assert_same(kernel, narrow)
    assert i32 not in products(narrow)  # one number for all lanes, and what they add
