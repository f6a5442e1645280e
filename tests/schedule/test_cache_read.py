"""cache_read: a copy of what is read, before it is read."""

from __future__ import annotations

from hypothesis import given, strategies as st

from plica.analysis.site import map_of
from plica.core.digest import digest
from plica.ir.loop.scalar import index
from plica.ir.loop.statement import Alloc, For, Kernel, Store, block as block_of, seq
from plica.ir.loop.tensor import axis, buffer
from plica.ir.text.show import show_kernel
from plica.ir.type.dim import dim_var
from plica.ir.type.dtype import f32
from plica.schedule import (
    bind,
    block,
    cache_read,
    compute_at,
    compute_inline,
    do,
    loops,
    parallel,
    split,
)
from plica.schedule.do import Body
from tests.conftest import Golden
from tests.schedule.hostile import after, keeps, refusal
from tests.schedule.kernel import matmul, stencil
from tests.schedule.stages import (
    Program,
    padded,
    pipelines,
    prefix_sums,
    roughened,
    strange,
    two_writers,
)


@given(pipelines(), st.data())
def test_meaning(program: Program, data: st.DataObject) -> None:
    @do
    def schedule() -> Body:
        yield roughened(data, "A1", "C")
        of = yield block(data.draw(st.sampled_from("CD")))
        yield cache_read(of, data.draw(st.integers(0, 1)), data.draw(st.sampled_from(SCOPES)))

    keeps(program[0], schedule, **program[1])


SCOPES = ("global", "shared", "local")


@given(pipelines(), st.integers(0, 1))
def test_then_compute_inline_is_the_identity(program: Program, number: int) -> None:
    def schedule() -> Body:
        yield compute_inline((yield cache_read((yield block("C")), number, "shared")))

    kernel, sizes = program
    assert digest(after(kernel, schedule, **sizes)) == digest(kernel)


def test_text(golden: Golden) -> None:
    def schedule() -> Body:
        c = yield block("C")
        (j,) = yield loops(c)
        j0, _ = yield split(j, (None, 4))
        yield compute_at((yield block("B")), j0)
        yield cache_read(c, 0, "shared")

    golden(show_kernel(after(stencil(dim_var("n")), schedule, n=7)), "cache_read")


def test_only_some_readers() -> None:
    def schedule() -> Body:
        b, c = (yield block("B")), (yield block("C"))
        yield cache_read(b, 0, "local", (b,))
        yield cache_read(c, 0)

    found = after(padded(), schedule)
    assert [str(label) for label in map_of(found).blocks] == ["A_local", "B", "B_global", "C"]


def test_a_parallel_loop() -> None:
    def schedule() -> Body:
        c = yield block("C")
        i, _, _ = yield loops(c)
        yield parallel(i)
        yield cache_read(c, 0, "shared")

    after(matmul(), schedule)


def asked(label: str, number: int = 0, scope: str = "global") -> Body:
    yield cache_read((yield block(label)), number, scope)


def test_refusals() -> None:
    assert refusal(matmul(), lambda: asked("C", 2)) == "read-index"
    assert refusal(matmul(), lambda: asked("C", -1)) == "read-index"
    assert refusal(matmul(), lambda: asked("C", 0, "nowhere")) == "scope"
    assert refusal(two_writers(), lambda: asked("C")) == "sole-writer"
    assert refusal(strange(), lambda: asked("C")) == "stage-pipeline"
    assert refusal(prefix_sums(), lambda: asked("B")) == "accepted"  # partial sums are copied


def test_a_consumer_that_reads_something_else() -> None:
    def schedule() -> Body:
        b, c = (yield block("B")), (yield block("C"))
        yield cache_read(c, 0, "global", (b,))

    assert refusal(padded(), schedule) == "consumers"


def test_readers_at_several_depths() -> None:
    """B is read in the loop where it is made, and after it."""
    a, b, c, d = (buffer(name, (4,), f32) for name in "ABCD")
    i, j, v, w, u = (axis(name) for name in "ijvwu")
    one = block_of("B", (v,), (4,), "s", (i,), Store(b, (v,), a[v] + 1))
    two = block_of("C", (w,), (4,), "s", (i,), Store(c, (w,), b[w] * 2))
    three = block_of("D", (u,), (4,), "s", (j,), Store(d, (u,), b[u] * 3))
    both = For(i, index(4), "serial", seq(one, two))
    body = Alloc(b, seq(both, For(j, index(4), "serial", three)))
    kernel = Kernel((), (a, c, d), 1, body)
    assert refusal(kernel, lambda: asked("D")) == "written-before"


def test_memory_of_threads_is_not_filled_outside() -> None:
    def schedule() -> Body:
        c = yield block("C")
        i, _, _ = yield loops(c)
        yield bind(i, "blockIdx.x")
        yield cache_read(c, 0, "shared")

    assert refusal(matmul(), schedule) == "handed-over"


def test_what_was_not_written_is_not_copied() -> None:
    """B is made at even places only, and read there: the box between holds nothing."""
    a, b, c = buffer("A", (4,), f32), buffer("B", (7,), f32), buffer("C", (4,), f32)
    i, j, v, w = (axis(name) for name in "ijvw")
    one = block_of("B", (v,), (4,), "s", (i,), Store(b, (v * 2,), a[v]))
    two = block_of("C", (w,), (4,), "s", (j,), Store(c, (w,), b[w * 2]))
    nests = seq(For(i, index(4), "serial", one), For(j, index(4), "serial", two))
    kernel = Kernel((), (a, c), 1, Alloc(b, nests))
    assert refusal(kernel, lambda: asked("C")) == "covered"
