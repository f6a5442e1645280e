"""Profiles: every launch is noted, and notes end when the profile does."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from plica.ir.text.script import from_text
from plica.pipeline import compile
from plica.runtime.error import InputError
from plica.runtime.link import can_link
from plica.runtime.load import load
from plica.runtime.profile import Profile, ProfileRow
from tests.runtime.model import inputs, model

pytestmark = pytest.mark.skipif(not can_link(), reason="objects are not loaded here")


def test_every_launch_is_noted(tmp_path: Path) -> None:
    model().save(tmp_path / "m.plica")
    for exe in (model(), load(tmp_path / "m.plica")):
        found = exe.profile(*inputs(), runs=3)
        assert [row.calls for row in found.rows] == [3] * len(exe.artefact.launches)
        assert all(row.seconds >= 0 for row in found.rows)
        assert sum(row.seconds for row in found.rows) <= found.seconds
        assert str(replace(found, warning="")).count("\n") == len(found.rows) + 1
        assert all(row.least <= row.median and row.spread >= 0 for row in found.rows)
        assert all(len(row.times) == 3 for row in found.rows)
        json.dumps(found.to_data())
        again = exe.profile(*inputs(), runs=1, peak=100.0, bandwidth=10.0)
        assert "   roof" in str(replace(again, warning=""))
        assert found.peak is not None
        assert found.peak > 0  # measured, by the code itself
        assert all(0 <= (found.roofline(row) or 0.0) <= 1 for row in found.rows)
        assert [row.calls for row in again.rows] == [1] * len(found.rows)


def test_segments_of_a_program_are_noted() -> None:
    node = helper.make_node("NonZero", ["x"], ["y"])
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])
    y = helper.make_tensor_value_info("y", TensorProto.INT64, None)
    exe = compile(helper.make_model(helper.make_graph([node], "g", [x], [y])))
    assert "Staged" in repr(exe)
    found = exe.profile(np.ones(5, np.float32), runs=2)
    assert all(row.calls == 2 for row in found.rows)
    assert sum(row.seconds for row in found.rows) <= found.seconds


@pytest.mark.parametrize("runs", [0, -1, 1.5])
def test_a_profile_of_no_run_is_refused(runs: int) -> None:
    with pytest.raises(InputError, match="one run at least"):
        model().profile(*inputs(), runs=runs)


def test_operations_and_bytes_are_counted() -> None:
    text = """
import plica
from plica import op

@plica.function
def main(x: Tensor[(8, 16), f32], w: Tensor[(16, 4), f32]) -> Tensor[(8, 4), f32]:
    return op.matmul(x, w)
"""
    exe = compile(from_text(text), cache=False)
    (launched,) = exe.artefact.launches
    assert 2 * 8 * 16 * 4 <= launched.operations <= 3 * 8 * 16 * 4
    assert launched.bytes == 4 * (8 * 16 + 16 * 4 + 8 * 4)
    (row,) = exe.profile(np.ones((8, 16), np.float32), np.ones((16, 4), np.float32)).rows
    assert row.calls == 10


def test_one_interruption_spoils_nothing() -> None:
    times = (1e-3, 1e-3, 1e-3, 1e-3, 9e-1)
    row = ProfileRow("k0", 5, sum(times), 10**6, 0, times)
    other = ProfileRow("k1", 5, 5 * 3e-3, 10**6, 0, (3e-3,) * 5)
    found = Profile((row, other), 5, 1.0, peak=2.0, times=(4e-3,) * 5)
    assert (row.median, row.least, row.gflops) == (1e-3, 1e-3, 1.0)
    assert [line.split()[0] for line in str(found).splitlines()] == ["kernel", "k1", "k0", "total"]
    assert "75%" in str(found).splitlines()[1]


def test_no_launch_is_above_the_roof() -> None:
    row = ProfileRow("k0", 1, 1e-9, 10**6, 10**6, (1e-9,))
    assert Profile((row,), 1, 1.0, peak=1.0, bandwidth=1.0).roofline(row) == 1.0


def test_a_busy_machine_has_no_roof() -> None:
    row = ProfileRow("k0", 1, 1e-3, 10**6, 10**6, (1e-3,))
    quiet = Profile((row,), 1, 1.0, peak=1.0, bandwidth=1.0)
    busy = replace(quiet, warning="The machine is busy.")
    assert quiet.roofline(row) is not None
    assert busy.roofline(row) is None
    assert "roof" in str(quiet)
    assert "roof" not in str(busy)


def test_where_sizes_are_open_no_speed_is_made_up() -> None:
    row = ProfileRow("k", 1, 1e-3, 0, 0)
    found = Profile((row,), 1, 1e-3, peak=1.0, bandwidth=1.0)
    assert found.roofline(row) is None
    assert re.search(r"100%        -      -$", str(found), re.MULTILINE)
    many = from_text("""
@plica.function
def main(x: Tensor[("n", 4), f32]) -> Tensor[("n", 4), f32]:
    return op.exp(x) + 1.0
""")
    run, x = compile(many, cache=False), np.ones((3, 4), np.float32)
    assert not any(each.counted for each in run.profile(x, runs=1).rows)
    assert all(each.counted for each in run.at(x).profile(x, runs=1).rows)
