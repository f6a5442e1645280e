"""A driver for a GPU that is not there: its memory is that of the processor.

Launches run the text of an artefact as C++ (`plica.runtime.emulator.gpu`).  Streams do at once what
they are asked; a capture notes calls and what they wait for, and a graph repeats them, of those
that wait for nothing any more always the one that was noted last.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

from plica.runtime.artefact import Artefact
from plica.runtime.cuda import driver
from plica.runtime.cuda.step import DeviceLaunch
from plica.runtime.emulator.gpu import launch, loaded

FREE = 1 << 24


@lru_cache(maxsize=4)
def _library(text: str, functions: tuple[str, ...]) -> ctypes.CDLL:
    return loaded(text, functions)


class FakeDriver:
    """What the runtime asks of libcuda, by name; a result that is not 0 is a failure."""

    def __init__(self, major: int = 9, minor: int = 0) -> None:
        self.attributes = {driver.MAJOR: major, driver.MINOR: minor, driver.MULTIPROCESSORS: 4}
        self.rooms: dict[int, Any] = {}
        self.names: list[str] = []
        self.code: ctypes.CDLL | None = None
        self.noted: list[Callable[[], int]] | None = None
        self.graphs: list[list[Callable[[], int]]] = []
        self.waits: list[tuple[int, ...]] = []
        self.next: tuple[int, ...] = ()
        self.asked: list[str] = []
        self.fails: dict[str, int] = {}
        self.gathered = 0

    def __getattr__(self, name: str) -> Callable[..., int]:
        if not name.startswith("cu"):
            raise AttributeError(name)

        def call(*args: Any) -> int:
            self.asked.append(name)
            if name in self.fails:
                return self.fails[name]
            return int(getattr(self, "_" + name, self._nothing)(*args) or 0)

        return call

    def runs(self, artefact: Artefact) -> None:
        """Make the functions of an artefact known."""
        assert artefact.device is not None
        self.code = _library(artefact.text, tuple(artefact.device.functions))

    def _nothing(self, *args: Any) -> int:
        return 0

    def _cuGetErrorName(self, status: int, into: Any) -> None:
        into._obj.value = f"ERROR_{status}".encode()

    def _cuGetErrorString(self, status: int, into: Any) -> None:
        into._obj.value = b"as asked for"

    def _cuDeviceGetAttribute(self, into: Any, number: int, device: int) -> None:
        into._obj.value = self.attributes[number]

    def _cuMemGetInfo_v2(self, free: Any, total: Any) -> None:
        free._obj.value = total._obj.value = FREE

    def _cuMemAlloc_v2(self, into: Any, size: Any) -> int:
        if size.value > FREE:
            return driver.OUT_OF_MEMORY
        room = np.full(size.value + 512, 0xFF, np.uint8)
        at = -(-room.ctypes.data // 256) * 256
        self.rooms[at] = room
        into._obj.value = at
        return 0

    def _cuMemFree_v2(self, address: Any) -> None:
        del self.rooms[address.value]

    def _cuModuleGetFunction(self, into: Any, module: Any, name: bytes) -> None:
        self.names.append(name.decode())
        into._obj.value = len(self.names)

    def _cuStreamCreate(self, into: Any, flags: int) -> None:
        into._obj.value = 0x1000

    def _copy(self, to: Any, of: Any, size: Any, stream: Any) -> int:
        return self._do(lambda: ctypes.memmove(to.value, of.value, size.value) and 0)

    _cuMemcpyHtoDAsync_v2 = _cuMemcpyDtoHAsync_v2 = _cuMemcpyDtoDAsync_v2 = _copy

    def _cuLaunchKernel(self, function: Any, *rest: Any) -> int:
        name, places = self.names[function.value - 1], rest[-2]
        count = len(places)
        values = [ctypes.c_void_p.from_address(places[n]).value for n in range(count)]

        def work() -> int:
            if name == "gather":
                self.gathered += 1
                return 0
            assert self.code is not None
            shape = DeviceLaunch(name, rest[:3], rest[3:6], 0, ())
            launch(self.code, shape, values, list(self.rooms.values()))
            return 0

        return self._do(work)

    def _cuStreamBeginCapture_v2(self, stream: Any, mode: int) -> None:
        self.noted, self.waits, self.next = [], [], ()

    def _cuStreamUpdateCaptureDependencies(
        self, stream: Any, nodes: Any, count: Any, flags: int
    ) -> None:
        self.next = tuple([nodes[n] for n in range(count.value)])

    def _cuStreamGetCaptureInfo_v2(self, *args: Any) -> None:
        self.held = (ctypes.c_void_p * len(self.next))(*self.next)
        ctypes.memmove(args[4], ctypes.byref(ctypes.pointer(self.held)), 8)
        args[5]._obj.value = len(self.next)

    def _cuStreamEndCapture(self, stream: Any, into: Any) -> None:
        assert self.noted is not None
        waits, ready, left = self.waits, [], dict(enumerate(self.noted, 1))
        while left:
            one = max(n for n in left if left.keys().isdisjoint(waits[n - 1]))
            ready.append(left.pop(one))
        self.graphs.append(ready)
        self.noted = None
        into._obj.value = len(self.graphs)

    def _cuGraphInstantiateWithFlags(self, into: Any, graph: Any, flags: Any) -> None:
        into._obj.value = graph.value

    def _cuGraphLaunch(self, graph: Any, stream: Any) -> None:
        for each in self.graphs[graph.value - 1]:
            each()

    def _cuEventElapsedTime(self, into: Any, one: Any, two: Any) -> None:
        into._obj.value = 2.0

    def _do(self, work: Callable[[], int]) -> int:
        if self.noted is None:
            return work()
        self.noted.append(work)
        self.waits.append(self.next)
        self.next = (len(self.noted),)
        return 0


def plugged(patch: pytest.MonkeyPatch, fake: FakeDriver) -> FakeDriver:
    """Let this process have a GPU for the length of a test."""
    patch.setattr(driver, "_driver", lambda: fake)
    patch.setattr(driver, "_known", {})
    return fake
