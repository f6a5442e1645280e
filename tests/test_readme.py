"""The examples of the README and of the docs are run, in order, as one program each."""

from __future__ import annotations

import linecache
import re
import sys
import types
from pathlib import Path

import pytest

from plica.codegen.backend import TARGETS, backend_named
from plica.rewrite.check import run
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
    name = f"example_{page.parent.name}_{page.stem}"
    file = f"<{name}>"
    # Decorated functions read their own source, so it must be where `inspect` looks.
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    module = types.ModuleType(name)
    module.__file__ = file
    monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(instruction, "_kinds", dict(instruction.kinds()))  # a page may add some
    if PROFILE == "ci":  # rules of pages are tried, not climbed to the worst of their data
        monkeypatch.setattr(run, "CLIMBED", 0)
        source = fewer(source)
    exec(compile(source, file, "exec"), module.__dict__)
