"""unroll: a mark for the code generator, nothing else."""

from __future__ import annotations

import pytest

from plica.ir.text.show import show_kernel
from plica.ir.type.dim import dim_var
from plica.schedule import annotate, block, loops, parallel, split, unroll
from plica.schedule.do import Body
from tests.schedule.hostile import after, refusal
from tests.schedule.kernel import matmul


def test_an_unrolled_loop() -> None:
    def schedule() -> Body:
        _, _, k = yield loops((yield block("C")))
        _, k1 = yield split(k, (None, 3))
        yield annotate(k1, "unroll_explicit", True)
        yield unroll(k1)

    text = show_kernel(after(matmul(k=dim_var("depth")), schedule, depth=4))
    assert "unrolled(3, unroll_explicit=True)" in text


@pytest.mark.parametrize("word", ["constant-extent", "plain-loop"])
def test_refusals(word: str) -> None:
    def schedule() -> Body:
        i, j, _ = yield loops((yield block("C")))
        yield parallel(j)
        yield unroll(i if word == "constant-extent" else j)

    assert refusal(matmul(dim_var("rows")), schedule) == word
