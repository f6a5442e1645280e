"""transpose_tile: copies whose lanes lie rows apart go in squares, and mean the same."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from plica.codegen.lower.passes import lower
from plica.ir.interpret.kernel import run_kernel
from plica.ir.loop.statement import Alloc, For, Kernel, statements
from plica.ir.text.show import show_kernel
from plica.schedule import annotate, block, do, loops, parallel, split, transpose_tile, unroll
from plica.schedule.do import Body
from tests.codegen.lower.kernels import assert_same, read
from tests.codegen.native import native_kernel
from tests.conftest import Golden
from tests.schedule.hostile import after, keeps, nests, refusal
from tests.schedule.kernel import product_and_relu

PACKED = """
def packed(w: Buffer[({rows}, {terms}), f32], y: Buffer[({blocks}, {terms}, {lanes}), f32]):
    for b in range({blocks}):
        for k in range({terms}):
            for v in range({lanes}):
                with block("y", spatial=(b, k, v)):
                    y[b, k, v] = {value}
"""

COPY = """
def copy(w: Buffer[(8, 8, 8), i32], y: Buffer[(8, 8, 8), i32]):
    for b in range(8):
        for k in range(8):
            for v in range(8):
                with block("y", spatial=(b, k, v)):
                    {store}
"""


def packed(rows: int, terms: int, lanes: int, *, more: str = "") -> Kernel:
    """Rows side by side in lanes, zeros where there are no more of them."""
    blocks, place = -(-rows // lanes), f"b * {lanes} + v"
    value = f"w[{place}, k]"
    if rows % lanes or more:
        value += f" if {place} < {rows}{more} else 0.0"
    return read(PACKED.format(rows=rows, terms=terms, lanes=lanes, blocks=blocks, value=value))


def transposed() -> Body:
    """The two innermost loops of the block `y` as squares."""
    y = yield block("y")
    *_, rows, lanes = yield loops(y)
    yield transpose_tile(y, rows, lanes)


def has_tile(kernel: Kernel) -> bool:
    return any(isinstance(each, Alloc) for each in statements(kernel.body))


@given(st.integers(1, 20), st.integers(2, 20), st.sampled_from((4, 8, 16)))
def test_it_means_the_same(rows: int, terms: int, lanes: int) -> None:
    kernel = packed(rows, terms, lanes)
    made = after(kernel, transposed)
    assert has_tile(made)
    assert_same(made, lower(made, "cpu"))


@given(nests(), st.data())
def test_what_is_accepted_keeps_its_meaning(kernel: Kernel, data: st.DataObject) -> None:
    @do
    def schedule() -> Body:
        c = yield block("y0")
        around = yield loops(c)
        rows, lanes = data.draw(st.sampled_from(around)), data.draw(st.sampled_from(around))
        yield transpose_tile(c, rows, lanes)

    keeps(kernel, schedule)


@pytest.mark.parametrize(("rows", "terms"), [(32, 48), (35, 50), (16, 14), (40, 17)])
def test_squares_are_transposed_in_registers(rows: int, terms: int) -> None:
    kernel = lower(after(packed(rows, terms, 16), transposed), "cpu")
    values = np.random.default_rng(rows).standard_normal((rows, terms)).astype(np.float32)
    code, (found,) = native_kernel(kernel, [values])
    assert code == 0
    np.testing.assert_array_equal(found, run_kernel(kernel, [values])[0])


def test_printed(golden: Golden) -> None:
    golden(show_kernel(after(packed(11, 10, 4), transposed)), "transpose_tile")


def test_a_condition_that_is_known_is_no_condition() -> None:
    """Not simplified yet, it mentions the rows, and holds for all of them."""
    made = after(packed(16, 10, 4, more=" and k < 10"), transposed)
    assert " if " not in show_kernel(made)


def test_loops_keep_their_handles() -> None:
    def schedule() -> Body:
        y = yield block("y")
        outer, rows, lanes = yield loops(y)
        yield transpose_tile(y, rows, lanes)
        yield parallel(outer)
        yield unroll(rows)

    made = after(packed(16, 16, 8), schedule)
    kinds = [each.kind for each in statements(made.body) if isinstance(each, For)]
    assert sorted(kinds) == sorted(["parallel", *["unrolled"] * 3, *["vectorized"] * 2])


@pytest.mark.parametrize(
    ("word", "store"),
    [
        ("neighbours", "y[b, k, v] = w[b, k, v]"),  # lanes are neighbours
        ("neighbours", "y[b, k, v] = w[v, b, 7 - k]"),  # rows go back
        ("neighbours", "y[b, k, v] = w[v, k, k]"),  # a row is no row
        ("neighbours", "y[b, v, k] = w[v, b, k]"),  # lanes are rows apart in what is written
        ("neighbours", "y[b, k, v] = w[v, b, k] + w[b, v, k]"),  # two elements cross
        ("in-bounds", "y[b, k, v] = w[v, b, k + 1] if k < 7 else 0"),  # the last row is no element
        ("one-store", "y[b, k, v] = y[v, b, k]"),  # it reads what it writes
        ("accepted", "y[b, k, v] = w[v, b, k]"),
        ("accepted", "y[b, k, v] = w[v, b, k] + 1"),
        ("accepted", "y[b, k, v] = w[v, b, k] * w[b, k, v] - w[k, b, 3]"),
        ("accepted", "y[b, k, v] = w[v, b, k] - w[0, b, k]"),  # one is the same for all lanes
        ("accepted", "y[b, k, v] = w[v, b, k] if k < 4 else w[b, k, v]"),
        ("accepted", "y[b, k, v] = w[v, b, k] if v < 4 else 0"),
    ],
)
def test_what_does_not_cross_once_is_refused(word: str, store: str) -> None:
    kernel = read(COPY.format(store=store))
    assert refusal(kernel, transposed) == word
    if word == "accepted":
        assert_same(kernel, lower(after(kernel, transposed), "cpu"))


@pytest.mark.parametrize("rows", [8, 11])
def test_squares_side_by_side_are_held_at_once(rows: int, golden: Golden) -> None:
    kernel = packed(rows, 10, 8)

    def schedule() -> Body:
        y = yield block("y")
        _, k, v = yield loops(y)
        beside, lanes = yield split(v, (None, 4))
        yield transpose_tile(y, k, lanes)
        yield loops(y)
        yield annotate(beside, "unroll_explicit", True)

    made = after(kernel, schedule)
    assert_same(made, lower(made, "cpu"))
    if rows == 8:
        golden(show_kernel(made))


def test_a_scalar_has_no_neighbours() -> None:
    text = "def spread(w: Buffer[(), i32], y: Buffer[(8, 8, 8), i32]):"
    kernel = read(COPY.format(store="y[b, k, v] = w[()]").replace(COPY.splitlines()[1], text))
    assert refusal(kernel, transposed) == "neighbours"


def test_one_row_is_no_square() -> None:
    assert refusal(packed(8, 1, 4), transposed) == "square"
    assert refusal(packed(6, 4, 3), transposed) == "square"


@pytest.mark.parametrize("word", ["plain-loop", "tile"])
def test_refusals_of_loops(word: str) -> None:
    def schedule() -> Body:
        y = yield block("y")
        _, k, v = yield loops(y)
        if word == "plain-loop":
            yield parallel(k)
        yield transpose_tile(y, v if word == "tile" else k, v)

    assert refusal(packed(8, 8, 4), schedule) == word


def test_other_blocks_are_refused() -> None:
    def schedule() -> Body:
        c = yield block("C")
        _, j, k = yield loops(c)
        yield transpose_tile(c, j, k)

    assert refusal(product_and_relu(), schedule) in ("square", "one-store")
