"""A model as two files of C99: they compile without a warning, and a sanitizer finds nothing."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import plica
from plica.frontend.zoo import ds_cnn
from plica.ir.graph.module import Module
from plica.runtime.error import UnsupportedError

needs_cc = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")

MAIN = """
#include <stdio.h>
#include "words.h"
static float x[98], y[12];
int main(void) {
  if (fread(x, sizeof x, 1, stdin) != 1) return 2;
  if (words(x, y)) return 1;
  return fwrite(y, sizeof y, 1, stdout) != 1;
}
"""


@pytest.fixture(scope="module")
def network() -> Module:
    return ds_cnn(frames=49, features=2, channels=8, blocks=1)


@needs_cc
def test_two_files_are_the_model(network: Module, tmp_path: Path) -> None:
    made = plica.compile(network, target="c", cache=False)
    made.save(tmp_path / "words.plica")
    made.export(tmp_path / "words.c")
    written = (tmp_path / "words.c").read_text()
    plica.load(tmp_path / "words.plica").export(tmp_path / "words.c")
    assert (tmp_path / "words.c").read_text() == written
    assert sorted(each.name for each in tmp_path.glob("words.[ch]")) == ["words.c", "words.h"]
    included = {line for line in written.splitlines() if line.startswith("#include")}
    assert included == {'#include "words.h"', "#include <math.h>", "#include <stdbool.h>"}
    (tmp_path / "main.c").write_text(MAIN)
    flags = ["-std=c99", "-Wall", "-Werror", "-O0", "-ffp-contract=off", "-fno-strict-aliasing",
             "-Wno-unused-variable", "-Wno-unused-but-set-variable",
             "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]  # fmt: skip
    command = ["cc", *flags, "main.c", "words.c", "-lm", "-o", "main"]
    subprocess.run(command, cwd=tmp_path, check=True)
    x = np.random.default_rng(3).standard_normal((1, 1, 49, 2)).astype(np.float32)
    done = subprocess.run(
        ["./main"], cwd=tmp_path, input=x.tobytes(), capture_output=True, check=True
    )
    assert not done.stderr
    np.testing.assert_allclose(np.frombuffer(done.stdout, np.float32), made(x)[0], rtol=1e-6)


@needs_cc
def test_a_source_and_a_library_do_not_overwrite_one_header(
    network: Module, tmp_path: Path
) -> None:
    made = plica.compile(network, target="c", cache=False)
    made.export(tmp_path / "words.c")
    header = (tmp_path / "words.h").read_text()
    with pytest.raises(UnsupportedError, match="header of a source"):
        made.export(tmp_path / "libwords.so")
    assert (tmp_path / "words.h").read_text() == header
    assert not (tmp_path / "libwords.so").exists()
    made.export(tmp_path / "libothers.so")
    with pytest.raises(UnsupportedError, match="header of a library"):
        made.export(tmp_path / "others.c")


def test_code_that_is_no_c_is_not_written_as_c(network: Module, tmp_path: Path) -> None:
    made = plica.compile(network)
    with pytest.raises(UnsupportedError, match="compiled to C is written as C"):
        made.export(tmp_path / "words.c")
    assert not list(tmp_path.iterdir())


@needs_cc
def test_words_of_c_are_no_names(network: Module, tmp_path: Path) -> None:
    made = plica.compile(network, target="c", cache=False)
    with pytest.raises(UnsupportedError, match="cannot be named 'while'"):
        made.export(tmp_path / "while.c")
