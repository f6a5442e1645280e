"""Search on the cycle simulator: traces that replay, costs that are cycles, quality."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

import plica
from plica.codegen.accel.conv import Convolution, ConvTiling
from plica.codegen.accel.offload import choose
from plica.codegen.accel.tiling import fits, ranked
from plica.codegen.accel.vta import Configuration, osdi, vta
from plica.core.diagnostic import CompilerBug
from plica.ir.graph.module import Module
from plica.runtime.error import InputError, UnsupportedError
from plica.schedule.form import Facts
from plica.schedule.replay import scheduled
from plica.search.accel.cycles import CycleMeasurer, policy, searched, simulated
from plica.search.accel.layers import recorded
from plica.search.accel.space import LayerTask, layer_kernel, layer_space, tiling_of
from plica.search.measure import Measured
from plica.search.policy.example import SQUARE
from plica.search.policy.fold import point_at
from plica.search.record.database import Database
from plica.search.space import Point
from tests.codegen.accel.machines import FEW
from tests.codegen.accel.network import Layers, given as an_input, network

SMALL = Convolution(32, 8, 8, 64, kernel=3, pad=1)
LAYER = Convolution(256, 14, 14, 256, 3, 1, 1)


@settings(max_examples=FEW)
@given(at=st.integers(0, 10_000))
def test_every_point_is_a_tiling_that_fits_and_a_trace_that_replays(at: int) -> None:
    space = layer_space(osdi(), SMALL)
    point = point_at(space, at % space.size)
    tiling = tiling_of(space, point)
    assert fits(osdi(), SMALL, tiling)
    name = space.sketches[point.sketch].name
    assert name.split()[:2] == [str(tiling.threads), tiling.across]
    kernel = layer_kernel(osdi(), SMALL)
    made = scheduled(space.trace(point), kernel)
    assert (made is kernel) is False


def test_costs_are_cycles() -> None:
    task = LayerTask(osdi(), SMALL)
    space = layer_space(osdi(), SMALL)
    points = (space.default, *space.neighbours(space.default)[:2])
    told: list[Measured] = []
    found = CycleMeasurer().measure(task, space, points, told.append)
    assert tuple(told) == found
    for each in found:
        _, timed = simulated(task, tiling_of(space, each.point))
        assert each.cost == timed.cycles / 200e6
        assert each.noise == 0


def test_a_search_is_the_same_again_and_goes_on_from_its_records(tmp_path: Path) -> None:
    task = LayerTask(osdi(), SMALL)
    with Database(tmp_path / "tune.db") as records:
        first = searched(task, 12, seed=3, database=records)
        assert len(records) == len([each for each in first.observations if each.twin is None])
        again = searched(task, 12, seed=3, database=records)
    assert again.observations == first.observations
    assert again.measured == 0


@pytest.mark.parametrize("name", ["evolution", "descent", "random"])
def test_other_policies_search_the_same_space(name: str) -> None:
    course = searched(LayerTask(osdi(), SMALL), 8, by=policy(name))
    assert course.trials == 8
    with pytest.raises(InputError, match="no search policy 'fast'"):
        policy("fast")


def test_a_few_trials_find_what_the_table_has() -> None:
    task = LayerTask(osdi(), LAYER)
    course = searched(task, 16)
    assert course.best is not None
    _, timed = simulated(task, tiling_of(course.subject.space, course.best.point))
    assert timed.utilisation >= 0.95 * 0.961
    guess = ranked(osdi(), LAYER, 2, 1)[0]
    assert timed.cycles <= simulated(task, guess)[1].cycles


def model() -> Module:
    x = an_input((2, 16, 6, 6))
    layers = Layers(0)
    return network((x,), layers.conv(layers.conv(layers.conv(x, 32), 32), 32))


def test_layers_of_a_model_are_tuned_and_found_again(tmp_path: Path) -> None:
    path = tmp_path / "tune.db"
    found = plica.tune(model(), "accel", 10, path, progress=False)
    names = [each.subject.task.name for each in found.courses]
    assert names == ["2 x 16x6x6 -> 32, 3x3", "2 x 32x6x6 -> 32, 3x3"]
    assert [each.subject.task.weight for each in found.courses] == [2, 4]
    assert found.trials == 10
    with Database(path) as records:
        for course in found.courses:
            task = course.subject.task
            assert isinstance(task, LayerTask)
            assert course.best is not None
            best = recorded(records, vta(), task.of)
            assert best is not None
            assert simulated(task, best)[1].cycles / 100e6 == course.best.cost
            assert recorded(records, osdi(), task.of) is None  # another machine
    with pytest.raises(UnsupportedError, match="at least 1"):
        plica.tune(model(), "accel", 0, path)
    kernel = layer_kernel(osdi(), SMALL)
    with pytest.raises(UnsupportedError, match="layers of a model"):
        plica.tune(kernel, "accel", 1, path)


def test_a_known_tiling_is_taken_if_it_is_the_best() -> None:
    slow, fast = ConvTiling(1, 1, 1, 1), ranked(osdi(), SMALL, 2, 1)[0]
    assert choose(osdi(), SMALL, 1, slow).tiling != slow
    first = choose(osdi(), SMALL, 1)
    assert choose(osdi(), SMALL, 1, fast).timed.cycles <= first.timed.cycles


def test_a_layer_that_fits_nowhere_has_no_space() -> None:
    with pytest.raises(UnsupportedError, match="smallest tile"):
        layer_space(vta(Configuration(inp=7, wgt=12, acc=10)), SMALL)


def test_only_layers_are_measured() -> None:
    class Other:
        stages = LayerTask(osdi(), SMALL).stages
        facts = Facts((False, True))

    with pytest.raises(CompilerBug, match="not a layer"):
        CycleMeasurer().measure(Other(), SQUARE, (Point(0, ()),))
