"""Hostile command lines: an exit code of the table and a sentence, never a traceback."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from plica.cli import main
from tests.attack.judge import in_time

MODEL: Final = """
import plica
from plica import op

@plica.function
def main(x: Tensor[(3,), f32]) -> Tensor[(3,), f32]:
    return op.exp(x)
"""
KERNEL: Final = """
import plica

@plica.kernel
def scale(A: Buffer[(6,), f32], B: Buffer[(6,), f32]):
    for i in grid(6):
        with block("C", spatial=(i,)):
            B[i] = A[i] * 2.0
"""

COMMANDS: Final = (
    "compile", "compile nowhere.onnx", "compile m.py -o no/such/folder/m.plica",
    "compile m.py -o .", "compile m.py --target marsian", "compile m.py --target",
    "compile m.py --contract roughly", "compile empty.py", "compile binary.py",
    "compile kernel.py --dim n=-1", "compile m.py --dim n", "compile m.py --threads 0",
    "compile m.py --threads x", "compile .", "compile m.py --packs nowhere.py",
    "compile m.py --packs broken.py", "compile m.py --unknown",
    "run nowhere.plica", "run m.py", "run text.plica", "run text.plica --input x",
    "verify nowhere.plica", "verify text.plica", "verify .",
    "rules list x", "rules check nothing", "rules check nowhere.py", "rules check broken.py",
    "rules check empty.py", "rules check algebra --examples 0", "rules check algebra --seconds -1",
    "rules why nothing m.py", "rules why add-zero nowhere.onnx",
    "trace show nowhere.json", "trace show text.json", "trace show m.py",
    "trace replay text.json kernel.py", "trace diff text.json nowhere.json",
    "fuzz", "fuzz nothing", "fuzz graph --examples -1", "fuzz graph --contract x",
    "fuzz graph --rules nowhere.py", "fuzz graph --pass nothing", "fuzz kernel --target marsian",
    "fuzz schedule --focus nothing", "fuzz all --only nothing", "fuzz graph --seconds 0",
    "fuzz graph --jobs 0", "fuzz gradient --operator nothing",
    "bench nowhere.onnx", "bench text.plica", "debug nowhere.onnx", "debug text.json",
    "explain nowhere.onnx -o x.html", "explore nowhere.onnx", "explore text.json",
    "quantise nowhere.onnx", "tune nowhere.onnx --trials 1", "tune m.py --trials 0",
    "tune m.py --trials 1 --db text.json", "new nothing x", "new rule-pack ..", "new rule-pack /",
    "check nowhere", "check m.py", "targets x", "pool status tcp://127.0.0.1:1", "nothing",
    "--nothing",
)  # fmt: skip


@pytest.mark.parametrize("line", COMMANDS)
def test_a_wrong_command_is_told_so(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in {"m.py": MODEL, "kernel.py": KERNEL, "empty.py": "", "broken.py": "1 / 0\n",
                       "text.plica": "x", "text.json": "x"}.items():  # fmt: skip
        Path(name).write_text(text)
    Path("binary.py").write_bytes(bytes(range(256)))
    with in_time():
        try:
            code = main(line.split())
        except SystemExit as ended:
            code = int(ended.code or 0)
    said = capsys.readouterr()
    assert code in (1, 2), (code, said)
    assert said.err.strip() or said.out.strip()
    assert "Traceback" not in said.err
