"""bind: threads that do what the serial loop did."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from plica.codegen.lower.passes import lower
from plica.ir.loop.statement import Kernel
from plica.ir.text.show import show_kernel
from plica.ir.type.dim import dim_var
from plica.schedule import (
    add_unit_loop,
    bind,
    block,
    cache_read,
    cache_write,
    compute_at,
    decompose_reduction,
    do,
    fuse,
    loops,
    parallel,
    read_at,
    reindex,
    reorder,
    reverse_compute_at,
    set_scope,
    split,
    trace_of,
    write_at,
)
from plica.schedule.bisect import agree
from plica.schedule.do import Body
from plica.schedule.replay import scheduled
from tests.codegen.lower.kernels import read
from tests.conftest import Golden
from tests.schedule.hostile import after, keeps, nests, prepared, products, refusal
from tests.schedule.kernel import chain, matmul

WORDS = st.sampled_from(("blockIdx.x", "blockIdx.y", "threadIdx.x", "virtual"))


@given(nests(), st.data())
def test_what_is_accepted_has_no_races(kernel: Kernel, data: st.DataObject) -> None:
    @do
    def schedule() -> Body:
        around = yield loops((yield block("y0")))
        for each in data.draw(st.permutations(around))[:2]:
            yield bind(each, data.draw(WORDS))

    keeps(kernel, schedule)


@given(products(), st.data())
def test_after_other_steps(product: tuple[Kernel, dict[str, int]], data: st.DataObject) -> None:
    @do
    def schedule() -> Body:
        _, around = yield prepared(data)
        yield bind(data.draw(st.sampled_from(around)), data.draw(WORDS))

    keeps(product[0], schedule, **product[1])


def test_a_grid(golden: Golden) -> None:
    def schedule() -> Body:
        i, j, _ = yield loops((yield block("C")))
        i0, i1 = yield split(i, (None, 4))
        yield reorder(i0, j, i1)
        yield bind(i0, "blockIdx.x")
        yield bind(j, "threadIdx.y")
        yield bind(i1, "threadIdx.x")

    golden(show_kernel(after(matmul(dim_var("rows")), schedule, rows=7)), "bind")


def test_a_reduction_across_threads() -> None:
    def schedule() -> Body:
        i, _, k = yield loops((yield block("C")))
        _, k1 = yield split(k, (None, 3))
        yield bind(i, "blockIdx.x")
        yield bind(k1, "threadIdx.x")

    after(matmul(), schedule)


@do
def shared(shares: bool = True) -> Body:
    """Tiles of A fetched by all threads of a block together, each a part if it is shared out."""
    c = yield block("C")
    i, j, k = yield loops(c)
    i0, i1 = yield split(i, (None, 2))
    k0, k1 = yield split(k, (None, 2))
    yield reorder(i0, j, k0, i1, k1)
    copy = yield cache_read(c, 0, "shared")
    yield compute_at(copy, k0)
    yield bind(i0, "blockIdx.x")
    if shares:
        around = yield loops(copy)
        yield bind(around[-1], "threadIdx.x")
    yield bind(j, "threadIdx.x")


def test_cooperative_fetching() -> None:
    trace = trace_of(shared(), matmul(4, 2, 4))
    kernel = scheduled(trace, matmul(4, 2, 4))
    assert show_kernel(kernel).count("threadIdx.x") == 2
    assert agree(matmul(4, 2, 4), kernel)


def test_threads_that_all_fill_the_same_memory() -> None:
    trace = trace_of(shared(False), matmul(4, 2, 4))
    kernel = scheduled(trace, matmul(4, 2, 4))
    assert show_kernel(kernel).count("threadIdx.x") == 1
    lowered = lower(kernel, "gpu")
    assert "if thread_x == " in show_kernel(lowered)
    assert agree(matmul(4, 2, 4), lowered)


@do
def textbook(m: int, n: int, k: int) -> Body:
    """Tiles of both matrices in shared memory, one of the result in registers of each thread."""
    c = yield block("C")
    result = yield cache_write(c, 0, "local")
    rows, columns, terms = yield loops(c)
    by, ty, yi = yield split(rows, (None, m, 2))
    bx, tx, xi = yield split(columns, (None, n, 2))
    ko, ki = yield split(terms, (None, k))
    yield reorder(by, bx, ty, tx, ko, ki, yi, xi)
    yield reverse_compute_at(result, tx)
    for loop, thread in ((by, "blockIdx.y"), (bx, "blockIdx.x"), (ty, "threadIdx.y")):
        yield bind(loop, thread)
    yield bind(tx, "threadIdx.x")
    for which in (0, 1):
        copy = yield read_at(ko, c, which, "shared")
        around = yield loops(copy)
        whole = yield fuse(*around[-2:])
        _, y, x = yield split(whole, (None, m, n))
        yield bind(y, "threadIdx.y")
        yield bind(x, "threadIdx.x")
    yield decompose_reduction(c, ko)


@pytest.mark.parametrize("sizes", [(8, 8, 8), (7, 9, 6)])
def test_the_textbook_matrix_product(sizes: tuple[int, int, int], golden: Golden) -> None:
    product = matmul(*sizes)
    kernel = scheduled(trace_of(textbook(2, 2, 4), product), product)
    lowered = lower(kernel, "gpu")
    if sizes == (8, 8, 8):
        golden(show_kernel(lowered), "textbook")
    assert agree(product, kernel)
    assert agree(product, lowered)


@pytest.mark.parametrize("step", ["compute_at", "reindex", "write_at"])
def test_memory_that_threads_around_share_is_not_filled_by_each(step: str) -> None:
    def schedule() -> Body:
        c = yield block("C")
        i, j, k = yield loops(c)
        yield bind(i, "blockIdx.x")
        yield bind(j, "threadIdx.x")
        if step == "compute_at":
            copy = yield cache_read(c, 0)
            yield compute_at(copy, k)
            yield set_scope(copy, 0, "shared")
        elif step == "reindex":
            copy = yield reindex(c, "read", 0)
            yield compute_at(copy, k)
            yield set_scope(copy, 0, "shared")
        else:
            i0, _ = yield split(k, (None, 2))
            yield write_at(i0, c, 0, "shared")

    assert refusal(matmul(), schedule) != "accepted"


@pytest.mark.parametrize(
    ("word", "thread"),
    [
        ("known-thread", "threadIdx.w"),
        ("independent", "blockIdx.x"),
        ("plain-loop", "threadIdx.x"),
        ("cooperative", "threadIdx.x"),
    ],
)
def test_refusals(word: str, thread: str) -> None:
    def schedule() -> Body:
        i, j, k = yield loops((yield block("C")))
        if word == "plain-loop":
            yield parallel(i)
        if word == "cooperative":
            yield bind(i, thread)
            yield bind(j, thread)
        yield bind(k if word == "independent" else i, thread)

    assert refusal(matmul(), schedule) == word


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_loop_in_another_over_the_same_threads(order: tuple[int, int]) -> None:
    def schedule() -> Body:
        around = yield loops((yield block("C")))
        for at in order:
            yield bind(around[at], "blockIdx.x")

    assert refusal(matmul(5, 5), schedule) == "cooperative"


def test_shared_memory_ends_with_the_launch() -> None:
    def schedule() -> Body:
        c = yield block("C")
        i, _, _ = yield loops(c)
        yield cache_read(c, 0, "shared")
        yield bind(i, "blockIdx.x")

    assert refusal(matmul(), schedule) == "handed-over"


@pytest.mark.parametrize(
    ("word", "place", "value"),
    [
        ("accepted", "10 + u", "2"),
        ("accepted", "10 + u", "y[b, u]"),  # what the thread itself wrote
        ("handed-over", "9 + u", "2"),
        ("handed-over", "10 + u", "y[b, 9 - u]"),
    ],
)
def test_threads_of_two_loops_write_disjoint_parts(word: str, place: str, value: str) -> None:
    kernel = read(f"""
def parts(x: Buffer[(2, 10), i32], y: Buffer[(2, 20), i32]):
    for b in range(2):
        for t in range(10):
            with block("A", vb=spatial(2, b), vt=spatial(10, t)):
                y[vb, vt] = x[vb, vt]
        for u in range(10):
            with block("B", vb=spatial(2, b), vu=spatial(10, u)):
                y[vb, {place.replace("u", "vu")}] = {value.replace("u", "vu").replace("b", "vb")}
""")

    def schedule() -> Body:
        b, t = yield loops((yield block("A")))
        *_, u = yield loops((yield block("B")))
        yield bind(t, "threadIdx.x")
        yield bind(u, "threadIdx.x")
        yield bind(b, "blockIdx.x")

    assert refusal(kernel, schedule) == word
    if word == "accepted":
        after(kernel, schedule)


def test_what_threads_hand_over_is_shared() -> None:
    """B1 written by some threads and read by others, in one launch."""

    def joined(scope: str | None) -> Body:
        b1, b2 = (yield block("B1")), (yield block("B2"))
        if scope is not None:
            yield set_scope(b1, 0, scope)
        (i,) = yield loops(b2)
        i0, i1 = yield split(i, (None, 4))
        yield compute_at(b1, i0)
        around = yield loops(b1)
        yield bind(i0, "blockIdx.x")
        yield bind(around[-1], "threadIdx.x")
        yield bind(i1, "threadIdx.x")

    kernel = chain(8, lambda a, v: a[v] * 2, lambda a, v: a[v] + 1)
    assert refusal(kernel, lambda: joined(None)) == "handed-over"
    assert refusal(kernel, lambda: joined("shared")) == "accepted"


@pytest.mark.parametrize("inside_first", [False, True])
@pytest.mark.parametrize(
    ("word", "place"), [("accepted", "t"), ("handed-over", "(t + 1) % 4"), ("handed-over", "3 - t")]
)
def test_what_threads_hand_over_between_iterations(
    word: str, place: str, inside_first: bool
) -> None:
    """Threads inside of a serial loop of a launch: no barrier orders what they leave in y."""
    kernel = read(f"""
def diagonal(x: Buffer[(3, 4), i32], y: Buffer[(4, 4), i32]):
    for f in range(4):
        with block("first", vf=spatial(4, f)):
            y[0, vf] = 1
    for j in range(3):
        for t in range(4):
            with block("row", vj=opaque(3, j), vt=spatial(4, t)):
                y[vj + 1, vt] = y[vj, {place.replace("t", "vt")}] + x[vj, vt]
""")

    def schedule() -> Body:
        j, t = yield loops((yield block("row")))
        u = yield add_unit_loop(j)
        for loop, thread in sorted(
            [(t, "threadIdx.x"), (u, "threadIdx.y")], reverse=inside_first, key=lambda of: of[1]
        ):
            yield bind(loop, thread)

    assert refusal(kernel, schedule) == word
    if word == "accepted":
        after(kernel, schedule)
