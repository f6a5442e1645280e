"""Peers: other systems run the same files and give the same numbers."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, strategies as st
from onnx import TensorProto, helper

from plica.bench.peer import PEERS, PeerOptions, difference, why_missing
from plica.ir.interpret.interpreter import interpret
from plica.runtime.error import UnsupportedError
from tests.frontend.zoo.small import SMALL, input_of
from tests.frontend.zoo.test_export import exported


@cache
def meant(name: str) -> tuple[Any, Any]:
    """An input of a network, and what it computes of it: the same for all peers."""
    network = SMALL[name]()
    x = input_of(network)
    return x, interpret(network, x)


def saved(name: str, folder: Path) -> Path:
    path = folder / f"{name}.onnx"
    onnx.save(exported(name, SMALL[name]()), path)
    return path


@pytest.mark.parametrize("peer", ["onnxruntime", "openvino", "torch"])
@pytest.mark.parametrize("name", ["dqn", "mobilenet_v2", "transformer", "dcgan", "lstm_lm"])
def test_a_peer_computes_what_the_network_means(peer: str, name: str, tmp_path: Path) -> None:
    absent = why_missing(PEERS[peer])
    if absent is not None:
        pytest.skip(absent)
    x, expected = meant(name)
    run = PEERS[peer].prepare(saved(name, tmp_path), [x], PeerOptions())
    assert difference(list(run()), [expected]) < 2e-5


def test_plica_is_a_peer_like_any_other(tmp_path: Path) -> None:
    network = SMALL["mlp"]()
    x = input_of(network)
    run = PEERS["plica"].prepare(saved("mlp", tmp_path), [x], PeerOptions(contract="exact"))
    assert difference(list(run()), [interpret(network, x)]) < 1e-6


def test_torch_lists_all_that_it_has_no_row_for(tmp_path: Path) -> None:
    absent = why_missing(PEERS["torch"])
    if absent is not None:
        pytest.skip(absent)
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [3]) for name in "xy")
    nodes = [helper.make_node("Mish", ["x"], ["a"]), helper.make_node("Selu", ["a"], ["y"])]
    onnx.save(helper.make_model(helper.make_graph(nodes, "g", [x], [y])), tmp_path / "m.onnx")
    with pytest.raises(UnsupportedError, match="Mish, Selu"):
        PEERS["torch"].prepare(tmp_path / "m.onnx", [np.ones(3, np.float32)], PeerOptions())


@given(st.lists(st.floats(-1e3, 1e3, width=32), min_size=1), st.floats(0, 1e-2))
def test_difference_is_relative_to_the_greatest_number(values: list[float], by: float) -> None:
    array = np.asarray(values)
    most = np.abs(array).max()
    assert difference([array], [array]) == 0
    if most > 1e-3:
        assert difference([array + by * most], [array]) == pytest.approx(by, abs=1e-9)


def test_another_shape_is_infinitely_far() -> None:
    assert difference([np.ones(2)], [np.ones(3)]) == float("inf")
    assert difference([np.ones((0, 2))], [np.ones((0, 2))]) == 0


def test_nan_and_infinity_agree_only_with_themselves() -> None:
    nan, inf = float("nan"), float("inf")
    strange = [nan, inf, -inf, 1.0]
    for mine in strange:
        for theirs in strange:
            same = repr(mine) == repr(theirs)
            found = difference([np.array([mine, 2.0])], [np.array([theirs, 2.0])])
            assert found == (0.0 if same else inf), (mine, theirs)
    beside = difference([np.array([5.0, inf])], [np.array([1.0, inf])])
    assert beside == 4.0  # what is finite is compared all the same


def test_another_number_of_outputs_is_infinitely_far() -> None:
    one = np.ones(2)
    assert difference([one], [one, one]) == float("inf")
    assert difference([], []) == 0
