"""parallel: iterations that never meet in memory, as the race checker sees it."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from plica.ir.loop.statement import Kernel
from plica.ir.text.show import show_kernel
from plica.ir.type.dim import dim_var
from plica.schedule import block, compute_at, do, fuse, loops, parallel, record, reorder, split
from plica.schedule.do import Body
from plica.schedule.replay import kernel_of
from tests.codegen.lower.kernels import read
from tests.conftest import Golden
from tests.schedule.hostile import after, keeps, nests, prepared, products, refusal
from tests.schedule.kernel import matmul, stencil


@given(nests(), st.data())
def test_what_is_accepted_has_no_races(kernel: Kernel, data: st.DataObject) -> None:
    @do
    def schedule() -> Body:
        yield parallel(data.draw(st.sampled_from((yield loops((yield block("y0")))))))

    keeps(kernel, schedule)


@given(products(), st.data())
def test_after_other_steps(product: tuple[Kernel, dict[str, int]], data: st.DataObject) -> None:
    @do
    def schedule() -> Body:
        _, around = yield prepared(data)
        yield parallel(data.draw(st.sampled_from(around)))

    keeps(product[0], schedule, **product[1])


def test_tiles_of_any_size_are_apart(golden: Golden) -> None:
    def schedule() -> Body:
        i, j, k = yield loops((yield block("C")))
        i0, i1 = yield split(i, (None, 4))
        yield reorder(i0, j, k, i1)
        f = yield fuse(i0, j)
        yield parallel(f)

    golden(show_kernel(after(matmul(dim_var("rows")), schedule, rows=6)), "parallel")


def test_a_buffer_that_each_iteration_fills_is_its_own() -> None:
    """Lowering gives every iteration its part of B, though tiles overlap."""

    @do
    def schedule() -> Body:
        b, c = (yield block("B")), (yield block("C"))
        (j,) = yield loops(c)
        j0, _ = yield split(j, (None, 4))
        yield compute_at(b, j0)
        yield parallel(j0)

    for kernel in (stencil(), stencil(dim_var("n"))):
        assert '"B"' in show_kernel(kernel_of(record(schedule, kernel).module)[2])


def test_a_sum_meets_in_its_element() -> None:
    def schedule() -> Body:
        _, _, k = yield loops((yield block("C")))
        yield parallel(k)

    assert refusal(matmul(), schedule) == "independent"


def test_only_a_serial_loop() -> None:
    def schedule() -> Body:
        i, _, _ = yield loops((yield block("C")))
        yield parallel(i)
        yield parallel(i)

    assert refusal(matmul(), schedule) == "plain-loop"


@pytest.mark.parametrize("name", ["j", "i_other", "i_step", "element", "offset"])
def test_names_of_loops_decide_nothing(name: str) -> None:
    kernel = read(f"""
def triangle(x: Buffer[(6,), f32], y: Buffer[(24,), f32]):
    for i in range(6):
        for {name} in range(6):
            with block("one", vi=spatial(6, i), vj=spatial(6, {name}), where={name} <= i):
                y[vi + vj] = x[vi]
                y[vi + vj + 12] = x[vi]
""")

    def schedule() -> Body:
        i, _ = yield loops((yield block("one")))
        yield parallel(i)

    assert refusal(kernel, schedule) == "independent"
