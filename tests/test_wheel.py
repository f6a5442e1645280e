"""The wheel holds `plica` and `plica_lm`, and nothing else."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = {"plica", "plica_lm"}
LAYERS = ("core", "ir", "rewrite", "schedule", "codegen", "search")


def pip(*arguments: str | Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pip", "--no-input", *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built from this tree, without a network."""
    folder = tmp_path_factory.mktemp("wheel")
    pip("wheel", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", folder, ".")
    (made,) = folder.glob("*.whl")
    return made


def test_the_wheel_holds_the_packages_only(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == PACKAGES
    sources = {
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert sources == {name for name in names if name.split("/")[0] in PACKAGES}


def test_the_installed_package_brings_one_import_name(wheel: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    pip("install", "--no-compile", "--no-deps", "--no-index", "--target", site, wheel)
    code = f"""
import importlib, sys
sys.path.insert(0, {str(site)!r})
import plica
assert plica.__file__.startswith({str(site)!r}), plica.__file__
assert issubclass(plica.InputError, plica.PlicaError)
for layer in {LAYERS!r}:
    try:
        importlib.import_module(layer)
    except ModuleNotFoundError:
        continue
    raise SystemExit(layer + " can be imported")
"""
    # -S: without the site packages, where the tree itself may be installed for development.
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
