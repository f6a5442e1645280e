"""Device time: how long a GPU works on something, without what the host takes to launch it.

    timers = {"plica": of_executable(exe, x), "torch": of_graph(lambda: network(x))}
    times = in_turns(timers, rounds=3, runs=10)
    times["torch"].median / times["plica"].median

Events around one launch on an idle device also hold the way from the host to the device, which is
longer than a small kernel.  So each run of either side is queued behind a kernel that only waits:
when that ends, the first event, the CUDA graph and the second event are all there already.

Both sides are CUDA graphs on the same arrays, and their runs begin with the caches as the run
before left them; the first `UNTIMED` of each turn are not counted.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

BUSY_CYCLES = 1_000_000
"""How long the device waits before a run: half a millisecond at 2 GHz, in which a host launches
graphs of hundreds of kernels."""
UNTIMED = 3
"""Runs at the beginning of a turn that only warm up, as `seconds` of an executable has them."""

Timer: TypeAlias = "Callable[[int], list[float]]"
"""Seconds of each of a given number of runs."""


@dataclass(frozen=True)
class DeviceTime:
    """Seconds of a run: the median of all turns, and the least."""

    median: float
    least: float


def keep_busy(stream: int) -> None:
    """Let a stream wait, by its handle, while what comes next is launched."""
    import torch

    with torch.cuda.stream(torch.cuda.ExternalStream(stream)):  # type: ignore[no-untyped-call]  # torch's
        torch.cuda._sleep(BUSY_CYCLES)  # type: ignore[no-untyped-call]  # torch's


def of_executable(exe: Any, *given: Any) -> Timer:
    """A compiled model on a GPU, which has a graph of its own."""

    def seconds(runs: int) -> list[float]:
        found: list[float] = exe.seconds(*given, runs=runs, before=keep_busy)
        return found

    return seconds


def of_graph(call: Callable[[], Any]) -> Timer:
    """What a call of torch puts on a GPU, captured as a CUDA graph."""
    import torch

    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]  # torch's
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(UNTIMED):
            call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return of_launches(graph.replay)


def of_launches(call: Callable[[], Any]) -> Timer:
    """What a call of torch puts on a GPU, launch by launch."""
    import torch

    def once() -> float:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]  # torch's
        torch.cuda._sleep(BUSY_CYCLES)  # type: ignore[no-untyped-call]  # torch's
        begin.record()
        call()
        end.record()
        torch.cuda.synchronize()
        return float(begin.elapsed_time(end)) / 1e3

    return lambda runs: [once() for _ in range(UNTIMED + runs)][UNTIMED:]


def in_turns(timers: Mapping[str, Timer], rounds: int, runs: int) -> dict[str, DeviceTime]:
    """All timers one after another, a given number of runs each, and that a given number of
    times."""
    times: dict[str, list[float]] = {name: [] for name in timers}
    for _ in range(rounds):
        for name, timer in timers.items():
            times[name] += timer(runs)
    return {name: DeviceTime(statistics.median(each), min(each)) for name, each in times.items()}
