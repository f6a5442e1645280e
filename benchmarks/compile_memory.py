"""What a compilation leaves behind: memory of this process over many small compilations.

    python benchmarks/compile_memory.py [--compilations 2000] [--most 10]

Every program is another one.  What is remembered of programs on purpose is bounded, so the first
few hundred cost more than those after them; the figure is over all but the first hundred, in
kilobytes of resident memory a compilation.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
from pathlib import Path

import plica

SOURCE = """
import plica
from plica import op

@plica.function
def main(x: Tensor[({rows}, 3), f32]):
    return op.tanh(x) * {factor}.0 + op.sum(x)
"""
WARM = 100


def resident() -> float:
    """Kilobytes of this process in memory."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e3


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--compilations", type=int, default=2000)
    parser.add_argument("--most", type=float, default=10.0, help="kilobytes a compilation")
    arguments = parser.parse_args()
    begun = last = 0.0
    step = max(1, arguments.compilations // 10)
    for number in range(1, arguments.compilations + 1):
        text = SOURCE.format(rows=4 + number % 50, factor=number)
        plica.compile(plica.from_text(text), cache=False, threads=1)
        if number == min(WARM, arguments.compilations):
            begun = last = resident()
        elif number % step == 0:
            now = resident()
            print(f"{number:6} {now / 1e3:8.1f} MB {(now - last) / step:7.1f} kB each", flush=True)
            last = now
    each = (resident() - begun) / max(1, arguments.compilations - WARM)
    print(f"{each:.1f} kB a compilation over {arguments.compilations}")
    return 0 if each <= arguments.most else 1


if __name__ == "__main__":
    sys.exit(main())
