"""Threads: real ones that wait and reduce together, virtual ones that are interleaved."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from plica.analysis.statement import LoweringRefused, mapped, with_body
from plica.codegen.lower.allreduce import allreduce
from plica.codegen.lower.barrier import barriers
from plica.codegen.lower.blocks import blocks_to_loops
from plica.codegen.lower.passes import lower
from plica.codegen.lower.virtual_thread import virtual_threads
from plica.core.diagnostic import EvaluationError
from plica.core.digest import digest
from plica.ir.interpret.kernel import run_kernel
from plica.ir.loop.scalar import Scalar
from plica.ir.loop.statement import (
    NOTHING,
    Barrier,
    For,
    Invoke,
    Seq,
    Stmt,
    Store,
    statements,
    substatements,
)
from plica.ir.text.show import show_kernel
from plica.ir.type.dim import known
from tests.codegen.lower.kernels import assert_same, inputs, read, run
from tests.conftest import Golden

# --- barriers ------------------------------------------------------------------------------------

TURNED = """
def turned(x: Buffer[(8,), i32], y: Buffer[(8,), i32]):
    s = alloc(Buffer[(8,), i32, "shared"])
    for t in thread("threadIdx.x", 8):
        s[t] = x[t]
        y[t] = s[7 - t]
"""

STAGED = """
def staged(x: Buffer[(4, 8), i32], y: Buffer[(8,), i32]):
    s = alloc(Buffer[(8,), i32, "shared"])
    for t in thread("threadIdx.x", 8):
        y[t] = 0
        for k in range(4):
            s[t] = x[k, t]
            y[t] += s[7 - t]
"""

TWO_LOOPS = """
def two(x: Buffer[(2, 4), i32], y: Buffer[(2, 4), i32]):
    s = alloc(Buffer[(4,), i32, "shared"])
    for b in thread("blockIdx.x", 2):
        for t in thread("threadIdx.x", 4):
            s[t] = x[b, t] * 2
        for u in thread("threadIdx.x", 4):
            y[b, u] = s[3 - u] + x[b, u]
"""

SQUARE = """
def square(x: Buffer[(4, 3), i32], y: Buffer[(3, 4), i32]):
    s = alloc(Buffer[(4, 3), i32, "shared"])
    for a in thread("threadIdx.y", 4):
        for t in thread("threadIdx.x", 3):
            s[a, t] = x[a, t]
            y[t, a] = s[3 - a, t]
"""

BEFORE_LOOP = """
def before(x: Buffer[(8,), i32], y: Buffer[(3, 8), i32]):
    s = alloc(Buffer[(8,), i32, "shared"])
    for t in thread("threadIdx.x", 8):
        s[t] = x[t]
        for k in range(3):
            y[k, t] = s[(t + k) % 8]
"""

NO_ITERATION = """
def tail(x: Buffer[(2, 8), i32], y: Buffer[(2, 8), i32]):
    for b in thread("blockIdx.x", 2):
        s = alloc(Buffer[(8,), i32, "shared"])
        for t in thread("threadIdx.x", 8):
            s[t] = x[b, t]
        for i in range(1 - b):
            for u in thread("threadIdx.x", 8):
                y[b, u] = s[7 - u]
        for j in range(b):
            for v in thread("threadIdx.x", 8):
                y[b, v] = s[(v + 1) % 8]
"""

NO_TURN = """
def turns(x: Buffer[(2, 8), i32], y: Buffer[(2, 8), i32]):
    for b in thread("blockIdx.x", 2):
        s = alloc(Buffer[(8,), i32, "shared"])
        r = alloc(Buffer[(8,), i32, "shared"])
        for t in thread("threadIdx.x", 8):
            s[t] = x[b, t]
            r[t] = x[b, t]
            for i in range(3 * b):
                y[b, t] = r[(t + i) % 8]
                r[t] = x[b, i % 8]
            y[b, t] = s[7 - t]
"""


def without_one(body: Stmt) -> Iterator[Stmt]:
    """The statement with one barrier less, for each of them."""
    holders = [
        each
        for each in dict.fromkeys(statements(body))
        if isinstance(each, Seq) and any(isinstance(one, Barrier) for one in each.stmts)
    ]
    for holder in holders:
        for at, one in enumerate(holder.stmts):
            if isinstance(one, Barrier):
                less = Seq((*holder.stmts[:at], NOTHING, *holder.stmts[at + 1 :]))
                yield mapped(body, partial(exchanged, old=holder, new=less))
    for each in dict.fromkeys(statements(body)):
        if isinstance(each, For) and isinstance(each.body, Barrier):
            yield mapped(body, partial(exchanged, old=each, new=NOTHING))


def exchanged(stmt: Stmt, old: Stmt, new: Stmt) -> Stmt:
    return new if stmt is old else stmt


@pytest.mark.parametrize(
    ("text", "count"),
    [(TURNED, 1), (STAGED, 2), (TWO_LOOPS, 1), (SQUARE, 1), (BEFORE_LOOP, 1), (NO_ITERATION, 1)],
    ids=["turned", "staged", "two", "square", "before", "no-iteration"],
)
def test_every_barrier_is_needed(text: str, count: int) -> None:
    kernel = read(text)
    arrays = inputs(kernel, {})
    with pytest.raises(EvaluationError) as caught:
        run_kernel(kernel, arrays)
    assert caught.value.code == "data-race"
    safe = barriers(kernel)
    run_kernel(safe, arrays)
    assert sum(isinstance(each, Barrier) for each in statements(safe.body)) == count
    removed = list(without_one(safe.body))
    assert len(removed) == count
    for less in removed:
        with pytest.raises(EvaluationError) as caught:
            run_kernel(with_body(safe, less), arrays)
        assert caught.value.code == "data-race"
    assert barriers(safe) is safe


def test_a_barrier_in_a_loop_without_iterations_is_none() -> None:
    kernel = read(NO_TURN)
    run_kernel(barriers(kernel), inputs(kernel, {}))


def test_what_a_thread_has_for_itself_needs_no_barrier() -> None:
    kernel = read("""
def own(x: Buffer[(8, 2), i32], y: Buffer[(8,), i32]):
    s = alloc(Buffer[(16,), i32, "shared"])
    for t in thread("threadIdx.x", 8):
        for j in range(2):
            s[t * 2 + j] = x[t, j]
        y[t] = s[t * 2] + s[t * 2 + 1]
""")
    assert not any(isinstance(each, Barrier) for each in statements(barriers(kernel).body))
    run_kernel(kernel, inputs(kernel, {}))


def test_a_barrier_where_not_all_come_is_refused() -> None:
    kernel = read("""
def some(x: Buffer[(8,), i32], y: Buffer[(8,), i32]):
    s = alloc(Buffer[(8,), i32, "shared"])
    for t in thread("threadIdx.x", 8):
        y[t] = 0
        if t < 4:
            s[t] = x[t]
            y[t] = s[3 - t]
""")
    with pytest.raises(LoweringRefused) as caught:
        barriers(kernel)
    assert caught.value.code == "illegal-lowering"


def test_a_barrier_of_a_reduction_where_not_all_come_is_refused() -> None:
    """Found by `plica fuzz schedule --decisions`: 5 of 6 threads reduce together."""
    kernel = read("""
def some(x: Buffer[(5,), i32], y: Buffer[(5,), i32]):
    s = alloc(Buffer[(5,), i32, "shared"])
    for t in thread("threadIdx.x", 6):
        if t < 5:
            s[t] = x[t]
            barrier("shared")
            y[t] = s[4 - t]
""")
    with pytest.raises(LoweringRefused, match="where not all threads come"):
        barriers(kernel)


def test_loops_over_other_numbers_of_threads_are_refused() -> None:
    before, after = TWO_LOOPS.split("for u in")
    fewer = f"{before}for u in{after.replace('4)', '3)')}"
    with pytest.raises(LoweringRefused):
        barriers(read(fewer))


TILED = """
def tiled(a: Buffer[(8, 12), i32], b: Buffer[(12, 6), i32], c: Buffer[(8, 6), i32]):
    s = alloc(Buffer[(8, 12), i32, "shared"])
    for x in thread("blockIdx.x", 2):
        for k in range(3):
            for t in thread("threadIdx.x", 4):
                for j in range(4):
                    with block("s", v=spatial(8, x * 4 + j), w=spatial(12, k * 4 + t)):
                        s[v, w] = a[v, w]
            for u in thread("threadIdx.x", 4):
                for n, l in grid(6, 4):
                    with block(
                        "c", v=spatial(8, x * 4 + u), o=spatial(6, n), w=reduce(12, k * 4 + l)
                    ):
                        with init():
                            c[v, o] = 0
                        c[v, o] += s[v, w] * b[w, o]
"""


def test_a_tile_that_threads_fetch_together(golden: Golden) -> None:
    kernel = read(TILED)
    a, b = inputs(kernel, {})
    lowered = lower(kernel, "gpu")
    np.testing.assert_array_equal(run(lowered, [a, b], {})[0], a @ b)
    # The first turn is cut off: one there, and two in each of the others.
    assert sum(isinstance(each, Barrier) for each in statements(lowered.body)) == 3
    golden(show_kernel(lowered), "lowered_tiled")


# --- reductions across threads -------------------------------------------------------------------

TOTAL = """
def total(x: Buffer[({rows}, {length}), i32], y: Buffer[({rows},), i32]):
    for i in range({rows}):
        for t in thread("threadIdx.x", {threads}):
            for k in range({turns}):
                with block(
                    "y", v=spatial({rows}, i), w=reduce({length}, k * {threads} + t),
                    where=k * {threads} + t < {length},
                ):
                    with init():
                        y[v] = {start}
                    y[v] = {join}
"""


@given(
    st.one_of(st.integers(1, 9), st.sampled_from((16, 32, 33, 48, 64, 96))),
    st.integers(1, 12), st.integers(1, 2), st.booleans(),
)  # fmt: skip
@settings(max_examples=max(8, settings().max_examples // 10))
def test_any_number_of_threads_reduces(threads: int, length: int, rows: int, most: bool) -> None:
    length = max(length, threads)
    text = TOTAL.format(
        rows=rows, length=length, threads=threads, turns=-(-length // threads),
        start="-100" if most else "7", join="max(y[v], x[v, w])" if most else "y[v] + x[v, w]",
    )  # fmt: skip
    kernel = read(text)
    tree = blocks_to_loops(allreduce(kernel))
    (given_,) = inputs(kernel, {})
    (found,) = run(tree, [given_], {})
    wanted = given_.max(1) if most else given_.sum(1, dtype=np.int32) + 7
    np.testing.assert_array_equal(found, wanted)
    (again,) = run(lower(kernel, "gpu"), [given_], {})
    np.testing.assert_array_equal(again, wanted)


IN_TWO = """
def total(x: Buffer[(2, {length}), i32], y: Buffer[(2,), i32]):
    for i in range(2):
        for k in range({first}):
            with block("y", v=spatial(2, i), w=reduce({length}, k)):
                with init():
                    y[v] = 7
                y[v] = y[v] + x[v, w]
        for t in thread("threadIdx.x", {more}):
            with block("z", v=spatial(2, i), w=reduce({length}, {place})):
                with init():
                    y[v] = 7
                y[v] = y[v] + x[v, w]
"""


@given(st.integers(1, 9), st.integers(1, 9))
@settings(max_examples=max(8, settings().max_examples // 10))
def test_threads_that_have_later_terms_go_on_with_the_total(first: int, more: int) -> None:
    text = IN_TWO.format(length=first + more, first=first, more=more, place=f"t + {first}")
    kernel = read(text)
    (given_,) = inputs(kernel, {})
    wanted = given_.sum(1, dtype=np.int32) + 7
    for made in (kernel, blocks_to_loops(allreduce(kernel)), lower(kernel, "gpu")):
        (found,) = run(made, [given_], {})
        np.testing.assert_array_equal(found, wanted)


def test_threads_that_may_have_the_first_term_or_not_are_refused() -> None:
    kernel = read(IN_TWO.format(length=6, first=3, more=3, place="(t + 1) % 3"))
    with pytest.raises(LoweringRefused) as caught:
        allreduce(kernel)
    assert "begin with its first term, or surely after it" in str(caught.value)


def test_a_tree_as_text(golden: Golden) -> None:
    join = "y[v] + x[v, w]"
    kernel = read(TOTAL.format(rows=2, length=6, threads=6, turns=1, start="0", join=join))
    golden(show_kernel(allreduce(kernel)), "allreduce_six")


OF_ROWS = """
def rows(x: Buffer[(3, {threads}), {dtype}], y: Buffer[(3,), {dtype}]):
    for a in thread("threadIdx.y", 3):
        for t in thread("threadIdx.x", {threads}):
            with block("y", v=spatial(3, a), w=reduce({threads}, t)):
                with init():
                    y[v] = 0
                y[v] += x[v, w]
"""


@pytest.mark.parametrize("threads", [5, 8, 32, 64])
def test_threads_of_two_axes_are_joined_by_rows(threads: int) -> None:
    kernel = read(OF_ROWS.format(threads=threads, dtype="i32"))
    (given_,) = inputs(kernel, {})
    (found,) = run(lower(kernel, "gpu"), [given_], {})
    np.testing.assert_array_equal(found, given_.sum(1, dtype=np.int32))


@pytest.mark.parametrize(
    ("text", "threads", "shuffles", "barriers"),
    [
        (TOTAL, 32, True, 0),  # a warp
        (TOTAL, 8, True, 0),  # a part of one
        (TOTAL, 64, True, 1),  # parts of two warps are read by all
        (TOTAL, 6, False, 4),  # no power of two
        (TOTAL, 48, False, 7),  # no whole warps
        (OF_ROWS, 32, True, 0),
        (OF_ROWS, 8, True, 0),  # rows that share a warp
        (OF_ROWS, 12, False, 5),  # rows that do not divide one
    ],
)
def test_warps_join_by_shuffles(text: str, threads: int, shuffles: bool, barriers: int) -> None:
    kernel = read(text.format(
        rows=2, length=threads, threads=threads, turns=1, start="0", join="y[v] + x[v, w]",
        dtype="i32",
    ))  # fmt: skip
    inside = list(statements(allreduce(kernel).body))
    assert any(isinstance(each, Invoke) for each in inside) == shuffles
    assert sum(isinstance(each, Barrier) for each in inside) == barriers


GUARDED = """
def rows(x: Buffer[(2, 4), i32], y: Buffer[(2, 4), i32]):
    s = alloc(Buffer[(3,), i32, "shared"])
    for a in thread("threadIdx.y", 3):
        if a < 2:
            for t in thread("threadIdx.x", 4):
                if t == 0:
                    s[a] = x[a, 3]
        if a != 2:
            for t in thread("threadIdx.x", 4):
                y[a, t] = s[a] + x[a, t]
"""


def test_threads_inside_of_a_choice_wait_for_one_another() -> None:
    kernel = read(GUARDED)
    (given_,) = inputs(kernel, {})
    (found,) = run(lower(kernel, "gpu"), [given_], {})
    np.testing.assert_array_equal(found, given_ + given_[:, 3:])


def test_narrow_numbers_have_trees() -> None:
    kernel = read(OF_ROWS.format(threads=32, dtype="i8"))
    assert not any(isinstance(each, Invoke) for each in statements(allreduce(kernel).body))


def test_a_shuffle_prints_and_reads() -> None:
    kernel = allreduce(read(OF_ROWS.format(threads=32, dtype="f32")))
    text = show_kernel(kernel)
    assert "cuda.lanes_sum_f32_32x1" in text
    assert digest(read(text)) == digest(kernel)


@pytest.mark.parametrize(
    ("join", "extent"),
    [("x[v, w] - y[v]", "6"), ("y[v] + y[v] * x[v, w]", "6"), ("y[v] + x[v, w]", "n")],
)
def test_what_is_no_reduction_is_refused(join: str, extent: str) -> None:
    kernel = read(f"""
def wrong(x: Buffer[(2, "n"), i32], y: Buffer[(2,), i32]):
    for i in range(2):
        for t in thread("threadIdx.x", {extent}):
            with block("y", v=spatial(2, i), w=reduce({extent}, t)):
                with init():
                    y[v] = 0
                y[v] = {join}
""")
    with pytest.raises(LoweringRefused) as caught:
        allreduce(kernel)
    assert caught.value.code == "illegal-lowering"


# --- virtual threads -----------------------------------------------------------------------------

VIRTUAL = """
def virtual(x: Buffer[(4, 6), i32], y: Buffer[(4, 6), i32]):
    for v in virtual(2):
        t = alloc(Buffer[(6,), i32])
        for i in range(2):
            for j in range(6):
                t[j] = x[v * 2 + i, j] * 2
            for j in range(6):
                y[v * 2 + i, j] = t[5 - j] + {more}
"""


def stores(body: Stmt, times: int = 1) -> int:
    """How many stores a statement of known extents does."""
    total = 0
    stack: list[tuple[Stmt, int]] = [(body, times)]
    while stack:
        stmt, count = stack.pop()
        if isinstance(stmt, Store):
            total += count
        elif isinstance(stmt, For):
            extent: Any = stmt.extent
            assert isinstance(extent, Scalar)
            stack.append((stmt.body, count * extent.value))  # type: ignore[attr-defined]
        else:
            stack.extend((each, count) for each in substatements(stmt))
    return total


def test_virtual_threads_are_interleaved(golden: Golden) -> None:
    kernel = read(VIRTUAL.format(more="1"))
    woven = virtual_threads(kernel)
    assert_same(kernel, woven)
    assert not any(isinstance(e, For) and e.kind == "virtual" for e in statements(woven.body))
    assert stores(woven.body) == stores(kernel.body)
    golden(show_kernel(woven), "virtual_threads")


def test_virtual_threads_that_meet_are_refused() -> None:
    kernel = read(VIRTUAL.format(more="1").replace("y[v * 2 + i, j]", "y[v + i, j]"))
    with pytest.raises(LoweringRefused) as caught:
        virtual_threads(kernel)
    assert "y" in str(caught.value)
    plain = read(TURNED)
    assert virtual_threads(plain) is plain


# --- beside threads that a part of a launch has ---------------------------------------------------

BESIDE = """
def beside(x: Buffer[(3, 4), i32], y: Buffer[(3, 4), i32], z: Buffer[(3,), i32]):
    for a in thread("threadIdx.z", 3):
        for t in thread("threadIdx.x", 4):
            y[a, t] = x[a, t] * 2
        z[a] = 0
        for k in range(4):
            z[a] += x[a, k]
"""

TOGETHER = """
def together(x: Buffer[(3, 3), i32], y: Buffer[(3,), i32], z: Buffer[(3, 5), i32]):
    for a in thread("threadIdx.z", 3):
        for t in thread("threadIdx.x", 3):
            with block("y", i=spatial(3, a), k=reduce(3, t)):
                with init():
                    y[i] = 0
                y[i] += x[i, k]
        for u in thread("threadIdx.y", 5):
            z[a, u] = i32(u)
"""


def test_a_sum_beside_threads_is_one_of_theirs() -> None:
    kernel = read(BESIDE)
    made = lower(kernel, "gpu")
    assert_same(kernel, made)
    loops = [each for each in statements(made.body) if isinstance(each, For)]
    alone = [each for each in loops if each.kind == "threadIdx.x" and known(each.extent) == 1]
    stores = [each for one in alone for each in statements(one) if isinstance(each, Store)]
    assert {str(each.buffer.name) for each in stores} == {"z"}


def test_threads_that_others_wait_for_in_vain_are_refused() -> None:
    """Five threads would each take part in the reduction of three others."""
    with pytest.raises(LoweringRefused) as error:
        lower(read(TOGETHER), "gpu")
    told = str(error.value)
    assert "a loop over threadIdx.y around it" in told
    assert "Bind a loop around it to threadIdx.y as well." in told
