"""`benchmarks/gpu_fuzz.py --sanitizer`: what a tool reports is counted, and laid to a kernel."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks import gpu_fuzz

TOOL = """#!/bin/sh
echo "========= COMPUTE-SANITIZER"
echo "$@" > "$(dirname "$0")/asked"
echo "CASE kernels/3"
echo "CASE kernels/7"
echo "========= Error: Race reported between Write access at k+0x10 in k"
echo "=========     and Read access at k+0x20 in k [4 hazards]"
echo "none is wrong"
echo "========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)"
exit 9
"""


def test_reports_are_laid_to_the_kernel_that_ran(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tool = tmp_path / "compute-sanitizer"
    tool.write_text(TOOL)
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    words = ["gpu_fuzz.py", "--sanitizer", "racecheck", "--kernels", "25", "--part", "2/8"]
    monkeypatch.setattr(sys, "argv", words)
    assert gpu_fuzz.main() == 1
    said = capsys.readouterr().out
    assert "racecheck: 2 kernels, 1 reports, exit code 9" in said
    assert "WRONG: racecheck on kernels/7: --only kernels/7 --seed 0" in said
    asked = (tmp_path / "asked").read_text()
    assert "--tool racecheck" in asked
    assert "--part 2/8" in asked


def test_a_missing_tool_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["gpu_fuzz.py", "--sanitizer", "memcheck"])
    assert gpu_fuzz.main() == 2
    assert "There is no compute-sanitizer here" in capsys.readouterr().out
