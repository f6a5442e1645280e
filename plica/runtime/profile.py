"""Profiles: the time of a call, by launch.

>>> rows = (ProfileRow("dense_3f1b", 2, 3e-3, 1_000_000, 4_000), ProfileRow("relu_07c2", 2, 1e-3, 0,
...     8_000))
>>> print(Profile(rows, 2, 4e-3, peak=10.0))
kernel      calls  median us  least us  spread  share  GFLOP/s   GB/s   roof
dense_3f1b      1     1500.0    1500.0      0%    75%     0.67   0.00   6.7%
relu_07c2       1      500.0     500.0      0%    25%     0.00   0.02   0.0%
total                 2000.0    2000.0      0%   100%

Sorted by time. Rates and shares are based on the median of the runs, which ignores outliers; the
roofline on the best. Times are those of whole launches, including thread pool overhead. The code
records them itself: other threads must not call the same executable meanwhile, or their launches
are included.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from threading import Lock
from time import monotonic_ns, thread_time_ns
from typing import Final, TypeAlias

import numpy as np

from plica.runtime.artefact import NotedCode
from plica.runtime.error import Diagnostic, InputError
from plica.runtime.late import lazy_imports
from plica.runtime.port import Array, address_of

with lazy_imports(__name__):
    from plica.runtime.notebook import preformatted, table
    from plica.runtime.timing import busy, load, median, spread_of

Speeds: TypeAlias = tuple[tuple[int, float], ...]  # GB/s for this many bytes, from the fewest on

_PROFILING: Final = Lock()
_TURNS: Final = 40_000
_TRIES: Final = 7
_COPIED: Final = (1 << 15, 1 << 18, 1 << 20, 1 << 22, 1 << 24, 1 << 26)


@dataclass(frozen=True, slots=True)
class ProfileRow:
    """A launch: how often it came in all runs, the seconds it took in all of them together, and
    in each one."""

    kernel: str
    calls: int
    seconds: float
    operations: int
    bytes: int
    times: tuple[float, ...] = ()

    @property
    def runs(self) -> tuple[float, ...]:
        """The seconds of each run; where only their sum is known, of one call for each."""
        return self.times or ((self.seconds / self.calls,) if self.calls else (0.0,))

    @property
    def median(self) -> float:
        """The seconds it took in the run in the middle."""
        return median(self.runs)

    @property
    def least(self) -> float:
        """The seconds it took in the best run."""
        return min(self.runs)

    @property
    def spread(self) -> float:
        """How far the middle half of the runs is spread, as a part of the median."""
        return spread_of(self.runs)

    @property
    def each(self) -> float:
        """Launches per run."""
        return self.calls / len(self.times) if self.times else 1.0

    @property
    def counted(self) -> bool:
        """Whether the amount of work is known; not for open sizes."""
        return bool(self.operations or self.bytes)

    @property
    def speeds(self) -> tuple[str, str]:
        """GFLOP/s and GB/s as displayed."""
        return (f"{self.gflops:.2f}", f"{self.gbytes:.2f}") if self.counted else ("-", "-")

    @property
    def gflops(self) -> float:
        """Operations on floats, 10^9 a second."""
        return self.operations * self.each / self.median / 1e9 if self.median else 0.0

    @property
    def gbytes(self) -> float:
        """Bytes read and written, 10^9 a second."""
        return self.bytes * self.each / self.median / 1e9 if self.median else 0.0


@dataclass(frozen=True, slots=True)
class Profile:
    """The launches of a model over some runs, in the order of the code.

    `peak` (GFLOP/s) and `bandwidth` (GB/s, or one value per size of data) are the machine's limits,
    if known.
    """

    rows: tuple[ProfileRow, ...]
    runs: int
    seconds: float
    peak: float | None = None
    bandwidth: float | Speeds | None = None
    times: tuple[float, ...] = ()  # the seconds of each run
    warning: str = ""  # why the times are not to be trusted, where something is known

    def roofline(self, row: ProfileRow) -> float | None:
        """The fraction of the machine's limit that the launch reached, or None if unknown: on a
        busy machine the measured limits are too low.

        It is 1 at most: a launch that did more than was measured of the machine is at its roof.
        """
        if (self.peak is None and self.bandwidth is None) or not row.counted or self.warning:
            return None
        least = 0.0
        if self.peak:
            least = row.operations / (self.peak * 1e9)
        if self.bandwidth:
            least = max(least, row.bytes / (_speed(self.bandwidth, row.bytes) * 1e9))
        return min(1.0, least * row.each / row.least) if row.least else 0.0

    def to_data(self) -> dict[str, object]:
        """The profile as JSON data."""
        return asdict(self)

    def _repr_html_(self) -> str:
        """The launches as a table, slowest first, as a notebook shows them."""
        times_of = ("median µs", "least µs", "spread", "share")
        head = ["kernel", "calls", *times_of, "GFLOP/s", "GB/s", "roof"]
        whole = sum(row.median for row in self.rows) or 1.0
        rows = []
        for row in sorted(self.rows, key=lambda row: -row.median):
            roof = self.roofline(row)
            times = [f"{row.median * 1e6:.1f}", f"{row.least * 1e6:.1f}", f"{row.spread:.0%}"]
            speeds = [f"{row.median / whole:.0%}", *row.speeds]
            share = "" if roof is None else f"{roof:.1%}"
            rows.append([row.kernel, f"{row.calls / self.runs:.3g}", *times, *speeds, share])
        return table(head, rows) + (preformatted(self.warning) if self.warning else "")

    def __str__(self) -> str:
        width = max([6, *(len(row.kernel) for row in self.rows)])
        known = (self.peak is not None or self.bandwidth is not None) and not self.warning
        head = f"{'kernel':{width}}  calls  median us  least us  spread  share  GFLOP/s   GB/s"
        lines = [head + ("   roof" if known else "")]
        whole = sum(row.median for row in self.rows)
        for row in sorted(self.rows, key=lambda row: -row.median):
            share = row.median / whole if whole else 0.0
            line = f"{row.kernel:{width}}  {row.calls / self.runs:5.3g}  {_times(row.runs)}"
            done, moved = row.speeds
            line += f"  {share:5.0%}  {done:>7}  {moved:>5}"
            roof = self.roofline(row)
            lines.append(line if roof is None else f"{line}  {roof:5.1%}")
        every = self.times or (self.seconds / self.runs,)
        lines.append(f"{'total':{width}}  {'':5}  {_times(every)}   100%")
        return "\n".join([*lines, *([self.warning] if self.warning else [])])


def _times(runs: tuple[float, ...]) -> str:
    return f"{median(runs) * 1e6:9.1f}  {min(runs) * 1e6:8.1f}  {spread_of(runs):6.0%}"


def _speed(speeds: float | Speeds, size: int) -> float:
    """The GB/s at which a given number of bytes are moved."""
    if not isinstance(speeds, tuple):
        return speeds
    return next((speed for most, speed in speeds if size <= most), speeds[-1][1])


def check_runs(runs: object) -> None:
    """Refuse a profile of no run."""
    if type(runs) is not int or runs < 1:
        message = "A profile is of one run at least."
        raise InputError(Diagnostic("input-type", message, None, "1 or more", repr(runs)))


def noted_profile(call: Callable[[], object], parts: Sequence[NotedCode], runs: int) -> Profile:
    """The launches of some codes in a given number of calls, after one that is not counted."""
    notes = [np.zeros(1 + 2 * len(launches), np.int64) for launches, _ in parts]
    noted: list[list[Array]] = []
    whole = []
    with _PROFILING:
        call()
        before = load()
        for (_, note), times in zip(parts, notes, strict=True):
            note(address_of(times))
        try:
            for _ in range(runs):
                for times in notes:
                    times[:] = 0
                start = monotonic_ns()
                call()
                whole.append((monotonic_ns() - start) / 1e9)
                noted.append([times[1:].copy() for times in notes])
        finally:
            for _, note in parts:
                note(0)
    rows = [
        ProfileRow(
            launch.kernel,
            int(sum(run[part][1 + 2 * n] for run in noted)),
            float(sum(run[part][2 * n] for run in noted)) / 1e9,
            launch.operations,
            launch.bytes,
            tuple([float(run[part][2 * n]) / 1e9 for run in noted]),
        )
        for part, (launches, _) in enumerate(parts)
        for n, launch in enumerate(launches)
    ]
    return Profile(tuple(rows), runs, sum(whole), None, None, tuple(whole), busy(before))


def measured_peak(run: Callable[[int], int], threads: int) -> float:
    """GFLOP/s of a given number of cores, by the function `plica_peak` on one and the time of its
    thread, so that other processes do not lower the roof."""
    best = 0.0
    for _ in range(_TRIES):
        start = thread_time_ns()
        done = run(_TURNS)
        best = max(best, done / max(1, thread_time_ns() - start))
    return best * threads


def measured_speeds() -> Speeds:
    """GB/s of copies within caches and outside of them, by the time of the thread."""
    found = []
    for size in _COPIED:
        given = np.ones(size // 2, np.uint8)
        target = np.empty_like(given)
        best = 0.0
        for _ in range(_TRIES):
            start = thread_time_ns()
            np.copyto(target, given)
            best = max(best, size / max(1, thread_time_ns() - start))
        found.append((size, best))
    return tuple(found)
