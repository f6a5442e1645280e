"""The collector is paused, never switched off for good, and what was frozen stays so."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from plica.core import collector
from plica.core.collector import age, paused


@pytest.fixture
def thawed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing is frozen as long as a test runs, nor known to have been."""
    monkeypatch.setattr(collector, "_frozen", [])
    gc.unfreeze()
    yield
    gc.freeze()


def test_pauses_nest() -> None:
    assert gc.isenabled()
    with paused():
        with paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


@pytest.mark.usefixtures("thawed")
def test_what_is_alive_becomes_old() -> None:
    with paused():
        made: list[list[int]] = [[] for _ in range(1000)]
        age()
        young = gc.get_objects(generation=0)
        assert not any(each is made for each in young)
        assert any(each is made for each in gc.get_objects(generation=2))


def test_what_somebody_froze_is_not_thawed() -> None:
    gc.freeze()
    count = gc.get_freeze_count()
    age()
    assert gc.get_freeze_count() > count * 0.99 > 0  # other objects may die meanwhile
