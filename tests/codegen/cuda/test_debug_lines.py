"""Line tables in GPU code: profilers name the operator and the loop of an instruction."""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

import plica
from plica.cli import main as command
from plica.codegen.cuda.target import parse_gpu
from plica.codegen.cuda.toolchain import compiled, path_of
from plica.codegen.cuda.unit import unit
from plica.pipeline import contract_of, lower

SOURCE = """
@plica.function
def main(x: Tensor[(64, 64), f32], y: Tensor[(64, 64), f32]):
    return op.sum(op.nn.relu(x @ y), axis=(1,)), op.cumsum(op.round(op.exp(x)), axis=1)
"""
OPEN = SOURCE.replace("(64, 64)", "('n', 64)", 1)

needs_nvrtc = pytest.mark.skipif(path_of() is None, reason="no NVRTC")


def code_of(cubin: bytes) -> dict[str, bytes]:
    """The instructions of each function: sections of the ELF file by name."""
    (table,) = struct.unpack_from("<Q", cubin, 40)
    size, count, names = struct.unpack_from("<HHH", cubin, 58)
    rows = [struct.unpack_from("<IIQQQQ", cubin, table + size * at) for at in range(count)]
    start = rows[names][4]
    found = {}
    for name, _, _, _, offset, length in rows:
        word = cubin[start + name : cubin.index(b"\0", start + name)].decode()
        if word.startswith(".text."):
            found[word] = cubin[offset : offset + length]
    return found


def test_the_target_says_it() -> None:
    target = parse_gpu("cuda:sm_80 debug=/tmp/lines")
    assert target is not None
    assert (target.architecture, target.debug) == ("sm_80", "/tmp/lines")
    assert parse_gpu(target.describe()) == target


@needs_nvrtc
def test_instructions_are_the_same_and_have_lines(tmp_path: Path) -> None:
    target = parse_gpu("cuda:sm_80")
    program = lower(plica.from_text(SOURCE), contract_of(None), (), target).program
    with_lines = unit(program, folder=str(tmp_path / "source"))
    codes = [compiled(each.text, "sm_80").code for each in (with_lines, unit(program))]
    assert code_of(codes[0]) == code_of(codes[1])
    assert code_of(codes[0])
    assert b".debug_line" in codes[0]
    assert b".debug_line" not in codes[1]
    files = {each.name: each.read_text().splitlines() for each in (tmp_path / "source").iterdir()}
    assert {step.function for step in with_lines.steps if hasattr(step, "function")} == {
        name.removesuffix(".py") for name in files
    }
    said = re.findall(r'^ *#line (\d+) ".*/(.+)"\n(.*)', with_lines.text, re.MULTILINE)
    loops = 0
    for number, name, code in said:
        line = files[name][int(number) - 1]
        if code.lstrip().startswith("for ("):
            loops += 1
            assert " for " in line
        assert line.strip()
    assert loops
    if shutil.which("readelf") is not None:
        (tmp_path / "a.cubin").write_bytes(codes[0])
        words = ["readelf", "--debug-dump=decodedline", str(tmp_path / "a.cubin")]
        table = subprocess.run(words, capture_output=True, text=True, check=False).stdout
        rows = re.findall(r"^(\w+\.py) +(\d+) +", table, re.MULTILINE)
        assert {name for name, _ in rows} == files.keys()
        lines = [
            files[name][int(number) - 1] for name, number in rows if int(number) <= len(files[name])
        ]  # the rest are helpers that were inlined
        assert len(lines) > len(rows) / 2
        assert any(" for " in each for each in lines)


@needs_nvrtc
@pytest.mark.parametrize("source", [SOURCE, OPEN], ids=["known", "open"])
def test_artefacts_for_gpus_have_lines(source: str, tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(source)
    target, out = f"cuda:sm_80 debug={tmp_path / 'source'}", tmp_path / "m.plica"
    assert command(["compile", str(tmp_path / "m.py"), "-o", str(out), "--target", target]) == 0
    assert b".debug_line" in out.read_bytes()
    assert [*(tmp_path / "source").glob("*.py")]
