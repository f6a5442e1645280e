"""`examples/rulepack`: a library of rules, installed beside Plica, is found, checked and used."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "examples" / "rulepack"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which the example is installed, without a network."""
    folder = tmp_path_factory.mktemp("site")
    done = run(
        folder, "-m", "pip", "--no-input", "install", "--quiet", "--no-compile", "--no-deps",
        "--no-index", "--no-build-isolation", "--target", str(folder), str(EXAMPLE),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder


def run(site: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Python with the folder on its path."""
    path = os.pathsep.join([str(site), str(ROOT)])
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_pack_is_listed(site: Path) -> None:
    done = run(site, "-m", "plica", "rules", "list", "--json")
    assert done.returncode == 0, done.stderr
    (row,) = [each for each in json.loads(done.stdout) if each["name"] == "probability"]
    assert row["version"] == "1.0"
    assert "relu-of-softmax" in row["rules"]


def test_the_pack_is_checked(site: Path) -> None:
    done = run(site, "-m", "plica", "rules", "check", "probability", "--examples", "6", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert {each["verdict"] for each in json.loads(done.stdout)} == {"tested"}


def test_the_pack_rewrites_what_is_compiled(site: Path) -> None:
    """The tests that the library ships say so."""
    tests = str(EXAMPLE / "tests")
    done = run(
        site, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n0", "-k", "not holds",
        "--import-mode=importlib", "-c", os.devnull, "--rootdir", tests, tests,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_without_it_the_name_is_refused() -> None:
    done = run(ROOT, "-m", "plica", "rules", "check", "probability")
    assert done.returncode == 2
    assert "unknown-pack" in done.stderr
