"""`plica fuzz stablehlo`: programs agree, and what is planted is found."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jax")

from plica.cli import main
from plica.frontend.stablehlo.fuzz import fuzz
from plica.frontend.stablehlo.fuzz.run import run


def test_programs_agree(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fuzz", "stablehlo", "--examples", "4", "--seed", "3", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["examples"] == 4
    assert report["finding"] is None
    assert report["operators"]


def test_another_meaning_is_found_and_made_small() -> None:
    def wrong(text: str, *arrays: Any) -> list[np.ndarray[Any, Any]]:
        found = run(text, *arrays)
        return [each + 1 for each in found] if "stablehlo.reduce" in text else found

    finding = fuzz(wrong, 40).finding
    assert finding is not None
    assert finding.guilty == "XLA"
    assert "op." in finding.pytest
    with pytest.raises(AssertionError):
        exec(finding.pytest.replace("import run", "import run as _") + "\ntest_stablehlo()",
             {"run": wrong})  # fmt: skip


def test_a_crash_is_a_finding() -> None:
    def dies(text: str, *arrays: Any) -> list[np.ndarray[Any, Any]]:
        raise RuntimeError("no such operation")

    finding = fuzz(dies, 1).finding
    assert finding is not None
    assert "RuntimeError: no such operation" in finding.reason
