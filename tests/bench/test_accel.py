"""`benchmarks/accel.py` refuses what it cannot do before the work."""

from __future__ import annotations

import argparse
import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "accel.py"


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    spec = importlib.util.spec_from_file_location("benchmark_accel", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("word", "text"),
    [
        ("layers_of", "C2,C99"),
        ("counted", "-1"),
        ("counted", "0"),
        ("target_named", "nosuch"),
        ("target_named", "accel:nosuch"),
    ],
)
def test_an_option_that_means_nothing_is_refused(
    benchmark: ModuleType, word: str, text: str
) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        getattr(benchmark, word)(text)


def test_a_folder_that_cannot_be_written_is_refused(benchmark: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(argparse.ArgumentTypeError, match="cannot be written to"):
        benchmark.folder(str(tmp_path / "file" / "page"))
    assert benchmark.folder(str(tmp_path / "page")).is_dir()


def test_what_is_right_is_taken(benchmark: ModuleType) -> None:
    assert benchmark.layers_of("C2,C9") == ["C2", "C9"]
    assert benchmark.counted("50") == 50
    assert benchmark.target_named("accel") == "accel"
