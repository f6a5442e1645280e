"""Device time: runs are queued behind a device that is busy, and sides take turns."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.device_time import (
    BUSY_CYCLES,
    UNTIMED,
    DeviceTime,
    in_turns,
    keep_busy,
    of_executable,
    of_graph,
)

torch = pytest.importorskip("torch")


class Queue(list[str]):
    """What torch is asked to put on a GPU, in order."""

    def plugged(self, patch: pytest.MonkeyPatch) -> None:
        """Let torch put its work here for the length of a test."""

        class Stream(nullcontext[None]):
            def wait_stream(self, other: Any) -> None:
                pass

        def external(handle: int) -> Stream:
            self.append(f"stream {handle}")
            return Stream()

        def sleep(cycles: int) -> None:
            self.append(f"sleep {cycles}")

        def event(enable_timing: bool) -> Any:
            assert enable_timing
            return SimpleNamespace(
                record=lambda: self.append("event"), elapsed_time=lambda other: 2.0
            )

        for name, fake in {
            "Stream": Stream, "ExternalStream": external, "current_stream": Stream,
            "stream": lambda of: of, "graph": lambda of: nullcontext(), "Event": event,
            "CUDAGraph": lambda: SimpleNamespace(replay=lambda: self.append("graph")),
            "_sleep": sleep, "synchronize": lambda: self.append("wait"),
        }.items():  # fmt: skip
            patch.setattr(torch.cuda, name, fake)


def test_a_graph_is_queued_while_the_device_is_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    queue = Queue()
    queue.plugged(monkeypatch)
    timer = of_graph(lambda: queue.append("call"))
    assert queue == ["call"] * (UNTIMED + 1)
    queue.clear()
    assert timer(2) == [2e-3, 2e-3]
    once = [f"sleep {BUSY_CYCLES}", "event", "graph", "event", "wait"]
    assert queue == once * (UNTIMED + 2)


def test_an_executable_is_asked_to_do_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    queue = Queue()
    queue.plugged(monkeypatch)

    class Compiled:
        def seconds(self, *given: int, runs: int, before: Any) -> list[float]:
            before(7)
            return [float(sum(given))] * runs

    assert of_executable(Compiled(), 1, 2)(4) == [3.0] * 4
    keep_busy(8)
    assert queue == ["stream 7", f"sleep {BUSY_CYCLES}", "stream 8", f"sleep {BUSY_CYCLES}"]


def test_sides_take_turns() -> None:
    order: list[str] = []

    def timer(name: str, first: float) -> Any:
        def seconds(runs: int) -> list[float]:
            order.append(name)
            return [first + len(order) + each for each in range(runs)]

        return seconds

    found = in_turns({"a": timer("a", 0.0), "b": timer("b", 10.0)}, rounds=2, runs=3)
    assert order == ["a", "b", "a", "b"]
    assert found == {"a": DeviceTime(3.0, 1.0), "b": DeviceTime(14.0, 12.0)}
