"""Measuring this machine: what `plica doctor --measure` finds out, and keeps in the store.

Each probe (`plica.codegen.llvm.probe`) is timed by the processor time of its thread and the least
of many short runs is taken, so that a busy machine is measured as well as an idle one; only what
all cores do together needs the clock on the wall.  Figures are rounded to powers of two and what
is half way between them, and one that is about what it was before stays as it was.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from threading import Barrier
from time import perf_counter_ns, thread_time_ns
from typing import Final

import numpy as np

from plica.codegen.llvm import probe, toolchain
from plica.codegen.machine_table import row_of
from plica.ir.loop.statement import Kernel
from plica.ir.text.script import from_text
from plica.pipeline.whole import compile_anew
from plica.runtime.artefact import aligned_array
from plica.runtime.host import cores
from plica.runtime.link import LinkedCode, link
from plica.runtime.machine import (
    MEASURED,
    CycleRates,
    MachineDescription,
    VectorWidth,
    coarse,
    settled,
)
from plica.runtime.port import Array
from plica.schedule.default.machine import LINE

PROBE_TURNS: Final = 4000
"""Turns of a probe for one sample: so few that most often no other process interrupts it."""

SAMPLES: Final = 21  # runs of which the shortest counts
ROUNDS: Final = 60
"""The same for what a core does by itself: each probe once in a round, so that what another process
does beside them for a while spoils none."""

TOGETHER: Final = 0.8
"""All cores are free if they multiply and add this many times as fast as one, for each of them."""

BESIDE: Final = 1.15
"""What others do beside a probe only ever makes it slower: so much is given back to it."""

_KINDS: Final = ("clock", "fma", "chain", "load", "store")

FASTER: Final = 1.1
"""Vectors of twice the width are used where they compute this many times as much."""

STEP: Final = 1.5  # where the time for a read grows by so much, a cache has come to its end
FAR: Final = 4  # what is far takes this many times the bytes of the second cache
REGIONS: Final = 64  # parallel regions of one call

_PROBE: Final = ctypes.CFUNCTYPE(
    ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64
)
_CHASED: Final = tuple([1 << bits for bits in range(13, 24)])

_REGION: Final = """
from __future__ import annotations
import plica
from plica.script import Buffer, block, f32, parallel

@plica.kernel
def regions(x: Buffer[({cores},), f32], y: Buffer[({cores},), f32]):
    for turn in range({turns}):
        for i in parallel({cores}):
            y[i] = x[i] + 1.0
"""


@dataclass(frozen=True, slots=True)
class MachineMeasurement:
    """A description, and what it was made from: cycles of a read that waits for the one before it,
    where a given number of bytes are read."""

    description: MachineDescription
    chased: tuple[tuple[int, float], ...]
    told: tuple[int, ...]
    """The caches that the system tells of."""
    together: bool
    """Whether all cores were free: if not, what they do together is taken to be what is usual."""


def measured(before: MachineDescription | None = None) -> MachineMeasurement:
    """What this machine is measured to be; what is about as it was `before` stays so."""
    host = toolchain.host()
    codes = {
        bits: link((toolchain.emit(probe.text(host, bits), host),))
        for bits in probe.WIDTHS
        if bits <= host.widest
    } or {host.widest: link((toolchain.emit(probe.text(host, host.widest), host),))}
    turns = _iteration_times({
        f"{kind}_{bits}": _bound(code, f"{kind}_{bits}")
        for bits, code in codes.items() for kind in _KINDS
    })  # fmt: skip
    clocks = {bits: probe.CYCLES / turns[f"clock_{bits}"] for bits in codes}
    rates = {bits: probe.WORK / turns[f"fma_{bits}"] / clocks[bits] for bits in codes}
    bits = fastest({bits: rates[bits] * clocks[bits] * bits for bits in codes})
    code, clock = codes[bits], clocks[bits]
    told = toolchain.system_caches()
    chased = tuple([(size, _chased(_bound(code, "chase"), size) * clock) for size in _CHASED])
    caches = told or steps_of(chased)
    second = caches[min(1, len(caches) - 1)] if caches else 1 << 19
    copies = _bound(code, f"copy_{bits}")
    far = FAR * second // 2
    usual, row = CycleRates(), row_of(host.architecture, host.cpu, bits).rates
    scaling = _by_all(_bound(code, f"fma_{bits}"), 10 * PROBE_TURNS, 4096) * turns[f"fma_{bits}"]
    together = cores() > 1 and scaling >= TOGETHER * cores()
    described = MachineDescription(
        MEASURED,
        bits,
        caches,
        CycleRates(
            fma=coarse(BESIDE * rates[bits]),
            latency=coarse(turns[f"chain_{bits}"] * clock / probe.CHAINED),
            loads=coarse(BESIDE * probe.WORK / turns[f"load_{bits}"] / clock),
            stores=coarse(BESIDE * probe.WORK / turns[f"store_{bits}"] / clock),
            near=coarse(_copied(copies, second // 8) / clock),
            far=coarse(_copied(copies, far) / clock),
            far_all=coarse(2 * far * _by_all(copies, 1, far) / clock)
            if together
            else usual.far_all,
            region=max(usual.region, coarse(_region() * clock)) if together else usual.region,
            issue=row.issue,
            lookup=row.lookup,
        ),
        tuple(
            [
                VectorWidth(each, coarse(BESIDE * rates[each]), _quarters(clocks[each]))
                for each in codes
            ]
        ),
    )
    return MachineMeasurement(settled(described, before), chased, told, together or cores() == 1)


def fastest(speeds: Mapping[int, float]) -> int:
    """The width of vectors to use: each step to wider ones must be worth it.

    >>> fastest({128: 10.0, 256: 20.0, 512: 21.0}), fastest({128: 10.0, 256: 20.0, 512: 36.0})
    (256, 512)
    """
    best, *wider = sorted(speeds)
    for bits in wider:
        if speeds[bits] > FASTER * speeds[best]:
            best = bits
    return best


def steps_of(chased: Sequence[tuple[int, float]]) -> tuple[int, ...]:
    """The sizes up to which reads take about as long as before: those of the caches.

    >>> steps_of([(8, 5.0), (16, 5.0), (32, 14.0), (64, 15.0), (128, 60.0)])
    (16, 64)
    """
    found, level = [], chased[0][1]
    for (size, _), (_, then) in pairwise(chased):
        if then > STEP * level:
            found.append(size)
        level = max(level, then)
    return tuple(found)


def _quarters(clock: float) -> float:
    """A clock to a quarter of a gigahertz."""
    return max(0.25, round(4 * clock) / 4)


_Probe = Callable[[int, int, int, int], int]


def _bound(code: LinkedCode, name: str) -> _Probe:
    return _PROBE(code.address(name))


def _least(run: Callable[[], object]) -> float:
    """Nanoseconds of the shortest of some runs."""
    best = float("inf")
    for _ in range(SAMPLES):
        start = thread_time_ns()
        run()
        best = min(best, thread_time_ns() - start)
    return max(best, 1.0)


def _iteration_times(probes: Mapping[str, _Probe]) -> dict[str, float]:
    """Nanoseconds of an iteration of each probe in the nearest cache, without the overhead of a
    call."""
    room = aligned_array(8192)
    place = room.ctypes.data
    found = dict.fromkeys(
        [(name, turns) for name in probes for turns in (1, PROBE_TURNS)], float("inf")
    )
    for _ in range(ROUNDS):
        for name, turns in found:
            start = thread_time_ns()
            probes[name](turns, place, place + 4096, 1)
            found[name, turns] = min(found[name, turns], thread_time_ns() - start)
    return {
        name: max(1.0, found[name, PROBE_TURNS] - found[name, 1]) / (PROBE_TURNS - 1)
        for name in probes
    }


def _copied(of: _Probe, size: int) -> float:
    """Bytes that are read and written in a nanosecond, of this many on either side."""
    target, given = _sides(size)
    turns = max(1, (1 << 20) // size)
    return 2 * size * turns / _least(lambda: of(turns, target.ctypes.data, given.ctypes.data, size))


def _sides(size: int) -> tuple[Array, Array]:
    """Memory to copy to and from, that the system has given already."""
    target, given = aligned_array(size), aligned_array(size + 4160)[4160:]
    target[:] = 1
    given[:] = 2
    return target, given


def _by_all(of: _Probe, turns: int, size: int) -> float:
    """Turns in a nanosecond by all cores at once, each in memory of its own."""
    count = cores()
    start, sides = Barrier(count), [_sides(size) for _ in range(count)]

    def run(mine: tuple[Array, Array]) -> float:
        target, given = mine
        start.wait()
        begun = perf_counter_ns()
        of(turns, target.ctypes.data, given.ctypes.data, size)
        return turns / max(1, perf_counter_ns() - begun)

    with ThreadPoolExecutor(max_workers=count) as threads:
        return max(sum(threads.map(run, sides)) for _ in range(SAMPLES))


def _chased(of: _Probe, size: int) -> float:
    """Nanoseconds of a read, where each says which of a given number of bytes is the next, in no
    order."""
    count = size // LINE
    room = aligned_array(size)
    order = np.random.default_rng(size).permutation(count)
    places = room.ctypes.data + LINE * order.astype(np.uint64)
    cells = room.view(np.uint64)
    cells[order * (LINE // 8)] = np.roll(places, -1)
    starts = iter([int(places[at * count // SAMPLES]) for at in range(SAMPLES)])
    of(count, 0, int(places[0]), 1)  # all of it has been read once
    return _least(lambda: of(PROBE_TURNS, 0, next(starts), 1)) / PROBE_TURNS


def _region() -> float:
    """Nanoseconds of a parallel region that does next to nothing."""
    text = _REGION.format(cores=cores(), turns=REGIONS)
    (kernel,) = from_text(text).values
    assert isinstance(kernel, Kernel)
    executable = compile_anew(kernel, threads=cores(), cache=False)
    given = np.zeros(cores(), np.float32)
    taken = []
    for _ in range(SAMPLES):
        start = perf_counter_ns()
        executable(given)
        taken.append(perf_counter_ns() - start)
    return sorted(taken)[SAMPLES // 2] / REGIONS  # one that nobody shared would be the shortest
