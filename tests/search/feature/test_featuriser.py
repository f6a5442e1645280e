"""Featurisers: what they compute is what replaying and lowering gives."""

from __future__ import annotations

from functools import lru_cache
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from plica.codegen.lower.passes import lower
from plica.schedule.default.machine import Machine
from plica.schedule.problem import ScheduleRefused
from plica.schedule.replay import scheduled
from plica.search.feature import NAMES, Featuriser, Packs, SpaceFeaturiser, features
from plica.search.feature.code import CONDITIONS
from plica.search.feature.formula import Basis
from plica.search.space import Point, Space
from tests.search.feature.sketches import nearby_sketch, placed_sketch, tiled_sketch

MACHINE = Machine(512, 32, cores=2)
OWN = [at for at, name in enumerate(NAMES) if name not in CONDITIONS]
"""Columns of a point; the rest are those of the default of its sketch."""
SHARED = [NAMES.index(name) for name in CONDITIONS]
FEW = settings(max_examples=max(5, settings().max_examples // 3))


@lru_cache(maxsize=1)
def space() -> Space:
    return Space((tiled_sketch(), placed_sketch(), nearby_sketch()))


@lru_cache(maxsize=1)
def featuriser() -> SpaceFeaturiser:
    return SpaceFeaturiser(space(), MACHINE, few=2)


def replayed(point: Point) -> np.ndarray[tuple[int, int], np.dtype[np.float64]] | None:
    kernel = space().sketches[point.sketch].kernel
    try:
        return features(lower(scheduled(space().trace(point), kernel), "cpu"), MACHINE)
    except ScheduleRefused:
        return None


@FEW
@given(st.integers(0, 2**32))
def test_computed_is_replayed(seed: int) -> None:
    random = Random(seed)
    points: list[Point] = []
    for number in (0, 2):
        supports = space().sketches[number].supports
        points.append(Point(number, tuple([random.choice(each.members) for each in supports])))
    # One class of the sketch with places is enough: each has formulas of its own.
    tile = space().sketches[1].supports
    points.append(Point(1, tuple([random.choice(s.members) for s in tile[:2]] + [(2,), (1,)])))
    packs = featuriser().of(points)
    for number, point in enumerate(points):
        wanted = replayed(point)
        if wanted is not None:
            found = packs.rows[packs.owner == number]
            assert np.array_equal(found[:, OWN], wanted[:, OWN])
            default = replayed(Point(point.sketch, space().sketches[point.sketch].default))
            assert default is not None
            assert (found[:, SHARED] == default[0, SHARED]).all()


def test_formulas_were_found() -> None:
    random = Random(3)
    mine = Featuriser(space().sketches[0], MACHINE)
    supports = space().sketches[0].supports
    drawn = [Point(0, tuple([random.choice(s.members) for s in supports])) for _ in range(40)]
    rows, owner = mine.of(drawn)
    assert mine.report.replayed == 0 < mine.report.computed
    assert mine.report.compiled == 1
    assert (np.diff(owner) >= 0).all()
    assert len(rows) == len(owner)
    again, _ = Featuriser(space().sketches[0], MACHINE).of(drawn)
    assert np.array_equal(rows, again)


def test_what_has_no_formula_is_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Basis, "formula", lambda *_: None)
    mine = Featuriser(space().sketches[2], MACHINE, few=2)
    points = [Point(2, (each,)) for each in space().sketches[2].supports[0].members[:3]]
    rows, owner = mine.of(points)
    assert mine.report.replayed == 3
    assert mine.report.uncompiled == 1
    for number, point in enumerate(points):
        wanted = replayed(point)
        assert wanted is not None
        assert np.array_equal(rows[owner == number], wanted)


def test_an_illegal_point_has_no_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Basis, "formula", lambda *_: None)
    mine = SpaceFeaturiser(Space((space().sketches[2],)), MACHINE)
    packs = mine.of([Point(0, ((5, 7),)), Point(0, ((96, 1),))])
    assert packs.is_legal.tolist() == [False, True]
    assert packs.summed(packs.rows[:, 0])[0] == 0


def test_no_points_have_no_rows() -> None:
    assert len(featuriser().of([])) == 0


@given(st.integers(0, 2**32), st.integers(1, 3), st.booleans())
def test_products_and_lines_are_found(seed: int, scale: int, border: bool) -> None:
    random = np.random.default_rng(seed)
    sizes = np.exp2(random.integers(0, 4, (12, 4)).astype(np.float64))
    shift = 2.0 * border
    values = scale * sizes[:, 1] * sizes[:, 2] + shift
    found = Basis(sizes, [(0, 0), (0, 1), (1, 0), (1, 1)]).formula(values)
    assert found is not None or len(np.unique(values)) < 3
    if found is not None:
        assert np.allclose(found.of(sizes), values)


def test_no_formula_is_made_up() -> None:
    random = np.random.default_rng(0)
    sizes = np.exp2(random.integers(0, 4, (12, 4)).astype(np.float64))
    values = random.permutation(np.arange(1.0, 13) ** 2)
    assert Basis(sizes, [(0, 0), (0, 1), (1, 0), (1, 1)]).formula(values) is None


def test_packs_are_chosen_and_joined() -> None:
    one = Packs.of([np.ones((2, 3)), np.zeros((0, 3)), np.full((1, 3), 5.0)])
    assert one.is_legal.tolist() == [True, False, True]
    assert one[np.array([2, 0])].rows[:, 0].tolist() == [5.0, 1.0, 1.0]
    both = one + one
    assert both.count == 6
    assert both.owner.tolist() == [0, 0, 2, 3, 3, 5]
