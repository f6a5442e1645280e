"""Error budgets: what was granted, declared and used; what used too much is named."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest
from attrs import evolve

from plica.bench.sample import sample
from plica.cli import main
from plica.cli.command import DIFFERS
from plica.codegen.llvm.processor import find_target
from plica.ir.contract import DEFAULT_CONTRACT, approx, exact, fused, reassociates
from plica.ir.graph.expression import Apply, const
from plica.ir.graph.module import Module
from plica.ir.passes import exact_pass
from plica.ir.type.infer import infer
from plica.pipeline import pipeline_of
from plica.report.budget import ErrorBudget, error_budget, within
from plica.report.study import StudiedModel, compiled
from plica.runtime.link import can_link
from tests.report.model import compiled_small, model_file, read_small

pytestmark = pytest.mark.skipif(not can_link(), reason="objects are not loaded here")


def budget(of: StudiedModel) -> ErrorBudget:
    return error_budget(of, sample(of.executable.inputs, {}, 0))


@cache
def usual() -> ErrorBudget:
    return budget(compiled_small("resnet18"))


def test_a_compile_uses_less_than_it_was_granted() -> None:
    found = usual()
    assert found.granted is DEFAULT_CONTRACT
    assert found.declared <= found.granted
    assert 0 < found.used <= found.granted.rel
    assert found.share == found.used / found.granted.rel
    assert not found.overspent
    assert {each.level for each in found.entries} == {"graph", "kernel"}
    assert any(each.declared is reassociates for each in found.entries if each.level == "kernel")
    assert str(found).startswith("granted approx(0.0001), declared ")


def test_exact_compiles_use_nothing() -> None:
    found = budget(compiled("mlp", read_small("mlp"), find_target("cpu"), contract=exact))
    assert found.declared is exact
    assert found.used == 0.0
    assert all(each.declared is exact and each.used == 0.0 for each in found.entries)


def scaled(module: Module) -> Module:
    main_of = module.main_function()
    body = Apply("multiply", (main_of.body, const(1.001, "f32")))
    changed = tuple([
        evolve(main_of, body=body) if each is main_of else each for each in module.values
    ])  # fmt: skip
    return infer(Module(module.names, changed, module.main))


def test_what_uses_more_than_it_declares_is_named() -> None:
    wrong = exact_pass("scale-outputs", "Scales the outputs.", scaled)
    pipeline = pipeline_of("cpu").insert(wrong, before="infer")
    of = compiled("mlp", read_small("mlp"), find_target("cpu"), pipeline=pipeline)
    found = budget(of)
    assert found.overspent == ("scale-outputs", "outputs")


def test_what_contracts_allow() -> None:
    assert within(0.0, exact)
    assert not within(1e-9, exact)
    assert within(1e-3, fused)
    assert within(1e-3, approx(1e-3))
    assert not within(2e-3, approx(1e-3))
    assert not within(float("inf"), reassociates)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = str(model_file("mlp", tmp_path))
    assert main(["budget", model, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["granted"] == "approx(0.0001)"
    assert not found["overspent"]
    assert main(["budget", model, "--contract", "exact"]) == 0
    assert capsys.readouterr().out.startswith("granted exact, declared exact, used 0.0e+00\n")
    assert main(["budget", model, "--contract", "approx(1e-12)"]) == DIFFERS
    assert "used more than it declares: outputs" in capsys.readouterr().out
