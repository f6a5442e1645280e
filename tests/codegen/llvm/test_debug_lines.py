"""Line tables in objects: debuggers and profilers name the operator and the loop."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import plica
from plica.cli import main as command
from plica.codegen.llvm.toolchain import host
from plica.codegen.target import parse
from plica.ir.graph.module import Module
from plica.ir.loop.statement import For, Store, statements
from plica.ir.text.show.kernel import located_kernel, show_kernel
from plica.pipeline import lower
from plica.runtime.error import UnsupportedError
from plica.runtime.link import can_link
from tests.frontend.zoo.small import SMALL

pytestmark = pytest.mark.skipif(not can_link(), reason="objects are not loaded here")

SOURCE = """
@plica.function
def main(x: Tensor[(64, 64), f32], y: Tensor[(64, 64), f32]):
    return op.sum(op.nn.relu(x @ y), axis=(1,)), op.cumsum(op.round(op.exp(x)), axis=1)
"""


def needs(tool: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(tool) is None, reason=f"no {tool}")


@pytest.mark.parametrize("name", ["dqn", "transformer"])
def test_each_loop_and_store_has_its_line(name: str) -> None:
    lowered = lower(SMALL[name](), target=host())
    for kernel in lowered.program.kernels:
        text, places = located_kernel(kernel, "kernel")
        assert text == show_kernel(kernel)
        lines = text.splitlines()
        for each in statements(kernel.body):
            if isinstance(each, For):
                assert " for " in lines[places[each] - 1]
            elif isinstance(each, Store):
                assert re.search(r"\] \+?= ", lines[places[each] - 1])


def test_the_target_says_it() -> None:
    target = parse("cpu debug=/tmp/lines", host())
    assert target.debug == "/tmp/lines"
    assert parse(target.describe(), host()) == target


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A library with line tables and one without, after both computed the same."""
    folder = tmp_path_factory.mktemp("lines")
    module: Module = plica.from_text(SOURCE)
    made = plica.compile(module, target=f"cpu debug={folder / 'source'}")
    plain = plica.compile(module)
    random = np.random.default_rng(0)
    x, y = (random.standard_normal((64, 64)).astype(np.float32) for _ in range(2))
    for one, two in zip(made(x, y), plain(x, y), strict=True):
        assert np.array_equal(one, two)
    made.save(folder / "m.plica")
    assert np.array_equal(plica.load(folder / "m.plica")(x, y)[0], plain(x, y)[0])
    made.export(folder / "liblined.so")
    plain.export(folder / "libplain.so")
    return folder / "liblined.so", folder / "libplain.so"


def said(*command: object) -> str:
    words = [*map(str, command)]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


@needs("cc")
@needs("objdump")
def test_instructions_have_lines_of_the_kernel(libraries: tuple[Path, Path]) -> None:
    made, _ = libraries
    rows = re.findall(r"^(\w+\.py) +([1-9]\d*) +0x", said("objdump", "--dwarf=decodedline", made),
                      re.MULTILINE)  # fmt: skip
    files = {each.name: each for each in (made.parent / "source").iterdir()}
    assert {name for name, _ in rows} == files.keys()
    assert {"matmul", "nn"} <= {name.partition("_")[0] for name in files}
    loops = 0
    for name, number in rows:
        line = files[name].read_text().splitlines()[int(number) - 1]
        loops += " for " in line
        assert re.search(r" for |\] \+?= |alloc|^ +if |let|def ", line), line
    assert loops
    assert "debug_line" not in said("objdump", "-h", libraries[1])


@needs("cc")
@needs("objdump")
def test_the_instructions_are_the_same(libraries: tuple[Path, Path]) -> None:
    words = [
        re.findall(r"^ .*\t(\S+)", said("objdump", "-d", "--no-show-raw-insn", each), re.MULTILINE)
        for each in libraries
    ]
    assert words[0] == words[1]


@needs("cc")
@needs("gdb")
def test_a_debugger_names_the_operator(libraries: tuple[Path, Path]) -> None:
    made, _ = libraries
    (name,) = [each.stem for each in (made.parent / "source").glob("matmul*")]
    assert f"void {name}()" in said("gdb", "-batch", "-nx", "-ex", "info functions matmul", made)
    shown = said("gdb", "-batch", "-nx", "-ex", f"list {name}.py:1,2", made)
    assert f"def {name}(" in shown


def test_other_machines_are_refused() -> None:
    other = "aarch64" if host().architecture == "x86_64" else "x86-64-v2"
    module = plica.from_text(SOURCE)
    with pytest.raises(UnsupportedError, match="Line tables"):
        plica.compile(module, target=f"cpu:{other} debug=/tmp/lines")


def test_verification_says_why_code_with_lines_is_not_made_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = f"cpu debug={tmp_path / 'texts'}"
    file = tmp_path / "lines.plica"
    plica.compile(plica.from_text(SOURCE), target=target).save(file)
    assert command(["verify", str(file), "--rebuild"]) == 0
    assert "code made again: its line tables name a folder" in capsys.readouterr().out
