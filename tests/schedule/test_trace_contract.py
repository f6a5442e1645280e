"""Contracts of steps: a trace that is exact keeps every bit, and one that is not says so."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given, strategies as st

from plica.codegen.subject import FuzzSubject, scheduled, subject
from plica.ir.contract import exact, reassociates, signless_zero
from plica.ir.interpret.kernel import run_kernel
from plica.ir.loop.stage import placeholder, stage
from plica.ir.loop.stages import kernel_of, stages
from plica.ir.loop.statement import Kernel
from plica.ir.loop.tensor import reduce
from plica.ir.type.dtype import DType, f32, i32
from plica.runtime.error import EvaluationError
from plica.schedule import bind, block, do, loops, pad_einsum, reorder, rfactor, split, trace_of
from plica.schedule.do import Body, DoBlock
from plica.schedule.instruction import kinds
from plica.schedule.trace_contract import trace_contract
from plica.schedule.unlowered import run_unlowered


def product(dtype: DType = f32) -> Kernel:
    """A product of two matrices."""
    x, y = placeholder("x", (4, 6), dtype), placeholder("y", (6, 4), dtype)
    return kernel_of(
        stages(
            (x, y),
            (stage("c", (4, 4), lambda i, j: reduce("sum", (6,), lambda k: x[i, k] * y[k, j])),),
        )
    )


@do
def spatial() -> Body:
    i, j, _k = yield loops((yield block("c")))
    yield reorder(j, i)


@do
def moved_as_one() -> Body:
    i, _j, k = yield loops((yield block("c")))
    k0, k1 = yield split(k, (2, 3))
    yield reorder(k0, k1, i)


@do
def mixed() -> Body:
    _i, _j, k = yield loops((yield block("c")))
    k0, k1 = yield split(k, (2, 3))
    yield reorder(k1, k0)


@do
def in_parts() -> Body:
    _i, _j, k = yield loops((yield block("c")))
    k0, _k1 = yield split(k, (2, 3))
    yield rfactor(k0, 0)


@do
def by_threads() -> Body:
    _i, _j, k = yield loops((yield block("c")))
    yield bind(k, "threadIdx.x")


@do
def spread() -> Body:
    i, _j, _k = yield loops((yield block("c")))
    yield bind(i, "threadIdx.x")


@do
def padded() -> Body:
    yield pad_einsum((yield block("c")), (4, 4, 4))


@pytest.mark.parametrize(
    ("schedule", "kept"),
    [
        (spatial, exact), (moved_as_one, exact), (spread, exact), (mixed, reassociates),
        (in_parts, reassociates), (by_threads, reassociates), (padded, signless_zero),
    ],
)  # fmt: skip
def test_what_steps_keep(schedule: DoBlock, kept: object) -> None:
    assert trace_contract(trace_of(schedule, product()), product()) is kept


def test_integers_may_be_added_in_any_order() -> None:
    assert trace_contract(trace_of(mixed, product(i32)), product(i32)) is exact


def test_no_kind_is_looser_than_a_new_order() -> None:
    assert {kind for kind, cls in kinds().items() if cls.contract is not exact} == {
        "reorder", "bind", "rfactor", "tensorize", "transform_block_layout", "pad_einsum",
        "narrow_sum", "peel_init",
    }  # fmt: skip


@given(st.integers(0, 10_000))
def test_exact_traces_keep_every_bit(number: int) -> None:
    drawn = subject(11, number)
    if drawn is None or scheduled(drawn) is None:
        return
    if trace_contract(drawn.trace, drawn.kernel) is not exact:
        return
    of = fractions(drawn)
    try:
        meant = run_kernel(of.kernel, of.arrays)
    except EvaluationError:
        return
    kernel = scheduled(of)
    assert kernel is not None
    for found, wanted in zip(run_unlowered(kernel, of.arrays), meant, strict=True):
        np.testing.assert_array_equal(found, wanted)


def fractions(of: FuzzSubject) -> FuzzSubject:
    """The subject on floats whose sums are rounded."""
    random = np.random.default_rng(Random(len(of.arrays)).randrange(1000))
    arrays = [
        each
        if each.dtype.kind != "f"
        else np.asarray(random.standard_normal(each.shape), each.dtype)
        for each in of.arrays
    ]
    return FuzzSubject(of.kernel, tuple(arrays), of.trace, of.fused)
