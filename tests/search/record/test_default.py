"""Records that come with the package are taken on the machine they were measured on alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import plica
from plica.codegen.backend import backend_of, find_target
from plica.core.diagnostic import Malformed
from plica.ir.text.script import from_text
from plica.pipeline import option
from plica.rewrite.optimise import DEFAULT_CONTRACT
from plica.search.record.default import default_records
from plica.search.record.fingerprint import fingerprint
from plica.search.record.package import packed
from plica.search.record.record import record
from plica.search.target import tuning_of
from plica.search.task import TWICE, tasks


def package(folder: Path, threads: int) -> Path:
    """A package of this machine with the last schedule of a product."""
    here = find_target("cpu")
    target = backend_of(here).with_threads(here, threads)
    (task,) = tasks(from_text(TWICE), DEFAULT_CONTRACT, (), target)
    of = tuning_of(target).space
    assert of is not None
    space = of(task, target)
    point = space.defaults()[-1]
    form = space.sketches[point.sketch].name
    made = record(task.key, fingerprint(target), space.trace(point).to_json(), form, (1e-6,))
    path = folder / option.package_name(target)
    path.write_text(packed([made]), encoding="utf-8")
    return path


def test_a_package_of_this_machine_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package(tmp_path, 1)
    monkeypatch.setattr(option, "PACKAGES", tmp_path)
    module = from_text(TWICE)
    exe = plica.compile(module, threads=1, cache=False)
    assert "tuned" in exe.tuning
    x, y = np.random.default_rng(0).standard_normal((2, 8, 8)).astype(np.float32)
    assert np.allclose(exe(x, y), x @ y @ y, atol=1e-4)
    assert "tuned " not in plica.compile(module, threads=2, cache=False).tuning
    monkeypatch.setenv("PLICA_RECORDS", "off")
    assert "tuned " not in plica.compile(module, threads=1, cache=False).tuning


def test_a_damaged_package_is_told(tmp_path: Path) -> None:
    path = package(tmp_path, 1)
    path.write_text(path.read_text(encoding="utf-8") + "[]\n", encoding="utf-8")
    with pytest.raises(Malformed, match="no package"):
        default_records(path, "cpu")
