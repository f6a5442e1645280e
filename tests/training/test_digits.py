"""The example that learns digits, in compiled code."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

pytest.importorskip("sklearn")

EXAMPLE = Path(__file__).parents[2] / "examples" / "train_digits.py"


@pytest.fixture(scope="module")
def example() -> dict[str, Any]:
    return runpy.run_path(str(EXAMPLE))


@pytest.mark.parametrize("name", ["mlp", "cnn"])
def test_digits_are_learnt(example: dict[str, Any], name: str) -> None:
    learnt, tested = example["digits"]()
    state, losses = example["trained"](name, learnt)
    assert example["accuracy"](name, state, tested) >= 0.97
    assert losses[-1] < 0.1 * losses[0]


def test_the_plot_shows_every_net(example: dict[str, Any]) -> None:
    text = example["plot"]({"mlp": [2.0, 1.0, 0.5], "cnn": [2.0, 0.1]})
    found = ElementTree.fromstring(text)
    assert len(found.findall("{http://www.w3.org/2000/svg}polyline")) == 2
    assert "cnn: 2 steps, 0.1000" in text
