"""Profiles: where the time of a call goes, launch by launch.

>>> rows = (ProfileRow("k0_dense", 2, 3e-3, 1_000_000, 4_000), ProfileRow("k1_relu", 2, 1e-3, 0,
...     8_000))
>>> print(Profile(rows, 2, 4e-3, peak=10.0))
kernel    calls  us/call  share  GFLOP/s   GB/s   peak
k0_dense      1   1500.0    75%     0.67   0.00   6.7%
k1_relu       1    500.0    25%     0.00   0.02   0.0%
total             2000.0   100%

Times are those of whole launches, the threads of the pool included.  The code notes them itself:
no other thread should call the same executable meanwhile, or its launches are counted here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from time import perf_counter_ns
from typing import Final, TypeAlias

import numpy as np

USE: Final = "plica_profile_use"

PEAK: Final = "plica_peak"
"""A function that does so many operations as fast as one core can (`plica.codegen.llvm.peak`)."""

Speeds: TypeAlias = tuple[tuple[int, float], ...]
"""GB/s for so many bytes, from the fewest on."""

_TURNS: Final = 40_000
_TRIES: Final = 7
_COPIED: Final = (1 << 20, 1 << 22, 1 << 24, 1 << 26)


@dataclass(frozen=True, slots=True)
class Launched:
    """A launch in the code: its kernel, and how many operations and bytes one run of it takes."""

    kernel: str
    operations: int
    bytes: int


@dataclass(frozen=True, slots=True)
class ProfileRow:
    """A launch in all runs together: how often it came, and the seconds it took."""

    kernel: str
    calls: int
    seconds: float
    operations: int
    bytes: int

    @property
    def gflops(self) -> float:
        """Operations on floats, 10^9 a second."""
        return self.operations * self.calls / self.seconds / 1e9 if self.seconds else 0.0

    @property
    def gbytes(self) -> float:
        """Bytes read and written, 10^9 a second."""
        return self.bytes * self.calls / self.seconds / 1e9 if self.seconds else 0.0


@dataclass(frozen=True, slots=True)
class Profile:
    """The launches of a model over some runs, in the order of the code.

    `peak` (GFLOP/s) and `bandwidth` (GB/s, or one for each size of what is moved) are what the
    machine can do, where they are known.
    """

    rows: tuple[ProfileRow, ...]
    runs: int
    seconds: float
    peak: float | None = None
    bandwidth: float | Speeds | None = None

    def roofline(self, row: ProfileRow) -> float | None:
        """Which part of what the machine could do at best the launch did, None if not known."""
        if self.peak is None and self.bandwidth is None:
            return None
        least = 0.0
        if self.peak:
            least = row.operations / (self.peak * 1e9)
        if self.bandwidth:
            least = max(least, row.bytes / (_speed(self.bandwidth, row.bytes) * 1e9))
        return least * row.calls / row.seconds if row.seconds else 0.0

    def to_data(self) -> dict[str, object]:
        """The profile as JSON holds it."""
        return asdict(self)

    def __str__(self) -> str:
        width = max([6, *(len(row.kernel) for row in self.rows)])
        known = self.peak is not None or self.bandwidth is not None
        head = f"{'kernel':{width}}  calls  us/call  share  GFLOP/s   GB/s"
        lines = [head + ("   peak" if known else "")]
        whole = sum(row.seconds for row in self.rows)
        for row in self.rows:
            each = row.seconds / self.runs * 1e6
            share = row.seconds / whole if whole else 0.0
            line = f"{row.kernel:{width}}  {row.calls / self.runs:5.3g}  {each:7.1f}  {share:5.0%}"
            line += f"  {row.gflops:7.2f}  {row.gbytes:5.2f}"
            roof = self.roofline(row)
            lines.append(line if roof is None else f"{line}  {roof:5.1%}")
        lines.append(f"{'total':{width}}  {'':5}  {self.seconds / self.runs * 1e6:7.1f}   100%")
        return "\n".join(lines)


def _speed(speeds: float | Speeds, size: int) -> float:
    """The GB/s at which so many bytes are moved."""
    if not isinstance(speeds, tuple):
        return speeds
    return next((speed for most, speed in speeds if size <= most), speeds[-1][1])


def measured_peak(run: Callable[[int], int], threads: int) -> float:
    """GFLOP/s of so many cores, by the function `PEAK` on one."""
    best = 0.0
    for _ in range(_TRIES):
        start = perf_counter_ns()
        done = run(_TURNS)
        best = max(best, done / max(1, perf_counter_ns() - start))
    return best * threads


def measured_speeds() -> Speeds:
    """GB/s of copies within caches and outside of them."""
    found = []
    for size in _COPIED:
        given = np.ones(size // 2, np.uint8)
        target = np.empty_like(given)
        best = 0.0
        for _ in range(_TRIES):
            start = perf_counter_ns()
            np.copyto(target, given)
            best = max(best, size / max(1, perf_counter_ns() - start))
        found.append((size, best))
    return tuple(found)
