"""Impact: where rules, primitives and nodes ended up, and what the model is without a rule."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest

from plica.cli import main
from plica.codegen.program import kernel_name, launches
from plica.report.future import compared, without_rule
from plica.report.impact import assembly_of, impact, where, why
from plica.report.study import StudiedModel
from plica.runtime.error import InputError
from plica.runtime.link import can_link
from tests.report.model import compiled_small, model_file

pytestmark = pytest.mark.skipif(not can_link(), reason="objects are not loaded here")


@cache
def model() -> StudiedModel:
    return compiled_small("resnet18")


def rules() -> list[str]:
    steps = model().lowered.derivation.steps
    return list(dict.fromkeys([each.rule.name for each in steps if not each.rule.is_pass]))


def test_every_loop_and_store_has_an_origin() -> None:
    program = model().lowered.program
    for name in {kernel_name(each.kernel, program) for each in launches(program)}:
        assert all(each.blocks for each in why(model(), name).statements)
    kernels = [each for rule in rules() for each in impact(model(), rule).kernels]
    assert kernels
    assert all(each.blocks for kernel in kernels for each in kernel.statements)


def test_a_node_leads_to_its_kernels_and_assembly() -> None:
    node = next(name for names in model().nodes.values() for name in names if where(model(), name))
    (found, *_) = where(model(), node)
    assert node in found.nodes
    lines = assembly_of(model(), found)
    meant = {each.statement for each in found.statements}
    assert sum(each.statement in meant for each in lines) > len(lines) // 2


def test_only_kernels_that_list_a_rule_change_without_it() -> None:
    name = rules()[0]
    listed = {each.kernel for each in impact(model(), name).kernels}
    found = compared(model(), without_rule(model(), name))
    assert listed
    assert found.output <= 1e-4
    assert found.first.digest != found.other.digest
    assert set(found.gone) <= listed


def test_primitives_and_passes_have_an_impact() -> None:
    vectorised = impact(model(), "vectorize")
    assert not vectorised.steps
    assert all(each.loops for each in vectorised.kernels)
    assert impact(model(), "fuse").kernels
    with pytest.raises(InputError, match="vectorize"):
        impact(model(), "vectorise")


def test_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(model_file("dqn", tmp_path))
    assert main(["history", path, "--json"]) == 0
    steps = json.loads(capsys.readouterr().out)
    kernel = next(each["kernel"] for each in steps if each["kernel"])
    assert main(["history", path]) == 0
    assert f"{len(steps)} steps" in capsys.readouterr().out
    assert main(["history", path, "--kernel", kernel, "--asm"]) == 0
    assert "of out" in capsys.readouterr().out
    assert main(["history", path, "--first", "vectorized"]) == 0
    assert "schedule" in capsys.readouterr().out
    assert main(["history", path, "--step", "1"]) == 0
    assert "def main" in capsys.readouterr().out
    assert main(["impact", "vectorize", path, "--asm", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["kernels"][0]["instructions"] > 0
    assert main(["impact", "fuse", path, "--without"]) == 0
    assert "digest of the code" in capsys.readouterr().out
    assert main(["history", path, "--fork", "99999"]) == 1
