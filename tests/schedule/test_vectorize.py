"""vectorize: lanes that never meet in memory."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from plica.ir.loop.statement import Kernel
from plica.ir.text.show import show_kernel
from plica.ir.type.dim import dim_var
from plica.schedule import block, do, loops, reorder, split, vectorize
from plica.schedule.do import Body
from tests.conftest import Golden
from tests.schedule.hostile import after, keeps, nests, prepared, products, refusal
from tests.schedule.kernel import matmul


@given(nests(), st.data())
def test_what_is_accepted_has_no_races(kernel: Kernel, data: st.DataObject) -> None:
    @do
    def schedule() -> Body:
        yield vectorize(data.draw(st.sampled_from((yield loops((yield block("y0")))))))

    keeps(kernel, schedule)


@given(products(), st.data())
def test_after_other_steps(product: tuple[Kernel, dict[str, int]], data: st.DataObject) -> None:
    @do
    def schedule() -> Body:
        _, around = yield prepared(data)
        yield vectorize(data.draw(st.sampled_from(around)))

    keeps(product[0], schedule, **product[1])


def test_a_vectorized_loop(golden: Golden) -> None:
    def schedule() -> Body:
        _, j, k = yield loops((yield block("C")))
        j0, j1 = yield split(j, (None, 4))
        yield reorder(j0, k, j1)
        yield vectorize(j1)

    golden(show_kernel(after(matmul(), schedule)), "vectorize")


@pytest.mark.parametrize("word", ["constant-extent", "independent", "plain-loop"])
def test_refusals(word: str) -> None:
    def schedule() -> Body:
        i, j, k = yield loops((yield block("C")))
        if word == "plain-loop":
            yield vectorize(j)
        yield vectorize({"constant-extent": i, "independent": k, "plain-loop": j}[word])

    assert refusal(matmul(dim_var("rows")), schedule) == word
