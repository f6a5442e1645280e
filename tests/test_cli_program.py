"""Python programs with a kernel in them: the commands read its declarations, and run nothing."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from plica.cli import main
from plica.cli.program import declarations
from plica.cli.trace import read_program
from plica.schedule import Trace

DOCS = Path(__file__).parents[1] / "docs"
PROGRAM = """
import sys

import numpy as np
import plica
from plica import compile, op
from plica.schedule import do, block
from plica.script import Buffer, f32, grid
from plica.script import block as work

N = 4
expected = np.ones(N)

@plica.kernel
def twice(x: Buffer[(N,), f32], y: Buffer[(N,), f32]):
    for i in grid(N):
        with work("y", spatial=(i,)):
            y[i] = x[i] * 2.0

@do
def plain():
    yield block("y")

sys.exit("It was run.")
"""


def test_declarations_stay_on_their_lines() -> None:
    lines, kept = PROGRAM.splitlines(), declarations(PROGRAM).splitlines()
    assert kept[5] == "from plica import op"
    for left, line in zip(kept, lines, strict=False):
        assert left in (line, "", "from plica import op")
    assert "sys" not in "".join(kept)
    assert "N = 4" in kept


@pytest.mark.parametrize("text", ["def broken(", "import plica\n\ndef f():\n    pass\n", "x + 1\n"])
def test_what_is_no_program_with_a_kernel_is_left_alone(text: str) -> None:
    assert declarations(text) == text


def test_the_kernel_of_the_tutorial_is_read(tmp_path: Path) -> None:
    page = (DOCS / "tutorial" / "schedule.md").read_text(encoding="utf-8")
    path = tmp_path / "matmul.py"
    path.write_text("\n".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL)))
    assert "def matmul(A: Buffer[(384, 384), f32]" in str(read_program(str(path)))


def test_commands_take_a_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program, trace = tmp_path / "twice.py", tmp_path / "best.json"
    program.write_text(PROGRAM)
    trace.write_text(Trace(()).to_json())
    assert read_program(str(program)).main is not None
    words = ["trace", "time", str(trace), str(program), "--rounds", "1"]
    assert main(words) == 0, capsys.readouterr().err
    page = str(tmp_path / "page.html")
    words = ["explore", str(trace), "--program", str(program), "-o", page, "--untimed"]
    assert main(words) == 0, capsys.readouterr().err


CALLED = """

@plica.function
def main(x: Tensor[(4,), f32]) -> Tensor[(4,), f32]:
    return twice(x + x) + x
"""


@pytest.mark.parametrize("called", [False, True])
def test_programs_with_kernels_are_models(
    called: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program, page = tmp_path / "twice.py", str(tmp_path / "page.html")
    head = PROGRAM.replace("import Buffer", "import Buffer, Tensor")
    program.write_text(head + CALLED * called)
    for words in (
        ["explore", str(program), "-o", page, "--untimed"],
        ["explain", str(program), "-o", page],
        ["compile", str(program), "-o", str(tmp_path / "twice.plica")],
    ):
        assert main(words) == 0, capsys.readouterr().err
    capsys.readouterr()
    assert main(["debug", str(program)]) == 0
    kernels = 3 if called else 1
    assert capsys.readouterr().out.startswith(f"All {kernels} kernels agree with the interpreter")


@pytest.mark.parametrize("module", ["plica", "plica.cli"])
def test_the_command_line_is_a_module(module: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", module, "--version"], check=False, capture_output=True, text=True
    )
    assert (ran.returncode, ran.stderr) == (0, "")
