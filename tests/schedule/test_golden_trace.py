"""Golden traces: what was stored once replays for ever, to the same digest, in any process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from plica.core.digest import digest
from plica.ir.loop.statement import Kernel
from plica.ir.loop.tensor import axis
from plica.schedule import Trace
from plica.schedule.replay import scheduled
from tests.conftest import TESTS, Golden
from tests.schedule.conv import RESNET18, conv2d
from tests.schedule.kernel import matmul
from tests.schedule.test_transport import tuned_trace
from tests.schedule.walk import walked

PLACE: Final = TESTS / "golden" / "schedule" / "trace"

# fmt: off
STORED: Final[dict[str, Kernel]] = {
    "matmul":   matmul(12, 10, 8),
    "symbolic": matmul(axis("m"), axis("n"), 4),
    "conv":     conv2d(RESNET18[5]),
}
"""Golden traces by the name of their file, and the kernels they schedule.  A file is never
changed; a new trace is a new file."""
# fmt: on


def made() -> dict[str, Trace]:
    """What the files were made of, when they were made."""
    long = [(2, 0), (0, 2), (4, 3), (6, 1), (5, 0), (9, 1), (7, 4), (10, 0), (8, 4)]
    return {
        "matmul": walked(matmul(12, 10, 8), long),
        "symbolic": walked(STORED["symbolic"], [(0, 0), (1, 3), (3, 1), (6, 4)]),
        "conv": tuned_trace(),
    }


def digests() -> str:
    lines = []
    for name, kernel in STORED.items():
        trace = Trace.from_json((PLACE / f"{name}.json").read_text(encoding="utf-8"))
        lines.append(f"{name} {len(trace)} {digest(scheduled(trace, kernel))}")
    return "\n".join(lines)


def test_golden_traces_replay_to_golden_digests(
    golden: Golden, request: pytest.FixtureRequest
) -> None:
    if request.config.getoption("--update-golden"):
        PLACE.mkdir(parents=True, exist_ok=True)
        for name, trace in made().items():
            path = PLACE / f"{name}.json"
            if not path.exists():  # they are for ever
                path.write_text(trace.to_json() + "\n", encoding="utf-8", newline="\n")
    golden(digests(), "digests")


def test_another_process_and_hash_seed() -> None:
    code = "from tests.schedule.test_golden_trace import digests; print(digests())"
    shown = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONHASHSEED": "4321"},
        cwd=Path(TESTS).parent,
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stdout.strip() == digests()


@pytest.mark.parametrize("name", STORED)
def test_they_print_as_they_were_stored(name: str) -> None:
    text = (PLACE / f"{name}.json").read_text(encoding="utf-8")
    assert Trace.from_json(text).to_json() + "\n" == text
