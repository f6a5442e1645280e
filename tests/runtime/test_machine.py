"""Machine descriptions: data that reads back, is rounded coarsely, and is kept in the store."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from plica.runtime import machine
from plica.runtime.error import UnsupportedError
from plica.runtime.machine import (
    CycleRates,
    MachineDescription,
    VectorWidth,
    coarse,
    from_text,
    keep_description,
    rates_of,
    settled,
    stored_description,
)
from tests.strategies.text import texts

FIGURES = st.floats(0.01, 1e6).map(coarse)
RATES = st.builds(CycleRates, *[FIGURES] * len(CycleRates.__slots__))
WIDTHS = st.builds(VectorWidth, st.sampled_from((128, 256, 512)), FIGURES, FIGURES)
MACHINES = st.builds(
    MachineDescription,
    texts(8),
    st.sampled_from((0, 128, 256, 512)),
    st.lists(st.integers(1, 1 << 32), max_size=3).map(tuple),
    RATES,
    st.lists(WIDTHS, max_size=3).map(tuple),
)


@given(MACHINES)
def test_a_description_reads_back(of: MachineDescription) -> None:
    assert from_text(of.to_text()) == of
    assert from_text(of.to_text()).to_text() == of.to_text()


@given(RATES)
def test_rates_are_one_word(of: CycleRates) -> None:
    again = rates_of(of.spelled())
    assert again.spelled() == of.spelled()
    assert " " not in of.spelled()


@given(st.floats(0.01, 1e6))
def test_what_is_rounded_is_near_and_stays(figure: float) -> None:
    found = coarse(figure)
    assert coarse(found) == found
    assert max(found / figure, figure / found) <= 1.2248  # half a step of 3 : 2


@given(MACHINES, st.floats(0.9, 1.1))
def test_noise_changes_no_description(of: MachineDescription, noise: float) -> None:
    rates = CycleRates(**{
        name: coarse(getattr(of.rates, name) * noise) for name in CycleRates.__slots__
    })  # fmt: skip
    again = MachineDescription(of.name, of.vector, of.caches, rates, of.widths)
    assert settled(again, of) == of
    assert settled(again, None) == again


def test_what_has_changed_is_taken() -> None:
    old = MachineDescription("measured", 512, (1024,), CycleRates(fma=2))
    new = MachineDescription("measured", 512, (1024,), CycleRates(fma=1))
    assert settled(new, old) == new
    other = MachineDescription("measured", 512, (2048,), CycleRates())
    assert settled(other, old) == other


GOOD = MachineDescription("measured", 256, (32768,), CycleRates(), (VectorWidth(256, 2, 2.5),))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "This is no JSON."),
        ("[]", "A machine has a name, vectors, caches and rates."),
        (GOOD.to_text().replace('"fma": 2, "iss', '"iss'), "A machine has these rates"),
        (GOOD.to_text().replace('"vector": 256', '"vector": -1'), "A machine has these rates"),
        (GOOD.to_text().replace("32768", "true"), "A figure of a machine"),
        (GOOD.to_text().replace('"far": 8', '"far": 0'), "A figure of a machine"),
        (GOOD.to_text().replace('"far": 8', '"far": "8"'), "A figure of a machine"),
        (GOOD.to_text().replace('"clock": 2.5', '"clack": 2.5'), "A figure of a machine"),
    ],
)
def test_what_describes_no_machine_is_refused(text: str, message: str) -> None:
    assert text != GOOD.to_text()
    with pytest.raises(UnsupportedError, match=message) as refused:
        from_text(text)
    (said,) = refused.value.diagnostics
    assert said.suggestion is not None


@pytest.mark.parametrize("word", ["fma", "fma:x", "fma:0", "fmas:1"])
def test_what_spells_no_rate_is_refused(word: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  # whatever float() says
        rates_of(word)


def test_the_store_keeps_a_description(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLICA_CACHE", str(tmp_path / "store"))
    assert stored_description() is None
    keep_description(GOOD)
    assert stored_description() == GOOD
    monkeypatch.setattr(machine, "processor_facts", lambda: ("another machine",))
    assert stored_description() is None
    monkeypatch.setenv("PLICA_CACHE", "off")
    with pytest.raises(UnsupportedError, match="no store"):
        keep_description(GOOD)
