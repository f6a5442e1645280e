"""`benchmarks/versus.py`: two trees beside each other, and what is made of their times."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.versus import Row, difference, summary
from benchmarks.versus_cases import KINDS, cases

ROOT = Path(__file__).parents[2]


def row(old: float, new: float, control: float) -> Row:
    """A row of three equal turns."""
    return Row(
        "case", ((old, new, control),) * 3, (1.0, 1.2, 1.0), 0.0, identical=True, native=True
    )


def test_a_row_compares_the_new_code_with_both_old_sides() -> None:
    fast = row(2.0, 1.0, 2.0)
    assert (fast.speed, fast.control, fast.compile_ratio) == (2.0, 1.0, 1.2)
    assert fast.doubtful
    assert not fast.disturbed


def test_a_control_that_differs_from_itself_leaves_a_row_out() -> None:
    disturbed = row(1.0, 1.0, 1.1)
    assert disturbed.disturbed
    assert "disturbed and left out 1" in summary([disturbed, row(1.0, 1.0, 1.0)])


def test_more_turns_settle_a_row() -> None:
    calm = row(1.0, 1.0, 1.0)
    joined = row(1.0, 1.0, 1.1).joined(calm).joined(calm)
    assert joined.control == 1.0


def test_one_disturbed_turn_changes_no_ratio() -> None:
    turns = ((1.0, 1.0, 1.0), (1.0, 9.0, 1.0), (1.2, 1.2, 1.2))
    assert Row("case", turns, (1.0, 1.0, 1.0), 0.0, identical=True, native=True).speed == 1.0


def test_results_differ_by_their_largest_number() -> None:
    assert difference(np.array([10.0, 1.0]), np.array([10.0, 2.0])) == 0.1
    assert difference(np.array([math.nan]), np.array([math.nan])) == 0.0
    assert difference(np.array([1.0]), np.array([math.nan])) == math.inf
    assert difference(np.array([1, 2]), np.array([1, 3])) == math.inf


@pytest.mark.parametrize("kind", sorted({*KINDS} - {"models"}))
def test_cases_of_a_seed_are_the_same_again(kind: str) -> None:
    first, again = (list(cases(kind, seed=3, count=1)) for _ in range(2))
    assert [case.name for case in first] == [case.name for case in again]
    assert len({case.name for case in first}) == len(first)
    assert all(
        one.model == other.model and list(map(np.ndarray.tobytes, one.inputs))
        == list(map(np.ndarray.tobytes, other.inputs))
        for one, other in zip(first, again, strict=True)
    )  # fmt: skip


@pytest.mark.slow
def test_a_tree_agrees_with_itself() -> None:
    line = [sys.executable, "benchmarks/versus.py", str(ROOT), "--cases", "scans"]
    line += ["--only", "333x5", "--seconds", "0.02", "--again", "0"]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "= cumsum 333x5 axis 0" in done.stdout
    assert "wrong 0" in done.stdout
