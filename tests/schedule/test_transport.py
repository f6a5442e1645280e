"""Transporting traces: to the same program, to other shapes, to other fusions."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st

from plica.ir.loop.statement import Kernel
from plica.schedule import (
    Handle,
    Step,
    Trace,
    annotate,
    block,
    do,
    fuse,
    loops,
    parallel,
    reorder,
    replay,
    sample_categorical,
    sample_tile,
    split,
    trace_of,
    transport,
    unroll,
    vectorize,
)
from plica.schedule.adapt import divisor, fitted
from plica.schedule.do import Body
from plica.schedule.replay import kernel_of
from plica.schedule.transport import VERDICTS
from tests.conftest import Golden
from tests.schedule.conv import RESNET18, Layer, conv2d
from tests.schedule.kernel import matmul, same_function
from tests.schedule.walk import moves, walked

FEW = settings(max_examples=max(5, settings().max_examples // 2))


@do
def tuned() -> Body:
    """A schedule of a padded convolution and the relu after it."""
    pad = yield block("pad")
    conv = yield block("conv")
    relu = yield block("relu")
    n, o, i, j, c, di, dj = yield loops(conv)
    o0, o1 = yield split(o, sample_tile(2, max_inner=16))
    i0, i1 = yield split(i, sample_tile(2, max_inner=7))
    j0, j1 = yield split(j, sample_tile(2, max_inner=14))
    c0, c1 = yield split(c, (None, 8))
    yield reorder(n, o0, i0, j0, c0, di, dj, c1, i1, j1, o1)
    yield unroll(j1)
    yield vectorize(o1)
    f = yield fuse(n, o0)
    yield parallel(f)
    a, b, h, w = yield loops(relu)
    _, w1 = yield split(w, (None, 8))
    yield vectorize(w1)
    f = yield fuse(a, b, h)
    yield parallel(f)
    a, b, *_ = yield loops(pad)
    f = yield fuse(a, b)
    yield parallel(f)


def tuned_trace() -> Trace:
    return trace_of(tuned, conv2d(RESNET18[5]), seed=3)


@pytest.mark.parametrize("layer", RESNET18, ids=str)
def test_a_trace_of_one_layer_serves_the_others(layer: Layer) -> None:
    trace = tuned_trace()
    whole = conv2d(layer)
    moved = transport(trace, whole)
    assert moved.report.kept >= 0.8
    assert replay(moved.trace, whole) is moved.module
    small = conv2d(layer.small())
    moved = transport(trace, small)
    assert moved.report.kept >= 0.8
    assert same_function(small, kernel_of(moved.module)[2])


def test_another_fusion(golden: Golden) -> None:
    other = conv2d(RESNET18[7].small(), relu=False)
    moved = transport(tuned_trace(), other)
    assert same_function(other, kernel_of(moved.module)[2])
    assert moved.report.count("dropped") == 6  # all that is about the relu
    golden(str(moved.report))


@given(moves)
def test_on_its_own_program_a_trace_stays(choices: list[tuple[int, int]]) -> None:
    trace = walked(matmul(), choices)
    moved = transport(trace, matmul())
    assert moved.trace is trace
    assert moved.module is replay(trace, matmul())
    assert moved.report.count("same") == len(trace)


@FEW
@given(moves, st.integers(1, 9), st.integers(1, 9), st.integers(1, 9))
def test_other_shapes_keep_their_meaning(
    choices: list[tuple[int, int]], m: int, n: int, k: int
) -> None:
    other = matmul(m, n, k)
    moved = transport(walked(matmul(), choices), other)
    assert same_function(other, kernel_of(moved.module)[2])
    assert replay(moved.trace, other) is moved.module
    assert sum(moved.report.count(verdict) for verdict in VERDICTS) == len(moved.report.fates)
    for fate in moved.report.fates:
        assert bool(fate.how) == (fate.verdict != "same")


def test_another_rank() -> None:
    moved = transport(tuned_trace(), matmul(16, 12, 24))
    kernel = kernel_of(moved.module)[2]
    assert same_function(matmul(16, 12, 24), kernel)
    assert moved.report.count("adapted") > 3


def matmul_kernel(m: int) -> Kernel:
    return matmul(m, 5, 4)


def test_literal_factors_become_divisors() -> None:
    @do
    def halves() -> Body:
        c = yield block("C")
        i, _, _ = yield loops(c)
        yield split(i, (7, 8))

    source = matmul_kernel(56)
    trace = trace_of(halves, source)
    fates = transport(trace, matmul_kernel(28), source=source).report.fates
    assert [fate.verdict for fate in fates] == ["same", "same", "adapted"]
    assert fates[2].how == "factors (4, 7)"
    assert transport(trace, matmul_kernel(60)).report.fates[2].how == "factors (10, 6)"
    assert transport(trace, matmul_kernel(28)).trace is trace  # legal, with a guard
    assert transport(trace, source, source=source).trace is trace


def test_other_decisions_are_the_nearest() -> None:
    @do
    def chosen() -> Body:
        c = yield block("C")
        i, _, _ = yield loops(c)
        n = yield sample_categorical((2, 8))
        yield split(i, (None, n))

    trace = trace_of(chosen, matmul(), decisions={2: (8,)})
    step = trace.steps[2].instruction
    other = Trace((*trace.steps[:2], Step(step, (7,)), *trace.steps[3:]))
    moved = transport(other, matmul())
    assert moved.trace.decisions() == {2: (8,)}
    assert moved.report.fates[2].verdict == "adapted"


def test_refused_and_dropped() -> None:
    @do
    def twice() -> Body:
        c = yield block("C")
        i, _, _ = yield loops(c)
        yield unroll(i)
        yield annotate(i, "pragma", "x")

    trace = trace_of(twice, matmul())
    again = Trace((*trace.steps, *trace.steps[2:3], Step(unroll(Handle(9, 0, "loop")))))
    fates = transport(again, matmul()).report.fates
    assert [fate.verdict for fate in fates[3:]] == ["same", "refused", "dropped"]
    assert fates[4].problem is not None
    assert fates[4].problem.precondition == "plain-loop"


def test_fitting() -> None:
    for extent in range(1, 40):
        for parts in ((1, 1), (4, 3), (2, 7, 5)):
            found = fitted(extent, parts)
            assert len(found) == len(parts)
            product = 1
            for each in found:
                product *= each
            assert product == extent
            assert all(new <= old for new, old in zip(found[1:], parts[1:], strict=True))
    assert [divisor(12, most) for most in (0, 1, 5, 6, 11, 12, 99)] == [1, 1, 4, 6, 6, 12, 12]
