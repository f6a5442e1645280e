"""The site of the documentation: `python -m docs.make_site FOLDER` writes what mkdocs builds.

The pages of `docs/` are taken as they are; the reference is made from the public names and their
docstrings, each with an example that some test runs: a doctest of its own, of its module, or a
block of a page.
"""

from __future__ import annotations

import inspect
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from docs.notebook import as_json, as_page, cells, executed

ROOT: Final = Path(__file__).resolve().parents[1]
PACKAGES: Final = ("plica", "plica.rewrite", "plica.schedule", "plica.script", "plica.training")
BLOCK: Final = re.compile(r"^```(?:python|py)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
OUTSIDE: Final = re.compile(r"\((?:\.\./)*(README|CHANGELOG|CONTRIBUTING)\.md\)")
"""Links to the pages that stand beside `docs/`."""
BESIDE: Final = {
    "README": "index.md",
    "CHANGELOG": "changelog.md",
    "CONTRIBUTING": "contributing.md",
}
"""What those are on the site: it opens with the README; the list of pages is `all.md`."""
NEAR: Final = 4
"""Lines of a page's example that are shown before and after the one with the name."""

NAV: Final = """\
site_name: Plica
site_description: A deep-learning compiler in pure-functional Python
docs_dir: pages
site_dir: site
use_directory_urls: false
theme:
  name: material
  font: false
  features: [navigation.sections, navigation.top, search.highlight, content.code.copy]
  palette:
    - media: "(prefers-color-scheme: light)"
      scheme: default
      toggle: {icon: material/weather-night, name: Dark}
    - media: "(prefers-color-scheme: dark)"
      scheme: slate
      toggle: {icon: material/weather-sunny, name: Light}
extra:
  polyfills: [script/iframe-worker.js]
plugins: [search, offline]
markdown_extensions: [admonition, tables, toc, pymdownx.highlight, pymdownx.superfences]
validation: {links: {not_found: warn, anchors: warn}}
nav:
  - Get started: index.md
  - All pages: all.md
  - Tutorials:
      - A rule pack: tutorial/rules.md
      - A proved rule and a refuted one: tutorial/prove.md
      - Schedule a matmul by hand: tutorial/schedule.md
      - Find a miscompilation: tutorial/miscompilation.md
      - From a model to a C program: tutorial/deploy.md
      - A new target: tutorial/target.md
      - A language model: tutorial/language_model.md
  - How to use models:
      - ONNX: onnx.md
      - PyTorch: torch.md
      - StableHLO: stablehlo.md
      - TFLite: tflite.md
      - Language models: lm.md
      - Dynamic shapes: open.md
      - Data types and recursion: dynamic.md
      - Many devices: mesh.md
      - Quantisation: quantise.md
      - Gradients: gradient.md
      - Training: training.md
      - Deployment: deploy.md
  - How to write rules and schedules:
      - Rules: rules.md
      - Schedules: schedule.md
      - Search: search.md
      - Measurement and the device pool: pool.md
      - Extensions: extend.md
      - External code generators: external.md
      - Cookbook: cookbook.md
  - How to use targets:
      - GPUs: gpu.md
      - Accelerators: accel.md
      - C99: c.md
      - Microcontrollers: micro.md
      - WebAssembly: wasm.md
      - WebGPU: webgpu.md
      - OpenCL: opencl.md
      - SPIR-V: spirv.md
      - AMD GPUs: rocm.md
      - Apple GPUs: metal.md
  - Tools:
      - The command line: cli.md
      - The explorer: explore.md
      - Gallery: gallery.md
  - Reference:
      - The graph language: language.md
      - Operators: operators.md
      - Primitives: primitives.md
      - Rule packs: reference/packs.md
@REFERENCE@
      - Error codes: errors.md
      - Stability: stable.md
      - Glossary: glossary.md
  - Explanations:
      - How it works, from scratch: how.md
      - Graph optimisation: optimise.md
      - Pipelines of passes: passes.md
      - The machine model: machine.md
  - Results:
      - Results: measured.md
      - Features: features.md
      - Changelog: changelog.md
  - Contributing: contributing.md
"""


NOTES: Final = {
    "__version__": "The version of Plica, by semantic versioning.",
    "Driving": "How a pack is driven over a term: a function from a pack to a strategy.",
    "Strategy": "Where and when rules run: a function from a term to a `Rewritten`, or to None.",
    "Tensor": 'The type of a tensor in a script: `Tensor[(2, "n"), f32]`.',
    "Buffer": 'The type of a buffer of a kernel: `Buffer[(16, 16), f32, "local"]`.',
    "Fn": "The type of a function in a script: `Fn[(f32,), f32]`.",
}
"""What values say that have no docstrings of their own."""


@dataclass(frozen=True)
class Entry:
    """A public name: what it is, what it says of itself, and an example with where that is run."""

    package: str
    name: str
    signature: str
    doc: str
    example: str
    where: str

    def text(self) -> str:
        """The entry in Markdown."""
        example = f"\n```py\n{self.example}\n```\n\n*{self.where}*\n" if self.example else ""
        return (
            f"## {self.name}\n\n`{self.package}.{self.name}{self.signature}`"
            f"\n\n{self.doc}\n{example}"
        )


def entries(package: str) -> list[Entry]:
    """Every public name of a package."""
    module = import_module(package)
    pages = list(page_blocks())
    return [_entry(package, name, getattr(module, name), pages) for name in module.__all__]


def page_blocks() -> Iterator[tuple[str, list[str]]]:
    """The lines of Python on each page that the tests run."""
    for path in sorted([*ROOT.glob("docs/**/*.md"), ROOT / "README.md"]):
        text = path.read_text(encoding="utf-8")
        lines = [line for block in BLOCK.findall(text) for line in (*block.splitlines(), "")]
        if lines:
            yield path.relative_to(ROOT).as_posix(), lines


def _entry(package: str, name: str, value: Any, pages: list[tuple[str, list[str]]]) -> Entry:
    doc = inspect.getdoc(value) or ""
    if (not callable(value) and not inspect.ismodule(value)) or name in NOTES:
        doc = NOTES.get(name) or said_of(value)  # that of its class says nothing of it
    prose, own = _apart(doc)
    module = sys.modules.get(getattr(value, "__module__", "") or "")
    example, where = own, f"a doctest of `{package}.{name}`" if own else ""
    if not example and module is not None and not inspect.ismodule(value):
        _, theirs = _apart(module.__doc__ or "")
        if _mentions(theirs.splitlines(), name):
            example, where = theirs, f"a doctest of `{module.__name__}`"
    if not example:
        example, where = _from_pages(name, pages)
    return Entry(package, name, _signature(value), prose, example, where)


def said_of(value: Any) -> str:
    """What is said of a contract or a dtype."""
    from plica.ir.contract import Contract
    from plica.ir.type.dtype import DType

    if isinstance(value, DType):
        kind = "float" if value.is_float else "integer" if value.is_integer else "truth value"
        return f"A dtype: a {kind} of {value.bits} bits."
    if isinstance(value, Contract):
        return f"The float contract `{value}`; contracts are ordered from exact on."
    return ""


def _apart(doc: str) -> tuple[str, str]:
    """The prose of a docstring, and its doctests."""
    lines = inspect.cleandoc(doc).splitlines()
    at = next((n for n, line in enumerate(lines) if line.startswith(">>>")), None)
    if at is None:
        return "\n".join(lines), ""
    tests: list[str] = []
    rest: list[str] = []
    inside = False  # a doctest and what it prints end with an empty line
    for line in lines[at:]:
        inside = line.startswith((">>>", "...")) or (inside and bool(line.strip()))
        (tests if inside else rest).append(line)
    return "\n".join((*lines[:at], *rest)).strip(), "\n".join(tests)


def _mentions(lines: list[str], name: str) -> bool:
    word = re.compile(rf"\b{re.escape(name)}\b")
    return any(line.startswith((">>>", "...")) and word.search(line) for line in lines)


def _from_pages(name: str, pages: list[tuple[str, list[str]]]) -> tuple[str, str]:
    """The lines around the first use of a name on a page; imports come last."""
    word = re.compile(rf"(?<![\w\"']){re.escape(name)}\b")
    found: tuple[str, str] = ("", "")
    for path, lines in pages:
        for at, line in enumerate(lines):
            if not word.search(line.split("#")[0]):
                continue
            imported = line.lstrip().startswith(("from ", "import ")) or line.endswith(",")
            start = max(0, at - NEAR)
            while start < at and (not lines[start].strip() or lines[start].startswith(" ")):
                start += 1
            shown = "\n".join(lines[start : at + NEAR]).strip("\n")
            if not imported:
                return shown, path
            found = found if found[0] else (shown, path)
    return found


def _signature(value: Any) -> str:
    if inspect.isclass(value) or not callable(value):
        return ""
    try:
        return str(inspect.signature(value))
    except (TypeError, ValueError):
        return ""


def packs_page() -> str:
    """Every rule pack that comes with Plica: each rule, its contract, and what a check can say."""
    from plica.rewrite.packs import all_packs

    parts = [
        "# Rule packs\n\nWhat `plica rules check PACK` can say of a rule: *proved* where both "
        "sides are index terms, *tested* on generated instances where not.\n"
    ]
    for name, pack in sorted(all_packs().items()):
        parts.append(
            f"\n## {name}\n\n{pack.doc}\n\nVersion {pack.version}, contract {pack.contract}.\n"
        )
        parts.append("\n| rule | contract | right side | verdict |\n| --- | --- | --- | --- |")
        for rule in pack:
            side = "computed" if rule.computed else "a term"
            parts.append(f"| `{rule.name}` | {rule.contract} | {side} | {verdict_kind(rule)} |")
    return "\n".join(parts) + "\n"


def verdict_kind(rule: Any) -> str:
    """Which verdict a check of a rule can give at best."""
    from plica.ir.loop.scalar import Scalar

    return "proved" if isinstance(rule.left, Scalar) and not rule.computed else "tested"


def write(folder: Path, *, run: bool = True) -> None:
    """Write the sources of the site; tutorials show the outputs of a run."""
    pages = folder / "pages"
    shutil.rmtree(pages, ignore_errors=True)
    shutil.copytree(ROOT / "docs", pages, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    (pages / "index.md").rename(pages / "all.md")
    for name, page in BESIDE.items():
        text = (
            (ROOT / f"{name}.md").read_text(encoding="utf-8").replace("(docs/index.md", "(all.md")
        )
        (pages / page).write_text(text.replace("(docs/", "("), encoding="utf-8")
    for path in pages.rglob("*.md"):
        text = path.read_text(encoding="utf-8")
        text = OUTSIDE.sub(lambda found: f"({BESIDE[found[1]]})", text)
        path.write_text(text, encoding="utf-8")
    for path in sorted((pages / "tutorial").glob("*.md")):
        tutorial = cells(path.read_text(encoding="utf-8"))
        if run:
            tutorial = executed(tutorial, f"tutorial_{path.stem}")
        path.with_suffix(".ipynb").write_text(as_json(tutorial), encoding="utf-8")
        title, _, rest = as_page(tutorial).partition("\n")
        link = f"[This page as a notebook]({path.stem}.ipynb)"
        path.write_text(f"{title}\n\n{link}\n{rest}", encoding="utf-8")
    reference = pages / "reference"
    reference.mkdir()
    rows = []
    for package in PACKAGES:
        text = f"# {package}\n\n{_apart(import_module(package).__doc__ or '')[0]}\n\n"
        text += "\n".join(each.text() for each in entries(package))
        (reference / f"{package}.md").write_text(text, encoding="utf-8")
        rows.append(f"      - {package}: reference/{package}.md")
    (reference / "packs.md").write_text(packs_page(), encoding="utf-8")
    (folder / "mkdocs.yml").write_text(
        NAV.replace("@REFERENCE@", "\n".join(rows)), encoding="utf-8"
    )


if __name__ == "__main__":
    write(Path(sys.argv[1]))
