"""overlap_split: tiles of one length, the last of which overlaps the one before."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from plica.codegen.lower.passes import lower
from plica.ir.loop.statement import Kernel
from plica.ir.text.show import show_kernel
from plica.ir.type.dim import dim_var
from plica.schedule import (
    block,
    do,
    loops,
    overlap_split,
    parallel,
    reorder,
    transpose_tile,
    vectorize,
)
from plica.schedule.do import Body
from tests.codegen.lower.kernels import assert_same, read
from tests.conftest import Golden
from tests.schedule.hostile import after, keeps, nests, prepared, products, refusal
from tests.schedule.kernel import matmul

ROWS = """
def rows(x: Buffer[({rows}, {length}), i32], y: Buffer[({rows}, {length}), i32]):
    for i in range({rows}):
        for j in range({length}):
            with block("y", spatial=(i, j)):
                y[i, j] = {value}
"""


def of_rows(rows: int, length: int, value: str = "x[i, j] + 1") -> Kernel:
    return read(ROWS.format(rows=rows, length=length, value=value))


@given(nests(), st.integers(1, 5), st.data())
def test_what_is_accepted_keeps_its_meaning(
    kernel: Kernel, length: int, data: st.DataObject
) -> None:
    @do
    def schedule() -> Body:
        loop = data.draw(st.sampled_from((yield loops((yield block("y0"))))))
        yield overlap_split(loop, length)

    keeps(kernel, schedule)


@given(products(), st.integers(1, 5), st.data())
def test_after_other_steps(
    product: tuple[Kernel, dict[str, int]], length: int, data: st.DataObject
) -> None:
    @do
    def schedule() -> Body:
        _, around = yield prepared(data)
        yield overlap_split(data.draw(st.sampled_from(around)), length)

    keeps(product[0], schedule, **product[1])


@given(st.integers(1, 20), st.integers(1, 20), st.integers(1, 8), st.integers(1, 8))
def test_tiles_of_both_axes_go_in_any_order(rows: int, length: int, high: int, wide: int) -> None:
    def schedule() -> Body:
        i, j = yield loops((yield block("y")))
        j0, j1 = yield overlap_split(j, min(wide, length))
        i0, i1 = yield overlap_split(i, min(high, rows))
        yield reorder(j0, i0, i1, j1)
        yield vectorize(j1)

    kernel = of_rows(rows, length)
    made = after(kernel, schedule)
    assert " where" not in show_kernel(made)
    assert_same(kernel, lower(made, "cpu"))


def test_printed(golden: Golden) -> None:
    def schedule() -> Body:
        _, j = yield loops((yield block("y")))
        yield overlap_split(j, 8)

    golden(show_kernel(after(of_rows(2, 20), schedule)), "overlap_split")


@pytest.mark.parametrize(
    ("word", "length", "value"),
    [
        ("length", 0, "x[i, j] + 1"),
        ("length", 10, "x[i, j] + 1"),
        ("no-self-read", 4, "y[i, j] + x[i, j]"),
        ("accepted", 4, "x[i, j] + 1"),
        ("accepted", 9, "x[i, j] + 1"),
    ],
)
def test_refusals(word: str, length: int, value: str) -> None:
    def schedule() -> Body:
        _, j = yield loops((yield block("y")))
        yield overlap_split(j, length)

    assert refusal(of_rows(3, 9, value), schedule) == word


@pytest.mark.parametrize("word", ["plain-loop", "independent", "spatial-only", "length"])
def test_refusals_of_loops(word: str) -> None:
    def schedule() -> Body:
        c = yield block("C")
        i, j, k = yield loops(c)
        if word == "plain-loop":
            yield vectorize(j)
        yield overlap_split({"plain-loop": j, "length": i}.get(word, k), 4)

    def shared() -> Body:
        i, _ = yield loops((yield block("y")))
        tiles, _ = yield overlap_split(i, 4)
        yield parallel(tiles)

    size = dim_var("rows") if word == "length" else 6
    if word == "independent":
        assert refusal(of_rows(6, 4), shared) == word
    else:
        assert refusal(matmul(size, 6, 6), schedule) == word


def test_only_one_block_is_done_twice() -> None:
    two = read("""
def two(x: Buffer[(9,), i32], y: Buffer[(9,), i32], z: Buffer[(9,), i32]):
    for i in range(9):
        with block("y", spatial=(i,)):
            y[i] = x[i] + 1
        with block("z", spatial=(i,)):
            z[i] = x[i] + 2
""")

    def schedule() -> Body:
        (i,) = yield loops((yield block("y")))
        yield overlap_split(i, 4)

    assert refusal(two, schedule) == "one-block"


def test_tiles_of_what_a_loop_writes_keep_their_order() -> None:
    """The squares of a transpose overlap, and the memory between is written anew for each."""

    def schedule() -> Body:
        y = yield block("y")
        i, j = yield loops(y)
        i0, i1 = yield overlap_split(i, 4)
        j0, j1 = yield overlap_split(j, 4)
        yield reorder(i0, j0, i1, j1)
        yield transpose_tile(y, i1, j1)
        yield reorder(j0, i0)

    kernel = of_rows(9, 9, "x[j, i] + 1")
    assert refusal(kernel, schedule) == "independent"
