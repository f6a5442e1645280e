"""How long `import plica` takes: fresh processes, less the start of the interpreter.

python benchmarks/import_time.py [--runs N]
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
from typing import Final

BUDGET: Final = 0.3  # seconds

PROBE: Final = """\
import time
start = time.perf_counter()
import plica
print(time.perf_counter() - start)
"""


def seconds() -> float:
    """The time of one import in a fresh process."""
    done = subprocess.run([sys.executable, "-c", PROBE], check=True, capture_output=True, text=True)
    return float(done.stdout)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=20)
    runs = parser.parse_args().runs
    seconds()  # compiles the byte code
    times = [seconds() for _ in range(runs)]
    fastest, middle = min(times), statistics.median(times)
    print(
        f"import plica: min {fastest * 1e3:.1f} ms, median {middle * 1e3:.1f} ms "
        f"of {runs} fresh processes (budget {BUDGET * 1e3:.0f} ms)"
    )
    return 0 if middle < BUDGET else 1


if __name__ == "__main__":
    sys.exit(main())
