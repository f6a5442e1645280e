"""The commands: a folder and a GGUF file in, text out."""

from __future__ import annotations

import io
import socket
from pathlib import Path
from typing import Any

import pytest

from plica.cli import main
from plica_lm.command import unescaped
from plica_lm.generate import generate
from plica_lm.load import load
from tests.lm.network import characters, model, saved

PROMPT = "Once upon"


@pytest.fixture
def folder() -> Path:
    """A model as Hugging Face keeps it."""
    _, found = saved("mixtral")
    characters().inner.save(str(found / "tokenizer.json"))
    return found


def test_what_is_generated_is_what_the_model_says(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "".join([each.text for each in generate(model("mixtral"), PROMPT, limit=20)])
    options = ["--limit", "20", "--threads", "1", "--rows", "100"]
    assert main(["generate", str(folder), PROMPT, *options]) == 0
    assert capsys.readouterr().out == f"{text}\n"
    assert main(["generate", str(folder), PROMPT, *options, "--draft", str(folder)]) == 0
    assert capsys.readouterr().out == f"{text}\n"
    assert main(["generate", str(folder), PROMPT, *options, "--stop", text[4:7]]) == 0
    assert capsys.readouterr().out == f"{text[:4]}\n"


def test_a_chat_goes_on_until_the_input_ends(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("Hi\nAnd?\n"))
    assert main(["chat", str(folder), "--limit", "8", "--threads", "1", "--system", "Be."]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_what_is_no_model_is_refused(
    tmp_path: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    empty, none = tmp_path / "x.gguf", tmp_path / "none"
    for path, why in ((none, "no such file"), (tmp_path, "model."), (empty, "x.gguf")):
        assert main(["generate", str(path), PROMPT]) == 1
        assert why in capsys.readouterr().err
    assert main(["generate", str(folder), "x" * 200]) == 1
    assert "leaves no room" in capsys.readouterr().err
    assert main(["generate", str(folder), PROMPT, "--top-p", "7"]) == 1
    assert "top_p is out of range" in capsys.readouterr().err


@pytest.mark.parametrize("options", [["--port", "65536"], ["--port", "x"]])
def test_ports_are_checked(folder: Path, options: list[str]) -> None:
    with pytest.raises(SystemExit):
        main(["serve", str(folder), *options])


def test_a_port_that_is_taken_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert main(["serve", str(folder), "--port", port]) == 1
    found = capsys.readouterr()
    assert "cannot be listened on" in found.err
    assert "serves" not in found.out


def test_input_that_is_not_utf_8_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for command in (["chat", str(folder)], ["generate", str(folder), "-"]):
        raw = io.TextIOWrapper(io.BytesIO(b"a\xff\n"), encoding="utf-8")
        monkeypatch.setattr("sys.stdin", raw)
        assert main(command) == 1
        assert "not UTF-8" in capsys.readouterr().err
    assert main(["generate", str(folder), "a\udcff"]) == 1
    assert "surrogates" in capsys.readouterr().err


def test_an_early_end_is_explained(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--threads", "1", "--rows", "14", "--limit", "9", "--stop", r"\n"]
    assert main(["generate", str(folder), PROMPT, *options]) == 0
    assert "stopped: cache rows full (14 tokens)" in capsys.readouterr().err
    assert unescaped(r"\n\t\\n\x") == "\n\t\\n\\x"


def test_steps_of_loading_are_said(folder: Path) -> None:
    said: list[Any] = []
    load(folder, say=said.append, threads=1)
    assert said == ["reading", "compiling"]
