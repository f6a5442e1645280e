"""Models of cost: they learn, the same every time, and come back from bytes as they were."""

from __future__ import annotations

import json
from functools import lru_cache
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from plica.core.diagnostic import Malformed
from plica.runtime.error import InputError
from plica.schedule.default.machine import Machine
from plica.search.feature import WIDTH, Packs, SpaceFeaturiser
from plica.search.feature.layout import Floats
from plica.search.model import (
    Analytical,
    Blended,
    Model,
    SummedTime,
    held_out,
    loaded,
    pairwise_accuracy,
    quality,
    recall,
)
from plica.search.space import Space
from tests.search.feature.sketches import tiled_sketch

LEARNING: tuple[Model, ...] = (
    SummedTime(rounds=40),
    SummedTime(rounds=40, whole=1),
    Blended(SummedTime(rounds=40), SummedTime(rounds=40, whole=1)),
)
EVERY: tuple[Model, ...] = (*LEARNING, Analytical())


@lru_cache(maxsize=1)
def examples() -> tuple[Packs, Floats]:
    """Points of a sketch, and a cost that is a function of the decisions: cycles, but for a
    preference for long vectors and against many cores that no formula of ours knows."""
    space = Space((tiled_sketch(48, 64, 36),))
    random = Random(0)
    points = list(dict.fromkeys([space.drawn(random) for _ in range(160)]))
    packs = SpaceFeaturiser(space, Machine(512, 32, cores=2)).of(points)
    costs = Analytical().cycles(packs)
    factor = [
        (1 + 4 / tiles[1][2]) * (1 + 0.1 * tiles[0][0]) for tiles in (p.decisions for p in points)
    ]
    return packs, costs * np.array(factor)


@pytest.mark.parametrize("model", LEARNING, ids=lambda each: str(each.kind))
def test_it_learns(model: Model) -> None:
    packs, costs = examples()
    found = held_out(model, packs, costs)
    assert found.pairwise > 0.8
    chance = pairwise_accuracy(np.random.default_rng(0).random(len(costs)), costs)
    assert found.pairwise > chance + 0.2
    assert found.count == round(0.3 * len(packs))


@pytest.mark.parametrize("model", EVERY, ids=lambda each: str(each.kind))
def test_the_same_examples_give_the_same_model(model: Model) -> None:
    packs, costs = examples()
    one, other = model.fitted(packs, costs), model.fitted(packs, costs)
    assert one.saved() == other.saved()
    assert np.array_equal(one.scores(packs), other.scores(packs))


@pytest.mark.parametrize("model", EVERY, ids=lambda each: str(each.kind))
def test_saved_and_loaded_is_the_same(model: Model) -> None:
    packs, costs = examples()
    for each in (model, model.fitted(packs, costs)):
        again = loaded(each.saved())
        assert type(again) is type(each)
        assert again.saved() == each.saved()
        assert np.array_equal(again.scores(packs), each.scores(packs))


@pytest.mark.parametrize("model", EVERY, ids=lambda each: str(each.kind))
def test_what_has_no_rows_is_worst(model: Model) -> None:
    packs, costs = examples()
    some = packs[np.arange(20)] + Packs.of([np.zeros((0, WIDTH))])
    learned = model.fitted(some, np.append(costs[:20], np.inf))
    for each in (model, learned):
        scores = each.scores(some)
        assert scores[-1] == -np.inf
        assert np.isfinite(scores[:-1]).all()


@pytest.mark.parametrize("model", LEARNING, ids=lambda each: str(each.kind))
def test_nothing_is_learned_from_nothing(model: Model) -> None:
    packs, _ = examples()
    assert model.fitted(Packs.of([]), np.zeros(0)).saved() == model.saved()
    assert np.unique(model.scores(packs)).tolist() == [0.0]


def test_the_analytical_model_wants_its_features() -> None:
    with pytest.raises(InputError, match="columns"):
        Analytical().scores(Packs.of([np.zeros((1, 3))]))


def test_what_was_learned_elsewhere_helps() -> None:
    packs, costs = examples()
    half = np.arange(len(packs) // 2)
    rest = np.arange(len(packs) // 2, len(packs))
    old = SummedTime(rounds=40).fitted(packs[half], costs[half])
    few, asked = rest[:8], rest[8:]
    scores = [
        quality(each.fitted(packs[few], costs[few]), packs[asked], costs[asked]).pairwise
        for each in (SummedTime(), old.standing)
    ]
    assert scores[1] > scores[0]
    assert np.allclose(old.standing.scores(packs), old.scores(packs))
    learned = old.standing.fitted(packs[few], costs[few])
    again = loaded(learned.saved())
    assert again.saved() == learned.saved()
    assert np.array_equal(again.scores(packs), learned.scores(packs))


@settings(max_examples=10)
@given(st.integers(0, 16), st.integers(0, 8))
def test_what_is_hoped_for_is_new(taken: int, count: int) -> None:
    packs = examples()[0][np.arange(20)]
    for model in (Blended(), _blended()):
        found = model.hopeful(packs, range(taken), count)
        assert len(set(found)) == len(found) == min(count, len(packs) - taken)
        assert all(each >= taken for each in found)


@lru_cache(maxsize=1)
def _blended() -> Blended:
    packs, costs = examples()
    few = np.arange(12)
    return Blended(SummedTime(rounds=10), SummedTime(rounds=10, whole=1)).fitted(
        packs[few], costs[few]
    )


def test_what_is_far_from_all_that_was_seen_may_be_fast() -> None:
    """Of two that score alike the one is tried that is not beside what was measured, and then the
    one that is not beside that."""
    seen = np.array([[0.0], [0.1], [0.2], [0.3]])
    flat = SummedTime(rounds=1, rate=1e-6)
    model = Blended(flat, SummedTime(rounds=1, rate=1e-6, whole=1)).fitted(
        Packs.of([each[None] for each in seen]), np.array([1.0, 1.1, 1.0, 1.2])
    )
    asked = Packs.of([np.array([[each]]) for each in (0.15, 0.6, 0.61, -0.4)])
    one, other = model.hopeful(asked, (), 2)
    assert {one, other} in ({3, 1}, {3, 2})


def test_rows_that_differ_are_found_once() -> None:
    rows = np.array([[1.0, 2.0], [2.0, 1.0], [1.0, 2.0], [-0.0, 0.0], [0.0, 0.0]])
    once, place = Packs(rows, np.arange(5), 5).distinct
    assert len(once) == 3
    np.testing.assert_array_equal(once[place], rows)
    rows[1, 0] = np.nan
    once, place = Packs(rows, np.arange(5), 5).distinct
    np.testing.assert_array_equal(once[place], rows)


def test_a_part_of_a_blend_is_no_blend() -> None:
    whole = json.loads(_blended().saved())
    for fields in ({"stores": 3, "wholes": 3}, {"stores": 10**9}):
        with pytest.raises(Malformed, match="two"):
            loaded(json.dumps({**whole, "fields": fields}).encode())


def test_times_of_stores_add_up() -> None:
    """Two stores that take what each takes alone: what is learned of one-store work orders it."""
    rows = np.arange(1.0, 9.0)[:, None]
    alone = SummedTime(rate=0.3).fitted(Packs.of([each[None] for each in rows]), 2.0 ** rows[:, 0])
    few_slow = Packs.of([rows[[7, 0]], rows[[5, 5]]])
    assert alone.scores(few_slow).argmax() == 1


@given(st.floats(1e-6, 1e6), st.floats(1e-6, 1e6))
def test_costs_compare_up_to_a_factor(one: float, other: float) -> None:
    packs, costs = examples()
    both = packs[np.arange(12)] + packs[np.arange(12, 24)]
    groups = np.repeat([0, 1], 12)
    model = SummedTime(rounds=2)
    scaled = costs[:24] * np.repeat([one, other], 12)
    plain, changed = (model.fitted(both, each, groups) for each in (costs[:24], scaled))
    assert np.allclose(plain.scores(both), changed.scores(both), atol=1e-4)


@given(st.permutations(list(range(12))))
def test_a_perfect_order_is_perfect(order: list[int]) -> None:
    costs = np.array(order, float) + 1
    assert pairwise_accuracy(-costs, costs) == recall(-costs, costs, 4) == 1.0
    assert pairwise_accuracy(costs, costs) == 0.0
    assert pairwise_accuracy(np.zeros(12), costs) == 0.5


def test_nothing_to_order_is_in_order() -> None:
    assert pairwise_accuracy(np.zeros(1), np.ones(1)) == 1.0
    assert recall(np.zeros(0), np.zeros(0)) == 1.0
    assert pairwise_accuracy(np.array([0.0, 1.0]), np.array([1.0, 1.02]), noise=0.05) == 1.0


SMALL = Packs.of([np.zeros((1, 3)), np.ones((1, 3))])
FITTED = Blended(SummedTime(rounds=2), SummedTime(rounds=2, whole=1)).fitted(
    SMALL, np.array([1.0, 2.0])
)
WHOLE = json.loads(FITTED.saved())


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{" * 5000,
        json.dumps({**WHOLE, "format": "other"}).encode(),
        json.dumps({**WHOLE, "version": 99}).encode(),
        json.dumps({**WHOLE, "kind": "unheard-of"}).encode(),
        json.dumps({**WHOLE, "kind": 3}).encode(),
        json.dumps({**WHOLE, "kind": "summed-time"}).encode(),
        json.dumps({**WHOLE, "fields": {"hidden": 3}}).encode(),
        json.dumps({**WHOLE, "fields": {"stores": "x"}}).encode(),
        json.dumps({**WHOLE, "fields": {"stores": -1}}).encode(),
        json.dumps({**WHOLE, "arrays": {"weights": {"shape": [3], "data": ""}}}).encode(),
        json.dumps({**WHOLE, "arrays": {"weights": 5}}).encode(),
        json.dumps({**WHOLE, "arrays": {"weights": {"shape": [0], "data": ""}}}).encode(),
        json.dumps({**WHOLE, "blob": "?"}).encode(),
        json.dumps({**WHOLE, "blob": None}).encode(),
    ],
)
def test_a_damaged_file_is_refused(data: bytes) -> None:
    with pytest.raises(Malformed):
        loaded(data)


def test_damaged_trees_are_refused() -> None:
    whole = json.loads(SummedTime().saved())
    with pytest.raises(Malformed, match="trees"):
        loaded(json.dumps({**whole, "blob": "aGVsbG8="}).encode())
    with pytest.raises(Malformed, match="stands on"):
        loaded(json.dumps({**whole, "fields": {**whole["fields"], "ground": 9}}).encode())
