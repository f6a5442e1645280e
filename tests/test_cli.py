"""The command line: exit codes, help, doctor, and how errors reach the user."""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import plica
from plica import cli
from plica.cli import commands, doctor, main
from plica.cli.command import Command
from plica.codegen.backend import TARGETS, backend_named
from plica.core.diagnostic import CompilerBug
from plica.runtime.error import Diagnostic, Place, UnsupportedError
from tests.library import Library

ROOT = Path(__file__).parents[1]


def with_command(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """Add a command `fail` that raises the error."""

    def run(arguments: argparse.Namespace) -> int:
        raise error

    monkeypatch.setattr(cli, "commands", lambda: (Command("fail", "Fail", run),))


def test_help_shows_every_command_and_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert "examples:" in shown
    for command in commands():
        assert command.name in shown
        assert command.summary in " ".join(shown.split())


@pytest.mark.parametrize("command", commands(), ids=lambda command: command.name)
def test_every_command_has_help(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([command.name, "--help"])
    assert ended.value.code == 0
    assert command.summary in " ".join(capsys.readouterr().out.split())


def test_a_package_adds_a_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    library = Library(tmp_path, monkeypatch)
    text = """
from plica.cli.command import Command
GREET = Command("greet", "Say hello", lambda arguments: print("hello") or 7)
"""
    library.install("acme", "[plica.commands]\ngreet = acme_c:GREET\n", acme_c=text)
    assert main(["greet"]) == 7
    assert capsys.readouterr().out == "hello\n"
    assert "greet" in [each.name for each in commands()]
    library.remove()


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"plica {plica.__version__}\n"


def test_python_m_plica_is_the_command_line() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "plica", "--version"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"plica {plica.__version__}\n"


@pytest.mark.parametrize("argv", [[], ["nonsense"], ["doctor", "--nonsense"]])
def test_wrong_usage_exits_with_2(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(argv)
    assert ended.value.code == 2
    assert "usage: plica" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "meant"),
    [
        (["compiel", "M.onnx"], "compile"),
        (["trace", "shwo", "T.json"], "show"),
        (["fuzz", "grahp"], "graph"),
    ],
)
def test_the_nearest_word_is_suggested(
    argv: list[str], meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(argv)
    assert f"did you mean {meant!r}?" in capsys.readouterr().err


def test_an_error_is_rendered_and_exits_with_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    diagnostic = Diagnostic("unsupported", "There is no Foo.", Place(node="foo_1"))
    with_command(monkeypatch, UnsupportedError(diagnostic))
    assert main(["fail"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "foo_1: error: There is no Foo. [unsupported]\n"


def test_no_memory_is_an_error_like_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with_command(monkeypatch, MemoryError())
    assert main(["fail"]) == 1
    assert "[no-memory]" in capsys.readouterr().err


def test_a_bug_is_not_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    with_command(monkeypatch, CompilerBug("fuse left j unbound"))
    with pytest.raises(CompilerBug):
        main(["fail"])


def test_doctor_finds_a_working_cpu(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["healthy"] is True
    assert report["version"] == plica.__version__
    assert report["machine"]["cpu"]
    targets = {target["name"]: target for target in report["targets"]}
    assert set(targets) == {*TARGETS.own, *backend_named("cpu").spellings}
    assert targets["cpu"]["works"] is True
    assert all(target["reason"].endswith(".") for target in targets.values())


def test_doctor_shows_packages_and_targets(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    shown = capsys.readouterr().out
    for word in (*doctor.REQUIRED, *doctor.OPTIONAL, "cpu", "cuda", "accel", "Python"):
        assert word in shown


def test_doctor_says_what_packages_are_needed_for() -> None:
    uses = {each.name: each.purpose for each in doctor.examine().packages}
    assert "ONNX models" in uses["onnx"]
    assert "tune" in uses["xgboost"]
    assert "rules" in uses["hypothesis"]
    assert all(uses.values())


def test_doctor_is_ill_without_a_required_package() -> None:
    machine = doctor.HostMachine("", "", "", 1, None, ())
    works = (doctor.TargetStatus("cpu", True, "It ran."),)
    missing = (doctor.InstalledPackage("numpy", None, True, ""),)
    optional = (doctor.InstalledPackage("onnx", None, False, ""),)
    assert not doctor.DoctorReport("0", machine, missing, works).healthy
    assert doctor.DoctorReport("0", machine, optional, works).healthy
    assert not doctor.DoctorReport("0", machine, (), ()).healthy


def test_doctor_knows_the_dependencies() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    here = [each for each in project["dependencies"] if "== 'Darwin'" not in each]
    names = [re.split(r"[<>=~]", each)[0].removesuffix("-cpu") for each in here]
    assert sorted(names) == sorted(doctor.REQUIRED)
