"""Policies are folds: only the log matters, and the same log gives the same proposals anywhere."""

from __future__ import annotations

import os
import subprocess
import sys
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from plica.search.observation import Observation, points_text
from plica.search.policy.example import SQUARE, cost, observed
from plica.search.policy.fold import ObservedSpace, Policy, SearchState, index_of, point_at
from plica.search.space import Point
from tests.search.policy.every import POLICIES

NAMES = tuple(POLICIES)
FEW = settings(max_examples=max(3, settings().max_examples // 5))


def failing(point: Point) -> float | None:
    """A cost that some points do not have."""
    return None if index_of(SQUARE, point) % 7 == 0 else cost(point)


def observe(point: Point) -> Observation:
    found = failing(point)
    return Observation(point, found, "" if found else "crash", noise=0.01)


def folded(
    policy: Policy[Any], seed: int, log: list[Observation], cuts: list[int]
) -> tuple[SearchState[Any], list[Point]]:
    """The proposals of a log that comes in pieces."""
    state, proposals = policy.step(policy.begin(SQUARE, seed))
    found = list(proposals)
    for start, end in zip([0, *cuts], [*cuts, len(log)], strict=True):
        state, proposals = policy.step(state, log[start:end])
        found += proposals
    return state, found


@pytest.mark.parametrize("name", NAMES)
@FEW
@given(seed=st.integers(0, 99), data=st.data())
def test_how_a_log_is_cut_does_not_matter(name: str, seed: int, data: st.DataObject) -> None:
    policy = POLICIES[name]
    log = [observe(each.point) for each in observed(policy, SQUARE, failing, 24, seed)]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(log)), max_size=4)))
    whole = folded(policy, seed, log, [])[1]
    assert folded(policy, seed, log, cuts)[1] == whole
    assert [each.point for each in log] == whole[: len(log)]


@pytest.mark.parametrize("name", NAMES)
@FEW
@given(seed=st.integers(0, 99))
def test_the_order_within_a_batch_does_not_matter(name: str, seed: int) -> None:
    policy, shuffled = POLICIES[name], Random(seed)
    states = [policy.step(policy.begin(SQUARE, seed)) for _ in range(2)]
    for _ in range(3):
        (one, batch), (other, again) = states
        assert batch == again
        came = [observe(each) for each in batch]
        mixed = list(came)
        shuffled.shuffle(mixed)
        states = [policy.step(one, came), policy.step(other, mixed)]


@pytest.mark.parametrize("name", NAMES)
@FEW
@given(seed=st.integers(0, 99))
def test_proposals_are_new_points_of_the_space(name: str, seed: int) -> None:
    found = [each.point for each in observed(POLICIES[name], SQUARE, failing, 40, seed)]
    assert len(found) == len(set(found)) == 40
    assert all(SQUARE.holds(each) for each in found)


@pytest.mark.parametrize("name", [each for each in NAMES if each != "annealing"])
def test_a_space_is_exhausted_and_then_the_search_ends(name: str) -> None:
    policy = POLICIES[name]
    log = list(observed(policy, SQUARE, cost, 10**4, seed=3))
    assert {each.point for each in log} == set(SQUARE.points())
    state, _ = folded(policy, 3, log, [])
    assert state.finished
    assert policy.step(state, log[:3])[1] == ()


@pytest.mark.parametrize("name", NAMES)
@FEW
@given(seed=st.integers(0, 99), data=st.data())
def test_what_is_proposed_ahead_is_new_and_waits_for_all(
    name: str, seed: int, data: st.DataObject
) -> None:
    policy = POLICIES[name]
    state, out = policy.step(policy.begin(SQUARE, seed))
    assert policy.ahead(state)[1] == ()  # nothing is known yet
    first = data.draw(st.integers(1, len(out)))
    state, none = policy.step(state, [observe(each) for each in out[:first]])
    late: tuple[Point, ...] = ()
    asked, out = list(out), out[first:]
    if none:  # all of it was observed
        asked, out = [*asked, *none], none
    for _ in range(4):
        state, more = policy.ahead(state, [observe(each) for each in late])
        assert not set(more) & set(asked)
        assert all(SQUARE.holds(each) for each in more)
        asked += more
        assert policy.ahead(state)[1] == () or not (more and out)  # two batches are out
        if not more:
            break
        out, late = more, out
    assert set(state.waiting) == {*late, *out} or not more
    done, after = policy.step(state, [observe(each) for each in state.waiting])
    assert done.finished or not set(after) & set(asked)


def test_proposals_are_the_same_under_any_hash_seed() -> None:
    program = (
        "from plica.search.observation import points_text\n"
        "from plica.search.policy.example import SQUARE, cost\n"
        "from plica.search.policy.example import observed\n"
        "from tests.search.policy.every import POLICIES\n"
        "for policy in POLICIES.values():\n"
        "    print(points_text([e.point for e in observed(policy, SQUARE, cost, 30, seed=5)]))\n"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "12345"}
    ran = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
        timeout=120,
    )
    here = [
        points_text([each.point for each in observed(policy, SQUARE, cost, 30, seed=5)])
        for policy in POLICIES.values()
    ]
    assert ran.stdout == "\n".join(here) + "\n"


@given(st.integers(0, SQUARE.size - 1))
def test_points_and_numbers_are_one_to_one(index: int) -> None:
    assert index_of(SQUARE, point_at(SQUARE, index)) == index


def test_numbers_follow_the_order_of_the_space() -> None:
    assert [point_at(SQUARE, n) for n in range(SQUARE.size)] == list(SQUARE.points())
    with pytest.raises(IndexError):
        point_at(SQUARE, SQUARE.size)


def test_what_nobody_proposed_is_known_all_the_same() -> None:
    policy = POLICIES["genetic"]
    state, batch = policy.step(policy.begin(SQUARE, 0))
    others = [each for each in SQUARE.points() if each not in batch][:3]
    state, none = policy.step(state, [observe(each) for each in others])
    assert none == ()
    state, more = policy.step(state, [observe(each) for each in batch])
    assert all(each in state.known.taken for each in others)
    assert not set(more) & {*others, *batch}


def test_fresh_points_are_never_taken() -> None:
    every = list(SQUARE.points())
    known = ObservedSpace(SQUARE, tuple([observe(each) for each in every[3:]]))
    assert sorted(known.fresh(Random(0), 9), key=every.index) == every[:3]
    assert known.fresh(Random(0), 9, every[:2]) == every[2:3]
