"""Elementwise work on several cores means what it did, and is shared where that is worth it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import plica
from plica import op
from plica.core.name import Name
from plica.ir.graph.expression import Expr, Var
from plica.ir.interpret.kernel import run_kernel
from plica.ir.loop.stages import kernel_of
from plica.ir.text.show import show_kernel
from plica.ir.type.infer import infer
from plica.ir.type.term import tensor
from plica.rewrite.fuse.to_stages import to_stages
from plica.schedule.default import Machine
from plica.schedule.default.elementwise import elementwise_schedule, piece_of
from plica.schedule.do import trace_of
from plica.schedule.replay import scheduled
from tests.schedule.default.test_contraction import Array, whole

TWO = Machine(512, 32, cores=2)


def is_shared(value: Expr, x: Var, machine: Machine = TWO) -> bool:
    function = infer(whole([x], value)).main_function()
    return elementwise_schedule(kernel_of(to_stages(function).stages), machine) is not None


@pytest.mark.parametrize("shape", [(300_000,), (1, 1, 262_144), (512, 600), (3, 5, 20_000)])
def test_shared_work_means_the_same(shape: tuple[int, ...]) -> None:
    x = Var(Name("x"), tensor(shape, "f32"))
    value = op.exp(x) * 2.0 + 1.0
    assert is_shared(value, x)
    values: Array = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    exe = plica.compile(whole([x], value), threads=2, cache=False)
    assert "parallel" in exe.source("kernel")
    np.testing.assert_allclose(exe(values), np.exp(values) * 2 + 1, rtol=1e-5)


def test_little_work_is_not_shared() -> None:
    x = Var(Name("x"), tensor((64, 64), "f32"))
    assert not is_shared(x + 1.0, x)
    assert not is_shared(op.exp(x), x)


def test_one_core_shares_nothing() -> None:
    x = Var(Name("x"), tensor((1 << 20,), "f32"))
    assert not is_shared(op.exp(x), x, Machine(512, 32, cores=1))


def test_short_rows_and_prime_lengths_are_not_shared() -> None:
    x = Var(Name("x"), tensor((1 << 16, 8), "f32"))
    assert not is_shared(op.exp(x), x)
    y = Var(Name("y"), tensor((262_147,), "f32"))
    assert not is_shared(op.exp(y), y)
    assert piece_of(262_147) is None
    assert piece_of(1 << 20) == 1 << 14


@given(st.integers(1, 5), st.integers(1, 5), st.integers(8, 40), st.sampled_from([1, 2]))
@settings(max_examples=max(4, settings().max_examples // 4))
def test_rows_from_all_over_memory_are_asked_for(n: int, m: int, row: int, cores: int) -> None:
    far = Machine(128, 24, (64, 64), cores=cores)
    x = Var(Name("x"), tensor((n, m, row), "f32"))
    moved = op.transpose(x, axes=(1, 0, 2))
    of = to_stages(infer(whole([x], moved)).main_function()).stages
    kernel = kernel_of(of)
    schedule = elementwise_schedule(kernel, far)
    if schedule is not None:
        done = scheduled(trace_of(schedule, kernel), kernel)
        assert f"fetch={m * row}" in show_kernel(done)
        values: Array = np.arange(n * m * row, dtype=np.float32).reshape(n, m, row)
        np.testing.assert_array_equal(run_kernel(done, [values])[0], values.transpose(1, 0, 2))
    assert (schedule is not None) == (n > 1 and m > 1 and row >= 16)
    assert elementwise_schedule(kernel, Machine(512, 32, (64, 64))) is None  # foreseen
    assert elementwise_schedule(kernel, Machine(128, 24)) is None  # near
