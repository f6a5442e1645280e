"""The examples of the README and of the docs are run, in order, as one program each."""

from __future__ import annotations

import ast
import importlib
import inspect
import linecache
import re
import shlex
import sys
import types
from contextlib import suppress
from pathlib import Path

import pytest

import plica
import plica.op
from plica.cli import main
from plica.codegen.backend import TARGETS, backend_named
from plica.rewrite.check import run
from plica.runtime.cuda.program import CudaExecutable
from plica.runtime.executable import Executable
from plica.schedule import instruction
from tests.conftest import PROFILE
from tests.deep import fewer

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", *ROOT.glob("docs/**/*.md")])
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_the_examples_of_a_page_run(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = BLOCK.findall(page.read_text())
    if not blocks:
        return
    source = "\n\n".join(blocks)
    if "import torch" in source:
        pytest.importorskip("torch")
    for target in re.findall(r'target="(\w+)"', source):
        if target in TARGETS.own and (why := backend_named(target).missing()):
            pytest.skip(why)
    monkeypatch.setattr(instruction, "_kinds", dict(instruction.kinds()))  # a page may add some
    if PROFILE == "ci":  # rules of pages are tried, not climbed to the worst of their data
        monkeypatch.setattr(run, "CLIMB_BELOW_BYTE", 0)
        source = fewer(source)
    execute(f"example_{page.parent.name}_{page.stem}", source, monkeypatch)


def execute(name: str, source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a text as a module; decorated functions find their source where `inspect` looks."""
    file = f"<{name}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    module = types.ModuleType(name)
    module.__file__ = file
    monkeypatch.setitem(sys.modules, name, module)
    exec(compile(source, file, "exec"), module.__dict__)


LONG = ("bench", "tune")
"""Commands of the README that are run elsewhere: they take minutes."""


def test_the_commands_of_the_readme_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    (written,) = FRAGMENT.findall(text)
    execute("readme_model", f"{BLOCK.findall(text)[0]}\n\n{written}", monkeypatch)
    (commands,) = re.findall(r"^```console\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    for line in commands.splitlines():
        verb, *words = shlex.split(line.removeprefix("$ plica "), comments=True)
        kinds = [word.partition(":")[0] for word in words if word.partition(":")[0] in TARGETS.own]
        if verb not in LONG and not any(backend_named(kind).missing() for kind in kinds):
            assert main([verb, *words]) == 0, line
    assert {"model.plica", "libmodel.so", "model.h"} <= {each.name for each in Path().iterdir()}


# --- what is not run: fragments, and code between words -------------------------------------------

FENCE = re.compile(r"^[ \t]*```[ \t]*(py\w*)", re.MULTILINE)
FRAGMENT = re.compile(r"^```py\n(.*?)^```$", re.DOTALL | re.MULTILINE)
SPAN = re.compile(r"(?<![`\w])`([^`\n]+)`(?!`)")
ROOTS: dict[str, object] = {"plica": plica, "op": plica.op}
EXECUTABLES = (Executable, CudaExecutable)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_block_is_run_or_is_a_fragment(page: Path) -> None:
    """```python is run, ```py is a fragment; nothing else, and none where nobody looks."""
    text = page.read_text(encoding="utf-8")
    assert len(FENCE.findall(text)) == len(BLOCK.findall(text)) + len(FRAGMENT.findall(text))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_calls_that_are_not_run_fit_their_signatures(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    outside = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    wrong = [
        f"{ast.unparse(call)}: {why}"
        for source in (*FRAGMENT.findall(text), *SPAN.findall(outside))
        for call in calls(source)
        if (why := misfit(call)) is not None
    ]
    assert wrong == []


def calls(source: str) -> list[ast.Call]:
    """The calls in a fragment; none where it is no Python by itself."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return []
    return [each for each in ast.walk(tree) if isinstance(each, ast.Call)]


def misfit(call: ast.Call) -> str | None:
    """How the arguments of a call miss the signature of what it calls, if that is known."""
    called = resolved(call.func)
    if not isinstance(called, types.FunctionType):
        return called if isinstance(called, str) else None
    own = ["self"] if ast.unparse(call.func).startswith("exe.") else []
    if any(isinstance(each, ast.Starred) for each in call.args) or ast.unparse(call).count("..."):
        return None
    names = {each.arg: "" for each in call.keywords if each.arg is not None}
    signature = inspect.signature(called)
    known = [each for each in signature.parameters.values() if each.annotation != "Never"]
    try:  # what takes any name, to say that it knows none, knows none
        bound = signature.replace(parameters=known).bind(
            *own, *map(ast.unparse, call.args), **names
        )
    except TypeError as error:
        return str(error)
    for name, value in bound.arguments.items():
        word = value.rpartition(".")[2] if isinstance(value, str) else ""
        if word != name and word in signature.parameters:
            return f"{value!r} is given for {name!r}"
    return None


def resolved(func: ast.expr) -> object:
    """What a dotted name of ours means; a text says that there is no such thing."""
    path = ast.unparse(func).split(".")
    if path[0] == "exe" and len(path) == 2:
        methods = [inspect.getattr_static(each, path[1], None) for each in EXECUTABLES]
        return next((each for each in methods if each is not None), f"there is no {'.'.join(path)}")
    if path[0] not in ROOTS or not all(each.isidentifier() for each in path) or len(path) < 2:
        return None
    found = ROOTS[path[0]]
    for at, each in enumerate(path[1:], 1):
        if isinstance(found, types.ModuleType) and not hasattr(found, each):
            with suppress(ImportError):
                importlib.import_module(f"{found.__name__}.{each}")
        if not hasattr(found, each):
            return f"there is no {'.'.join(path[: at + 1])}"
        found = getattr(found, each)
    return found


def test_a_call_that_does_not_fit_is_seen() -> None:
    for text in ("plica.from_text(source.text, source.constants)", "plica.compile(m, goal='cpu')",
                 "plica.nosuch(1)", "exe.save()"):  # fmt: skip
        (call,) = calls(text)
        assert misfit(call) is not None
    (call,) = calls("plica.from_text(source.text, constants=source.constants)")
    assert misfit(call) is None
