"""Timing: what is counted and said; nothing here asks how fast anything is."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

import plica
from plica.runtime import timing
from plica.runtime.timing import CallTiming, busy, spread_of


def test_two_functions_are_called_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "MIN_ROUND_NS", 0)
    called: list[str] = []

    def one(x: int) -> None:
        called.append(f"one{x}")

    def two(x: int) -> None:
        called.append(f"two{x}")

    found = plica.time(one, 3, against=two, rounds=2)
    assert called == ["one3", "two3"] * 2 + ["one3", "two3", "two3", "one3"]
    assert (found.name, found.against and found.against.name) == ("one", "two")
    assert len(found.rounds) == 2
    assert found.ratio is not None
    assert "one" in str(found)
    assert "times as fast" in str(found)


def test_one_function_has_no_ratio() -> None:
    found = plica.time(len, (), rounds=1)
    assert (found.ratio, found.against, found.spread) == (None, None, 0.0)
    assert found.min == found.median > 0
    assert "as fast" not in str(found)


@given(st.lists(st.floats(1e-9, 1.0), min_size=1, max_size=9))
def test_the_numbers_are_in_order(times: list[float]) -> None:
    found = CallTiming("f", tuple(times), CallTiming("f", tuple(times)))
    assert min(times) == found.min <= found.median <= max(times)
    assert found.spread >= 0
    assert found.ratio == 1.0
    assert found.to_data()["median"] == found.median


def test_one_interruption_is_no_spread() -> None:
    assert spread_of([1.0] * 8 + [50.0]) == 0.0


def test_a_busy_machine_is_said() -> None:
    assert "busy (load 99.0" in busy(99.0)
    assert "differ by 80%" in busy(0.0, [0.1, 0.8])
    assert busy(0.0, [0.1]) == ""
    assert "busy" in str(CallTiming("f", (1.0,), warning=busy(99.0)))


@pytest.mark.parametrize("rounds", [0, 1.5, True])
def test_no_round_is_refused(rounds: int) -> None:
    with pytest.raises(plica.InputError, match="one round at least"):
        plica.time(len, (), rounds=rounds)


def test_what_is_no_function_is_refused() -> None:
    with pytest.raises(plica.InputError, match="must be a function"):
        plica.time(len, (), against=3)  # type: ignore[arg-type]  # that is the point
