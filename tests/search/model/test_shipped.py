"""The model that comes with the package: it reads the features of today, and knows something."""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import plica.search.model.shipped as shipped_model
from plica.core.diagnostic import Malformed
from plica.runtime.error import UnsupportedError
from plica.schedule.default.machine import Machine
from plica.search.model import loaded, pairwise_accuracy
from plica.search.model.boosted import booster_of
from plica.search.model.shipped import shipped, shipped_digest
from plica.search.policy.named import guided, learned, policy_named
from tests.search.model.test_model import examples


def test_it_orders_work_it_has_not_seen() -> None:
    packs, costs = examples()
    assert pairwise_accuracy(shipped().scores(packs), costs) > 0.65


def test_searches_stand_on_it() -> None:
    judge = learned(Machine(512, 32))
    assert shipped_digest() in judge.name
    assert shipped_digest() in guided(Machine(512, 32)).name
    packs, costs = examples()
    few = np.arange(24)
    rest = np.arange(24, len(packs))
    after = judge.model.fitted(packs[few], costs[few])
    assert pairwise_accuracy(after.scores(packs[rest]), costs[rest]) > pairwise_accuracy(
        shipped().scores(packs[rest]), costs[rest]
    )


def test_several_threads_may_ask_it() -> None:
    """One piece of work proposes while another is told: trees that two ask at once end the run."""
    packs, _ = examples()
    few = packs[np.arange(2)]
    expected = shipped().scores(few)
    with ThreadPoolExecutor(8) as threads:
        for found in threads.map(lambda _: shipped().scores(few), range(100)):
            np.testing.assert_array_equal(found, expected)


def test_it_is_a_model_file() -> None:
    assert loaded(shipped().saved()).saved() == shipped().saved()


@pytest.mark.parametrize(
    "harm", [lambda data: data[:1000], lambda data: data[:5000] + b"?" + data[5001:]]
)
def test_a_damaged_file_is_refused_by_name(
    harm: Callable[[bytes], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    damaged = harm(shipped_model._data())
    monkeypatch.setattr(shipped_model, "_data", lambda: damaged)
    with pytest.raises(Malformed, match="is damaged") as refused:
        shipped_model.shipped.__wrapped__()
    assert refused.value.diagnostics[0].code == "bad-model"


def test_a_file_that_is_not_there_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipped_model, "NAME", "nothing.xz")
    with pytest.raises(Malformed, match="cannot be read"):
        shipped_model._data.__wrapped__()


def test_trees_without_their_package_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xgboost", None)
    with pytest.raises(UnsupportedError, match="xgboost, which is not installed"):
        booster_of.__wrapped__(b"")
    assert policy_named("genetic", Machine(512, 32)).name  # which needs none
