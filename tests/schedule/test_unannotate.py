"""unannotate: what was said is taken away."""

from __future__ import annotations

from plica.core.digest import digest
from plica.schedule import annotate, block, loops, unannotate
from plica.schedule.do import Body
from tests.schedule.hostile import after, refusal
from tests.schedule.kernel import matmul


def test_said_and_taken_away() -> None:
    def schedule() -> Body:
        c = yield block("C")
        i, _, _ = yield loops(c)
        for each in (i, c):
            yield annotate(each, "pragma", "x")
            yield unannotate(each, "pragma")

    assert digest(after(matmul(), schedule)) == digest(matmul())


def test_nothing_was_said() -> None:
    def schedule() -> Body:
        yield unannotate((yield block("C")), "pragma")

    assert refusal(matmul(), schedule) == "annotated"
