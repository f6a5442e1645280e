"""Prepared launches: addresses that change, scratch, numbers, copies and maps of tensors."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from plica.runtime.cuda.driver import device
from plica.runtime.cuda.prepared import PreparedSteps
from plica.runtime.cuda.step import DeviceCopy, DeviceLaunch, DeviceProgram, arranged
from plica.runtime.cuda.tile import TileMap
from tests.runtime.cuda.fake import FakeDriver, plugged


class Noting(FakeDriver):
    """A driver that notes what launches are given."""

    def __init__(self) -> None:
        super().__init__()
        self.launched: list[list[int | None]] = []
        self.encoded: list[int | None] = []

    def _cuLaunchKernel(self, function: Any, *rest: Any) -> int:
        places = rest[-2]
        values = [ctypes.c_void_p.from_address(places[n]).value for n in range(len(places))]
        self.launched.append(values)
        return 0

    def _cuTensorMapEncodeTiled(self, *asked: Any) -> int:
        self.encoded.append(asked[3].value)
        ctypes.c_uint64.from_address(asked[0].value).value = 1 + asked[3].value
        return 0


def test_a_call_changes_addresses_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = plugged(monkeypatch, Noting())
    assert isinstance(gpu, Noting)
    tile = TileMap(0, 2, (64, 8), (128,), (64, 8))
    layout = arranged([16, 16, 16], ["input", "temporary", "output"], {1: 0}, 16, [32])
    first = DeviceLaunch("k", (1, 1, 1), (32, 1, 1), 0, (0, 1), 1, (tile,), (5,))
    second = DeviceLaunch("k", (1, 1, 1), (32, 1, 1), 0, (1, 2))
    program = DeviceProgram((first, second), layout)
    functions = {"k": ctypes.c_void_p(1)}
    steps = PreparedSteps(device(), program, functions, [1000, 2000, 3000], 50_000)
    scratch = 50_000 + layout.scratch[0]
    for source, target, encoded in ((400, 500, [400]), (400, 600, [400]), (704, 600, [400, 704])):
        gpu.launched.clear()
        steps.place([source, target])
        steps.put_all(7)
        assert gpu.launched[0] == [source, 2000, scratch, 5, 1 + source]
        assert gpu.launched[1] == [2000, target]
        assert gpu.encoded == encoded


def test_bytes_are_copied_from_where_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    plugged(monkeypatch, FakeDriver())
    layout = arranged([8, 8], ["input", "output"], {}, 0, [])
    steps = PreparedSteps(device(), DeviceProgram((DeviceCopy(0, 1, 8),), layout), {}, [0, 0], 0)
    for turn in range(2):
        given, made = np.arange(turn, turn + 8, dtype=np.uint8), np.zeros(8, np.uint8)
        steps.place([given.ctypes.data, made.ctypes.data])
        steps.put(0, 7)
        np.testing.assert_array_equal(made, given)
