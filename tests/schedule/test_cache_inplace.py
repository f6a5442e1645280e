"""cache_inplace: an update of a copy, copied in and out."""

from __future__ import annotations

from hypothesis import given, strategies as st

import plica
from plica.ir.text.show import show_kernel
from plica.ir.type.dim import dim_var
from plica.schedule import block, cache_inplace, decompose_reduction, do, loops
from plica.schedule.do import Body
from plica.schedule.replay import kernel_of
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


def test_the_copy_is_made_after_what_it_copies_where_buffers_are_allocated_inside() -> None:
    module = plica.from_text("""
@plica.kernel
def kernel(x: Buffer[(4,), i32], y: Buffer[(4,), i32], z: Buffer[(4,), i32]):
    for i in range(4):
        with block("z", spatial=(i,)):
            z[i] = x[i]
    with alloc(Buffer[(4,), i32]) as t:
        for j in range(4):
            with block("t", spatial=(j,)):
                t[j] = x[j] * 2
        for k in range(4):
            with block("y", spatial=(k,)):
                y[k] = t[k]
        for m in range(4):
            with block("C", spatial=(m,)):
                y[m] += 1
""")

    def schedule() -> Body:
        yield cache_inplace((yield block("C")), 0)

    after(kernel_of(module)[2], schedule)


def asked(number: int = 0, label: str = "C") -> Body:
    yield cache_inplace((yield block(label)), number)


def test_refusals() -> None:
    assert refusal(strange(), asked) == "stage-pipeline"
    assert refusal(matmul(), lambda: asked(1)) == "write-index"
    assert refusal(padded(), lambda: asked(0, "B")) == "in-place"
    assert refusal(matmul(), asked) == "covered"
    assert refusal(matmul(), lambda: updated("nowhere")) == "scope"
    assert refusal(matmul(), lambda: updated("local", 1)) == "alone"
