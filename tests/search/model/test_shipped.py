"""The model that comes with the package: it reads the features of today, and knows something."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from plica.schedule.default.machine import Machine
from plica.search.model import loaded, pairwise_accuracy
from plica.search.model.shipped import shipped, shipped_digest
from plica.search.policy.named import guided, learned
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
        for found in threads.map(lambda _: shipped().scores(few), range(400)):
            np.testing.assert_array_equal(found, expected)


def test_it_is_a_model_file() -> None:
    assert loaded(shipped().saved()).saved() == shipped().saved()
