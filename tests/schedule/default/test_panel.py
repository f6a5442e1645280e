"""Panels of columns: convolutions by them mean what they did, and the model knows when they pay."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from attrs import evolve
from hypothesis import given, settings, strategies as st

import plica
from plica.analysis.site import map_of
from plica.codegen.lower.passes import lower
from plica.core.name import Name
from plica.ir.graph.expression import Apply, Var, const
from plica.ir.graph.module import Module
from plica.ir.interpret.kernel import run_kernel
from plica.ir.loop.stage import stage
from plica.ir.loop.stages import stages
from plica.ir.loop.tensor import buffer, reduce
from plica.ir.type.dtype import f32
from plica.ir.type.infer import infer
from plica.ir.type.term import tensor
from plica.rewrite.fuse.to_stages import to_stages
from plica.runtime.machine import MachineDescription
from plica.schedule.default import Machine, default_schedule, formed
from plica.schedule.default.contraction import Contraction, contraction
from plica.schedule.default.estimate import over_outputs, over_rows, panels
from plica.schedule.default.panel import (
    Panel,
    group_of,
    has_panels,
    panel_budget,
    paneled,
    tiles_in_groups,
)
from plica.schedule.default.sample import sampled
from plica.schedule.default.tile import RegisterTile
from plica.schedule.form import Facts
from tests.schedule.begun import begun, read_after
from tests.schedule.default.test_contraction import Layer, convolution, numbers, whole

Array = np.ndarray[Any, Any]
FEW = settings(max_examples=max(4, settings().max_examples // 4))
WIDE = Machine(512, 32, (48 * 1024, 2048 * 1024))
NARROW = Machine(128, 32, (64 * 1024, 1024 * 1024))


def product(terms: int, outputs: int, columns: int) -> Contraction:
    """out[o, p] = sum over k of x[k, p] * w[o, k]."""
    x, w = buffer("x", (terms, columns), f32), buffer("w", (outputs, terms), f32)
    of = stage("y", (outputs, columns), lambda o, p: reduce(
        "sum", (terms,), lambda k: x[k, p] * w[o, k]))  # fmt: skip
    found = contraction(stages((x, w), (of,)))
    assert found is not None
    return found


def halved(terms: int, outputs: int, size: tuple[int, int]) -> Contraction:
    """out[o, i, j] = sum over k of x[k, 2 i, 2 j] * w[o, k]."""
    x = buffer("x", (terms, 2 * size[0], 2 * size[1]), f32)
    w = buffer("w", (outputs, terms), f32)
    of = stage("y", (outputs, *size), lambda o, i, j: reduce(
        "sum", (terms,), lambda k: x[k, i * 2, j * 2] * w[o, k]))  # fmt: skip
    found = contraction(stages((x, w), (of,)))
    assert found is not None
    return found


def ran(  # noqa: PLR0917  # a product as it is given, and its form
    of: Contraction,
    panel: Panel,
    data: Array,
    weight: Array,
    constant: tuple[bool, bool],
    copied: bool = False,
) -> Array:
    """What the scheduled and lowered kernel gives, where data or weight may be constant."""
    thin = sampled(of) if not has_panels(of) else None
    before, of = ((thin[0],), thin[1]) if thin else ((), of)
    form = paneled(of, panel, before, copied=copied)
    machine = Machine(32 * panel.lanes, 32)
    made = default_schedule(begun(form, constant), machine)
    assert isinstance(made, tuple)
    assert len(made[0].steps) > 10
    arrays = read_after(form, constant, [data, weight])
    return run_kernel(lower(made[1], "cpu"), arrays)[-1]


@FEW
@given(
    st.integers(1, 9), st.integers(1, 12), st.integers(1, 70), st.integers(1, 3),
    st.integers(1, 5), st.sampled_from((4, 8)),
    st.sampled_from(((False, False), (False, True), (True, False))), st.integers(0, 2),
    st.booleans(),
)  # fmt: skip
def test_panels_mean_the_same(  # noqa: PLR0917  # a product, its tile, and tiles that are empty
    terms: int,
    outputs: int,
    columns: int,
    vectors: int,
    steps: int,
    lanes: int,
    constant: tuple[bool, bool],
    empty: int,
    copied: bool,
) -> None:
    of = product(terms, outputs, columns)
    if not has_panels(of):
        return
    x, w = numbers(1, (terms, columns)), numbers(2, (outputs, terms))
    tiles = -(-columns // (vectors * lanes)) + empty
    panel = Panel(RegisterTile(vectors, steps), lanes, tiles=tiles)
    found = ran(of, panel, x, w, constant, copied)
    np.testing.assert_array_equal(found, w @ x)


@FEW
@given(st.integers(2, 6), st.integers(2, 8), st.tuples(st.integers(1, 6), st.integers(2, 9)))
def test_samples_mean_the_same(terms: int, outputs: int, size: tuple[int, int]) -> None:
    of = halved(terms, outputs, size)
    x = numbers(1, (terms, 2 * size[0], 2 * size[1]))
    w = numbers(2, (outputs, terms))
    found = ran(of, Panel(RegisterTile(1, 2), 4), x, w, constant=(False, True))
    np.testing.assert_array_equal(found.reshape(outputs, *size), np.tensordot(w, x[:, ::2, ::2], 1))


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("stride", [1, 2])
def test_residuals_are_added_to_panels(stride: int, cores: int) -> None:
    layer = Layer(48, 24, (28, 28), (1, 1), stride)
    shape = (1, 24, -(-28 // stride), -(-28 // stride))
    x = Var(Name("x"), tensor((1, 48, 28, 28), "f32"))
    other = Var(Name("r"), tensor(shape, "f32"))
    value, _ = convolution(layer, x)
    of = whole([x, other], Apply("nn.relu", (value + other,)))
    arrays = numbers(3, (1, 48, 28, 28)), numbers(4, shape)
    found = plica.compile(of, cache=False, threads=cores)(*arrays)
    np.testing.assert_array_equal(found, plica.interpret(of, *arrays))


def test_wide_layers_have_panels() -> None:
    layer = Layer(64, 64, (56, 56), (1, 1))
    x = Var(Name("x"), tensor((1, 64, 56, 56), "f32"))
    value, more = convolution(layer, x, constant=False, bias=False)
    function = infer(whole([x, *more], value)).main_function()
    form = formed(to_stages(function).stages, Facts((False, True)), WIDE)
    assert form is not None
    assert form.form == "column-panels"
    kernel = begun(form.stages, (False, True))
    assert Name("panel") in map_of(kernel).blocks
    assert isinstance(default_schedule(kernel, WIDE), tuple)


@pytest.mark.parametrize("machine", [WIDE, NARROW], ids=["wide", "narrow"])
def test_the_model_takes_panels_for_rows_pages_apart(machine: Machine) -> None:
    of = product(256, 64, 3136)
    every = [*over_outputs(of, machine), *over_rows(of, machine), *panels(of, machine)]
    assert min(every, key=lambda each: each.cycles).form == "column-panels"


@given(st.integers(12, 400), st.integers(12, 300), st.integers(7, 80), st.sampled_from([1, 4, 12]))
def test_addresses_that_are_looked_up_sooner_cost_no_more(
    terms: int, outputs: int, side: int, lookup: float
) -> None:
    of = product(terms, outputs, side * side)
    sooner = evolve(WIDE, rates=replace(WIDE.rates, lookup=lookup / 2))
    later = evolve(WIDE, rates=replace(WIDE.rates, lookup=lookup))
    for forms in (over_outputs, over_rows, panels):
        for one, other in zip(forms(of, sooner), forms(of, later), strict=True):
            assert one.cycles <= other.cycles
            assert one.tile == other.tile
    assert panels(of, sooner) == panels(of, later)  # which are read in order


def test_where_lookups_are_hidden_few_outputs_are_worth_no_copy() -> None:
    of = product(96, 24, 3136)
    hidden = evolve(WIDE, rates=replace(WIDE.rates, lookup=1))
    for machine, form in ((WIDE, "column-panels"), (hidden, "lanes-over-row")):
        every = [*over_outputs(of, machine), *over_rows(of, machine), *panels(of, machine)]
        assert min(every, key=lambda each: each.cycles).form == form


def matrices(rows: int, terms: int, columns: int, batch: int = 0) -> Module:
    """A product of two inputs."""
    apart = (batch,) if batch else ()
    x = Var(Name("x"), tensor((*apart, rows, terms), "f32"))
    w = Var(Name("w"), tensor((*apart, terms, columns), "f32"))
    return whole([x, w], Apply("matmul", (x, w)))


@pytest.mark.parametrize("machine", [WIDE, NARROW], ids=["wide", "narrow"])
@pytest.mark.parametrize("sizes", [(512, 512, 512), (1024, 1024, 1024), (1033, 747, 1333)])
def test_large_products_of_inputs_pack_both(sizes: tuple[int, int, int], machine: Machine) -> None:
    function = infer(matrices(*sizes)).main_function()
    form = formed(to_stages(function).stages, Facts((False, False)), machine)
    assert form is not None
    assert form.form == "column-panels"
    made = default_schedule(begun(form.stages, (False, False)), machine)
    assert isinstance(made, tuple)
    assert "transpose_tile" in made[0].to_python()


def test_columns_that_are_known_are_copied_before() -> None:
    function, machine = infer(matrices(577, 1024, 1023)).main_function(), NARROW
    wide = formed(to_stages(function).stages, Facts((False, True)), WIDE)
    assert wide is not None
    assert wide.form == "lanes-over-n"
    form = formed(to_stages(function).stages, Facts((False, True)), machine)
    assert form is not None
    assert form.form == "column-panels"
    kernel = begun(form.stages, (False, True))
    assert [str(each) for each in map_of(kernel).blocks if str(each) in {"panel", "packed"}] == [
        "packed"
    ]
    assert isinstance(default_schedule(kernel, machine), tuple)


def test_small_products_of_inputs_pack_one() -> None:
    function = infer(matrices(40, 24, 40)).main_function()
    form = formed(to_stages(function).stages, Facts((False, False)), WIDE)
    assert form is not None
    assert form.form != "column-panels"


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize(
    "sizes", [(203, 301, 409, 0), (331, 517, 355, 0), (197, 330, 355, 2)], ids=str
)
def test_odd_products_of_inputs_are_exact(sizes: tuple[int, int, int, int], cores: int) -> None:
    rows, terms, columns, batch = sizes
    apart = (batch,) if batch else ()
    x, w = numbers(1, (*apart, rows, terms)), numbers(2, (*apart, terms, columns))
    small = MachineDescription("small", caches=(8 << 10, 256 << 10, 1 << 20))
    found = plica.compile(matrices(*sizes), cache=False, threads=cores, machine=small)(x, w)
    np.testing.assert_array_equal(found, x @ w)
    given_ = Var(Name("x"), tensor(x.shape, "f32"))
    known = whole([given_], Apply("nn.relu", (Apply("matmul", (given_, const(w))) + 1.0,)))
    found = plica.compile(known, cache=False, threads=cores, machine=small)(x)
    np.testing.assert_array_equal(found, np.maximum(x @ w + 1, 0))


def test_few_outputs_have_no_panels() -> None:
    assert not panels(product(256, 4, 3136), WIDE)


def test_groups_divide_tiles_and_stay_near() -> None:
    assert group_of(98, 32 * 1024, 32, WIDE, WIDE.panel) == 2
    assert group_of(25, 8 * 1024, 32, WIDE, WIDE.panel) == 5
    assert group_of(7, 1 << 20, 32, WIDE, WIDE.panel) == 1
    assert group_of(25, 8 * 1024, 32, evolve(WIDE, cores=2), WIDE.panel) == 1
    assert group_of(98, 32 * 1024, 16, WIDE, WIDE.near) == 7


def test_weights_that_do_not_stay_near_have_longer_groups() -> None:
    rooms = [panel_budget(WIDE, weights, whole=False) for weights in (1 << 20, 2 << 20)]
    assert [*rooms, panel_budget(WIDE, 0, whole=True)] == sorted({WIDE.panel, WIDE.near, 1 << 20})


@given(st.integers(1, 400), st.integers(1, 300), st.sampled_from((8, 48)), st.integers(1, 512))
def test_few_tiles_are_empty(tiles: int, kilobytes: int, width: int, room: int) -> None:
    panel, room = 1024 * kilobytes, 1024 * room
    count = tiles_in_groups(tiles, panel, width, NARROW, room)
    assert 0 <= count - tiles <= tiles / 64
    group = group_of(count, panel, width, NARROW, room)
    assert group >= group_of(tiles, panel, width, NARROW, room)


def test_data_read_twice_is_not_sampled() -> None:
    x, w = buffer("x", (4, 9, 9), f32), buffer("w", (8, 4, 3, 3), f32)
    of = stage("y", (8, 4, 4), lambda o, i, j: reduce(
        "sum", (4, 3, 3), lambda c, k, m: x[c, i * 2 + k, j * 2 + m] * w[o, c, k, m]))  # fmt: skip
    found = contraction(stages((x, w), (of,)))
    assert found is not None
    assert sampled(found) is None
