"""The links in the root of the repository are for readers: none can be imported by its name."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LINKS = ("codegen", "core", "ir", "rewrite", "schedule", "search")


def test_the_root_shows_the_layers_and_no_other_link() -> None:
    assert tuple(sorted(path.name for path in ROOT.iterdir() if path.is_symlink())) == LINKS


@pytest.mark.parametrize("layer", LINKS)
def test_a_link_says_which_package_to_import(layer: str) -> None:
    words = f"'{layer}' is a layer of Plica: import plica.{layer} instead"
    with pytest.raises(ImportError, match=words):
        import_module(layer)
    assert layer not in sys.modules
    assert import_module(f"plica.{layer}").__name__ == f"plica.{layer}"


def test_a_module_of_a_link_cannot_be_imported_from_the_root() -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    line = [sys.executable, "-c", "from core.term import Term"]
    done = subprocess.run(
        line, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "import plica.core instead" in done.stderr
