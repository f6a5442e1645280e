"""Files that a command cannot read: each refusal names the file, and says what it expected, what it
found and what to do."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import plica
from plica.cli import main
from plica.cli.bench import show_rows
from plica.cli.progress import stdout_console
from plica.report.study import LaunchRow
from plica.runtime import archive
from plica.runtime.link import can_link

SOURCE = """
import plica
from plica.script import Tensor, f32

@plica.function
def main(x: Tensor[(2, 3), f32]) -> Tensor[(2, 3), f32]:
    return x + 1.0
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def refusal(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What a command says that refuses, on one line; every part of a diagnostic is in it."""
    assert main(words) == 1
    said = " ".join(capsys.readouterr().err.split())
    for part in (" expected: ", " found: ", " suggestion: "):
        assert part in said, said
    return said


@pytest.fixture(scope="module")
def artefact(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("artefact") / "m.plica"
    plica.compile(plica.from_text(SOURCE)).save(path)
    return path.read_bytes()


def without_traces(data: bytes) -> bytes:
    return archive.pack({n: each for n, each in archive.unpack(data).items() if "traces" not in n})


def without_plan(data: bytes) -> bytes:
    members = archive.unpack(data)
    manifest = json.loads(members["manifest.json"])
    del manifest["plan"]
    return archive.pack({**members, "manifest.json": json.dumps(manifest).encode()})


def with_a_changed_byte(data: bytes) -> bytes:
    return data[:400] + bytes([data[400] ^ 1]) + data[401:]


def without_its_end(data: bytes) -> bytes:
    return data[:-10]


@pytest.mark.skipif(not can_link(), reason="objects are not loaded here")
@pytest.mark.parametrize("command", ["verify", "explore"])
@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (without_its_end, "a seal at the end"),
        (with_a_changed_byte, "expected: sha256:"),
        (without_traces, "found: another traces.json"),
        (without_plan, "The manifest of the artefact is damaged"),
    ],
)
def test_damaged_artefact(
    command: str,
    damage: Callable[[bytes], bytes],
    expected: str,
    artefact: bytes,
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("bad.plica").write_bytes(damage(artefact))
    said = refusal(capsys, command, "bad.plica")
    assert said.startswith("bad.plica: error: ")
    assert expected in said
    assert "compile the model again" in said


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"not JSON", "The text is not JSON"),
        (b'{"format": "plica-trace", "vers', "The text is not JSON"),
        (b'{"format": "other"}', "This is no trace."),
        (b"[]", "This is no trace."),
        (b'{"format": "plica-trace"}', "The trace has no version."),
        (b'{"format": "plica-trace", "version": 1}', "The trace has no list of steps."),
        (b"\xff\xfe", "The file is not text in UTF-8."),
    ],
)
def test_file_that_is_no_trace(
    data: bytes, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("bad.json").write_bytes(data)
    said = refusal(capsys, "trace", "show", "bad.json")
    assert said.startswith(f"bad.json: error: {expected}")


@pytest.mark.parametrize(
    ("name", "data", "expected"),
    [
        ("m.py", b"def main(x:\n", "m.py:1:9: error: '(' was never closed. [syntax]"),
        ("m.py", b"import plica\n", "m.py: error: The module has no main function"),
        ("m.onnx", b'<ir_version: 8, opset_import: ["" : 18]>\n', "format='onnxtxt'"),
        ("m.onnx", b"ir_version: 8\ngraph {\n}\n", "format='textproto'"),
        ("m.onnx", b'{"irVersion": "8"}', "format='json'"),
        ("m.onnx", b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
        ("m.onnx", b"PK\x03\x04", "plica.load"),
    ],
)
def test_file_that_is_no_model(
    name: str, data: bytes, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(name).write_bytes(data)
    assert expected in refusal(capsys, "compile", name, "-o", "out.plica")


def test_folder_instead_of_a_model(capsys: pytest.CaptureFixture[str]) -> None:
    Path("inside").mkdir()
    said = refusal(capsys, "explain", "inside")
    assert "found: Is a directory suggestion: Give the path of a file" in said
    Path("inside/m.onnx").touch()
    assert "such as 'inside/m.onnx'" in refusal(capsys, "explain", "inside")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--target", "cpuu"), "There is no target 'cpuu'."),
        (("--target", "c"), "running them on this CPU"),
    ],
)
def test_explain_of_another_target(
    words: tuple[str, ...], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("m.py").write_text(SOURCE)
    assert expected in refusal(capsys, "explain", "m.py", *words)


def test_a_busy_machine_is_named_once(capsys: pytest.CaptureFixture[str]) -> None:
    row = LaunchRow(0, "add", "add", (2,), ("node",), ("add",), (), 2_000, 100, 1e-6, None)
    show_rows(stdout_console(), [row], 3, "The machine is busy.")
    assert capsys.readouterr().out.count("busy") == 1
    show_rows(stdout_console(), [row], 3)
    assert "No share of the roof" in capsys.readouterr().out


def test_an_input_that_is_not_given_is_asked_for_as_the_shell_gives_it(
    artefact: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("m.plica").write_bytes(artefact)
    assert main(["run", "m.plica"]) == 1
    assert "Give it by its name: --input x=FILE.npy" in capsys.readouterr().err


def test_a_file_of_another_kind_is_no_model(capsys: pytest.CaptureFixture[str]) -> None:
    Path("README.md").write_text("# A page\n\nSome words.\n", encoding="utf-8")
    assert main(["compile", "README.md", "-o", "x.plica"]) == 1
    assert "This is not a model. [no-source]" in capsys.readouterr().err
