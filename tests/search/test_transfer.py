"""Tuning after other tuning: what is in the database comes first, and the run can be resumed."""

from __future__ import annotations

from functools import partial

import pytest
from attrs import evolve

from plica.codegen.llvm import toolchain
from plica.search import tune
from plica.search.policy.taught import TAUGHT
from plica.search.record.database import Database
from plica.search.record.record import Record
from plica.search.tune import searched
from plica.search.tune_loop import Run
from plica.search.tuned import TuneOptions
from tests.search.synthetic import SUBJECTS, Synthetic, no_twins

HERE = evolve(toolchain.host(), cores=1)


@pytest.fixture(autouse=True)
def kernels_that_ignore_decisions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tune, "Run", partial(Run, twins=no_twins))


def taught(database: Database, trials: int) -> list[Record]:
    """The records of a run after lessons, as they were proposed."""
    how = TuneOptions(trials, progress=False, policy="transfer")
    searched(SUBJECTS, (), HERE, database, how, Synthetic())
    mine = [each for each in database if each.policy.startswith(TAUGHT)]
    return sorted(mine, key=lambda each: (each.key, each.trial))


def lessons() -> Database:
    """A database with the records of another policy."""
    database = Database()
    how = TuneOptions(48, progress=False, policy="random")
    searched(SUBJECTS, (), HERE, database, how, Synthetic())
    return database


def test_the_best_that_is_known_follows_the_default() -> None:
    database = lessons()
    best = {each.key: each for each in sorted(database, key=lambda e: -(e.cost or 9.0))}
    found = taught(database, 16)
    for key, fastest in best.items():
        assert fastest.cost in [each.cost for each in found if each.key == key][:2]


def test_a_run_after_lessons_goes_on_where_it_was() -> None:
    whole, parts = lessons(), lessons()
    taught(parts, 9)
    assert taught(parts, 24) == taught(whole, 24)


def test_without_lessons_it_is_a_guided_search() -> None:
    found = taught(Database(), 16)
    assert len({each.identity for each in found}) >= 16
