"""Fuzzing of open sizes finds nothing in what is here, and what is planted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import plica
from plica.cli import main
from plica.cli.fuzz.program import open_code
from plica.codegen.llvm.open import OpenRegions
from plica.codegen.llvm.writer import LlvmWriter
from plica.codegen.open_fuzz import fuzz
from plica.codegen.open_fuzz.case import Case, arrays_for, open_cases, with_names
from plica.codegen.open_fuzz.peer import MEANING
from plica.codegen.program import Launch
from plica.core.fold import post_order
from plica.ir.graph.expression import Apply
from plica.pipeline import compiled
from plica.rewrite.fuzz.driver import one_case
from plica.runtime.process import can_part
from tests.conftest import PROFILE

EXAMPLES = {"ci": 5, "dev": 150}.get(PROFILE, 2_000)


@pytest.fixture(autouse=True)
def _own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLICA_CACHE", str(tmp_path / "store"))


def first_dims(self: OpenRegions, w: LlvmWriter, step: Launch) -> list[str]:
    """A mistake: the dims of whichever kernel came first, by their names."""
    own = self.program.kernels[step.kernel].dims
    return [f"i64 {self._number(w, self.program.dims.index(dim))}" for dim in own]


def test_nothing_is_found() -> None:
    report = fuzz(open_code, EXAMPLES, seed=11, isolated=False)
    assert report.finding is None, report.finding
    assert report.examples == EXAMPLES
    assert report.number("compiled") >= 0.9 * EXAMPLES, report["refused"]
    assert report.number("runs") >= 3 * EXAMPLES
    assert {"2", "3", "4"} <= set(report["dims"])


def test_dims_by_the_names_of_another_kernel_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OpenRegions, "_sizes_given", first_dims)
    report = fuzz(open_code, 100, seed=5, most=3, renames=0, tries=8, isolated=False)
    assert report.finding is not None
    assert report.finding.kind in ("meaning", "crash")  # a wrong size may be refused at its use
    assert "SIZES = [" in report.finding.pytest


def test_a_store_that_ignores_names_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "names_of", lambda main: "")
    report = fuzz(open_code, 20, seed=5, tries=3, isolated=False)
    assert report.finding is not None
    assert report.finding.kind == "names"
    assert "are called" in report.finding.reason


@pytest.mark.skipif(not can_part(), reason="code that may be wrong runs apart")
def test_the_command_says_what_it_did(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fuzz", "open", "--examples", "3", "--seed", "2", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["examples"] == 3
    assert report["findings"] == []
    assert main(["fuzz", "open", "--examples", "1", "--seed", "2", "--first", "2"]) == 0
    assert "compute what they mean" in capsys.readouterr().out


def test_the_peer_knows_every_operator_that_is_drawn() -> None:
    seen: set[str] = set()

    def one(case: Case, counts: bool) -> None:
        body = case.module.main_function().body
        seen.update(node.op for node in post_order(body) if isinstance(node, Apply))

    for number in range(60):
        one_case(one, open_cases(), 3, number, AssertionError)
    assert seen <= set(MEANING)
    assert len(seen) > 20


def test_dims_take_the_names_of_one_another() -> None:
    module = plica.from_text(
        "import plica\n@plica.function\n"
        'def main(x: Tensor[("h", "w"), f32]):\n    return op.sum(x, axis=1)\n'
    )
    other = with_names(module, {"h": "w", "w": "h"})
    (param,) = other.main_function().params
    assert str(param.type) == 'Tensor[("w", "h"), f32]'
    assert [each.shape for each in arrays_for(other, {"w": 2, "h": 3})] == [(2, 3)]
