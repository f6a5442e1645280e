"""The page of the command line: each line on it runs and ends as the page says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from plica.cli import commands, main
from plica.codegen.llvm.toolchain import host
from tests.report.model import model_file

PAGE = (Path(__file__).parents[1] / "docs" / "cli.md").read_text(encoding="utf-8")
BLOCKS = re.compile(r"^```(console|python)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def test_every_line_of_the_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model_file("mlp", tmp_path).rename(tmp_path / "M.onnx")
    np.save(tmp_path / "x.npy", np.ones((1, 8), np.float32))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PLICA_CACHE", str(tmp_path / "store"))
    found = BLOCKS.findall(PAGE)
    (wrong,) = [text for kind, text in found if kind == "python"]
    (tmp_path / "wrong.py").write_text(wrong, encoding="utf-8")
    lines = [line for kind, text in found if kind == "console" for line in text.splitlines()]
    for line in lines:
        words, _, said = line.removeprefix("$ plica ").partition("#")
        code = int(said.split()[-1]) if said else 0
        assert main(shlex.split(words)) == code, line
        shown = capsys.readouterr().out.splitlines()
        if code == 3:
            assert "relu-is-nothing" in shown[0]
            assert "where: Relu" in shown[1]
    monkeypatch.undo()
    host.cache_clear()  # what was measured is not what other tests go by


def test_examples_of_the_help_are_lines_one_can_type() -> None:
    from plica.cli import parser

    reads = parser()
    for command in commands():
        for line in command.examples:
            name, *words = shlex.split(line)
            assert name == "plica"
            assert words[0] == command.name
            reads.parse_args(words)
