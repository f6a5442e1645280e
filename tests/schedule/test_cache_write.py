"""cache_write: what a block writes goes through a copy."""

from __future__ import annotations

from hypothesis import given, strategies as st

from plica.analysis.site import map_of
from plica.core.digest import digest
from plica.ir.text.show import show_kernel
from plica.ir.type.dim import dim_var
from plica.schedule import bind, block, cache_write, do, loops, reverse_compute_inline, split
from plica.schedule.do import Body
from tests.conftest import Golden
from tests.schedule.hostile import after, keeps, refusal
from tests.schedule.kernel import matmul
from tests.schedule.stages import Program, padded, pipelines, roughened, strange, two_writers


@given(pipelines(), st.data())
def test_meaning(program: Program, data: st.DataObject) -> None:
    @do
    def schedule() -> Body:
        yield roughened(data, "A1", "C", "D")
        label = data.draw(st.sampled_from(("A1", "C", "D")))
        yield cache_write((yield block(label)), 0, "local")

    assert keeps(program[0], schedule, **program[1])


@given(pipelines(), st.sampled_from(("A1", "C", "D")))
def test_then_reverse_compute_inline_is_the_identity(program: Program, label: str) -> None:
    def schedule() -> Body:
        yield reverse_compute_inline((yield cache_write((yield block(label)), 0, "local")))

    kernel, sizes = program
    assert digest(after(kernel, schedule, **sizes)) == digest(kernel)


def test_text(golden: Golden) -> None:
    def schedule() -> Body:
        c = yield block("C")
        i, _, _ = yield loops(c)
        yield split(i, (None, 4))
        yield cache_write(c, 0, "local")

    golden(show_kernel(after(matmul(dim_var("m")), schedule, m=5)), "cache_write")


def test_consumers_read_the_copy() -> None:
    def schedule() -> Body:
        b, c = (yield block("B")), (yield block("C"))
        yield cache_write(b, 0, "local", (c,))

    found = show_kernel(after(padded(), schedule))
    assert "B_local[j - 1]" in found or "B_local[w - 1]" in found


def test_only_what_is_written_is_copied_out() -> None:
    def schedule() -> Body:
        yield cache_write((yield block("C")), 0)

    assert [str(each) for each in map_of(after(matmul(), schedule)).blocks] == ["C", "C_global"]


def asked(label: str, number: int = 0, scope: str = "global", readers: str = "") -> Body:
    of = yield block(label)
    consumers = []
    for each in readers:
        consumers.append((yield block(each)))
    yield cache_write(of, number, scope, tuple(consumers))


def test_refusals() -> None:
    assert refusal(matmul(), lambda: asked("C", 1)) == "write-index"
    assert refusal(matmul(), lambda: asked("C", 0, "nowhere")) == "scope"
    assert refusal(two_writers(), lambda: asked("B")) == "sole-writer"
    assert refusal(strange(), lambda: asked("C")) == "stage-pipeline"
    assert refusal(padded(), lambda: asked("B", readers="B")) == "consumers"


def test_memory_of_threads_is_not_emptied_outside() -> None:
    def schedule() -> Body:
        c = yield block("C")
        i, _, _ = yield loops(c)
        yield bind(i, "threadIdx.x")
        yield cache_write(c, 0, "local")

    assert refusal(matmul(), schedule) == "handed-over"
