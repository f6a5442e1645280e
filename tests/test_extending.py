"""Packages that extend Plica: written by kind, right as they stand, and a planted mistake found."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.extensions import MISTAKES, plant, trial
from plica.cli import main
from plica.extending import (
    KINDS,
    ExtensionPackage,
    ExtensionVerdict,
    check_package,
    find_package,
    new_package as new,
)
from plica.ir.graph import operator
from plica.runtime.error import PlicaError
from plica.schedule import instruction

ROOT = Path(__file__).parents[1]

FEW = {"rule-pack": 12, "operator": 12, "pass": 16, "primitive": 10, "form": 13, "target": 8,
       "accelerator": 1}  # fmt: skip


def forget() -> None:
    """What packages of a test registered is there no more."""
    tables: tuple[dict[str, Any], ...] = (
        operator._registry, operator._known, operator._homes, instruction._kinds
    )  # fmt: skip
    for table in tables:
        for name in [each for each in table if each.startswith("acme")]:
            del table[name]


@pytest.fixture(autouse=True)
def apart() -> Iterator[None]:
    yield
    forget()


def checked(package: Path, examples: int) -> list[ExtensionVerdict]:
    return list(check_package(package, examples))


SLOW = [pytest.param(each, marks=[pytest.mark.slow] * (each == "target")) for each in KINDS]


@pytest.mark.parametrize("kind", SLOW)
def test_a_new_package_is_right_and_a_mistake_in_it_is_found(kind: str, tmp_path: Path) -> None:
    package = new(kind, f"acme-{kind}", tmp_path)
    few = FEW[kind]
    good = checked(package, few)
    assert good
    assert [str(each) for each in good if not each.good] == []
    plant(kind, package)
    inside = package.name.replace("-", "_")
    for name in [each for each in sys.modules if each.partition(".")[0] == inside]:
        del sys.modules[name]
    forget()
    (found,) = [each for each in checked(package, 3 * few) if not each.good]
    assert found.word == ("broken" if kind == "accelerator" else "refuted")
    assert MISTAKES[kind][2] in found.name
    assert bool(found.example) is (kind != "accelerator")
    assert len(found.example.splitlines()) < 80  # it was made small
    if kind == "accelerator":
        assert "total" in found.why


def test_its_own_tests_pass(tmp_path: Path) -> None:
    package = new("rule-pack", "acme-tested", tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=package,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PLICA_CACHE": "off"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_every_kind_in_one_fresh_environment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trial(tmp_path, 16, linked=True)
    said = capsys.readouterr().out
    assert said.count("its own tests pass") == said.count(" mistake: ") == len(KINDS)


def test_what_packages_import_is_public() -> None:
    public = (ROOT / "docs" / "stable.md").read_text(encoding="utf-8")
    texts = (ROOT / "plica" / "extending" / "text").glob("*.txt")
    text = "\n".join(file.read_text(encoding="utf-8") for file in texts)
    modules = set(re.findall(r"^ *from (plica[\w.]+) import", text, re.MULTILINE))
    assert "plica.rewrite" in modules
    for module in modules:
        assert module.count(".") == 1 or f"`{module}`" in public, module


# --- refusals -------------------------------------------------------------------------------------


def test_what_cannot_be_written_is_refused(tmp_path: Path) -> None:
    for kind, name, said in (
        ("rule-pak", "acme", "Did you mean 'rule-pack'"),
        ("rule-pack", "Acme Rules", "not a valid package name"),
        ("rule-pack", "json", "exists already"),
        ("rule-pack", "algebra", "Plica already has algebra"),
    ):
        with pytest.raises(PlicaError, match=said):
            new(kind, name, tmp_path)
    new("pass", "acme", tmp_path)
    with pytest.raises(PlicaError, match="folder exists already"):
        new("pass", "acme", tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(PlicaError, match="cannot be written"):
        new("pass", "acme", tmp_path / "file")


def test_what_is_no_package_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PlicaError, match="There is no installed package and no folder 'nowhere'"):
        find_package("nowhere")
    project = tmp_path / "pyproject.toml"
    for text, said in (
        ("[project", "cannot be read"),
        ("[tool]\n", "cannot be read"),
        ('[project]\nname = "a"\n', "has no entry points for Plica"),
        ('[project]\nname = "a"\n[project.entry-points."plica.pack"]\nx = "y:Z"\n',
         "Did you mean 'plica.packs'"),
    ):  # fmt: skip
        project.write_text(text)
        with pytest.raises(PlicaError, match=said):
            find_package(tmp_path)


def test_a_broken_entry_point_and_a_clash_are_verdicts(tmp_path: Path) -> None:
    points = '[project.entry-points."plica.packs"]\n{} = "acme_none:PACK"\n'
    for name, said in (("acme", "No module named 'acme_none'"), ("algebra", "Two packages offer")):
        text = f'[project]\nname = "acme"\n{points.format(name)}'
        (tmp_path / "pyproject.toml").write_text(text)
        (found,) = check_package(tmp_path)
        assert found.word == "broken"
        assert said in found.why
        assert not found.good


def test_a_new_target_is_right(tmp_path: Path) -> None:
    (verdict,) = checked(new("target", "acme-here", tmp_path), 2)
    assert verdict.good


def test_what_was_never_reached_is_untested(tmp_path: Path) -> None:
    package = new("pass", "acme-idle", tmp_path)
    source = package / "acme_idle" / "passes.py"
    source.write_text(source.read_text().replace('"subtract"', '"no_such"'))
    (found,) = checked(package, 3)
    assert found.word == "untested"
    assert "none of 3 random cases it changed" in found.why


def test_the_shell_says_it_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new", "rule-pack", "acme-shell", "--into", str(tmp_path)]) == 0
    folder = tmp_path / "acme-shell"
    assert f"Next: plica check {folder}" in capsys.readouterr().out
    assert main(["check", str(folder), "--examples", "5"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("acme-shell 0.1: 1 entry points\nplica.packs  acme-shell: ")
    assert main(["check", str(folder), "--examples", "5", "--json"]) == 0
    assert '"word": "tested"' in capsys.readouterr().out
    source = folder / "acme_shell" / "rules.py"
    source.write_text(source.read_text().replace("op.ceil(x)),\n", "op.floor(x)),\n"))
    assert main(["check", str(folder), "--examples", "20"]) == 1
    said = capsys.readouterr().out
    assert "acme-shell-floor-of-ceil: refuted" in said
    assert re.search(r"a minimal case\n.*def test_", said, re.DOTALL)
    assert isinstance(find_package(folder), ExtensionPackage)


def test_the_targets_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["targets"]) == 0
    said = capsys.readouterr().out
    for name in ("accel", "c", "cpu", "cuda", "wasm"):
        assert re.search(rf"^{name}  ", said, re.MULTILINE)
    assert "options  threads, schedules are tuned" in said
    assert main(["targets", "--json"]) == 0
    assert '"spellings": [' in capsys.readouterr().out


def test_a_pass_is_fuzzed_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    package = new("pass", "acme-fuzz", tmp_path)
    file = package / "acme_fuzz" / "passes.py"
    assert main(["fuzz", "graph", "--pass", f"{file}:PASS", "--examples", "10"]) == 0
    idle = file.read_text().replace('"subtract"', '"no_such"')
    file.write_text(idle)
    assert main(["fuzz", "graph", "--pass", f"{file}:PASS", "--examples", "2"]) == 1
    assert "NOT TESTED: none of 2 modules was changed by acme-fuzz." in capsys.readouterr().out
    assert main(["fuzz", "graph", "--pass", f"{file}:PAS", "--examples", "2"]) == 2
    assert "Did you mean 'PASS'" in capsys.readouterr().err
    assert main(["fuzz", "graph", "--pass", "saturat", "--examples", "2"]) == 2
    assert main(["fuzz", "graph", "--pass", "saturate", "--examples", "4"]) in (0, 1)
