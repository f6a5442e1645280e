"""cache_inplace: an update of a copy, copied in and out."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from plica.ir.text.show import show_kernel
from plica.ir.type.dim import dim_var
from plica.schedule import block, cache_inplace, decompose_reduction, do, loops
from plica.schedule.do import Body
from tests.conftest import Golden
from tests.schedule.hostile import after, keeps, refusal
from tests.schedule.kernel import matmul
from tests.schedule.stages import Program, padded, pipelines, roughened, strange


def updated(scope: str = "local", depth: int = 0) -> Body:
    c = yield block("C")
    yield decompose_reduction(c, (yield loops(c))[depth])
    yield cache_inplace(c, 0, scope)


@given(pipelines(), st.data())
def test_meaning(program: Program, data: st.DataObject) -> None:
    @do
    def schedule() -> Body:
        yield roughened(data, "C")
        yield from updated()

    keeps(program[0], schedule, **program[1])


def test_text(golden: Golden) -> None:
    golden(show_kernel(after(matmul(dim_var("m")), updated, m=4)), "cache_inplace")


def asked(number: int = 0, label: str = "C") -> Body:
    yield cache_inplace((yield block(label)), number)


def test_refusals() -> None:
    assert refusal(strange(), asked) == "stage-pipeline"
    assert refusal(matmul(), lambda: asked(1)) == "write-index"
    assert refusal(padded(), lambda: asked(0, "B")) == "in-place"
    assert refusal(matmul(), asked) == "covered"
    assert refusal(matmul(), lambda: updated("nowhere")) == "scope"
    assert refusal(matmul(), lambda: updated("local", 1)) == "alone"
