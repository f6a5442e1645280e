"""`benchmarks/roof.py`: networks drawn by a seed, and how their kernels are counted."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import plica
from benchmarks import roof
from benchmarks.drawn_networks import FAMILIES, network
from benchmarks.roof import RoofRow, rows_of, stored, summary
from plica.bench import Roof


def row(share: float, microseconds: float) -> RoofRow:
    """A kernel that reaches a share of the roof."""
    return RoofRow("0 unet", "conv_1", "nn.conv", 1, microseconds, 0.5, share, "peak")


@pytest.mark.parametrize("number", range(len(FAMILIES)))
def test_a_network_of_each_family_is_valid_and_the_same_again(number: int) -> None:
    name, model, inputs = network(11, number)
    onnx.checker.check_model(model)
    again = network(11, number)
    assert (name, model) == again[:2]
    assert [each.tobytes() for each in inputs] == [each.tobytes() for each in again[2]]
    assert model != network(12, number)[1]


def test_short_kernels_are_listed_but_not_counted() -> None:
    text, counts = summary([row(0.05, 20.0), row(0.2, 20.0), row(0.9, 20.0), row(0.01, 3.0)], 5.0)
    assert counts == {
        "kernels": 3, "short": 1, "below 10 %": 1, "below 25 %": 2, "median": 0.2,
    }  # fmt: skip
    assert text.index("shorter than 5 us") > text.index("90.0%")


def test_rows_hold_the_kernels_that_take_a_part_of_the_time() -> None:
    name, model, inputs = network(11, 7)
    exe = plica.compile(model, threads=1, cache=False)
    found = rows_of(name, exe, inputs, Roof(1e-3, ((None, 1e-3),)), 1)
    assert found
    assert all(each.part >= 0.05 and each.share == 1.0 for each in found)
    assert all(np.isfinite(each.microseconds) for each in found)


def test_a_machine_that_nobody_measured_is_measured_now(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(roof, "stored", dict)
    monkeypatch.setattr(roof, "_on_core", lambda: ([(1000, 50.0), (None, 10.0)], 100.0))
    assert roof.roof_here("cpu") == Roof(100.0, ((1000, 50.0), (None, 10.0)))
    assert "No ceilings are stored" in capsys.readouterr().err


def test_ceilings_rise_to_the_nearest_level() -> None:
    for name, known in stored().items():
        levels = known["gbytes"]
        assert levels[-1][0] is None, name
        assert [size for size, _ in levels[:-1]] == sorted(size for size, _ in levels[:-1])
        assert known["gflops"] > 0
