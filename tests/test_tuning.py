"""plica.tune: records that compile uses, a run that goes on, and what is refused."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import plica
from plica.cli import main
from plica.core.deadline import check_deadline
from plica.runtime.cuda.driver import DeviceError, why_not
from plica.runtime.executable import Executable
from plica.runtime.link import architecture
from plica.search.record import Database
from plica.search.sketch.variant import PRODUCT
from plica.search.tuned import TuneOptions
from plica.tuning import RESERVED_COMPILES, _with_time_for, written_kernel
from tests.schedule.kernel import matmul
from tests.search.work import multiplied

SOURCE = """
import plica
from plica import op
from plica.script import Tensor, f32

@plica.function
def main(x: Tensor[(32, 32), f32], w: Tensor[(32, 32), f32]) -> Tensor[(32, 32), f32]:
    return op.matmul(x, w)
"""


def test_the_command_line_tunes_and_compiles(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, path = tmp_path / "m.py", tmp_path / "tune.db"
    model.write_text(SOURCE, encoding="utf-8")
    page = tmp_path / "curves.html"
    asked = ["--trials", "2", "--threads", "1", "--policy", "random", "--quiet"]
    assert main(["tune", str(model), "--db", str(path), *asked, "--report", str(page)]) == 0
    assert "matmul" in capsys.readouterr().out
    assert "<svg" in page.read_text(encoding="utf-8")
    assert main(["tune", str(model), "--db", str(path), *asked, "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["kernels"]
    assert (row["kernel"], row["times"], row["trials"]) == ("matmul", 1, 2)
    assert 0 < row["best"] < 1
    with Database(path) as database:
        assert len([each for each in database if not each.policy.endswith("/final")]) == 2
    out = tmp_path / "m.plica"
    asked = ["--db", str(path), "--threads", "1", "-o", str(out)]
    assert main(["compile", str(model), *asked]) == 0
    assert "tuned" in capsys.readouterr().out
    x = np.random.default_rng(0).integers(-3, 4, (32, 32)).astype(np.float32)
    np.testing.assert_array_equal(plica.load(out)(x, x), x @ x)
    other = "aarch64" if architecture() != "aarch64" else "x86_64"
    cross = ["--target", f"{other}-unknown-linux-gnu", "--threads", "1", "-o", str(out)]
    assert main(["compile", str(model), *cross, "--db", str(path)]) == 0
    assert "for another machine" in capsys.readouterr().out
    assert main(["compile", str(model), *cross, "--tune", "2"]) == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"trials": 0}, "at least 1"),
        ({"trials": True}, "at least 1"),
        ({"policy": "luck"}, "luck"),
        ({"policy": 5}, "by its name"),
        ({"seed": "one"}, "64 bits"),
        ({"seed": 1 << 63}, "64 bits"),
        ({"seconds": 0}, "more than 0"),
        ({"seconds": float("nan")}, "more than 0"),
        ({"seconds": "long"}, "more than 0"),
        ({"threads": 0}, "number of threads"),
        ({"threads": "2"}, "number of threads"),
        ({"packs": 5}, "no rule packs"),
        ({"trials": 0, "seed": 0.5}, "2 errors"),
    ],
)
def test_what_makes_no_sense_is_refused(
    options: dict[str, Any], words: str, tmp_path: Path
) -> None:
    given = {"trials": 1, "database": tmp_path / "tune.db", "progress": False, **options}
    with pytest.raises(plica.PlicaError, match=words):
        plica.tune(multiplied(16), "cpu", **given)


def test_a_model_with_open_sizes_is_refused(tmp_path: Path) -> None:
    module = plica.from_text(
        SOURCE.replace("x: Tensor[(32, 32)", 'x: Tensor[("n", 32)').replace(
            "-> Tensor[(32, 32)", '-> Tensor[("n", 32)'
        )
    )
    with pytest.raises(plica.UnsupportedError, match="open sizes"):
        plica.tune(module, "cpu", 1, tmp_path / "tune.db")


@pytest.mark.skipif(why_not() is None, reason="there is a GPU")
def test_without_a_gpu_tuning_for_one_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match=r"no NVIDIA driver|no GPU"):
        plica.tune(multiplied(16), "cuda", 1, tmp_path / "tune.db")


def test_a_pool_has_no_gpus(tmp_path: Path) -> None:
    with pytest.raises(plica.UnsupportedError, match="pool are processors"):
        plica.tune(multiplied(16), "cuda", 1, tmp_path / "tune.db", pool="tcp://localhost:1")


def test_a_kernel_is_found_where_it_is_all_there_is() -> None:
    kernel = matmul(4, 4, 4)
    assert written_kernel(kernel) == ("kernel", kernel)
    assert written_kernel(plica.from_text(PRODUCT)) is not None
    both = plica.from_text(PRODUCT + PRODUCT.replace("def ", "def other_"))
    found = written_kernel(both)
    assert found is not None
    assert found[0].startswith("other_")  # the last is the main one
    assert written_kernel(multiplied(16)) is None
    assert written_kernel("model.onnx") is None


def test_the_untuned_program_is_compiled_only_where_that_takes_little_of_the_time() -> None:
    def endless() -> Executable:
        while True:
            check_deadline()
            time.sleep(0.01)

    start = time.monotonic()
    how, untuned, holds = _with_time_for(endless, TuneOptions(8, 0, False, "random", 4.0))
    took = time.monotonic() - start
    assert took < 2.0
    assert (untuned, holds) == (None, False)
    assert how.seconds is not None
    assert 2.0 < how.seconds <= 4.0 - 4.0 / (2 * RESERVED_COMPILES)
