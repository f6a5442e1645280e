"""split: one loop as a nest, whatever its extent."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from plica.analysis.site import map_of
from plica.core.binding import free_vars
from plica.core.digest import digest
from plica.ir.loop.statement import For, Kernel, Store
from plica.ir.loop.tensor import axis, buffer
from plica.ir.text.show import show_kernel
from plica.ir.type.dim import dim, dim_var
from plica.ir.type.dtype import i32
from plica.schedule import annotate, block, do, fuse, loops, parallel, split
from plica.schedule.do import Body
from tests.conftest import Golden
from tests.schedule.hostile import after, keeps, nests, products, refusal
from tests.schedule.kernel import matmul

FACTORS = st.sampled_from(((None, 3), (2, None), (None, 2, 2), (2, None, 3), (1, None), (4, 4)))


@given(nests(), FACTORS, st.data())
def test_it_keeps_meaning(
    kernel: Kernel, factors: tuple[int | None, ...], data: st.DataObject
) -> None:
    @do
    def schedule() -> Body:
        around = yield loops((yield block("y0")))
        yield split(data.draw(st.sampled_from(around)), factors)

    assert keeps(kernel, schedule)


@given(products(), FACTORS, st.integers(0, 2))
def test_fusing_what_was_split_gives_the_loop(
    product: tuple[Kernel, dict[str, int]], factors: tuple[int | None, ...], at: int
) -> None:
    kernel, sizes = product

    def schedule() -> Body:
        around = yield loops((yield block("C")))
        new = yield split(around[at], factors)
        yield fuse(*new)

    if refusal(kernel, schedule) == "accepted":
        assert digest(after(kernel, schedule, **sizes)) == digest(kernel)
    else:
        assert None not in factors


def test_a_guard_where_it_does_not_divide(golden: Golden) -> None:
    def schedule() -> Body:
        i, j, _ = yield loops((yield block("C")))
        yield split(i, (None, 4))
        yield split(j, (None, 5))

    golden(show_kernel(after(matmul(dim_var("rows")), schedule, rows=6)), "split")


def test_a_symbolic_extent_that_divides_needs_no_guard() -> None:
    def schedule() -> Body:
        i, _, _ = yield loops((yield block("C")))
        yield split(i, (None, 4))

    size = dim_var("size")
    of = matmul(size * 4)
    kernel = Kernel((size,), of.params, of.inputs, of.body)
    assert "where" not in show_kernel(after(kernel, schedule, size=2))


def test_loops_of_one_iteration_still_feed_what_they_fed() -> None:
    def schedule() -> Body:
        i, _, _ = yield loops((yield block("C")))
        i0, _ = yield split(i, (None, 1))
        yield split(i0, (1, None))

    (block_,) = map_of(after(matmul(), schedule)).blocks.values()
    assert len(free_vars(block_.node.bindings[0])) == 3


@pytest.mark.parametrize(
    ("word", "factors"),
    [
        ("factors", (3,)),
        ("factors", (0, None)),
        ("factors", (None, None)),
        ("covers", (2, 2)),
        ("plain-loop", (None, 2)),
    ],
)
def test_refusals(word: str, factors: tuple[int | None, ...]) -> None:
    def schedule() -> Body:
        i, _, _ = yield loops((yield block("C")))
        if word == "plain-loop":
            yield annotate(i, "pragma", "x")
        yield split(i, factors)

    assert refusal(matmul(), schedule) == word


def test_only_a_serial_loop() -> None:
    def schedule() -> Body:
        i, _, _ = yield loops((yield block("C")))
        yield parallel(i)
        yield split(i, (None, 2))

    assert refusal(matmul(), schedule) == "plain-loop"


def test_what_cannot_carry_a_guard() -> None:
    from plica.schedule.handle import Handle  # only here
    from plica.schedule.instruction import Scene
    from plica.schedule.primitive.split import Split

    y, i = buffer("y", (5,), i32), axis("i")
    kernel = Kernel((), (y,), 0, For(i, dim(5), "serial", Store(y, (i,), y[i])))
    handle = Handle(0, 0, "loop")
    problem = Split(handle, (None, 2)).check(Scene(kernel, {handle: i}))
    assert problem is not None
    assert problem.precondition == "blocks-only"
