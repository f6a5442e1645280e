"""The reference: every public name has an entry with an example, and the site has every page."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from plica.rewrite.packs import all_packs
from tests.report.browser import LOADED, Browser, installed
from tests.test_readme import BLOCK

ROOT = Path(__file__).parents[1]


def load(name: str) -> ModuleType:
    """A script of the docs as a module."""
    spec = importlib.util.spec_from_file_location(f"docs_{name}", ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


SITE = load("make_site")
NOTEBOOK = load("notebook")


@pytest.mark.parametrize("package", SITE.PACKAGES)
def test_every_public_name_has_an_entry_with_an_example(package: str) -> None:
    found = SITE.entries(package)
    assert [each.name for each in found] == list(sys.modules[package].__all__)
    assert [each.name for each in found if not each.doc] == []
    assert [each.name for each in found if not each.example] == []


def test_every_rule_has_its_kind_of_verdict() -> None:
    text = SITE.packs_page()
    for name, pack in all_packs().items():
        assert f"\n## {name}\n" in text
        for rule in pack:
            row = rf"^\| `{re.escape(rule.name)}` \|.*(proved|tested) \|$"
            assert re.search(row, text, re.MULTILINE)


def test_every_page_is_on_the_site(tmp_path: Path) -> None:
    SITE.write(tmp_path, run=False)
    nav = (tmp_path / "mkdocs.yml").read_text()
    pages = {path.relative_to(tmp_path / "pages").as_posix() for path in tmp_path.rglob("*.md")}
    assert pages == {*re.findall(r"[\w./-]+\.md", nav)}
    for path in (tmp_path / "pages").rglob("*.md"):
        for link in re.findall(r"\]\(([\w./-]+\.(?:md|png|svg))\)", path.read_text()):
            assert (path.parent / link).is_file(), (path.name, link)
    if importlib.util.find_spec("material") is None:
        pytest.skip("mkdocs-material is not installed: pip install 'plica[docs]'")
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "-q", "-f"]
    subprocess.run([*words, tmp_path / "mkdocs.yml"], check=True)
    for path in (tmp_path / "site").rglob("*.html"):
        assert not re.search(r'(src|href)="https?:[^"]*[.](js|css)', path.read_text()), path
    if installed() is None:
        pytest.skip("Chromium is not installed")
    with Browser(tmp_path) as browser:
        for name in ("index", "measured", "tutorial/rules"):
            browser.open((tmp_path / "site" / f"{name}.html").as_uri(), LOADED)
            broken = "[...document.images].filter((image) => !image.naturalWidth).length"
            assert browser.run(broken) == 0, name
        assert browser.errors == []


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / "tutorial").glob("*.md")))
def test_a_tutorial_as_a_notebook_has_the_code_that_is_run(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    cells = json.loads(NOTEBOOK.as_json(NOTEBOOK.cells(text)))["cells"]
    code = [cell["source"] + "\n" for cell in cells if cell["cell_type"] == "code"]
    assert code == BLOCK.findall(text)  # which `tests/test_readme.py` runs in order
    assert cells[0]["cell_type"] == "markdown"


def test_a_notebook_shows_what_its_cells_print_and_their_last_values() -> None:
    text = """# Sums

```python
from __future__ import annotations

class Sum:
    def _repr_html_(self) -> str:
        return "<b>3</b>"

print("three")
Sum()
```

```python
def f(x: not_evaluated): ...
1 + 1
```

```python
print("only printed")
```
"""
    page = NOTEBOOK.executed(NOTEBOOK.cells(text), "sums")
    assert [cell.printed for cell in page] == ["", "three\n", "", "only printed\n"]
    outputs = [cell.get("outputs") for cell in json.loads(NOTEBOOK.as_json(page))["cells"]]
    assert outputs[0] is None
    assert outputs[1][0] == {"output_type": "stream", "name": "stdout", "text": "three\n"}
    assert outputs[1][1]["data"]["text/html"] == "<b>3</b>"
    assert outputs[2][0]["data"] == {"text/plain": "2"}
    assert len(outputs[3]) == 1
    assert '<div class="output">\n<b>3</b>\n</div>' in NOTEBOOK.as_page(page)
    assert "sums" not in sys.modules


def test_a_tutorial_on_the_site_shows_its_outputs() -> None:
    text = (ROOT / "docs" / "tutorial" / "miscompilation.md").read_text(encoding="utf-8")
    page = NOTEBOOK.as_page(NOTEBOOK.executed(NOTEBOOK.cells(text), "tutorial"))
    assert "relu-of-sum, after" in page
    assert page.count("Output") == 4


def test_the_picture_is_what_the_command_draws() -> None:
    assert (ROOT / "docs" / "picture" / "pipeline.svg").read_text() == load("draw_pipeline").drawn()
