"""Post-processors: those that rewrite keep the meaning, those that reject change nothing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from plica.codegen.postprocessor import POSTPROCESSORS, Rejected, postprocessed
from plica.codegen.subject import scheduled as after_trace, subject
from plica.ir.interpret.kernel import run_kernel
from plica.ir.loop.index_map import index_map
from plica.ir.loop.intrinsic import intrinsic
from plica.ir.loop.memory_scope import declare_scope
from plica.ir.loop.scalar import index
from plica.ir.loop.stage import placeholder, stage
from plica.ir.loop.stages import kernel_of, stages
from plica.ir.loop.statement import Alloc, For, Invoke, Kernel, Store, statements
from plica.ir.loop.tensor import axis, buffer, reduce
from plica.ir.type import known
from plica.ir.type.dtype import f32
from plica.runtime.error import EvaluationError, InputError
from plica.schedule import (
    Trace,
    bind,
    block,
    cache_read,
    compute_at,
    do,
    fuse,
    loops,
    primitive as pr,
    reorder,
    split,
    trace_of,
    without_postproc,
)
from plica.schedule.do import Body
from plica.schedule.replay import scheduled
from plica.schedule.unlowered import run_unlowered

REWRITING = [name for name, each in POSTPROCESSORS.items() if each.rewrite is not None]
NONE = Trace(())


def product() -> Kernel:
    x, y = placeholder("x", (12, 6), f32), placeholder("y", (6, 20), f32)
    c = stage("c", (12, 20), lambda i, j: reduce("sum", (6,), lambda k: x[i, k] * y[k, j]))
    return kernel_of(stages((x, y), (c, stage("d", (12, 20), lambda i, j: c[i, j] + 1))))


def made(kernel: Kernel, *names: str, trace: Trace = NONE) -> tuple[Trace, Kernel]:
    found = postprocessed(trace, kernel, names)
    assert isinstance(found, Trace), found
    return found, scheduled(found, kernel)


def kinds(of: Kernel) -> set[str]:
    return {each.kind for each in statements(of.body) if isinstance(each, For)}


@pytest.mark.parametrize("name", REWRITING)
def test_it_keeps_what_a_kernel_means(name: str) -> None:
    random = np.random.default_rng(0)
    arrays = [random.integers(-4, 5, shape).astype(np.float32) for shape in ((12, 6), (6, 20))]
    (meant,) = run_kernel(product(), arrays)
    trace, after = made(product(), name)
    np.testing.assert_array_equal(run_unlowered(after, arrays)[-1], meant)
    assert without_postproc(trace) is NONE


@given(st.integers(0, 10_000), st.sampled_from(REWRITING))
@settings(max_examples=15)
def test_it_keeps_what_random_kernels_mean(number: int, name: str) -> None:
    drawn = subject(3, number)
    if drawn is None or after_trace(drawn) is None:
        return
    if any(each.instruction.ends_sampling for each in drawn.trace.steps):
        return
    arrays = [np.rint(each) if each.dtype.kind == "f" else each for each in drawn.arrays]
    try:
        meant = run_kernel(drawn.kernel, arrays)
    except EvaluationError:
        return
    found = postprocessed(drawn.trace, drawn.kernel, [name])
    assert isinstance(found, Trace)
    for got, wanted in zip(
        run_unlowered(scheduled(found, drawn.kernel), arrays), meant, strict=True
    ):
        np.testing.assert_array_equal(got, wanted)


def test_what_each_does() -> None:
    assert len(list(statements(made(product(), "decompose-reductions")[1].body))) > len(
        list(statements(product().body))
    )
    assert "parallel" in kinds(made(product(), "parallel-vectorize-unroll")[1])
    assert {"blockIdx.x", "threadIdx.x"} <= kinds(made(product(), "bind-unbound")[1])


@do
def shared() -> Body:
    c = yield block("c")
    copy = yield cache_read(c, 0, "shared")
    i, j, _k = yield loops(c)
    whole = yield fuse(i, j)
    outer, inner = yield split(whole, (None, 20))
    yield compute_at(copy, outer)
    yield bind(outer, "blockIdx.x")
    yield bind(inner, "threadIdx.x")


def test_threads_fetch_together_what_they_share() -> None:
    trace = trace_of(shared, product())
    before = scheduled(trace, product())
    _, after = made(product(), "cooperative-fetch", trace=trace)
    count = [
        sum(isinstance(e, For) and e.kind == "threadIdx.x" for e in statements(each.body))
        for each in (before, after)
    ]
    assert count[1] == count[0] + 1


@do
def crowded() -> Body:
    i, j, _k = yield loops((yield block("c")))
    _, inner = yield split((yield fuse(i, j)), (None, 240))
    yield bind(inner, "threadIdx.z")


def test_those_that_reject_change_nothing() -> None:
    trace, _ = made(product(), "verify-gpu", "disallow-dynamic-loops")
    assert len(trace) == 1
    too_many = trace_of(crowded, product())
    found = postprocessed(too_many, product(), ["verify-gpu"])
    assert isinstance(found, Rejected)
    assert found.by == "verify-gpu"
    assert "more threads" in found.reason


def test_a_loop_of_open_extent_is_rejected() -> None:
    from plica.ir.type.dim import dim_var

    x = placeholder("x", (dim_var("n"),), f32)
    kernel = kernel_of(stages((x,), (stage("y", (dim_var("n"),), lambda i: x[i] + 1),)))
    found = postprocessed(NONE, kernel, ["disallow-dynamic-loops"])
    assert isinstance(found, Rejected)
    assert "is not a number" in found.reason


def test_a_name_nobody_has() -> None:
    with pytest.raises(InputError, match="Did you mean 'verify-gpu'"):
        postprocessed(NONE, product(), ["verify-gpus"])


@do
def named() -> Body:
    _i, j, k = yield loops((yield block("c")))
    _, lanes = yield split(j, (None, 4))
    yield reorder(k, lanes)
    yield pr.decompose_reduction((yield block("c")), k)
    inner = yield pr.blockize(lanes)
    yield pr.annotate(inner, "tensor_intrinsic", "test.mad4")


def test_a_block_that_names_an_intrinsic_is_tensorized() -> None:
    scale = buffer("s", (), f32)
    x, y, i = buffer("x", (4,), f32), buffer("y", (4,), f32), axis("i")
    body = Store(y, (i,), y[i] + scale[()] * x[i])
    intrinsic("test.mad4", Kernel((), (scale, x, y), 2, For(i, index(4), "serial", body)))
    trace = trace_of(named, product())
    _, after = made(product(), "tensorize", trace=trace)
    assert any(isinstance(each, Invoke) for each in statements(after.body))
    arrays = [np.ones((12, 6), np.float32), np.ones((6, 20), np.float32)]
    np.testing.assert_array_equal(run_unlowered(after, arrays)[-1], np.full((12, 20), 7))


def test_an_input_lies_as_it_is_read() -> None:
    """The loops of a product read y[k, j] with k innermost: its copy is y[j, k]."""
    _, after = made(product(), "rewrite-layout")
    shapes = [
        [known(size) for size in each.buffer.shape]
        for each in statements(after.body)
        if isinstance(each, Alloc)
    ]
    assert [20, 6] in shapes
    assert [12, 6] not in shapes


@do
def staged() -> Body:
    yield cache_read((yield block("c")), 0, "test.vtcm")


def test_buffers_that_do_not_fit_are_rejected() -> None:
    declare_scope("test.vtcm", capacity=12 * 6 * 4 - 1)
    found = postprocessed(trace_of(staged, product()), product(), ["verify-capacity"])
    assert isinstance(found, Rejected)
    assert found.reason == "Buffers in test.vtcm take 288 bytes of 287."
    assert isinstance(postprocessed(NONE, product(), ["verify-capacity"]), Trace)


@pytest.mark.parametrize(("number", "strided"), [(0, False), (1, True)])
def test_copies_that_run_ahead_and_skip_elements_are_rejected(number: int, strided: bool) -> None:
    """Rows of x are copied whole; a copy of y in the other order skips elements."""

    @do
    def ahead() -> Body:
        c = yield block("c")
        i, _j, _k = yield loops(c)
        copy = yield cache_read(c, number, "local")
        if strided:
            swap = index_map(lambda a, b: (b, a))
            yield pr.transform_layout(copy, "write", 0, swap)
        yield compute_at(copy, i)
        yield pr.annotate(i, "software_pipeline_stage", (0, 1))

    found = postprocessed(trace_of(ahead, product()), product(), ["disallow-async-strided-copy"])
    assert isinstance(found, Rejected) == strided, found
