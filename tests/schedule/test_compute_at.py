"""compute_at: a producer in a loop of its readers makes all that they need there."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from plica.analysis.site import map_of
from plica.ir.loop.statement import Block, For, Seq
from plica.ir.text.show import show_kernel
from plica.ir.type.dim import dim_var
from plica.schedule import (
    block,
    blockize,
    cache_read,
    compute_at,
    decompose_reduction,
    do,
    fuse,
    loops,
    reorder,
    split,
)
from plica.schedule.do import Body
from tests.conftest import Golden
from tests.schedule.hostile import after, keeps, refusal
from tests.schedule.kernel import chain, matmul, product_and_relu, stencil
from tests.schedule.stages import (
    Program,
    padded,
    pipelines,
    prefix_sums,
    roughened,
    stencils,
    strange,
    two_writers,
)


@given(stencils(), st.data())
def test_windows(program: Program, data: st.DataObject) -> None:
    @do
    def schedule() -> Body:
        yield roughened(data, "B", "C")
        around = yield loops((yield block("C")))
        yield compute_at((yield block("B")), data.draw(st.sampled_from(around)))

    assert keeps(program[0], schedule, **program[1])


@given(pipelines(), st.data())
def test_two_producers(program: Program, data: st.DataObject) -> None:
    @do
    def schedule() -> Body:
        yield roughened(data, "A1", "C", "D")
        c, d = (yield block("C")), (yield block("D"))
        yield compute_at(c, data.draw(st.sampled_from((yield loops(d)))))
        inside = yield loops(c)
        yield compute_at((yield block("A1")), data.draw(st.sampled_from(inside)))

    assert keeps(program[0], schedule, **program[1])


@given(pipelines(), st.data())
def test_a_copy_in_the_loops_of_a_product(program: Program, data: st.DataObject) -> None:
    @do
    def schedule() -> Body:
        yield roughened(data, "C")
        c = yield block("C")
        copy = yield cache_read(c, data.draw(st.integers(0, 1)), "global")
        yield compute_at(copy, data.draw(st.sampled_from((yield loops(c)))))

    assert keeps(program[0], schedule, **program[1])


def test_text(golden: Golden) -> None:
    def schedule() -> Body:
        (j,) = yield loops((yield block("C")))
        j0, _ = yield split(j, (None, 4))
        yield compute_at((yield block("B")), j0)

    divisible = show_kernel(after(stencil(12), schedule))
    golden(
        divisible + "\n" + show_kernel(after(stencil(dim_var("n")), schedule, n=7)), "compute_at"
    )


@pytest.mark.parametrize(("index", "place"), [(-1, 1), (-2, 0), (0, 0), (1, 1)])
def test_places(index: int, place: int) -> None:
    def schedule() -> Body:
        b1, b2, b3 = (yield block("B1")), (yield block("B2")), (yield block("B3"))
        (i,) = yield loops(b3)
        yield compute_at(b2, i)
        yield compute_at(b1, i, index)

    def other() -> Body:
        b1, b3 = (yield block("B1")), (yield block("B3"))
        (i,) = yield loops(b3)
        yield compute_at((yield block("B2")), i)
        yield compute_at(b1, i, 7)

    kernel = chain(5, lambda a, v: a[v] + 1, lambda a, v: a[v] * 2, lambda a, v: a[v] - 3)
    expected = "accepted" if place == 0 else "index"
    assert refusal(kernel, schedule) == ("accepted" if index in (-1, -2, 0) else expected)
    assert refusal(kernel, other) == "index"


def test_unit_loops_are_left_out() -> None:
    def schedule() -> Body:
        c = yield block("C")
        i, j, _ = yield loops(c)
        yield compute_at((yield cache_read(c, 0, "local")), i)
        yield compute_at((yield cache_read(c, 1, "local")), j)

    found = after(matmul(), schedule)
    copy = map_of(found).blocks[next(iter(map_of(found).blocks))]
    assert len(copy.loops) == 2  # i, and one over what the row of A holds


def asked(label: str, of: str, depth: int = 0, index: int = -1) -> Body:
    around = yield loops((yield block(of)))
    yield compute_at((yield block(label)), around[depth], index)


def test_refusals() -> None:
    assert refusal(product_and_relu(), lambda: asked("D", "C")) == "intermediate"
    assert refusal(product_and_relu(), lambda: asked("C", "C")) == "loop-elsewhere"
    assert refusal(product_and_relu(), lambda: asked("A1", "D")) == "consumers-under"
    assert refusal(two_writers(), lambda: asked("B", "C")) == "sole-writer"
    assert refusal(strange(), lambda: asked("C", "C")) == "loop-elsewhere"
    assert refusal(prefix_sums(), lambda: asked("B", "C")) == "finished"
    assert refusal(padded(), lambda: asked("B", "C", 0, 5)) == "index"


def test_partial_sums_are_not_made_whole() -> None:
    def schedule() -> Body:
        _, i1 = yield loops((yield block("B")))
        yield compute_at((yield block("X")), i1)

    assert refusal(prefix_sums(), schedule) == "finished"


def test_an_update_alone_is_not_moved() -> None:
    def schedule() -> Body:
        c = yield block("C")
        i, _, _ = yield loops(c)
        yield decompose_reduction(c, i)
        yield compute_at(c, (yield loops((yield block("D"))))[0])

    assert refusal(product_and_relu(), schedule) in ("starts", "sole-writer")


def test_another_scope() -> None:
    def schedule() -> Body:
        c = yield block("C")
        _i, j, k = yield loops(c)
        yield blockize(j)
        yield compute_at((yield block("A1")), k)

    assert refusal(product_and_relu(), schedule) == "same-scope"


def test_the_producer_goes_before_its_reader() -> None:
    def schedule() -> Body:
        i, j, k = yield loops((yield block("C")))
        yield reorder(k, i, j)
        ij = yield fuse(i, j)
        yield compute_at((yield block("A1")), ij)

    found = after(product_and_relu(3, 2, 2), schedule)
    inside = map_of(found).blocks[next(x for x in map_of(found).blocks if str(x) == "A1")]
    parent = next(s for s, _ in reversed(inside.above) if isinstance(s, Seq | For | Block))
    assert isinstance(parent, Seq)
