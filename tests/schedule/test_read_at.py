"""read_at and write_at: a copy inside a loop, in one step."""

from __future__ import annotations

from hypothesis import given, strategies as st

from plica.core.digest import digest
from plica.ir.text.show import show_kernel
from plica.ir.type.dim import dim_var
from plica.schedule import (
    bind,
    block,
    cache_read,
    cache_write,
    compute_at,
    do,
    loops,
    read_at,
    reverse_compute_at,
    split,
    write_at,
)
from plica.schedule.do import Body
from tests.conftest import Golden
from tests.schedule.hostile import after, keeps, refusal
from tests.schedule.kernel import matmul, product_and_relu
from tests.schedule.stages import Program, pipelines, roughened


@given(pipelines(), st.data())
def test_meaning(program: Program, data: st.DataObject) -> None:
    @do
    def schedule() -> Body:
        yield roughened(data, "C")
        c = yield block("C")
        loop = data.draw(st.sampled_from((yield loops(c))))
        if data.draw(st.booleans()):
            yield read_at(loop, c, data.draw(st.integers(0, 1)), "shared")
        else:
            yield write_at(loop, c, 0, "local")

    keeps(program[0], schedule, **program[1])


def test_they_are_two_steps_in_one() -> None:
    def one() -> Body:
        c = yield block("C")
        i, j, _ = yield loops(c)
        yield read_at(i, c, 0, "shared")
        yield write_at(j, c, 0, "local")

    def two() -> Body:
        c = yield block("C")
        i, j, _ = yield loops(c)
        yield compute_at((yield cache_read(c, 0, "shared", (c,))), i)
        yield reverse_compute_at((yield cache_write(c, 0, "local")), j)

    assert digest(after(matmul(), one)) == digest(after(matmul(), two))


def launched() -> Body:
    c = yield block("C")
    i, _j, k = yield loops(c)
    i0, i1 = yield split(i, (None, 4))
    _k0, _ = yield split(k, (None, 2))
    yield bind(i0, "blockIdx.x")
    yield bind(i1, "threadIdx.x")
    yield write_at(i1, c, 0, "local")
    yield read_at(i1, c, 0, "local")


def test_text(golden: Golden) -> None:
    golden(show_kernel(after(matmul(dim_var("m"), 3, 4), launched, m=6)), "read_at")


def asked(of: str, label: str, number: int = 0) -> Body:
    yield read_at((yield loops((yield block(of))))[0], (yield block(label)), number)


def asked_write(of: str, label: str, depth: int, number: int = 0) -> Body:
    yield write_at((yield loops((yield block(of))))[depth], (yield block(label)), number)


def test_refusals() -> None:
    kernel = product_and_relu()
    assert refusal(kernel, lambda: asked("C", "D")) == "loop-around"
    assert refusal(kernel, lambda: asked("C", "C", 2)) == "read-index"
    assert refusal(kernel, lambda: asked_write("C", "D", 0)) == "loop-around"
    assert refusal(kernel, lambda: asked_write("C", "C", 0, 1)) == "write-index"
    assert refusal(kernel, lambda: asked_write("C", "C", 2)) == "finished"
