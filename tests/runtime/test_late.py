"""Late imports: a lazy package gives what its type checker sees, whatever was imported before."""

from __future__ import annotations

import builtins
import math
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from plica.runtime.late import Lazy, late, lazy_imports, python_here

ROOT = Path(__file__).parents[2]
LAZY = sorted(
    ".".join(path.parent.relative_to(ROOT).parts)
    for path in (ROOT / "plica").rglob("__init__.py")
    if "lazily(__name__)" in path.read_text(encoding="utf-8")
)


@pytest.mark.parametrize("name", LAZY)
def test_every_export_is_there(name: str) -> None:
    package = import_module(name)
    assert isinstance(package, Lazy)
    assert sorted(package.__all__) == dir(package)
    for each in package.__all__:
        home = import_module(package._homes[each])
        assert getattr(package, each) is getattr(home, each)


def test_a_submodule_does_not_hide_the_export_of_its_name() -> None:
    code = "import plica.schedule.bisect, plica.schedule as s; print(type(s.bisect).__name__)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "function"


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"'plica\.core' has no attribute 'nonsense'"):
        getattr(import_module("plica.core"), "nonsense")  # noqa: B009  # mypy would refuse it


def test_nothing_is_imported_before_the_call() -> None:
    call = late("no_such_module:function")
    with pytest.raises(ModuleNotFoundError):
        call()


def test_names_of_a_block_are_imported_when_they_are_called() -> None:
    text = (
        "from plica.runtime.late import lazy_imports\n"
        "with lazy_imports(__name__):\n"
        "    from no_such_module import function\n"
        "    from math import gcd as divisor\n"
        "import fractions\n"
    )
    scope: dict[str, Any] = {"__name__": "some_module"}  # Any: what the text defines
    before = builtins.__import__
    exec(text, scope)
    assert builtins.__import__ is before
    assert scope["divisor"](12, 18) == 6
    assert scope["fractions"].Fraction(1, 2) == 0.5
    with pytest.raises(ModuleNotFoundError):
        scope["function"]()


def test_other_modules_are_imported_at_once_meanwhile() -> None:
    scope: dict[str, Any] = {"__name__": "another_module"}
    before = builtins.__import__
    with lazy_imports("some_module"), lazy_imports("a_third_module"):
        exec("from math import gcd", scope)
    assert builtins.__import__ is before
    assert scope["gcd"] is math.gcd


def test_another_python_finds_what_this_one_does_whatever_folder_it_runs_in(tmp_path: Path) -> None:
    for name in ("numpy", "string", "queue", "plica"):
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('a file of this folder')\n")
    command, environment = python_here(
        "-c", "import string, queue, numpy, plica; print(plica.__file__)"
    )
    done = subprocess.run(
        command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout.strip()) == (0, str(ROOT / "plica" / "__init__.py"))


def test_the_folder_a_text_was_run_in_is_looked_into_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", ["", *sys.path])  # as `python -c` has it
    monkeypatch.chdir(tmp_path)
    assert python_here()[1]["PYTHONPATH"].split(os.pathsep)[0] == str(tmp_path)
