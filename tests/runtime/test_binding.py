"""Bindings of other languages: the example of each says what Python says."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import plica
from plica.frontend.zoo import ds_cnn
from plica.runtime.binding import LANGUAGES
from plica.runtime.error import UnsupportedError
from plica.runtime.executable import Executable

EXAMPLES = Path(__file__).parents[2] / "examples" / "bindings"
JNA = Path("/usr/share/java/jna.jar")
NODE = Path("/usr/include/node/node_api.h")

# What each needs, and the commands that build and run it.
RUNS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "words.hpp": (
        ("c++",),
        ("c++ main.cpp -std=c++17 -Wall -Werror -L. -lwords -Wl,-rpath,$PWD -o main", "./main"),
    ),
    "words.rs": (
        ("rustc",),
        ("rustc -O main.rs -L . -C link-arg=-Wl,-rpath,$PWD -o main", "./main"),
    ),
    "words.go": (("go",), ("go build -o main .", "./main")),
    "Words.java": (
        ("javac", str(JNA)),
        (f"javac -cp {JNA} Main.java Words.java",
         f"java -cp {JNA}:/usr/share/java/jna-platform.jar:. -Djna.library.path=. Main"),
    ),
    "words.mjs": (
        ("node", str(NODE)),
        ("cc -Wall -Werror -shared -fPIC -I/usr/include/node words_node.c -L. -lwords"
         " -Wl,-rpath,$PWD -o words_node.node", "node main.mjs"),
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def made() -> Executable:
    return plica.compile(ds_cnn(frames=9, features=4, channels=8, blocks=1), cache=False)


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
@pytest.mark.parametrize(
    "file", [e if e == "words.hpp" else pytest.param(e, marks=pytest.mark.slow) for e in RUNS]
)
def test_the_example_says_what_python_says(file: str, made: Executable, tmp_path: Path) -> None:
    needs, commands = RUNS[file]
    for each in needs:
        if shutil.which(each) is None and not Path(each).is_file():
            pytest.skip(f"there is no {each} here")
    main = next(EXAMPLES.glob(f"[mM]ain{Path(file).suffix.replace('.hpp', '.cpp')}"))
    shutil.copy(main, tmp_path)
    made.export(tmp_path / "libwords.so")
    beside = tmp_path
    if file.endswith(".go"):
        (tmp_path / "go.mod").write_text("module example\n")
        beside = tmp_path / "words"
        beside.mkdir()
        for each in ("libwords.so", "words.h"):
            shutil.move(tmp_path / each, beside)
        (tmp_path / "words_example.c").unlink()  # Go takes every C file of a folder
    made.export(beside / file)
    home = {"HOME": str(tmp_path), "GOCACHE": str(tmp_path / "cache")} if "go" in needs else {}
    for each in commands:
        done = subprocess.run(
            each, shell=True, cwd=tmp_path, capture_output=True, text=True, check=False,
            env={**os.environ, **home, "PWD": str(tmp_path)},
        )  # fmt: skip
        assert not done.returncode, done.stderr
    x = (np.arange(36) % 7 / 7).astype(np.float32).reshape(1, 1, 9, 4)
    assert float(done.stdout) == pytest.approx(float(np.sum(made(x))), abs=1e-4)


def test_every_language_has_an_example() -> None:
    assert {Path(file).suffix for file in RUNS} == set(LANGUAGES)


def test_open_sizes_have_no_binding(tmp_path: Path) -> None:
    text = '@plica.function\ndef main(x: Tensor[("n",), f32]):\n    return x + 1.0\n'
    with pytest.raises(UnsupportedError, match="Bindings are made for sizes that are known"):
        plica.compile(plica.from_text(text)).export(tmp_path / "words.hpp")
    assert not list(tmp_path.iterdir())
