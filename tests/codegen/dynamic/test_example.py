"""The examples of dynamic programs give what the interpreter gives."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any, Final

import pytest

import plica
from plica.runtime.dynamic.executable import DynamicExecutable
from tests.codegen.dynamic.agree import agree

FOLDER: Final = Path(__file__).parents[3] / "examples"
NAMES: Final = ("decode", "list_rnn", "map_closures", "tree_lstm")


@pytest.mark.parametrize("name", NAMES)
def test_an_example(name: str) -> None:
    found: dict[str, Any] = runpy.run_path(str(FOLDER / f"{name}.py"))
    network = found["network"]
    exe = plica.compile(network)
    assert isinstance(exe, DynamicExecutable)
    for case in found["CASES"]:
        agree(exe, network.module, *case, tolerance=1e-4)
