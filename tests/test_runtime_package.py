"""`plica-runtime`: the files of `plica.runtime` as a distribution of their own, beside `plica`."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

import plica
from tests.test_wheel import ROOT, pip

LIMIT = 1_000_000
"""Bytes that it may take on a disk."""

RUN = """
import sys
import numpy as np
import plica_runtime
x = np.arange(3, dtype="f4")
exe = plica_runtime.load(sys.argv[1])
assert np.array_equal(exe(x), x + 1), exe(x)
assert plica_runtime.time(exe, x, rounds=1).min > 0
try:
    exe(np.zeros(4, "f4"))
except plica_runtime.InputError as error:
    assert "x" in str(error)
else:
    raise SystemExit("a wrong size was taken")
assert not any(name == "plica" or name.startswith("plica.") for name in sys.modules)
print(plica_runtime.__version__)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its wheel, built from this tree without a network."""
    folder = tmp_path_factory.mktemp("runtime")
    source = ROOT / "packaging" / "runtime"
    pip("wheel", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", folder, source)
    (made,) = folder.glob("plica_runtime-*.whl")
    return made


@pytest.fixture(scope="module")
def artefact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("artefact") / "m.plica"
    text = "@plica.function\ndef main(x: Tensor[(3,), f32]):\n    return x + 1.0\n"
    plica.compile(plica.from_text(text), cache=False).save(path)
    return path


def run(python: str | Path, code: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(python), "-c", code, *map(str, arguments)],
        cwd=ROOT.parent, capture_output=True, text=True, check=False,
        env={"PYTHONSAFEPATH": "1", "PYTHONDONTWRITEBYTECODE": "1"},
    )  # fmt: skip


def test_it_runs_artefacts_with_numpy_alone(wheel: Path, artefact: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
        assert sum(each.file_size for each in archive.infolist()) < LIMIT
    tops = {path.name for path in tmp_path.iterdir() if path.suffix != ".dist-info"}
    assert tops == {"plica_runtime"}
    needs = [
        line
        for path in tmp_path.glob("*.dist-info/METADATA")
        for line in path.read_text().splitlines()
        if line.startswith("Requires-Dist")
    ]
    assert needs == ["Requires-Dist: numpy>=2.0"]
    # -S: numpy is found by its folder, and nothing is that stands beside it by a .pth file.
    code = f"import sys; sys.path[:0] = {[str(tmp_path), str(Path(np.__file__).parents[1])]!r}\n"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code + RUN, artefact],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == plica.__version__


@pytest.mark.slow
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("removed", [0, 1])
def test_both_in_either_order_and_one_removed(
    wheel: Path, artefact: Path, tmp_path: Path, order: tuple[int, int], removed: int
) -> None:
    folder = tmp_path / "wheel"
    pip("wheel", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", folder, ROOT)
    both = [next(folder.glob("plica-*.whl")), wheel]
    home = tmp_path / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True)
    python = home / "bin" / "python"
    (site,) = home.glob("lib/python3*/site-packages")
    # What both need comes from the environment of the tests, without what is installed by .pth.
    code = f"import sys; sys.path.append({str(Path(np.__file__).parents[1])!r})\n"
    for number in order:
        pip("--python", python, "install", "--no-deps", "--no-index", both[number])
    checks = [
        code + f"import plica; assert plica.__file__.startswith({str(site)!r})\n"
        "import sys; plica.load(sys.argv[1])",
        code + RUN,
    ]
    for check in checks:
        done = run(python, check, artefact)
        assert done.returncode == 0, done.stderr
    pip("--python", python, "uninstall", "--yes", ("plica", "plica-runtime")[removed])
    names = {path.name for path in site.iterdir()}
    assert ("plica", "plica_runtime")[removed] not in names
    kept = run(python, checks[1 - removed], artefact)
    assert kept.returncode == 0, kept.stderr
