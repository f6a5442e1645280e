"""reorder: any permutation that memory allows, and no other."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from plica.core.digest import digest
from plica.ir.loop.statement import For, Kernel, Seq, Store, block as block_of
from plica.ir.loop.tensor import axis, buffer
from plica.ir.text.show import show_kernel
from plica.ir.type.dim import dim, dim_var
from plica.ir.type.dtype import i32
from plica.schedule import add_unit_loop, block, do, fuse, loops, parallel, reorder, split
from plica.schedule.do import Body
from tests.conftest import Golden
from tests.schedule.hostile import after, keeps, names, nests, refusal
from tests.schedule.kernel import matmul


@given(nests(), st.data())
def test_what_is_accepted_keeps_its_meaning(kernel: Kernel, data: st.DataObject) -> None:
    @do
    def schedule() -> Body:
        around = yield loops((yield block("y0")))
        if data.draw(st.booleans()):
            around = [*(yield split(around[0], (None, 2))), *around[1:]]
        yield reorder(*data.draw(st.permutations(around)))

    keeps(kernel, schedule)


@given(st.permutations(range(4)), st.permutations(range(4)))
def test_permutations_compose(first: list[int], second: list[int]) -> None:
    def nest(*orders: list[int]) -> Kernel:
        def schedule() -> Body:
            i, j, k = yield loops((yield block("C")))
            around = [*(yield split(i, (None, 4))), j, k]
            for order in orders:
                around = [around[at] for at in order]
                yield reorder(*around)

        return after(matmul(), schedule)

    both = [first[at] for at in second]
    assert digest(nest(first, second)) == digest(nest(both))
    back = sorted(range(4), key=first.__getitem__)
    assert digest(nest(first, back)) == digest(nest([0, 1, 2, 3]))


def test_loops_between_stay(golden: Golden) -> None:
    def schedule() -> Body:
        i, _, k = yield loops((yield block("C")))
        yield reorder(k, i)

    kernel = after(matmul(), schedule)
    assert names(kernel) == ["k", "j", "i"]
    golden(show_kernel(kernel), "reorder")


def test_symbolic_extents() -> None:
    rows, depth = dim_var("rows"), dim_var("depth")

    def schedule() -> Body:
        i, j, k = yield loops((yield block("C")))
        i0, i1 = yield split(i, (None, 4))
        k0, k1 = yield split(k, (3, None))
        yield reorder(k1, j, i0, k0, i1)

    after(matmul(rows, 3, depth), schedule, rows=7, depth=5)


def test_a_sum_that_is_shared_by_two_kinds_of_variables() -> None:
    """After fuse(j, k) and split, the first update of an element would come before its init."""

    def schedule() -> Body:
        _, j, k = yield loops((yield block("C")))
        f = yield fuse(j, k)
        f0, f1 = yield split(f, (None, 3))
        yield reorder(f1, f0)

    assert refusal(matmul(2, 5, 4), schedule) == "independent"


def diagonal() -> Kernel:
    """y[i + j] = x[i, j]: the last one wins."""
    x, y = buffer("x", (3, 3), i32), buffer("y", (5,), i32)
    i, j, v, w = (axis(each) for each in "ijvw")
    inside = block_of("y", (v, w), (3, 3), "ss", (i, j), Store(y, (v + w,), x[v, w]))
    return Kernel((), (x, y), 1, For(i, dim(3), "serial", For(j, dim(3), "serial", inside)))


def triangle() -> Kernel:
    x, y = buffer("x", (3, 3), i32), buffer("y", (3, 3), i32)
    i, j, f, g, v, w, p, q = (axis(each) for each in "ijfgvwpq")
    inside = block_of("y", (v, w), (3, 3), "ss", (i, j), Store(y, (v, w), x[v, w]))
    fill = block_of("fill", (p, q), (3, 3), "ss", (f, g), Store(y, (p, q), x[p, q] * 2))
    whole = For(f, dim(3), "serial", For(g, dim(3), "serial", fill))
    nest = For(i, dim(3), "serial", For(j, i + 1, "serial", inside))
    return Kernel((), (x, y), 1, Seq((whole, nest)))


def test_the_last_write_wins() -> None:
    def schedule() -> Body:
        i, j = yield loops((yield block("y")))
        yield reorder(j, i)

    assert refusal(diagonal(), schedule) == "independent"


def test_a_parallel_loop_stays_where_its_iterations_are_apart() -> None:
    def schedule() -> Body:
        i, j = yield loops((yield block("y")))
        yield parallel(j)
        yield reorder(j, i)

    assert refusal(diagonal(), schedule) == "independent"


@pytest.mark.parametrize("word", ["count", "once", "chain", "extents"])
def test_refusals(word: str) -> None:
    def schedule() -> Body:
        if word == "count":
            yield reorder()
        elif word == "once":
            i, _, _ = yield loops((yield block("C")))
            yield reorder(i, i)
        elif word == "chain":
            (f, _), (i, _) = (yield loops((yield block("fill")))), (yield loops((yield block("y"))))
            yield reorder(f, i)
        else:
            i, j = yield loops((yield block("y")))
            u = yield add_unit_loop(j)
            yield reorder(j, u, i)

    kernel = matmul() if word in ("count", "once") else triangle()
    assert refusal(kernel, schedule) == word
