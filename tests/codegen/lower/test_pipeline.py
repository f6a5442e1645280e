"""Pipelines: statements of one loop in different iterations; buffers held more than once."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st

from plica.analysis.statement import LoweringRefused
from plica.codegen.lower.blocks import blocks_to_loops
from plica.codegen.lower.buffer_sinking import sink_buffers
from plica.codegen.lower.double_buffer import double_buffer
from plica.codegen.lower.passes import lower
from plica.codegen.lower.pipeline import pipeline
from plica.ir.loop.scalar import index
from plica.ir.loop.statement import Alloc, For, Kernel, statements
from plica.ir.text.show import show_kernel
from tests.codegen.lower.kernels import assert_same, read
from tests.conftest import Golden

THREE = """
def three(x: Buffer[("n", 4), i32], y: Buffer[("n", 4), i32]):
    for i in range(n, {notes}):
        t = alloc(Buffer[(4,), i32])
        u = alloc(Buffer[(4,), i32])
        for j in range(4):
            t[j] = x[i, j] * 2
        for j in range(4):
            u[j] = t[3 - j] + 1
        for j in range(4):
            y[i, j] = u[j] + t[j]
"""


def three(stage: tuple[int, ...], order: tuple[int, ...] | None = None) -> Kernel:
    notes = f"software_pipeline_stage={stage}"
    if order is not None:
        notes += f", software_pipeline_order={order}"
    return read(THREE.format(notes=notes))


def buffers(kernel: Kernel) -> dict[str, int]:
    return {
        str(each.buffer.name): len(each.buffer.shape)
        for each in statements(kernel.body)
        if isinstance(each, Alloc)
    }


def shapes(kernel: Kernel) -> dict[str, tuple[object, ...]]:
    return {
        str(each.buffer.name): each.buffer.shape
        for each in statements(kernel.body)
        if isinstance(each, Alloc)
    }


@pytest.mark.parametrize("spare", [0, 1, 2])
def test_spare_versions_are_written_later(spare: int) -> None:
    notes = f"software_pipeline_stage=(0, 1, 1), software_pipeline_spare={spare}"
    kernel = read(THREE.format(notes=notes))
    found = pipeline(kernel)
    # What is written and read in one turn has no versions, and needs none to spare.
    assert shapes(found) == {"t": (index(2 + spare), index(4)), "u": (index(4),)}
    assert_same(kernel, found, n=7)


def test_a_number_of_spare_versions_is_not_negative() -> None:
    notes = "software_pipeline_stage=(0, 1, 1), software_pipeline_spare=-1"
    with pytest.raises(LoweringRefused, match="cannot be pipelined"):
        pipeline(read(THREE.format(notes=notes)))


@given(
    st.lists(st.integers(0, 3), min_size=3, max_size=3).map(sorted),
    st.permutations(range(3)),
    st.sampled_from((1, 2, 3, 5)),
)
@settings(max_examples=30)
def test_a_pipeline_means_what_the_loop_means(
    stages: list[int], order: list[int], size: int
) -> None:
    kernel = three(tuple(stages), tuple(order))
    backwards = any(
        stages[a] == stages[b] and order[a] > order[b] for a in range(3) for b in range(a + 1, 3)
    )
    if backwards:
        with pytest.raises(LoweringRefused):
            pipeline(kernel)
        return
    assert_same(kernel, pipeline(kernel), n=size)


def test_a_pipeline_as_text(golden: Golden) -> None:
    golden(show_kernel(pipeline(three((0, 0, 1)))), "pipeline_three")


def test_versions_are_as_many_as_are_alive() -> None:
    found = pipeline(three((0, 1, 3)))
    shapes = {
        str(each.buffer.name): each.buffer.shape
        for each in statements(found.body)
        if isinstance(each, Alloc)
    }
    assert shapes == {"t": (index(4), index(4)), "u": (index(3), index(4))}
    assert buffers(pipeline(three((0, 0, 0)))) == {"t": 1, "u": 1}


@pytest.mark.parametrize(
    ("stage", "order"),
    [((0, 1), None), ((0, 0, -1), None), ((0, 1, 1), (0, 1, 1)), ((1, 0, 0), None)],
)
def test_what_cannot_be_pipelined_is_refused(
    stage: tuple[int, ...], order: tuple[int, ...] | None
) -> None:
    with pytest.raises(LoweringRefused) as caught:
        pipeline(three(stage, order))
    assert caught.value.code == "illegal-lowering"


def test_memory_from_outside_has_one_version() -> None:
    kernel = read("""
def outside(x: Buffer[(4,), i32], y: Buffer[(4,), i32], z: Buffer[(4,), i32]):
    for i in range(4, software_pipeline_stage=(0, 1)):
        y[i] = x[i] * 2
        z[i] = y[i] + 1
""")
    with pytest.raises(LoweringRefused) as caught:
        pipeline(kernel)
    assert "y" in str(caught.value)


# --- double buffers ------------------------------------------------------------------------------

FETCH = """
def fetch(x: Buffer[("n", 8), i32], y: Buffer[("n", 8), i32]):
    t = alloc(Buffer[("n", 8), i32])
    for i in range(n):
        for j in range(8):
            with block(
                "t", vi=spatial(n, i), vj=spatial(8, j), annotations={"double_buffer": True}
            ):
                t[vi, vj] = x[vi, vj] * 3
        for j1 in range(8):
            with block("y", vi=spatial(n, i), vj=spatial(8, j1)):
                y[vi, vj] = t[vi, 7 - vj]
"""


def test_a_double_buffered_block_runs_ahead(golden: Golden) -> None:
    kernel = read(FETCH)
    staged = double_buffer(kernel)
    assert any(
        dict(each.annotations).get("software_pipeline_stage") == (0, 1)
        for each in statements(staged.body)
        if isinstance(each, For)
    )
    ahead = pipeline(blocks_to_loops(sink_buffers(staged)))
    for size in (1, 2, 5):
        assert_same(kernel, staged, n=size)
        assert_same(kernel, ahead, n=size)
        assert_same(kernel, lower(kernel), n=size)
    golden(show_kernel(lower(kernel)), "double_buffer")


def test_a_block_nobody_reads_cannot_run_ahead() -> None:
    kernel = read("""
def alone(x: Buffer[(4,), i32], y: Buffer[(4,), i32]):
    for i in range(4):
        with block("y", v=spatial(4, i), annotations={"double_buffer": True}):
            y[v] = x[v]
""")
    with pytest.raises(LoweringRefused) as caught:
        double_buffer(kernel)
    assert caught.value.code == "illegal-lowering"
