"""loop_partition: one loop as several, one after another."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from plica.analysis.site import map_of
from plica.ir.loop.stage import stage
from plica.ir.loop.stages import kernel_of, stages
from plica.ir.loop.statement import Block, Kernel
from plica.ir.loop.tensor import buffer
from plica.ir.text.show import show_kernel
from plica.ir.type.dim import dim_var
from plica.ir.type.dtype import f32
from plica.schedule import annotate, block, do, loop_partition, loops, parallel, unroll, vectorize
from plica.schedule.do import Body
from tests.conftest import Golden
from tests.schedule.hostile import after, keeps, nests, prepared, products, refusal
from tests.schedule.kernel import matmul

LENGTHS = st.sampled_from(((1, None), (None, 2), (2, None, 1), (1, 2, None), (2, 2)))


@given(nests(), LENGTHS, st.data())
def test_it_keeps_meaning(
    kernel: Kernel, lengths: tuple[int | None, ...], data: st.DataObject
) -> None:
    @do
    def schedule() -> Body:
        around = yield loops((yield block("y0")))
        yield loop_partition(data.draw(st.sampled_from(around)), lengths)

    keeps(kernel, schedule)


@given(products(), LENGTHS, st.data())
def test_after_other_steps(
    product: tuple[Kernel, dict[str, int]], lengths: tuple[int | None, ...], data: st.DataObject
) -> None:
    @do
    def schedule() -> Body:
        _, around = yield prepared(data)
        yield loop_partition(data.draw(st.sampled_from(around)), lengths)

    keeps(product[0], schedule, **product[1])


@pytest.mark.parametrize("rows", [1, 2, 6])
def test_a_symbolic_extent(rows: int, golden: Golden) -> None:
    def schedule() -> Body:
        i, _, _ = yield loops((yield block("C")))
        first, _, _ = yield loop_partition(i, (1, 2, None))
        assert first.sort == "loop"

    golden(show_kernel(after(matmul(dim_var("rows")), schedule, rows=rows)), "loop_partition")


def test_the_first_part_keeps_the_handles() -> None:
    def schedule() -> Body:
        c = yield block("C")
        i, j, _ = yield loops(c)
        yield loop_partition(i, (2, None))
        yield unroll(j)
        yield annotate(c, "role", "first")

    assert show_kernel(after(matmul(), schedule)).count("unrolled") == 1


def test_the_parts_are_given_where_loops_inside_have_names_like_theirs() -> None:
    x = buffer("x", (9, 4), f32)
    copied = kernel_of(stages((x,), (stage("y", (9, 4), lambda i, j: x[i, j]),)))

    def schedule() -> Body:
        rows, lane = yield loops((yield block("y")))
        yield vectorize(lane)
        parts = yield loop_partition(rows, (2, 3, 4))
        for part in parts:
            yield parallel(part)

    shown = show_kernel(after(copied, schedule))
    assert (shown.count("parallel"), shown.count("vectorized")) == (3, 3)


@given(st.permutations(("y", "z")), st.data())
def test_handles_outside_of_the_nest_keep_their_meaning(
    names: list[str], data: st.DataObject
) -> None:
    """Whatever index a name has, the copies never take it: `i`, `i_1`, … may all be in use."""
    x = buffer("x", (5, 4), f32)
    y = stage(names[0], (5, 4), lambda i, j: x[i, j])
    z = stage(names[1], (5, 4), lambda i, j: y.out[i, j] * 2)
    kernel = kernel_of(stages((x,), (y, z)))
    target, other = data.draw(st.permutations(names))

    def schedule() -> Body:
        around = yield loops((yield block(target)))
        kept = yield loops((yield block(other)))
        yield loop_partition(data.draw(st.sampled_from(around)), (1, None))
        yield annotate((yield block(other)), "role", "other")
        yield unroll(kept[1])

    loop = next(site for site in map_of(after(kernel, schedule)).loops.values()
                if site.node.kind == "unrolled")  # fmt: skip
    assert isinstance(loop.node.body, Block)
    assert dict(loop.node.body.annotations)["role"] == "other"


@pytest.mark.parametrize(
    ("word", "lengths"),
    [
        ("lengths", (3,)),
        ("lengths", (0, None)),
        ("lengths", (None, None)),
        ("fits", (2, 2)),
        ("fits", (7, None)),
        ("plain-loop", (None, 2)),
    ],
)
def test_refusals(word: str, lengths: tuple[int | None, ...]) -> None:
    def schedule() -> Body:
        i, _, _ = yield loops((yield block("C")))
        if word == "plain-loop":
            yield annotate(i, "pragma", "x")
        yield loop_partition(i, lengths)

    assert refusal(matmul(), schedule) == word


def test_a_symbolic_extent_is_open_at_the_end() -> None:
    def schedule() -> Body:
        i, _, _ = yield loops((yield block("C")))
        yield loop_partition(i, (None, 2))

    assert refusal(matmul(dim_var("rows")), schedule) == "fits"
