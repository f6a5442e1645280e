"""`plica trace …`: every verb on small files, and what is asked wrongly."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from plica.cli import main
from plica.cli.command import DIFFERS
from plica.core.digest import digest
from plica.ir.text.script import from_text
from plica.ir.text.show import show_module
from plica.schedule import Trace, replay
from plica.schedule.replay import kernel_of, scheduled
from tests.schedule.foreign import declared
from tests.schedule.kernel import matmul
from tests.schedule.test_bisect import spoiled
from tests.schedule.walk import walked


class Files:
    """A program, some traces of it, and predicates, in files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.base = walked(matmul(), [(0, 0), (6, 1)])
        self.other = walked(matmul(), [(1, 1), (6, 1), (7, 3)])
        self.bad = spoiled(walked(matmul(), [(0, 0), (4, 1), (6, 0)]), 3)
        self.write("a.json", self.base.to_json())
        self.write("torn.json", "{")
        self.write("b.py", self.other.to_python())
        self.write("bad.json", self.bad.to_json())
        self.write("matmul.py", show_module(kernel_of(matmul(), "matmul")[0]).text)
        self.write("small.py", show_module(kernel_of(matmul(4, 3, 2), "matmul")[0]).text)
        self.write("ask.py", "def always(module): return True\nnumber = 3\n")
        self.write("named.py", '@do\ndef schedule():\n    c = yield block("C")\n')
        self.write("raise.py", "def asked(module):\n    return {}['size']\n")

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text, encoding="utf-8")

    def __call__(self, name: str) -> str:
        return str(self.folder / name)


@pytest.fixture
def files(tmp_path: Path) -> Iterator[Files]:
    with declared():
        yield Files(tmp_path)


def test_show(files: Files, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "show", files("b.py"), "--json"]) == 0
    assert Trace.from_json(capsys.readouterr().out) is files.other
    assert main(["trace", "show", files("a.json"), "--program", files("matmul.py")]) == 0
    shown = capsys.readouterr().out
    assert Trace.from_python(shown) is files.base
    assert "loop_i" in shown
    assert main(["trace", "show", files("a.json"), "-o", files("c.py")]) == 0
    assert Trace.from_python(Path(files("c.py")).read_text(encoding="utf-8")) is files.base


def test_replay(files: Files, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "replay", files("a.json"), files("matmul.py")]) == 0
    found = from_text(capsys.readouterr().out)
    assert digest(kernel_of(found)[2]) == digest(scheduled(files.base, matmul()))
    out = files("out.py")
    assert main(["trace", "replay", files("a.json"), files("matmul.py"), "-o", out]) == 0
    assert digest(from_text(Path(out).read_text(encoding="utf-8"))) == digest(found)


def test_the_code_of_a_kernel(files: Files, capsys: pytest.CaptureFixture[str]) -> None:
    source = """
import plica
from plica.script import Buffer, block, f32, grid

@plica.kernel
def twice(x: Buffer[(4, 8), f32], y: Buffer[(4, 8), f32]):
    for i, j in grid(4, 8):
        with block("Y", spatial=(i, j)):
            y[i, j] = x[i, j] * 2.0
"""
    Path(files("twice.py")).write_text(source, encoding="utf-8")
    Path(files("none.json")).write_text(Trace(()).to_json(), encoding="utf-8")
    asked = ["trace", "replay", files("none.json"), files("twice.py"), "--code"]
    assert main([*asked, "c"]) == 0
    assert "for (int" in capsys.readouterr().out
    assert main([*asked, "c", "-o", files("twice.c")]) == 0
    assert "for (int" in Path(files("twice.c")).read_text(encoding="utf-8")
    assert main([*asked, "accel"]) != 0
    assert "A store copies" in capsys.readouterr().err


def test_diff(files: Files, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "diff", files("a.json"), files("a.json")]) == 0
    assert "the same" in capsys.readouterr().out
    both = [files("a.json"), files("b.py"), "--program", files("matmul.py")]
    assert main(["trace", "diff", *both]) == DIFFERS
    shown = capsys.readouterr().out
    assert "hunk 0" in shown
    assert "+++ after" in shown
    assert main(["trace", "diff", *both, "--json"]) == DIFFERS
    assert all(row["edits"] and row["effect"] for row in json.loads(capsys.readouterr().out))


def test_merge(files: Files, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = files("a.json"), files("b.py")
    assert main(["trace", "merge", a, a, b, "-o", files("m.json")]) == 0
    assert Trace.from_json(Path(files("m.json")).read_text(encoding="utf-8")) is files.other
    files.write("empty.json", files.base.prefix(2).to_json())
    third = walked(matmul(), [(1, 2), (6, 1)])
    files.write("third.json", third.to_json())
    code = main(["trace", "merge", a, b, files("third.json")])
    assert code == DIFFERS
    assert "ours" in capsys.readouterr().out


def test_bisect(files: Files, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "bisect", files("a.json"), files("matmul.py")]) == 0
    assert "good after all steps" in capsys.readouterr().out
    assert (
        main(["trace", "bisect", files("bad.json"), files("matmul.py"), "--size", "n=3"]) == DIFFERS
    )
    assert "step 3 is the first bad one: foreign_spoil" in capsys.readouterr().out
    always = ["--bad", f"{files('ask.py')}:always"]
    assert main(["trace", "bisect", files("a.json"), files("matmul.py"), *always]) == DIFFERS
    assert "step 0 is the first bad one" in capsys.readouterr().out


def test_minimise(files: Files, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "minimise", files("a.json"), files("matmul.py")]) == 0
    assert Trace.from_python(capsys.readouterr().out) is files.base
    good = ["--good", f"{files('ask.py')}:always", "-o", files("min.json")]
    assert main(["trace", "minimise", files("a.json"), files("matmul.py"), *good]) == 0
    assert Trace.from_json(Path(files("min.json")).read_text(encoding="utf-8")) is Trace(())


def test_normalise(files: Files, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "normalise", files("a.json"), "--program", files("matmul.py")]) == 0
    found = Trace.from_python(capsys.readouterr().out)
    assert digest(replay(found, matmul())) == digest(replay(files.base, matmul()))


def test_transport(files: Files, capsys: pytest.CaptureFixture[str]) -> None:
    out = files("moved.json")
    where = [files("a.json"), files("small.py"), "--source", files("matmul.py")]
    assert main(["trace", "transport", *where, "-o", out]) == 0
    assert "0 refused" in capsys.readouterr().out
    moved = Trace.from_json(Path(out).read_text(encoding="utf-8"))
    assert replay(moved, matmul(4, 3, 2)) is not None


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["show", "missing.json"], "No such file"),
        (["show", "torn.json"], "torn.json: error: The text is not JSON"),
        (["show", "ask.py"], "one do-block"),
        (["show", "named.py"], "trace_of(schedule, program)"),
        (["bisect", "a.json", "matmul.py", "--size", "n"], "DIM=N"),
        (["bisect", "a.json", "matmul.py", "--bad", "no.py:x"], "No such file"),
        (["bisect", "a.json", "matmul.py", "--bad", "ask.py:number"], "no function"),
        (["minimise", "bad.json", "small.py", "--good", "ask.py:none"], "no function"),
        (["replay", "a.json", "matmul.py", "--kernel", "x"], "no kernel"),
        (["replay", "a.json", "matmul.py", "-o", "nowhere/x.py"], "cannot be written"),
        (["show", "a.json", "-o", "nowhere/x.json"], "cannot be written"),
        (["bisect", "a.json", "matmul.py", "--bad", "asked"], "function is missing"),
        (["bisect", "a.json", "matmul.py", "--bad", "raise.py:asked"], "raises KeyError: 'size'"),
    ],
)
def test_refusals(
    files: Files,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    expected: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(files.folder)
    assert main(["trace", *arguments]) == 1
    assert expected in " ".join(capsys.readouterr().err.split())


def test_time(files: Files, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "time", files("a.json"), files("matmul.py"), "--rounds", "1"]) == 0
    assert "a.json" in capsys.readouterr().out
    words = ["trace", "time", files("a.json"), files("matmul.py"), "--against", files("b.py")]
    assert main([*words, "--rounds", "2", "--threads", "1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["name"], found["against"]["name"]) == ("a.json", "b.py")
    assert len(found["rounds"]) == 2


def test_time_wants_numbers_for_sizes(files: Files, capsys: pytest.CaptureFixture[str]) -> None:
    files.write(
        "open.py",
        'import plica\n\n@plica.kernel\ndef k(x: Buffer[("n",), f32], y: Buffer[("n",), f32]):\n'
        "    for i in range(n):\n        y[i] = x[i]\n",
    )
    files.write("none.json", Trace(()).to_json())
    words = ["trace", "time", files("none.json"), files("open.py"), "--rounds", "1"]
    assert main(words) == 1
    assert "--size n=N" in capsys.readouterr().err
    assert main([*words, "--size", "n=4", "--size", "m=4"]) == 1
    assert "m=4" in capsys.readouterr().err
    assert main([*words, "--size", "n=4"]) == 0
