"""The population of shipped rules: every one fires, and both its sides mean the same.

A rule needs no test of its own: what a table holds is tested here.  The budget follows the profile.
"""

from __future__ import annotations

import re
from typing import Final

import pytest

from plica.ir.graph.operator import uses
from plica.rewrite import Rule
from plica.rewrite.check import run
from plica.rewrite.check.run import check
from plica.rewrite.check.verdict import Refuted, Untested, is_good
from plica.rewrite.packs import ABOUT, OWN, find_pack
from plica.rewrite.pattern import alternatives
from tests.conftest import PROFILE

EXAMPLES: Final = {"ci": 2, "dev": 60, "deep": 1_000}[PROFILE]
SEEDS: Final = {"ci": (0,), "dev": (0,), "deep": (0, 1, 2)}[PROFILE]
UNIONS: Final = ("simplify", "views")
TABLES: Final = sorted(set(OWN) - set(UNIONS))
RARE: Final = 200
"""Examples asked for where a rule fired on none of a few."""


def population() -> dict[str, Rule]:
    """Every shipped rule by its name."""
    return {rule.name: rule for name in TABLES for rule in find_pack(name)}


def test_names_are_unique_and_speak() -> None:
    names = [rule.name for name in TABLES for rule in find_pack(name)]
    assert len(names) == len(set(names))
    assert [name for name in names if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)+", name)] == []
    assert len(names) >= 400


@pytest.mark.parametrize("name", UNIONS)
def test_unions_hold_rules_of_the_tables(name: str) -> None:
    rules = population()
    assert all(rules[rule.name] is rule for rule in find_pack(name))


@pytest.mark.parametrize("name", sorted(ABOUT))
def test_a_pack_that_is_left_out_could_do_nothing(name: str) -> None:
    for rule in find_pack(name):
        for left in alternatives(rule.left):
            assert uses((left,), ABOUT[name]), rule.name


@pytest.mark.parametrize("name", TABLES)
def test_every_rule_fires_and_keeps_the_meaning(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if PROFILE == "ci":  # data of every kind, but no climb to the worst: two fifths of the time
        monkeypatch.setattr(run, "CLIMB_BELOW_BYTE", 0)
    for rule in find_pack(name):
        for seed in SEEDS:
            verdict = check(rule, examples=EXAMPLES, seed=seed)
            if isinstance(verdict, Untested):
                verdict = check(rule, examples=RARE, seed=seed)
            if isinstance(verdict, Refuted):
                pytest.fail(verdict.counterexample.pytest)
            assert is_good(verdict), verdict
