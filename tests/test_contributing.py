"""CONTRIBUTING is true: its package is written, installed and tried, and its files exist."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.conftest import PROFILE
from tests.deep import fewer

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "CONTRIBUTING.md").read_text()
FILE = re.compile(r"^```python\n# (acme/\w+\.py)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
TRIAL = re.compile(r"^```python\n# try: ([\w ]+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
TOML = re.compile(r"^```toml\n(.*?)^```$", re.DOTALL | re.MULTILINE)
PATH = re.compile(r"`((?:plica|tests|docs)/[\w/]+(?:\.\w+)?/?)`")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the package of the page is installed."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "acme").mkdir()
    (folder / "acme" / "__init__.py").touch()
    for name, text in FILE.findall(PAGE):
        (folder / name).write_text(text)
    (told,) = TOML.findall(PAGE)
    points = tomllib.loads(told)["project"]["entry-points"]
    info = folder / "acme-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    lines = [
        line
        for group, of in points.items()
        for line in (f"[{group}]", *[f"{name} = {value}" for name, value in of.items()])
    ]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    return folder


def test_every_recipe_of_a_library_works(site: Path) -> None:
    trials = TRIAL.findall(PAGE)
    kinds = [
        "rule",
        "form",
        "pass",
        "operator",
        "primitive",
        "schedule rule",
        "target",
        "accelerator",
    ]
    assert [name for name, _ in trials] == kinds
    said = [f"{text}\nprint({name!r})\n" for name, text in trials]
    whole = "\n".join(said)
    (site / "trial.py").write_text(fewer(whole) if PROFILE == "ci" else whole)
    done = subprocess.run(
        [sys.executable, "trial.py"],
        cwd=site,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(site), str(ROOT)]),
             "PLICA_CACHE": "off"},
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.split("\n")[:-1] == kinds


def test_every_file_of_the_package_is_used(site: Path) -> None:
    (told,) = TOML.findall(PAGE)
    for name, _ in FILE.findall(PAGE):
        module = name.removesuffix(".py").replace("/", ".")
        assert module in told or f"from {module} import" in PAGE


def test_files_that_are_named_exist() -> None:
    named = {each.group(1) for each in PATH.finditer(PAGE)}
    assert len(named) > 20
    assert [each for each in sorted(named) if not (ROOT / each).exists()] == []
