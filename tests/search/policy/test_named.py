"""Policies by name."""

from __future__ import annotations

import pytest

from plica.runtime.error import InputError
from plica.schedule.default.machine import Machine
from plica.search.observation import Observation
from plica.search.policy.example import SQUARE, cost, observed
from plica.search.policy.lesson import Lesson
from plica.search.policy.named import POLICIES, policy_named
from plica.search.policy.taught import taught

HERE = Machine(512, 32)


def test_names_tell_policies_apart() -> None:
    names = [policy_named(each, HERE).name for each in POLICIES]
    log = (Observation(SQUARE.default, 1.0),)
    names += [taught(HERE, each).name for each in ((), (Lesson(SQUARE, log),))]
    assert len(set(names)) == len(names)


def test_the_guided_search_learns_from_the_kernels_themselves() -> None:
    log = observed(policy_named("guided", HERE), SQUARE, cost, 48, seed=0)
    assert len({each.point for each in log}) == 48
    assert min(each.cost or 9.0 for each in log) < 1.2


def test_no_policy_has_this_name() -> None:
    with pytest.raises(InputError, match="one of guided"):
        policy_named("clever", HERE)
