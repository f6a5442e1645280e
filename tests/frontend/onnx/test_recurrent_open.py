"""Recurrent networks of open length and batch: one code for all, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

import plica
from plica.runtime.error import PlicaError
from tests.frontend.onnx.build import model, runtime

pytest.importorskip("onnxruntime")

HIDDEN, WIDTH = 5, 3

# fmt: off
CASES: dict[str, tuple[str, dict[str, Any], bool]] = {
    "lstm":    ("LSTM", {"direction": "bidirectional"}, False),
    "ragged":  ("LSTM", {"direction": "bidirectional"}, True),
    "gru":     ("GRU",  {"direction": "reverse", "linear_before_reset": 1}, False),
    "rnn":     ("RNN",  {"direction": "forward"}, False),
}
# fmt: on


@pytest.mark.parametrize("case", CASES)
def test_every_length_gives_what_onnxruntime_gives(case: str) -> None:
    kind, attrs, ragged = CASES[case]
    gates, ways = {"LSTM": 4, "GRU": 3, "RNN": 1}[kind], 1 + ("bidirectional" in attrs.values())
    random = np.random.default_rng(2)
    shapes = {
        "w": (gates * HIDDEN, WIDTH),
        "r": (gates * HIDDEN, HIDDEN),
        "b": (2 * gates * HIDDEN,),
    }
    stored = {name: random.normal(size=(ways, *s)).astype(np.float32) for name, s in shapes.items()}
    inputs: dict[str, Any] = {"x": ("f4", ("steps", "batch", WIDTH))}
    names = ["x", "w", "r", "b"]
    if ragged:
        inputs["lengths"] = ("i4", ("batch",))
        names.append("lengths")
    outputs = ["y", "h", *(["c"] if kind == "LSTM" else [])]
    node = helper.make_node(kind, names, outputs, hidden_size=HIDDEN, **attrs)
    of = model([node], inputs, outputs, stored, opset=18)
    exe = plica.compile(of, cache=False, threads=1)
    for steps, batch in ((7, 2), (1, 1), (13, 3)):
        given: dict[str, Any] = {"x": random.normal(size=(steps, batch, WIDTH)).astype(np.float32)}
        if ragged:
            longest = random.integers(1, steps + 1)  # the steps behind it are no turns
            given["lengths"] = random.integers(1, longest + 1, batch).astype(np.int32)
        for mine, theirs in zip(exe(**given), runtime(of, given), strict=True):
            assert mine.shape == theirs.shape
            np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)
    given = {name: each[:0] if name == "x" else 0 * each for name, each in given.items()}
    all_, *ends = exe(**given)  # no steps: onnxruntime has nothing to say of them
    assert all_.shape == (0, ways, batch, HIDDEN)
    assert not any(each.any() for each in ends)
    assert exe.stats.at_call == 0


def test_as_many_examples_as_there_are_states_known_from_then_on() -> None:
    """An open batch beside a state for one example is 1: axes of length 1 can be left out."""
    random = np.random.default_rng(3)
    stored = {
        name: random.normal(size=s).astype(np.float32)
        for name, s in {"w": (1, 15, WIDTH), "r": (1, 15, HIDDEN), "b": (1, 30)}.items()
    }
    nodes = [
        helper.make_node("GRU", ["x", "w", "r", "b", "", "h0"], ["", "h"], hidden_size=HIDDEN),
        helper.make_node("Squeeze", ["h"], ["y"]),
    ]
    inputs: dict[str, Any] = {"x": ("f4", ("steps", "batch", WIDTH)), "h0": ("f4", (1, 1, HIDDEN))}
    of = model(nodes, inputs, ["y"], stored, opset=18)
    exe = plica.compile(of, cache=False, threads=1, effort="fast")
    for steps in (4, 2):
        given = {
            "x": random.normal(size=(steps, 1, WIDTH)).astype(np.float32),
            "h0": random.normal(size=(1, 1, HIDDEN)).astype(np.float32),
        }
        found, (wanted,) = exe(**given), runtime(of, given)
        assert isinstance(found, np.ndarray)
        assert found.shape == wanted.shape
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    assert exe.stats.at_call == 0
    with pytest.raises(PlicaError):
        exe(np.zeros((4, 2, WIDTH), np.float32), np.zeros((1, 1, HIDDEN), np.float32))
