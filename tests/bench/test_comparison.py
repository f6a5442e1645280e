"""Comparisons: each system in its own process; those that cannot be timed are named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import onnx
import pytest

from plica.bench import PeerOptions, compare_systems
from plica.bench.peer import PEERS, Peer
from plica.frontend.onnx.writer import to_onnx
from tests.frontend.zoo.small import SMALL, input_of


@pytest.fixture
def model(tmp_path: Path) -> Path:
    onnx.save(to_onnx(SMALL["mlp"]()), tmp_path / "mlp.onnx")
    return tmp_path / "mlp.onnx"


def test_two_systems_take_turns_and_one_that_is_not_installed_is_named(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(PEERS, "torch", Peer("no_such_package", PEERS["torch"].prepare))
    said: list[str] = []
    found = compare_systems(
        model,
        [input_of(SMALL["mlp"]())],
        ["torch", "onnxruntime"],
        how=PeerOptions(threads=1, contract="fused"),
        rounds=2,
        seconds=0.0,
        progress=said.append,
    )
    assert [each.name for each in found.timings] == ["plica", "onnxruntime"]
    (absent,) = found.absent
    assert (absent.name, absent.reason) == (
        "torch",
        "The package no_such_package is not installed.",
    )
    assert all(len(each.times) == 2 for each in found.timings)
    ours = found.find("plica")
    assert ours is not None
    assert ours.difference < 1e-5
    assert found.best is found.find("onnxruntime")
    assert said[-1] == "onnxruntime: round 2 of 2"
    assert replace(found, timings=(ours,)).best is None


def test_a_system_that_fails_is_named_with_its_last_words(tmp_path: Path) -> None:
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"this is no model")
    found = compare_systems(broken, [], ["onnxruntime"], rounds=1, seconds=0.0)
    assert not found.timings
    assert [each.name for each in found.absent] == ["plica", "onnxruntime"]
    assert all(each.reason for each in found.absent)
