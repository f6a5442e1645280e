"""Policies find what is known to be there, and guidance helps."""

from __future__ import annotations

from math import log2
from statistics import median

import pytest

from plica.search.observation import Observation, is_faster
from plica.search.policy.breed import varied
from plica.search.policy.example import SQUARE, best_of, cost, observed
from plica.search.policy.fold import ObservedSpace, Policy
from plica.search.policy.guided import Guided
from plica.search.policy.model_free import Descent, Footing, Uniform, descended
from plica.search.policy.model_guided import Annealing
from plica.search.space import Point
from tests.search.policy.every import JUDGE, POLICIES, SMALL

SEEDS = (0, 1, 2)


def rugged(point: Point) -> float:
    """A cost with steps and a false bottom, as caches have."""
    inner = 1
    for decision in point.decisions[:2]:
        inner *= decision[-1]
    spilled = 0.8 if inner > 512 else 0.0
    trap = -0.15 if point.decisions[0] == (64, 1) else 0.0
    return cost(point) + spilled + trap + 0.05 * (log2(inner) % 2)


def needed(policy: str, limit: int, seed: int) -> int:
    """How many trials a policy needs to come within 5 % of the best."""
    best = min(map(rugged, SQUARE.points()))
    log = observed(POLICIES[policy], SQUARE, rugged, limit, seed)
    return next((n for n, e in enumerate(log, 1) if (e.cost or 9) <= 1.05 * best), limit)


def test_annealing_finds_the_best_of_a_known_landscape() -> None:
    policy = Policy(Annealing(JUDGE, batch=8, chains=32, steps=60))
    assert all(best_of(policy, SQUARE, cost, 40, seed) == 1.0 for seed in SEEDS)


@pytest.mark.parametrize("name", ["evolution", "guided", "descent"])
def test_what_is_guided_needs_at_most_half_of_what_random_needs(name: str) -> None:
    guided = median(needed(name, 96, seed) for seed in SEEDS)
    assert guided <= 0.5 * median(needed("random", 96, seed) for seed in SEEDS)


def test_guided_search_begins_with_what_needs_no_search() -> None:
    policy = Policy(Guided(JUDGE, first=10, batch=5, breeding=SMALL))
    _, points = policy.step(policy.begin(SQUARE, 0))
    near = {next_to for each in SQUARE.defaults() for next_to in SQUARE.neighbours(each)}
    assert points[:2] == SQUARE.defaults()
    assert len(points) == 10
    assert set(points[2:]) <= near


def test_guided_search_goes_on_where_nothing_worked() -> None:
    log = observed(POLICIES["guided"], SQUARE, lambda _: None, 30, seed=0)
    assert len({each.point for each in log}) == 30


def test_descent_moves_only_where_it_is_sure() -> None:
    here, near = SQUARE.default, SQUARE.neighbours(SQUARE.default)[0]
    seen = (Observation(here, 1.0, noise=0.1), Observation(near, 0.99, noise=0.1))
    assert descended(ObservedSpace(SQUARE, seen), Footing(here)) == Footing(here)
    sure = (seen[0], Observation(near, 0.5, noise=0.1))
    assert descended(ObservedSpace(SQUARE, sure), Footing(here, reach=2)) == Footing(near)


def test_descent_begins_at_the_default_and_goes_to_its_neighbours() -> None:
    near = SQUARE.neighbours(SQUARE.default)
    log = observed(Policy(Descent()), SQUARE, cost, 1 + len(near), seed=0)
    assert log[0].point == SQUARE.default
    assert {each.point for each in log[1:]} == set(near)


def test_what_failed_is_slower_than_anything() -> None:
    worked, failed = Observation(SQUARE.default, 9.0), Observation(SQUARE.default, None, "crash")
    assert is_faster(worked, failed)
    assert not is_faster(failed, worked)
    assert not is_faster(failed, failed)


def test_varied_points_decide_more_things() -> None:
    ranked = sorted(SQUARE.points(), key=cost)[:24]
    plain, chosen = ranked[:8], varied(ranked, 8)
    assert chosen[0] == ranked[0]
    assert _decided(chosen) >= _decided(plain)


def _decided(points: list[Point]) -> int:
    return len({(e.sketch, n, d) for e in points for n, d in enumerate(e.decisions)})


def test_a_random_search_is_uniform_over_points_or_over_sketches() -> None:
    points = observed(Policy(Uniform(batch=50)), SQUARE, cost, 50, seed=0)
    sketches = observed(Policy(Uniform(batch=50, by_sketch=True)), SQUARE, cost, 50, seed=0)
    assert 5 <= sum(each.point.sketch for each in points) <= 20
    assert 18 <= sum(each.point.sketch for each in sketches) <= 32
