"""Tiles of dot products mean the sums that they are of, whatever is left at their ends."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from plica.ir.contract import exact, reassociates
from plica.ir.interpret.kernel import run_kernel
from plica.ir.loop.stage import stage
from plica.ir.loop.stages import Stages, kernel_of, stages
from plica.ir.loop.statement import Kernel
from plica.ir.loop.tensor import buffer, reduce
from plica.ir.type.dtype import DType, f32, f64, i32
from plica.schedule.default import Machine, formed
from plica.schedule.default.choose import template_schedule
from plica.schedule.default.contraction import contraction
from plica.schedule.default.dot_tile import Dots, DotTile, dot_form, dots_of
from plica.schedule.default.summed import FEW, LONGEST
from plica.schedule.form import Facts

SOME = settings(max_examples=max(4, settings().max_examples // 4))
SHORT, MIDDLE, WIDE = Machine(128, 32), Machine(256, 16), Machine(512, 32)


def product(
    rows: int, columns: int, terms: int, *, batch: int = 1, dtype: DType = f32, turned: bool = False
) -> Stages:
    """The sums of products of two sides that lie along the terms, and something done with each."""
    x, w = buffer("x", (batch, rows, terms), dtype), buffer("w", (batch, columns, terms), dtype)
    sums = stage(
        "sums",
        (batch, rows, columns),
        lambda b, i, j: reduce("sum", (terms,), lambda k: x[b, i, k] * w[b, j, k]),
    )
    if turned:
        out = stage("out", (batch, columns, rows), lambda b, j, i: sums[b, i, j] * 2)
    else:
        out = stage("out", (batch, rows, columns), lambda b, i, j: sums[b, i, j] * 2)
    return stages((x, w), (sums, out))


def scheduled(dots: Dots, machine: Machine) -> Kernel:
    """The kernel of dot products in tiles, by the trace of their template."""
    made = template_schedule(kernel_of(dot_form(dots, machine)), machine)
    assert isinstance(made, tuple), made
    assert made[0] == "dot-tiles"
    return made[2]


@SOME
@given(
    st.tuples(st.integers(1, 7), st.integers(2, 11), st.integers(16, 70), st.integers(1, 2)),
    st.sampled_from((SHORT, MIDDLE, WIDE)),
    st.sampled_from((f32, f64, i32)),
    st.booleans(),
)
def test_tiles_mean_the_same(
    sizes: tuple[int, int, int, int], machine: Machine, dtype: DType, turned: bool
) -> None:
    rows, columns, terms, batch = sizes
    of = product(rows, columns, terms, batch=batch, dtype=dtype, turned=turned)
    whole = contraction(of)
    assert whole is not None
    dots = dots_of(whole, machine)
    assert dots is not None
    random = np.random.default_rng(0)
    x, w = (
        random.integers(-9, 9, (batch, n, terms)).astype(
            dtype.name.replace("f", "float").replace("i", "int")
        )
        for n in (rows, columns)
    )
    (found,) = run_kernel(scheduled(dots, machine), [x, w])
    wanted = 2 * np.einsum("bik,bjk->bij", x, w)
    np.testing.assert_array_equal(found, wanted.swapaxes(1, 2) if turned else wanted)


def test_a_long_sum_goes_in_runs() -> None:
    terms = 4 * LONGEST["box"] * 2 + 7
    of = product(1, 2, terms)
    whole = contraction(of)
    assert whole is not None
    dots = dots_of(whole, SHORT)
    assert dots is not None
    made = scheduled(dots, SHORT)
    x, w = np.ones((1, 1, terms), np.float32), np.ones((1, 2, terms), np.float32)
    w[0, 1, -1] = 3
    (found,) = run_kernel(made, [x, w])
    np.testing.assert_array_equal(found, [[[2 * terms, 2 * terms + 4]]])


def test_terms_that_are_left_out_are_not_multiplied() -> None:
    """A vector that ends with the last terms begins with some that were added before."""
    of = product(2, 4, 6)
    whole = contraction(of)
    assert whole is not None
    dots = dots_of(whole, SHORT)
    assert dots is not None
    x, w = np.ones((1, 2, 6), np.float32), np.ones((1, 4, 6), np.float32)
    x[0, 0, 2] = np.inf
    (found,) = run_kernel(scheduled(dots, SHORT), [x, w])
    np.testing.assert_array_equal(found[0, 0], np.inf)
    np.testing.assert_array_equal(found[0, 1], 12)


@pytest.mark.parametrize("machine", [SHORT, MIDDLE, WIDE], ids=["128", "256", "512"])
def test_sums_and_vectors_of_a_side_are_in_registers(machine: Machine) -> None:
    whole = contraction(product(64, 64, 512))
    assert whole is not None
    dots = dots_of(whole, machine)
    assert dots is not None
    assert dots.tile.fits(machine.registers)
    assert dots.tile.sums >= machine.rates.fma * machine.rates.latency


def test_a_small_tile_has_several_sums_for_each_result() -> None:
    assert DotTile(1, 2).independent_sums(WIDE) == 4
    assert DotTile(4, 4).independent_sums(WIDE) == 1


def test_a_side_that_does_not_lie_along_its_terms_has_none() -> None:
    x, w = buffer("x", (8, 64), f32), buffer("w", (64, 8), f32)
    of = stage("y", (8, 8), lambda i, j: reduce("sum", (64,), lambda k: x[i, k] * w[k, j]))
    whole = contraction(stages((x, w), (of,)))
    assert whole is not None
    assert dots_of(whole, WIDE) is None


def test_sums_of_more_runs_than_are_few_have_none() -> None:
    for terms, has in ((4 * LONGEST["box"] * FEW, True), (4 * LONGEST["box"] * FEW + 1, False)):
        whole = contraction(product(1, 2, terms))
        assert whole is not None
        assert (dots_of(whole, SHORT) is not None) == has


def test_terms_are_joined_in_another_order_for_those_who_allow_it() -> None:
    of = product(5, 7, 983)
    for contract, form in ((reassociates, "partial-sums"), (exact, "lanes-over-n")):
        found = formed(of, Facts((False, False), contract=contract), WIDE)
        assert found is not None
        assert found.form == form


def test_a_factor_without_axes_is_no_side_of_a_dot_product() -> None:
    s, w = buffer("s", (), f64), buffer("w", (64,), f64)
    total = stage("y", (), lambda: reduce("sum", (64,), lambda k: s[()] * w[k]))
    whole = contraction(stages((s, w), (total,)))
    assert whole is not None
    assert [dots_of(whole, machine) for machine in (SHORT, MIDDLE, WIDE)] == [None] * 3
