"""fuse: loops directly inside one another as one."""

from __future__ import annotations

import pytest
from hypothesis import assume, given, strategies as st

from plica.core.digest import digest
from plica.ir.loop.statement import Kernel
from plica.ir.text.show import show_kernel
from plica.ir.type.dim import dim_var
from plica.schedule import annotate, block, do, fuse, loops, split
from plica.schedule.do import Body
from tests.conftest import Golden
from tests.schedule.hostile import after, keeps, nests, products, refusal
from tests.schedule.kernel import matmul
from tests.schedule.test_reorder import triangle


@given(nests(), st.data())
def test_it_keeps_meaning(kernel: Kernel, data: st.DataObject) -> None:
    @do
    def schedule() -> Body:
        around = yield loops((yield block("y0")))
        if len(around) > 1:
            at = data.draw(st.integers(0, len(around) - 2))
            yield fuse(*around[at : data.draw(st.integers(at + 2, len(around)))])

    assert keeps(kernel, schedule)


@given(products(), st.integers(0, 1))
def test_splitting_what_was_fused_gives_the_loops(
    product: tuple[Kernel, dict[str, int]], at: int
) -> None:
    kernel, sizes = product
    inner = kernel.params[1].shape[1 - at]  # columns, or depth
    factor = getattr(inner, "value", None)
    assume(factor is not None and min(sizes.values()) > 1)  # a loop of one iteration is gone

    def schedule() -> Body:
        around = yield loops((yield block("C")))
        f = yield fuse(*around[at : at + 2])
        yield split(f, (None, factor))

    assert digest(after(kernel, schedule, **sizes)) == digest(kernel)


def test_symbolic_extents(golden: Golden) -> None:
    def schedule() -> Body:
        i, j, _ = yield loops((yield block("C")))
        i0, i1 = yield split(i, (None, 4))
        yield fuse(i0, i1, j)

    kernel = matmul(dim_var("rows"), dim_var("columns"))
    golden(show_kernel(after(kernel, schedule, rows=6, columns=3)), "fuse")


@pytest.mark.parametrize("word", ["count", "chain", "plain-loop"])
def test_refusals(word: str) -> None:
    def schedule() -> Body:
        i, j, k = yield loops((yield block("C")))
        if word == "plain-loop":
            yield annotate(j, "pragma", "x")
        yield fuse(*{"count": (i,), "chain": (i, k), "plain-loop": (i, j)}[word])

    assert refusal(matmul(), schedule) == word


def test_an_extent_that_depends_on_the_other() -> None:
    def schedule() -> Body:
        i, j = yield loops((yield block("y")))
        yield fuse(i, j)

    assert refusal(triangle(), schedule) == "independent"
