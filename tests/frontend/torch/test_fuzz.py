"""Random programs of torch: none differs from torch, and what is planted is found and small."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch")

import torch  # it may be missing

from plica.cli import main
from plica.cli.fuzz.torch import exported
from plica.frontend.torch.fuzz import fuzz
from plica.frontend.torch.fuzz.case import torch_case


def test_random_programs_give_what_torch_gives() -> None:
    report = fuzz({"plica.compile": exported}, 3, seed=4)
    assert report.finding is None, report.finding
    assert report.examples == 3


def test_a_case_is_the_same_for_the_same_seed() -> None:
    assert torch_case(5, 3).text() == torch_case(5, 3).text()
    assert torch_case(5, 3).text() != torch_case(5, 4).text()


def test_what_is_planted_is_found_and_made_small() -> None:
    """Every second element of the first result is lost."""

    def wrong(module: torch.nn.Module) -> Callable[..., Any]:
        def run(*inputs: torch.Tensor) -> Any:
            first, *rest = module(*inputs)
            changed = first.clone()
            if changed.dtype.is_floating_point:
                changed.flatten()[::2] += 100
            return (changed, *rest)

        return run

    found = fuzz({"plica.compile": wrong}, 20, seed=1).finding
    assert found is not None
    assert len(found.calls) <= 1
    assert "def test_program() -> None:" in found.pytest


def test_results_that_share_memory_must_share_it() -> None:
    def apart(module: torch.nn.Module) -> Callable[..., Any]:
        return lambda *inputs: tuple([each.clone() for each in module(*inputs)])

    found = fuzz({"torch.compile": apart}, 200, seed=6).finding
    assert found is not None
    assert "share memory" in found.reason


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["fuzz", "torch", "--examples", "2", "--seed", "4", "--way", "plica.compile"]
    assert main(asked) == 0
    assert "All give what torch gives." in capsys.readouterr().out
