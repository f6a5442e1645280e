"""Turn: copies whose lanes lie rows apart go in squares, and mean the same."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plica.codegen.lower.tidy import tidy
from plica.codegen.lower.turned_copy import turn_copies
from plica.ir.loop.statement import Alloc, For, Kernel, statements
from plica.ir.text.show import show_kernel
from tests.codegen.lower.kernels import assert_same, read
from tests.conftest import Golden

PACKED = """
def packed(w: Buffer[({rows}, {terms}), i32], y: Buffer[({blocks}, {terms}, {lanes}), i32]):
    for b in range({blocks}):
        for k in range({terms}, turn=True):
            for v in vectorized({lanes}):
                y[b, k, v] = {value}
"""

COPY = """
def copy(w: Buffer[(8, 8, 8), i32], y: Buffer[(8, 8, 8), i32]):
    for b in range(8):
        for k in range(8, turn=True):
            for v in vectorized(8):
                {store}
"""


def packed(rows: int, terms: int, lanes: int) -> Kernel:
    """Rows side by side in lanes, zeros where there are no more of them."""
    blocks, place = -(-rows // lanes), f"b * {lanes} + v"
    value = f"w[{place}, k]" if rows % lanes == 0 else f"w[{place}, k] if {place} < {rows} else 0"
    return read(PACKED.format(rows=rows, terms=terms, lanes=lanes, blocks=blocks, value=value))


def has_tiles(kernel: Kernel) -> bool:
    return any(isinstance(each, Alloc) for each in statements(kernel.body))


def notes(kernel: Kernel) -> list[object]:
    loops = [each for each in statements(kernel.body) if isinstance(each, For)]
    return [each.annotations for each in loops if each.annotations]


@given(st.integers(1, 20), st.integers(1, 20), st.sampled_from((2, 4, 6, 8)))
def test_it_means_the_same(rows: int, terms: int, lanes: int) -> None:
    kernel = packed(rows, terms, lanes)
    made = turn_copies(kernel)
    assert_same(kernel, made)
    assert_same(kernel, tidy(made))
    assert has_tiles(made) == (terms >= lanes and lanes in (4, 8))
    assert not notes(made)
    assert turn_copies(made) is made


def test_squares_are_read_along_rows(golden: Golden) -> None:
    golden(show_kernel(tidy(turn_copies(packed(11, 10, 4)))), "turn")


@pytest.mark.parametrize(
    "store",
    [
        "y[b, k, v] = w[b, k, v]",  # lanes are neighbours
        "y[b, k, v] = w[v, b, 7 - k]",  # rows go back
        "y[b, k, v] = w[v, k, k]",  # a row is no row
        "y[b, k, v] = w[v, b, k] + 1",  # more than a copy
        "y[b, k, v] = w[v, b, k] if k < 4 else 0",  # a choice that changes along a row
        "y[b, v, k] = w[v, b, k]",  # lanes are rows apart in what is written
        "y[b, k, v] = y[v, b, k]",  # it reads what it writes
    ],
)
def test_what_is_no_such_copy_stays(store: str) -> None:
    made = turn_copies(read(COPY.format(store=store)))
    assert not has_tiles(made)
    assert not notes(made)
