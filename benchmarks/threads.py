"""Several threads against one, launch by launch: what scales, and what waits.

    python benchmarks/threads.py [NETWORK …] [--threads 2] [--runs 30] [--most 12]

The networks are those of `benchmarks/models.py`.  Both builds are profiled in turns; times are the
least of all runs, in microseconds.  Above the launches stands how a network scales as a whole,
beside a loop of multiply-adds that waits for nothing (`peak`) and large copies (`copy`), and which
part that is of either.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import plica
from benchmarks.models import names, write


def least(exe: Any, inputs: list[Any], runs: int) -> tuple[dict[str, float], Any]:
    """Microseconds of each launch, by its number and what it computes, and the profile."""
    profile = exe.profile(*inputs, runs=runs)
    found: dict[str, float] = {}
    for number, row in enumerate(profile.rows):
        found[f"{number:3d} {row.kernel.rpartition('_')[0]}"] = row.least * 1e6
    return found, profile


def far(profile: Any) -> float:
    """GB/s of the largest copy."""
    speed = profile.bandwidth
    return float(speed[-1][1] if isinstance(speed, tuple) else speed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--most", type=int, default=12)
    given = parser.parse_args()
    with TemporaryDirectory() as folder:
        for name in given.names or names(1):
            path = Path(folder) / f"{name}.onnx"
            inputs = write(name, 1, path)
            exes = [plica.compile(path, threads=each) for each in (1, given.threads)]
            alone, together = {}, {}
            for _ in range(3):
                for exe, into in zip(exes, (alone, together), strict=True):
                    times, profile = least(exe, inputs, given.runs)
                    for kernel, time in times.items():
                        into[kernel] = min(time, into.get(kernel, time))
                    into["_"] = profile  # type: ignore[assignment]  # of the last turn
            one, several = alone.pop("_"), together.pop("_")
            whole = sum(alone.values()) / sum(together.values())
            peak = several.peak / one.peak
            copy = far(several) / far(one)
            print(
                f"{name}: {sum(alone.values()):.0f} -> {sum(together.values()):.0f} us,"
                f" {whole:.2f}x | peak {peak:.2f}x copy {copy:.2f}x"
                f" | {whole / peak:.0%} of peak, {whole / copy:.0%} of copy",
                flush=True,
            )
            rows = sorted(together, key=lambda each: -together[each])[: given.most]
            for kernel in rows:
                before = alone.get(kernel)
                ratio = "   -" if before is None else f"{before / together[kernel]:.2f}"
                print(f"    {together[kernel]:9.1f} us  {ratio}x  {kernel}")


if __name__ == "__main__":
    main()
